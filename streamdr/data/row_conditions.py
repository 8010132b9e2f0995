"""Conditions on rows: comparisons of coordinates, of columns and of a mask with given values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np

from streamdr.core.blocks import BLOCK_BYTES, Array, Span
from streamdr.data.labelled.selection import Labels
from streamdr.data.selected_rows import RowMask, SelectedRows
from streamdr.data.source import Source
from streamdr.errors import DataError, InputError, ParameterError

_COMPARISON = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(.*\S)\s*")
_PIECE_ROWS = 1 << 16
_KEY = "where"


class _Compared(NamedTuple):
    """One value per row, to be compared, and the column of the source that holds it."""

    labels: Labels
    column: int


def select_rows(source: Source, where: Mapping[str, Any], mask: Source | None = None) -> SelectedRows:
    """Return the rows that satisfy every condition, and that a mask selects.

    Parameters
    ----------
    source : Source
        All rows.
    where : mapping
        For names of coordinates of the samples, of columns beside the rows (`obs` of AnnData), or of columns
        of the data: a value, a list of values of which one must be there, or comparisons such as `">= 200"`
        and `">= 200 and < 5000"`. A missing value satisfies no condition but `!=`.
    mask : Source or None
        One value per row; rows where it is zero or false are left out.
    """
    compared = {name: _compared(source, name) for name in where}
    n_rows = source.spec.n_rows
    if mask is not None and (mask.spec.n_rows, mask.spec.n_cols) != (n_rows, 1):
        raise InputError(
            "row_mask",
            f"{mask.name}: {mask.spec.n_rows} x {mask.spec.n_cols} values for the {n_rows} rows of "
            f"{source.name}; one per row is needed",
        )

    def flags(rows: Span) -> Array:
        found = np.ones(len(rows), np.bool_)
        if mask is not None:
            found &= mask.read(rows, Span(0, 1))[:, 0] != 0
        for name, wanted in where.items():
            labels, column = compared[name]
            found &= _satisfied(labels.values.read(rows, Span(column, column + 1))[:, 0], labels, wanted)
        return found

    rows = RowMask(n_rows, (flags(span) for span in Span(0, n_rows).split(_piece_rows(source))))
    condition = " and ".join(described(where, None if mask is None else mask.name))
    if not len(rows):
        raise DataError(
            f"{source.name}: none of the {n_rows} rows satisfies {condition}; change the condition"
        )
    return SelectedRows(source, rows, condition)


def described(where: Mapping[str, Any], mask: str | None) -> list[str]:
    """Return the conditions for messages and names, one by one."""
    found = [] if mask is None else [mask]
    for name, wanted in where.items():
        if isinstance(wanted, list | tuple):
            found.append(f"{name} in {list(wanted)}")
        elif isinstance(wanted, str) and _COMPARISON.match(wanted):
            found.append(f"{name} {wanted.strip()}")
        else:
            found.append(f"{name} == {wanted!r}")
    return found


def _piece_rows(source: Source) -> int:
    """Return the rows that are looked at together: whole chunks, and a multiple of eight."""
    affordable = min(_PIECE_ROWS, max(1, BLOCK_BYTES // source.spec.line_bytes("rows")))
    chunk = source.chunks[0]
    rows = chunk * max(1, affordable // chunk)
    return -(-rows // 8) * 8


def _compared(source: Source, name: str) -> _Compared:
    """Return the values with a name: a coordinate of the samples, or a column beside them or of the data."""
    for one in source.sample_coords:
        if one.name == name:
            return _Compared(Labels.of(name, one.values, one.attributes), 0)
    if (column := source.column_beside(name)) is not None:
        return _Compared(Labels.of(name, column, {}), 0)
    names = source.feature_names or ()
    if name in names:
        return _Compared(Labels.of(name, source, {}), names.index(name))
    beside = () if source.sample_columns is None else source.sample_columns.names()
    known = [one.name for one in source.sample_coords] + [*beside, *names]
    near = get_close_matches(name, known, n=3) or known[:5]
    has = f"such as {', '.join(map(repr, near))}" if near else "it has neither"
    raise ParameterError(
        _KEY, f"{source.name}: no coordinate of its samples and no column is called {name!r} ({has})"
    )


def _satisfied(values: Array, labels: Labels, wanted: Any) -> Array:
    """Return which values satisfy one condition."""
    if isinstance(wanted, list | tuple):
        found = np.zeros(len(values), np.bool_)
        for each in wanted:
            found |= _compare("==", each, values, labels)
        return found
    if not isinstance(wanted, str) or not _COMPARISON.match(wanted):
        return _compare("==", wanted, values, labels)
    found = np.ones(len(values), np.bool_)
    for part in re.split(r"\s+and\s+", wanted):
        if (matched := _COMPARISON.fullmatch(part)) is None:
            raise ParameterError(_KEY, f"{labels.dim}: {part!r} is not a comparison, such as '>= 200'")
        operator, value = matched.groups()
        found &= _compare(operator, _parsed(value, labels), values, labels)
    return found


def _parsed(text: str, labels: Labels) -> Any:
    """Return the value that a comparison names: a number, or text and times as they are."""
    if labels.times is not None or labels.values.spec.dtype.kind == "U":
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
    except ValueError:
        raise ParameterError(_KEY, f"{labels.dim}: {text!r} is not a number, as its values are") from None


def _compare(operator: str, wanted: Any, values: Array, labels: Labels) -> Array:
    """Compare values with one value. A time is compared with the whole interval that a date names."""
    try:
        low, high, beyond = labels.interval(int(wanted) if isinstance(wanted, bool) else wanted)
    except ParameterError as error:
        raise ParameterError(_KEY, error.message) from error
    above = values >= high if beyond else values > high
    below = values < low
    known = values != "" if values.dtype.kind == "U" and wanted != "" else values == values
    found: Array
    match operator:
        case ">":
            found = above
        case ">=":
            found = ~below & known
        case "<":
            found = below & known
        case "<=":
            found = ~above & known
        case "==":
            found = ~(above | below) & known
        case _:
            found = above | below | ~known
    return found
