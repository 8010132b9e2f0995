"""Which columns of a table are the matrix, which one is the labels, and which are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from streamdr.errors import ConfigError, DataError
from streamdr.ingest.table import Options, some

_INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")
"""What pandas calls the column of a data frame's index in a file."""


class Columns(NamedTuple):
    """Positions of columns, and the names of those that were left out without being named."""

    used: list[int]
    labels: int | None
    left_out: tuple[str, ...]


def choose_columns(
    source: Path,
    names: Sequence[str] | None,
    n_columns: int,
    options: Options,
    *,
    is_number: Callable[[int], bool],
    is_row_number: Callable[[int], bool],
) -> Columns:
    """The columns that the options ask for; a column that only numbers the rows is left out by itself."""
    called = list(names) if names is not None else [str(i) for i in range(n_columns)]
    left_out: list[str] = []
    labels = None if options.labels is None else _position(source, called, options.labels)
    if options.columns is not None:
        used = [i for i in select_columns(source, called, options.columns) if i != labels]
    else:
        used = [i for i in range(n_columns) if i != labels]
        numbering = [i for i in used if called[i] in _INDEX_NAMES and is_row_number(i)]
        used = [i for i in used if i not in numbering]
        left_out += [called[i] for i in numbering]
    for pattern in options.exclude or ():
        if not any(fnmatchcase(name, pattern) for name in called):
            raise DataError(f"{source}: has no column {pattern!r} to exclude; it has {some(called)}")
        used = [i for i in used if not fnmatchcase(called[i], pattern)]
    if options.numeric_only:
        left_out += [called[i] for i in used if not is_number(i)]
        used = [i for i in used if is_number(i)]
    if options.expected is not None:
        used = _as_before(source, called if names is not None else None, used, options.expected)
    if not used:
        raise DataError(f"{source}: no column of numbers is left; it has {some(called)}")
    return Columns(used, labels, tuple(left_out))


def select_columns(source: Path, names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """The positions of the wanted columns, in the order in which they were asked for."""
    if not wanted:
        raise ConfigError("columns is empty; name at least one, or leave it out to ingest all")
    return [_position(source, names, name) for name in wanted]


def _position(source: Path, names: Sequence[str], name: str) -> int:
    if name not in names:
        raise DataError(f"{source}: has no column {name!r}; it has {some(names)}")
    if names.count(name) > 1:
        raise DataError(f"{source}: has {names.count(name)} columns named {name!r}; rename all but one")
    return names.index(name)


def _as_before(
    source: Path, names: Sequence[str] | None, used: list[int], expected: Sequence[str]
) -> list[int]:
    """The columns in the order of a store that they are appended to, whose names they must have."""
    if names is None:
        return used  # without names they are taken in their order
    here = [names[i] for i in used]
    lacking = [name for name in expected if name not in here]
    if lacking:
        raise DataError(f"{source}: lacks the column {lacking[0]!r}, which the store has; append whole rows")
    more = [name for name in here if name not in expected]
    if more:
        raise DataError(
            f"{source}: has the column {more[0]!r}, which the store has not; leave it out with `exclude`, or "
            "ingest all rows anew"
        )
    return [used[here.index(name)] for name in expected]
