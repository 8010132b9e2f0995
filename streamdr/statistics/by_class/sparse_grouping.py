"""Sparse rows by group, well filled columns of a group shifted by a value near its own mean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streamdr.core.blocks import SPARSE_PIECE, Array, SparseBlock, SparseRows, working_dtype
from streamdr.statistics.group_centring import Centres
from streamdr.statistics.sparse_rows import MOST_FILL, MOST_SUMMED, rows_of

_MOST_PICKED = 8
"""The rows of a group from which its shifts are computed, at most: a power of two."""


@dataclass(frozen=True)
class SparseGrouped:
    """Sparse rows minus the origin of their group, times their root weights.

    The origin of a column is zero but where a group fills it well: see `statistics/sparse_rows.py`.
    """

    groups: Array
    """The indices of the groups of positive weight, ascending."""
    centres: Centres
    """The centre of each of these groups. Rows are relative to its origin."""
    values: SparseRows
    """The rows of positive weight: those of a group are contiguous, and in their order."""
    spans: list[slice]
    """The rows of each group."""

    def column_squares(self) -> Array:
        """The sum of squares of each column about the origins of the groups, in double precision."""
        squares = np.square(self.values.data, dtype=np.float64)
        return np.bincount(self.values.indices, squares, self.values.shape[1])


def grouped_sparse(
    block: SparseBlock, codes: Array, n_groups: int, *, double: bool
) -> Iterator[SparseGrouped]:
    """Group the rows of a block; rows whose code is `n_groups` are ignored.

    Halves of the block are grouped by themselves where rows are many, or would have far more values once they
    are shifted.
    """
    if block.values.shape[0] > MOST_SUMMED:
        yield from _halves(block, codes, n_groups, double=double)
        return
    order = np.argsort(codes, kind="stable")
    order = order[: np.count_nonzero(codes < n_groups)]
    if not len(order):
        return
    values = SparseRows(block.values[order])
    values = values.astype(np.float64 if double else working_dtype(values.dtype), copy=False)
    values.has_canonical_format = True
    weights = None if block.weights is None else block.weights[order]
    counts = np.bincount(codes, minlength=n_groups)[:n_groups]
    groups = np.flatnonzero(counts)
    counts = counts[groups]
    of_rows = np.repeat(np.arange(len(groups)), counts)
    totals = counts.astype(np.float64) if weights is None else np.bincount(of_rows, weights)
    cells = _cells(values, of_rows)
    of_stored = None if weights is None else np.repeat(weights, np.diff(values.indptr))
    shape = (len(groups), values.shape[1])
    shares = np.bincount(cells, of_stored, shape[0] * shape[1]).reshape(shape)
    filled = shares > MOST_FILL * totals[:, None]
    if len(order) > 1 and float(counts @ np.count_nonzero(filled, axis=1)) > max(
        SPARSE_PIECE, 2 * values.nnz
    ):
        yield from _halves(block, codes, n_groups, double=double)
        return
    origins = np.zeros(shape)
    if filled.any():
        near = _near_means(values, counts)
        origins[filled] = near[filled]
        shifts = SparseRows(np.where(filled, near, 0))
        values = values - shifts[of_rows]
        cells = _cells(values, of_rows)
        of_stored = None if weights is None else np.repeat(weights, np.diff(values.indptr))
    weighted = values.data if of_stored is None else values.data * of_stored
    sums = np.bincount(cells, weighted, shape[0] * shape[1]).reshape(shape)
    if not np.isfinite(sums).all():
        block.locate_nonfinite()
    if of_stored is not None:
        values.data = (values.data * np.sqrt(of_stored)).astype(values.dtype)
    centres = Centres(counts.astype(np.int64), totals, origins, sums / totals[:, None])
    stops = np.cumsum(counts)
    spans = [slice(stop - count, stop) for stop, count in zip(stops, counts, strict=True)]
    yield SparseGrouped(groups, centres, values, spans)


def _halves(block: SparseBlock, codes: Array, n_groups: int, *, double: bool) -> Iterator[SparseGrouped]:
    """Group each half of the rows of a block."""
    middle = block.values.shape[0] // 2
    for half in (slice(0, middle), slice(middle, block.values.shape[0])):
        yield from grouped_sparse(rows_of(block, half), codes[half], n_groups, double=double)


def _cells(values: SparseRows, of_rows: Array) -> Array:
    """The place of each stored value in a table of groups and columns."""
    cells: Array = np.repeat(of_rows * values.shape[1], np.diff(values.indptr)) + values.indices
    return cells


def _near_means(values: SparseRows, counts: Array) -> Array:
    """A row near the mean of each group: the mean of a few of its rows, which is exact if they are equal."""
    picked = 1 << np.minimum(np.log2(counts).astype(np.int64), int(np.log2(_MOST_PICKED)))
    starts = np.cumsum(counts) - counts
    ends = np.cumsum(picked)
    among = np.arange(ends[-1]) - np.repeat(ends - picked, picked)
    rows = np.repeat(starts, picked) + among * np.repeat(counts, picked) // np.repeat(picked, picked)
    shares = np.repeat(1.0 / picked, picked).astype(values.dtype)
    averages = SparseRows((shares, rows, np.concatenate([[0], ends])), shape=(len(counts), values.shape[0]))
    near: Array = (averages @ values).toarray()
    return near


def grouped_bytes(n_cols: int, n_groups: int) -> int:
    """The bytes of the tables of groups and columns that grouping takes."""
    return 48 * n_cols * n_groups
