"""Maps of rows: applied block by block, with a check for overflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.sparse import vstack

from streamdr.core.blocks import BLOCK_BYTES, Array, Span, SparseRows, working_dtype
from streamdr.core.linalg import ignore_overflow
from streamdr.data import Source
from streamdr.errors import DataError, RowError
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
    return _filled(len(values), n_outputs, ((span, values[span.slice]) for span in spans), function)


def sparse_in_blocks(function: RowMap, source: Source, n_outputs: int, *, allow_nan: bool) -> Array:
    """Map sparse rows by a function that takes dense rows, block by block."""
    spans = row_blocks(source.spec.n_rows, source.spec.line_bytes("rows"))
    blocks = ((span, source.block(span, allow_nan=allow_nan).values) for span in spans)
    return _filled(source.spec.n_rows, n_outputs, blocks, function)


def sparse_in_pieces(
    function: Callable[[SparseRows], SparseRows | Array], source: Source
) -> SparseRows | Array:
    """Map sparse rows by a function that takes them, piece by piece: to sparse rows, or to dense ones."""
    parts: list[Any] = []
    for piece in source.sparse_pieces(Span(0, source.spec.n_rows)):
        rows = source.read_sparse(piece)
        rows = rows.astype(working_dtype(rows.dtype), copy=False)
        try:
            with ignore_overflow():
                parts.append(function(rows))
        except RowError as error:
            raise error.at_row(piece.start + error.row) from None
        _require_no_overflow(rows.data, parts[-1])
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return SparseRows(vstack(parts, "csr"))


def _filled(n_rows: int, n_outputs: int, blocks: Iterator[tuple[Span, Array]], function: RowMap) -> Array:
    """Return the mapped rows of blocks, one after another. An error names the row among all of them."""
    rows: Array | None = None
    for span, values in blocks:
        try:
            mapped = function(values)
        except RowError as error:
            raise error.at_row(span.start + error.row) from None
        if rows is None:
            rows = np.empty((n_rows, n_outputs), mapped.dtype)
        rows[span.slice] = mapped
    assert rows is not None  # there are rows
    return rows


def _require_no_overflow(values: Array, mapped: SparseRows | Array) -> None:
    """Refuse a result that is not finite for finite values."""
    found = mapped if isinstance(mapped, np.ndarray) else mapped.data
    if found.dtype.kind == "f" and not np.isfinite(found).all() and np.isfinite(values).all():
        raise _overflow(found.dtype)


def _overflow(dtype: np.dtype[Any]) -> DataError:
    return DataError(f"the mapped rows overflow {dtype}; check that these rows are like those of the fit")


def finite_map(function: RowMap, values: Array) -> Array:
    """Return the mapped rows. Refuse a result that is not finite for finite rows."""
    with ignore_overflow():
        rows = function(values)
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        before, after = (np.isfinite(each.reshape(len(each), -1)).all(axis=1) for each in (values, rows))
        if np.any(before & ~after):
            raise _overflow(rows.dtype)
    return rows
