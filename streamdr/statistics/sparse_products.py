"""X'X of sparse rows, by the cheapest division of the columns into dense panels and a sparse rest.

Columns of counts differ: a few are filled in most rows, most in few. So columns are ordered by how many
values they store, and divided into panels. The rows of a panel are made dense. Products of a well filled
panel with itself are one BLAS product; those of the columns after it with the panel are products of sparse
rows with dense ones; those of the last, nearly empty columns are sparse. Of two symmetric products one is
taken.

How columns are divided depends on the data alone, and so do the bits of sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamdr.core.blocks import BLOCK_BYTES, LARGEST_BLOCK_BYTES, Array, MatrixSpec, Span, SparseRows
from streamdr.core.buffers import scratch
from streamdr.core.work import Work, products
from streamdr.statistics.sparse_rows import shift_scratch

_BOUNDS = 32
"""How many boundaries of panels are considered."""
_LEAST_WIDTH = 32
# Nominal times, in those of one product within a BLAS product: 9 ps in single precision. Those of scipy are
# a third longer than measured: it holds Python's lock, so that threads take turns. BLAS does not.
_AXPY = 22.0
"""A product of a stored value with a value of a dense row."""
_PAIR = 300.0
"""A product of two stored values."""
_PAIR_SUM = 2000.0
"""A value of a sparse product of columns, besides its products."""
_DENSE = 35.0
"""A value of a dense panel."""
_STORED = 450.0
"""A stored value that is put into a panel, or is left for those after it."""
_TILE_ROWS = 64
_SHIFTED = 3
"""How often values are gone through besides their products: they are shifted, summed, and checked."""


@dataclass(frozen=True)
class Division:
    """The panels of columns, which are in descending order of their stored values; the rest stays sparse."""

    panels: tuple[Span, ...]
    by_blas: tuple[bool, ...]
    """For each panel, whether its products with itself are one BLAS product."""


def products_of(rows: SparseRows) -> Array | SparseRows:
    """X'X of sparse rows: dense, in their type and in scratch memory, or sparse if few values are stored.

    Sparse products are taken in double precision, which costs little: scipy adds them one after another.
    Its memory is bounded by `product_scratch` of the number of columns, besides a copy of the rows.
    """
    counts = np.bincount(rows.indices, minlength=rows.shape[1])
    order = np.argsort(-counts, kind="stable")
    division = divided(counts[order], rows.shape[0])
    if not division.panels:
        wide = rows.astype(np.float64, copy=False)
        return SparseRows((wide.T @ wide).T.tocsr())
    if division.panels[0].stop == rows.shape[1]:  # one panel for all columns, in their order
        order = np.arange(rows.shape[1])
    rank = np.empty(len(order), rows.indices.dtype)
    rank[order] = np.arange(len(order))
    return _in_order(_products_by_rank(rows, rank, division), rank)


def divided(counts: Array, n_rows: int) -> Division:
    """The cheapest division of columns that store so many values in so many rows; `counts` descend."""
    n_cols = len(counts)
    step = max(_LEAST_WIDTH, -(-n_cols // _BOUNDS))
    bounds = np.append(np.arange(0, n_cols, step), n_cols)
    after = np.append(np.cumsum(counts[::-1])[::-1], 0)[bounds].astype(np.float64)
    left = n_cols - bounds.astype(np.float64)
    pairs = after**2 / max(1, n_rows)
    sparse = _PAIR * pairs + _PAIR_SUM * np.minimum(left**2, pairs)
    best, stops = sparse.copy(), [0] * len(bounds)
    alone = [False] * len(bounds)
    for start in range(len(bounds) - 2, -1, -1):
        width = (bounds[start + 1 :] - bounds[start]).astype(np.float64)
        rest = after[start + 1 :]
        blas, thin = n_rows * width**2, _AXPY * (after[start] - rest) * width
        filling = _DENSE * n_rows * width + _STORED * after[start]
        cost = np.minimum(blas, thin) + _AXPY * rest * width + filling + best[start + 1 :]
        cheapest = int(np.argmin(cost))
        if cost[cheapest] < best[start]:
            best[start], stops[start] = cost[cheapest], start + 1 + cheapest
            alone[start] = bool(blas[cheapest] <= thin[cheapest])
    panels, by_blas, at = [], [], 0
    while stops[at]:
        panels.append(Span(int(bounds[at]), int(bounds[stops[at]])))
        by_blas.append(alone[at])
        at = stops[at]
    return Division(tuple(panels), tuple(by_blas))


def panel_bytes(n_cols: int) -> int:
    """The bytes of dense rows at a time: more where X'X is large, as it is added to each time."""
    return min(max(BLOCK_BYTES, 8 * n_cols * n_cols), LARGEST_BLOCK_BYTES)


