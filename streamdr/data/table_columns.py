"""Columns of tables, chosen by name or by pattern."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from streamdr.errors import DataError, InputError

_HAS_PATTERN = re.compile(r"[*?\[]")
_MAX_SHOWN = 8
KEY = "columns"


class OptionalColumn(str):
    """The name of a column that is taken if it is there and holds numbers, such as that of the labels."""

    __slots__ = ()


def with_labels(columns: Sequence[str] | None, label: object) -> tuple[str, ...] | None:
    """Return the columns of a table that are read: those asked for (None for all), and that of the labels."""
    wanted = None if columns is None else tuple(columns)
    if not isinstance(label, str):
        return wanted
    return (*(wanted or ()), OptionalColumn(label))


def asks_for_all(columns: Sequence[str]) -> bool:
    """Whether only the column of the labels is named: then all columns are read."""
    return all(isinstance(each, OptionalColumn) for each in columns)


def chosen_columns(
    names: Sequence[str], is_number: Sequence[bool], wanted: Sequence[str] | None, table: str
) -> list[int]:
    """Return the numbers of the columns that are wanted, in the order of the table.

    Parameters
    ----------
    names : sequence of str
        The names of all columns.
    is_number : sequence of bool
        Whether each holds numbers.
    wanted : sequence of str or None
        Names, which must be there, and patterns such as `gene_*` for columns of numbers; None for all, and
        also if only the column of the labels is named.
    table : str
        What errors call the table.
    """
    if wanted is None or asks_for_all(wanted):
        labels = {each for each in wanted or () if each in names and not is_number[names.index(each)]}
        found = {at for at, name in enumerate(names) if name not in labels}
    else:
        found = set().union(*(_matches(each, names, is_number, table) for each in wanted))
    others = [names[at] for at in sorted(found) if not is_number[at]]
    if others:
        advice = "choose others" if wanted is not None else "choose columns of numbers by name or pattern"
        raise DataError(
            f"{table}: the column{'s' if len(others) > 1 else ''} {listed(others)} hold"
            f"{'' if len(others) > 1 else 's'} something else than numbers; {advice} (with columns=, or "
            "input.columns in a configuration), or convert them"
        )
    return sorted(found)


def _matches(wanted: str, names: Sequence[str], is_number: Sequence[bool], table: str) -> list[int]:
    """Return the numbers of the columns that a name or a pattern stands for."""
    if wanted in names and not isinstance(wanted, OptionalColumn):
        return [names.index(wanted)]
    if isinstance(wanted, OptionalColumn):  # labels that are text are read beside the numbers
        return [at for at, name in enumerate(names) if name == wanted and is_number[at]]
    if _HAS_PATTERN.search(wanted):
        found = [at for at, name in enumerate(names) if is_number[at] and fnmatchcase(name, wanted)]
        if found:
            return found
        raise InputError(KEY, f"{table}: no column of numbers matches {wanted!r}; it has {listed(names)}")
    if f"{wanted}=" in table:
        raise InputError(
            KEY,
            f"{table}: has no column {wanted!r}: values in names of folders are not columns; leave it out",
        )
    near = get_close_matches(wanted, names, n=3) or names
    raise InputError(KEY, f"{table}: has no column {wanted!r}, but {listed(near)}")


def listed(names: Sequence[object]) -> str:
    """Return the first few names, for a message."""
    shown = ", ".join(repr(name) for name in names[:_MAX_SHOWN])
    return f"{shown} and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else shown
