"""Sparse rows minus an origin, with which sums of products lose no digits and the rows stay sparse.

A mean cannot be taken off sparse rows: they would no longer be sparse. Products are taken about zero, and
corrected for the mean afterwards. With a weight W, the squares of a column about zero sum to W (v + m^2), for
its mean m and its variance v. Let a share p of the weight be on stored values: the mean of these is m / p, so
v + m^2 >= p (m / p)^2, and m^2 <= v p / (1 - p). With p <= 3/4, m^2 <= 3 v: the correction is at most three
quarters of the sum, and its rounding error grows by a factor of four at most. There is no such bound for
columns of a larger share: all their values may be near 1e6. They get an origin near their mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamdr.core.blocks import (
    BLOCK_BYTES,
    SPARSE_PIECE,
    Array,
    Block,
    MatrixSpec,
    Span,
    SparseBlock,
    SparseRows,
    working_dtype,
)
from streamdr.core.buffers import scratch
from streamdr.core.linalg import mean_of_few, shift_rows
from streamdr.core.work import Work, products
from streamdr.statistics.centring import Centre

MOST_FILL = 0.75
"""The largest share of the weight on stored values with which the origin of a column is zero."""
_MOSTLY = 0.5
"""The share of stored values above which products are taken of dense rows."""
_THIN_COST = 2.5
"""The time of a product of a stored value with few vectors, in those of a dense one. Measured: 2.6 in double
and 1.5 in single precision."""
_FEW_VALUES = SPARSE_PIECE // 4
"""The stored values that are shifted at a time, where there is little to do for each run of rows besides."""
MOST_SUMMED = 1 << 14
"""The most rows whose products are added up in their own type: scipy adds them one after another, so that
rounding errors grow with their number."""
_VALUES_PER_COLUMN = 16
"""The stored values per column of a run, with which its products take longer than adding them up."""
_TILE_COLUMNS = 512
_OUT_OF_CACHE, _PASSED = 1.3, 14
"""How much longer products with few vectors take where rows come from memory, and how often values of dense
rows are gone through besides."""
_BYTES_PER_VALUE = 120
"""What shifting takes at most for a stored value: shifted values may be twice as many, and with their columns
they are copied once; then weights, and scores."""


@dataclass(frozen=True)
class ShiftedSparse:
    """Sparse rows minus the origin of their `centre`, times the square roots of their weights.

    The origin is zero but for well filled columns, in which all values are stored afterwards.
    """

    centre: Centre
    values: SparseRows
    roots: Array | None
    """The square roots of the weights of the rows; None if these are 1."""

    def column_squares(self) -> Array:
        """The sum of squares of each column about the origin, in double precision."""
        squares = np.square(self.values.data, dtype=np.float64)
        return np.bincount(self.values.indices, squares, self.values.shape[1])

    def centred_squares(self) -> Array:
        """The sum of squares of each column about its mean."""
        return self.column_squares() - self.centre.weight * self.centre.offset**2

    def centred_images(self, basis: Array) -> Array:
        """(S Q)' for S the scatter of the rows about their mean, and Q a thin basis.

        The mean is taken off the scores X Q, which are dense anyway. So the mean of all columns together,
        which may be far longer than the deviations from it, does not add to the rounding error.
        """
        values, offset = self.values, self.centre.offset
        scores = values @ basis.astype(values.dtype, copy=False)
        level = (offset @ basis).astype(scores.dtype)
        scores -= level if self.roots is None else np.outer(self.roots.astype(scores.dtype), level)
        sums = scores.sum(axis=0, dtype=np.float64) if self.roots is None else self.roots @ scores
        products = values.T @ scores
        images = np.empty(basis.shape[::-1])
        for columns in Span(0, len(basis)).split(_TILE_COLUMNS):  # so that what is transposed stays in cache
            tile = images[:, columns.slice]
            tile[...] = products[columns.slice].T
            tile -= np.outer(sums, offset[columns.slice])
        return images


def shifted_sparse(
    block: SparseBlock, *, double: bool, most_values: int = _FEW_VALUES, most_rows: int = SPARSE_PIECE
) -> Iterator[ShiftedSparse]:
    """Shift sparse rows of a block, a run of rows with so many stored values, and so many rows, at a time.

    Runs are shorter where rows would have more values once they are shifted: a row of large weight makes all
    its columns well filled.
    """
    values, weights = block.values, block.weights
    n_rows = values.shape[0]
    if n_rows == 0:
        return
    if n_rows > 1 and (n_rows > most_rows or values.nnz > most_values):
        yield from _halves(block, double=double, most_values=most_values, most_rows=most_rows)
        return
    of_stored = None if weights is None else np.repeat(weights, np.diff(values.indptr))
    total = float(n_rows if weights is None else weights.sum())
    filled = np.flatnonzero(np.bincount(values.indices, of_stored, values.shape[1]) > MOST_FILL * total)
    if n_rows > 1 and len(filled) * n_rows > 2 * most_values:
        yield from _halves(block, double=double, most_values=most_values, most_rows=most_rows)
        return
    values = values.astype(np.float64 if double else working_dtype(values.dtype), copy=False)
    origin = np.zeros(values.shape[1])
    if len(filled):
        few = values[shift_rows(n_rows, weights)][:, filled].toarray()
        shift = mean_of_few(few)
        origin[filled] = shift
        values = values - _repeated(shift, filled, values)
        of_stored = None if weights is None else np.repeat(weights, np.diff(values.indptr))
    weighted = values.data if of_stored is None else values.data * of_stored
    sums = np.bincount(values.indices, weighted, values.shape[1])
    if not np.isfinite(sums).all():
        block.locate_nonfinite()
    count = n_rows if weights is None else int(np.count_nonzero(weights))
    centre = Centre(len(sums), count, total, origin, sums / (total or 1.0))
    if of_stored is None:
        yield ShiftedSparse(centre, values, None)
        return
    assert weights is not None  # as of_stored has them
    scaled = (values.data * np.sqrt(of_stored)).astype(values.dtype)
    yield ShiftedSparse(centre, _with_data(values, scaled), np.sqrt(weights))


def _halves(block: SparseBlock, *, double: bool, most_values: int, most_rows: int) -> Iterator[ShiftedSparse]:
    """Shift each half of the rows of a block."""
    middle = block.values.shape[0] // 2
    for half in (slice(0, middle), slice(middle, block.values.shape[0])):
        yield from shifted_sparse(
            rows_of(block, half), double=double, most_values=most_values, most_rows=most_rows
        )


def is_mostly_filled(block: SparseBlock) -> bool:
    """Whether so many values are stored that products are faster of dense rows."""
    return bool(block.values.nnz > _MOSTLY * block.values.shape[0] * block.values.shape[1])


def thin_values(n_cols: int) -> int:
    """How many stored values to multiply by a few vectors at a time: more where the sums are large."""
    return max(_FEW_VALUES, min(_VALUES_PER_COLUMN * n_cols, SPARSE_PIECE))


def thin_rows(n_cols: int, n_vectors: int) -> int:
    """How many rows to multiply by `n_vectors` vectors at a time: their products are dense."""
    return max(1, _FEW_VALUES // n_vectors, n_cols // 4)


def dense_blocks(block: SparseBlock, most_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """Make the rows of a block dense, as many at a time as take `most_bytes`, in scratch memory."""
    n_rows, n_cols = block.values.shape
    for rows in Span(0, n_rows).split(max(1, most_bytes // (n_cols * block.values.dtype.itemsize))):
        part = rows_of(block, rows.slice)
        dense = scratch("dense rows", part.values.shape, part.values.dtype)
        part.values.toarray(out=dense)
        yield Block(part.span, dense, part.labels, part.weights, True, part.locate_nonfinite, part.rows)


def rows_of(block: SparseBlock, rows: slice) -> SparseBlock:
    """Some consecutive rows of a block. Their values are not copied."""
    labels, weights, numbers = (
        None if each is None else each[rows] for each in (block.labels, block.weights, block.rows)
    )
    span = Span(block.span.start + rows.start, min(block.span.start + rows.stop, block.span.stop))
    bounds = block.values.indptr[rows.start : rows.stop + 1]
    stored = slice(bounds[0], bounds[-1])
    parts = (block.values.data[stored], block.values.indices[stored], bounds - bounds[0])
    values = _canonical(SparseRows(parts, shape=(len(bounds) - 1, block.values.shape[1])))
    return replace(block, span=span, values=values, labels=labels, weights=weights, rows=numbers)


def picked_rows(block: SparseBlock, rows: Array) -> SparseBlock:
    """Some rows of a block, in ascending order."""
    labels, weights = (None if each is None else each[rows] for each in (block.labels, block.weights))
    return replace(
        block,
        span=Span(0, len(rows)),
        values=_canonical(SparseRows(block.values[rows])),
        labels=labels,
        weights=weights,
        rows=block.numbers[rows],
    )


def _repeated(shift: Array, columns: Array, like: SparseRows) -> SparseRows:
    """Rows that all hold `shift` in some columns, and nothing in the others."""
    n_rows = like.shape[0]
    index = like.indices.dtype
    indptr = np.arange(0, n_rows * len(columns) + 1, len(columns), dtype=index)
    return SparseRows(
        (np.tile(shift, n_rows), np.tile(columns.astype(index), n_rows), indptr), shape=like.shape
    )


def _with_data(rows: SparseRows, data: Array) -> SparseRows:
    """Rows with other values at the same places."""
    return _canonical(SparseRows((data, rows.indices, rows.indptr), shape=rows.shape))


def _canonical(rows: SparseRows) -> SparseRows:
    """The same rows, known to have ascending columns, so that scipy does not look."""
    rows.has_canonical_format = True
    return rows


def shift_scratch(n_cols: int) -> int:
    """The bytes that shifting a piece of sparse rows takes."""
    return _BYTES_PER_VALUE * max(SPARSE_PIECE, n_cols)


def thin_scratch(n_cols: int, n_vectors: int) -> int:
    """The bytes that adding products with a few vectors takes."""
    return 3 * 8 * n_cols * n_vectors + _BYTES_PER_VALUE * max(thin_values(n_cols), n_cols)


def image_work(data: MatrixSpec, n_vectors: int, dtype: np.dtype[Any]) -> Work:
    """The work of shifting all rows near their mean, of their products with vectors, and of X' with those."""
    values = float(data.n_rows) * data.n_cols
    if data.density is None:
        widened = 2 * dtype.itemsize if dtype != data.working else 0
        return products(2 * _OUT_OF_CACHE * values * n_vectors, dtype, "thin") + Work(
            moved=values * (_PASSED * data.working.itemsize + widened)
        )
    stored = data.density * values
    return Work(sparse=2 * stored * n_vectors, scattered=4 * stored, moved=24 * stored)


def thin_work(data: MatrixSpec) -> float:
    """The share of the time of products of dense rows with a few vectors that those of these rows take."""
    return 1.0 if data.density is None else _THIN_COST * data.density
