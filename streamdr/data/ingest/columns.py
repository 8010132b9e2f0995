"""The choice of columns of a table: which form the matrix, which has the labels, which are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from streamdr.data.ingest.table import Options, listed
from streamdr.errors import ConfigError, DataError, InputError

_INDEX_NAMES = frozenset(
    ("index", "level_0", "id", "idx", "no", "nr", "row", "rowid", "row_id", "row_number", "rownames")
)
"""The usual names of columns that number the rows."""
_GENERATED_PREFIXES = ("Unnamed: ", "__index_level_")
"""The prefixes of names that pandas gives to columns without a name."""


class Columns(NamedTuple):
    """Positions of columns, and the names of those that were left out automatically."""

    used: list[int]
    labels: int | None
    left_out: tuple[str, ...]
    remarks: tuple[str, ...]
    """Messages for the user about the choice, one sentence each."""


def leading_unnamed(names: Sequence[str]) -> int:
    """Return the number of columns before the first named one: these are the index of a data frame."""
    return next((i for i, name in enumerate(names) if name and not name.startswith(_GENERATED_PREFIXES)), 0)


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
    """Return the columns that the options select. Columns that only number the rows are left out.

    Parameters
    ----------
    source
        The file, for messages.
    names
        The names of the columns, if they have names.
    n_columns
        The number of columns.
    options
        The options of the user.
    is_number
        Whether a column holds numbers.
    is_index
        Whether the file marks a column as the index of a data frame, or as a part of it.
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
            remarks.append(f"left out, since it is an index of rows: {listed(left_out)}")
    for pattern in options.exclude or ():
        if not any(fnmatchcase(name, pattern) for name in called):
            raise InputError(
                "exclude",
                f"{source}: has no column {pattern!r} to exclude; it has {listed(called)}",
                located=True,
            )
        used = [i for i in used if not fnmatchcase(called[i], pattern)]
        if not used:
            raise InputError(
                "exclude",
                f"{source}: excluding {pattern!r} leaves no column; it has {listed(called)}",
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
                f"{first} only numbers the rows; if it is not a measurement, leave it out with "
                f"`--exclude {called[used[0]]}`"
            )
    if options.numeric_only:
        numbers = [is_number(i) for i in used]
        others = [called[i] for i, numeric in zip(used, numbers, strict=True) if not numeric]
        if others:
            remarks.append(f"left out, since they hold something else than numbers: {listed(others)}")
            left_out += others
        used = [i for i, numeric in zip(used, numbers, strict=True) if numeric]
    if options.expected is not None:
        used = _in_stored_order(source, called if names is not None else None, used, options.expected)
    if not used:
        raise DataError(f"{source}: no column of numbers is left; it has {listed(called)}")
    return Columns(used, labels, tuple(left_out), tuple(remarks))


def select_columns(source: Path, names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the positions of the wanted columns, in the order of the request."""
    if not wanted:
        raise ConfigError("columns is empty; name at least one, or leave it out to ingest all")
    return [_position(source, names, name, "columns") for name in wanted]


def _position(source: Path, names: Sequence[str], name: str, option: str) -> int:
    """Return the position of the column with a name, which must be unique."""
    if name not in names:
        raise InputError(option, f"{source}: has no column {name!r}; it has {listed(names)}", located=True)
    if names.count(name) > 1:
        raise DataError(f"{source}: has {names.count(name)} columns named {name!r}; rename all but one")
    return names.index(name)


def _in_stored_order(
    source: Path, names: Sequence[str] | None, used: list[int], expected: Sequence[str]
) -> list[int]:
    """Return the columns in the order of the store that rows are appended to. All names must match."""
    if names is None:
        return used  # without names, the order of the file is used
    positions = {names[i]: i for i in used}
    lacking = [name for name in expected if name not in positions]
    if lacking:
        raise DataError(
            f"{source}: lacks the column {lacking[0]!r}, which the store has; append rows with all columns"
        )
    stored = frozenset(expected)
    more = [name for name in positions if name not in stored]
    if more:
        raise DataError(
            f"{source}: has the column {more[0]!r}, which the store does not have; leave it out with "
            "`--exclude`, or ingest all rows again"
        )
    if len(used) == len(positions) == len(expected):
        return [positions[name] for name in expected]
    if [names[i] for i in used] != list(expected):  # columns of the same name cannot be distinguished
        raise DataError(
            f"{source}: has columns of the same name, and not in the order of the store; rename them"
        )
    return used