def _products_by_rank(rows: SparseRows, rank: Array, division: Division) -> Array:
    """X'X with columns in the order of their ranks."""
    n_rows, n_cols = rows.shape
    total = scratch("ranked product", (n_cols, n_cols), rows.dtype)
    rest = _with_indices(rows, rank[rows.indices], n_cols)
    for panel, by_blas in zip(division.panels, division.by_blas, strict=True):
        width, later = len(panel), slice(panel.stop, n_cols)
        inside = rest.indices < width
        after = _selected(rest, np.flatnonzero(~inside), width)
        first = after if by_blas else rest
        beside = slice(n_cols - first.shape[1], n_cols)
        for tile, dense in _dense_panel(rest, inside, width):
            if by_blas:
                own = scratch("panel product", (width, width), rows.dtype)
                np.matmul(dense.T, dense, out=own)  # numpy detects the symmetric product, and uses syrk
                _add(total[panel.slice, panel.slice], own, first=tile.start == 0)
            if first.shape[1]:
                part = first if len(tile) == n_rows else first[tile.slice]
                _add(total[beside, panel.slice], part.T @ dense, first=tile.start == 0)
        total[panel.slice, later] = total[later, panel.slice].T
        rest = after
    if rest.shape[1]:
        last = slice(n_cols - rest.shape[1], n_cols)
        wide = rest.astype(np.float64, copy=False)
        total[last, last] = (wide.T @ wide).toarray()
    return total


def _add(total: Array, product: Array, *, first: bool) -> None:
    """Add the product of some rows, or set it if they are the first."""
    if first:
        total[...] = product
    else:
        total += product


def _with_indices(rows: SparseRows, indices: Array, n_cols: int) -> SparseRows:
    """The same values in other columns."""
    return SparseRows((rows.data, indices, rows.indptr), shape=(rows.shape[0], n_cols))


def _selected(rows: SparseRows, places: Array, first: int) -> SparseRows:
    """The stored values at some places, with columns counted from `first` on."""
    ends = np.searchsorted(places, rows.indptr).astype(rows.indptr.dtype)
    parts = (rows.data[places], rows.indices[places] - rows.indices.dtype.type(first), ends)
    return SparseRows(parts, shape=(rows.shape[0], rows.shape[1] - first))


def _dense_panel(rows: SparseRows, inside: Array, width: int) -> Iterator[tuple[Span, Array]]:
    """Yield the first columns of rows as dense rows, as many at a time as take `panel_bytes`."""
    most = max(1, panel_bytes(width) // (width * rows.dtype.itemsize))
    for tile in Span(0, rows.shape[0]).split(most):
        dense = scratch("dense panel", (len(tile), width), rows.dtype)
        dense[...] = 0
        start, stop = rows.indptr[tile.start], rows.indptr[tile.stop]
        places = np.flatnonzero(inside[start:stop])
        starts = np.arange(0, len(tile) * width, width)
        lengths = np.diff(rows.indptr[tile.start : tile.stop + 1])
        cells = np.repeat(starts, lengths)[places] + rows.indices[start:stop][places]
        dense.reshape(-1)[cells] = rows.data[start:stop][places]
        yield tile, dense


def _in_order(ranked: Array, rank: Array) -> Array:
    """X'X with columns in their own order."""
    product = scratch("product", ranked.shape, ranked.dtype)
    for tile in Span(0, len(rank)).split(_TILE_ROWS):
        np.take(ranked[rank[tile.slice]], rank, axis=1, out=product[tile.slice], mode="clip")
    return product


def product_scratch(n_cols: int, dtype: np.dtype[Any]) -> int:
    """The bytes that adding the products X'X of a piece of sparse rows takes, if they are of such a type."""
    # The product, in both orders, and that of a panel; or a sparse one of what is left, with a dense copy.
    square = n_cols**2 * (4 * dtype.itemsize + 8)
    return panel_bytes(n_cols) + square + shift_scratch(n_cols)


def square_work(data: MatrixSpec, dtype: np.dtype[Any]) -> Work:
    """The work of shifting all rows near their mean, and of their products X'X in some type.

    Of sparse rows, that of one way for all columns: which panels there will be depends on the data.
    """
    n, d, density = float(data.n_rows), data.n_cols, data.density
    if density is None:
        moved = (
            n * d * (_SHIFTED * data.working.itemsize + (2 * dtype.itemsize if dtype != data.working else 0))
        )
        return products(n * d * d, dtype, "square") + Work(moved=moved)
    stored = density * n * d
    pairs = stored**2 / n
    shifting = Work(scattered=_SHIFTED * stored, moved=24 * stored)
    if n * d * d + _DENSE * n * d < min(_AXPY * stored * d / 2, _PAIR / 2 * pairs):
        return products(n * d * d, dtype, "square") + shifting + Work(moved=n * d * dtype.itemsize * 2)
    return Work(sparse=min(stored * d / 2, _PAIR / _AXPY / 2 * pairs)) + shifting


def product_work(data: MatrixSpec) -> float:
    """The share of the time of products X'X of dense rows that those of these rows take."""
    density = data.density
    return 1.0 if density is None else min(1.0, _AXPY / 4 * density, _PAIR / 2 * density**2)
