"""Many small symmetric matrices at once: one row of an array per entry, one column per matrix.

In this layout, a step of a factorisation is one vector operation over all matrices, and inputs and results
are factors of ordinary matrix products.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np

from streamdr.core import kernels
from streamdr.core.blocks import Array
from streamdr.core.buffers import scratch

_DOUBLE = np.dtype(np.float64)
_CACHED_BYTES = 2 << 20
_WIDE_BYTES = 16 << 20
_FEWEST, _MOST = 64, 4096
_TURN = threading.Lock()
"""Held through a run of short numpy calls.

Each call releases the GIL and acquires it again microseconds later. Two threads that do so at once spend more
time on switching than on arithmetic. So one thread factorises while others multiply. The compiled kernel is
one call, and needs no turn.
"""


def packed_length(order: int) -> int:
    """The number of entries of the lower triangle of a matrix."""
    return order * (order + 1) // 2


def matrices_per_slab(order: int, n_cols: int) -> int:
    """The number of matrices that are processed at a time: as many as stay in cache.

    Each belongs to a row of `n_cols` columns; these rows are limited, too.
    """
    return max(_FEWEST, min(_MOST, _CACHED_BYTES // (8 * order * order), _WIDE_BYTES // (8 * n_cols)))


def triangle(order: int) -> Iterator[tuple[int, slice]]:
    """Each row of the lower triangle, and where its entries lie when packed."""
    start = 0
    for row in range(order):
        yield row, slice(start, start + row + 1)
        start += row + 1


def write_outer(packed: Array, vectors: Array) -> None:
    """`packed = v v'` for each of the vectors, which are columns."""
    for row, entries in triangle(len(vectors)):
        np.multiply(vectors[row], vectors[: row + 1], out=packed[entries])


def outer(vectors: Array) -> Array:
    """`v v'`, packed, for each of the vectors, which are columns."""
    packed = np.empty((packed_length(len(vectors)), vectors.shape[1]))
    write_outer(packed, vectors)
    return packed


def unpacked(packed: Array, order: int) -> Array:
    """Packed matrices as an array of shape (order, order, number)."""
    full = np.empty((order, order, *packed.shape[1:]))
    for row, entries in triangle(order):
        full[row, : row + 1] = packed[entries]
        full[: row + 1, row] = packed[entries]
    return full


def invert(packed: Array, vectors: Array, solved: Array, *, with_outer: bool = False) -> tuple[Array, Array]:
    """Replace positive semidefinite A by B = (I + A)^-1 and write x = B v; return v'B v and ln det (I + A).

    `with_outer` replaces A by B + x x' instead.
    """
    diagonal = scratch("diagonal", vectors.shape, _DOUBLE)
    quadratic = np.empty((1, vectors.shape[1]))
    invert_all = invert_with_numpy if kernels.compiled is None else kernels.compiled.invert
    invert_all(packed, vectors, solved, diagonal, quadratic, with_outer)
    with np.errstate(invalid="ignore", divide="ignore"):
        log_determinant = -2.0 * np.log(diagonal, out=diagonal).sum(axis=0)
    return quadratic[0], log_determinant


def invert_with_numpy(
    packed: Array, vectors: Array, solved: Array, diagonal: Array, quadratic: Array, with_outer: bool
) -> None:
    """Write B or B + x x' to `packed`, x to `solved`, v'B v, and the diagonal of L^-1.

    With L the Cholesky factor and X its inverse, B is X'X. The vector is appended as a row of A: its row of L
    is (X v)'. Likewise x is appended as a row of X. Sums begin with 0, and rounded products are added by
    ascending m, as in the compiled kernel.
    """
    order, number = vectors.shape
    lower = scratch("factor", (order + 1, order, number), _DOUBLE)
    inverse = scratch("inverse factor", (order + 1, order, number), _DOUBLE)
    sums = scratch("sums", (order + 1, number), _DOUBLE)
    terms = scratch("terms", (order + 1, number), _DOUBLE)

    def add_products(one: Array, many: Array) -> None:
        np.multiply(one, many, out=terms[: len(many)])
        sums[: len(many)] += terms[: len(many)]

    with _TURN, np.errstate(invalid="ignore", divide="ignore"):
        for row, entries in triangle(order):
            lower[row, : row + 1] = packed[entries]
        lower[order] = vectors
        for j in range(order):
            column = lower[j:, j]
            column[0] += 1.0
            sums[...] = 0.0
            for m in range(j):
                add_products(lower[j, m], lower[j:, m])
            column -= sums[: len(column)]
            pivot = np.divide(1.0, np.sqrt(column[0], out=inverse[j, j]), out=inverse[j, j])
            column[1:] *= pivot
        for j in range(1, order + 1):
            sums[...] = 0.0
            for m in range(j):
                add_products(lower[j, m], inverse[m, : m + 1])
            np.multiply(sums[:j], -inverse[j, j] if j < order else 1.0, out=inverse[j, :j])
        for i, entries in triangle(order):
            sums[...] = 0.0
            for m in range(i, order + 1 if with_outer else order):
                add_products(inverse[m, i], inverse[m, : i + 1])
            packed[entries] = sums[: i + 1]
            diagonal[i] = inverse[i, i]
        sums[...] = 0.0
        for m in range(order):
            add_products(lower[order, m], lower[order, m : m + 1])
        quadratic[0] = sums[0]
        solved[...] = inverse[order]
