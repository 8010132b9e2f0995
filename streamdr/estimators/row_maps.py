"""Maps of rows: applied block by block, with a check for overflow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamdr.core.blocks import BLOCK_BYTES, Array, Span
from streamdr.core.linalg import ignore_overflow
from streamdr.errors import DataError
from streamdr.estimators.lazy import RowMap


def as_column(function: Callable[[Array], Array]) -> RowMap:
    """Return a map to one column from a map to one value per row."""
    return lambda rows: function(rows)[:, None]


def row_blocks(n_rows: int, row_bytes: int) -> list[Span]:
    """Return the ranges of rows that make blocks of the usual size."""
    return list(Span(0, n_rows).split(max(1, BLOCK_BYTES // row_bytes)))


def in_blocks(function: RowMap, values: Array, n_outputs: int) -> Array:
    """Map rows block by block, so that the temporary arrays of the map stay small."""
    spans = row_blocks(len(values), max(1, values[:1].nbytes))
    if len(spans) == 1:
        return function(values)
    first = function(values[spans[0].slice])
    rows = np.empty((len(values), n_outputs), first.dtype)
    rows[spans[0].slice] = first
    for span in spans[1:]:
        rows[span.slice] = function(values[span.slice])
    return rows


def finite_map(function: RowMap, values: Array) -> Array:
    """Return the mapped rows. Refuse a result that is not finite for finite rows."""
    with ignore_overflow():
        rows = function(values)
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        before, after = (np.isfinite(each.reshape(len(each), -1)).all(axis=1) for each in (values, rows))
        if np.any(before & ~after):
            raise DataError(
                f"the mapped rows overflow {rows.dtype}; check that these rows are like those of the fit"
            )
    return rows
