"""Which columns of a table are the matrix, which one is the labels, and which are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from streamdr.data.ingest.table import Options, some
from streamdr.errors import ConfigError, DataError, InputError

_INDEX_NAMES = frozenset(
    ("index", "level_0", "id", "idx", "no", "nr", "row", "rowid", "row_id", "row_number", "rownames")
)
"""What a column that numbers the rows is often called."""
_MADE_UP = ("Unnamed: ", "__index_level_")
"""How the names begin that pandas gives to columns without one."""


class Columns(NamedTuple):
    """Positions of columns, and the names of those that were left out without being named."""

    used: list[int]
    labels: int | None
    left_out: tuple[str, ...]
    remarks: tuple[str, ...]
    """What a person should know about the choice, a sentence each."""


def leading_unnamed(names: Sequence[str]) -> int:
    """How many columns come before the first with a name of its own: the index of a data frame, in a file."""
    return next((i for i, name in enumerate(names) if name and not name.startswith(_MADE_UP)), 0)


def choose_columns(
    source: Path,
    names: Sequence[str] | None,
    n_columns: int,
    options: Options,
    *,
    is_number: Callable[[int], bool],
    is_index: Callable[[int], bool],
    counts_rows: Callable[[int], bool],
) -> Columns:
    """The columns that the options ask for; those that only say which row it is are left out by themselves.

    Parameters
    ----------
    source
        The file, for messages.
    names
        What the columns are called, if anything.
    n_columns
        How many there are.
    options
        What is asked for.
    is_number
        Whether a column holds numbers.
    is_index
        Whether the file says that a column is the index of a data frame, or a part of it.
    counts_rows
        Whether a column holds 0, 1, 2, ... or 1, 2, 3, ...
    """
    called = list(names) if names is not None else [str(i) for i in range(n_columns)]
    left_out: list[str] = []
    remarks: list[str] = []
    labels = None if options.labels is None else _position(source, called, options.labels, "labels")
    if options.columns is not None:
        used = [i for i in select_columns(source, called, options.columns) if i != labels]
    else:
        ignored = frozenset(options.ignored if names is not None else ())
        used = [i for i in range(n_columns) if i != labels and called[i] not in ignored]
        index = [i for i in used if is_index(i)]
        used = [i for i in used if not is_index(i)]
        if index:
            left_out += [called[i] for i in index]
            remarks.append(f"left out, since it is an index of rows: {some(left_out)}")
    for pattern in options.exclude or ():
        if not any(fnmatchcase(name, pattern) for name in called):
            raise InputError(
                "exclude",
                f"{source}: has no column {pattern!r} to exclude; it has {some(called)}",
                located=True,
            )
        used = [i for i in used if not fnmatchcase(called[i], pattern)]
        if not used:
            raise InputError(
                "exclude",
                f"{source}: excluding {pattern!r} leaves no column; it has {some(called)}",
                located=True,
            )
    if options.columns is None and options.expected is None and len(used) > 1 and counts_rows(used[0]):
        first = "the first column" if names is None else f"the column {called[used[0]]!r}"
        if names is not None and called[used[0]].lower() in _INDEX_NAMES:
            remarks.append(f"left out, since it only numbers the rows: {first}; `--columns` can keep it")
            left_out.append(called[used[0]])
            used = used[1:]
        else:
            remarks.append(
                f"{first} only numbers the rows; if that is no measurement, leave it out with "
                f"`--exclude {called[used[0]]}`"
            )
    if options.numeric_only:
        numbers = [is_number(i) for i in used]
        others = [called[i] for i, fine in zip(used, numbers, strict=True) if not fine]
        if others:
            remarks.append(f"left out, since they hold something else than numbers: {some(others)}")
            left_out += others
        used = [i for i, fine in zip(used, numbers, strict=True) if fine]
    if options.expected is not None:
        used = _as_before(source, called if names is not None else None, used, options.expected)
    if not used:
        raise DataError(f"{source}: no column of numbers is left; it has {some(called)}")
    return Columns(used, labels, tuple(left_out), tuple(remarks))


def select_columns(source: Path, names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """The positions of the wanted columns, in the order in which they were asked for."""
    if not wanted:
        raise ConfigError("columns is empty; name at least one, or leave it out to ingest all")
    return [_position(source, names, name, "columns") for name in wanted]


def _position(source: Path, names: Sequence[str], name: str, option: str) -> int:
    if name not in names:
        raise InputError(option, f"{source}: has no column {name!r}; it has {some(names)}", located=True)
    if names.count(name) > 1:
        raise DataError(f"{source}: has {names.count(name)} columns named {name!r}; rename all but one")
    return names.index(name)


def _as_before(
    source: Path, names: Sequence[str] | None, used: list[int], expected: Sequence[str]
) -> list[int]:
    """The columns in the order of a store that they are appended to, whose names they must have."""
    if names is None:
        return used  # without names they are taken in their order
    here = {names[i]: i for i in used}
    lacking = [name for name in expected if name not in here]
    if lacking:
        raise DataError(f"{source}: lacks the column {lacking[0]!r}, which the store has; append whole rows")
    known = frozenset(expected)
    more = [name for name in here if name not in known]
    if more:
        raise DataError(
            f"{source}: has the column {more[0]!r}, which the store has not; leave it out with `--exclude`, "
            "or ingest all rows anew"
        )
    if len(used) == len(here) == len(expected):
        return [here[name] for name in expected]
    if [names[i] for i in used] != list(expected):  # of those of one name it is not known which is which
        raise DataError(
            f"{source}: has columns of the same name, and not in the order of the store; rename them"
        )
    return used
