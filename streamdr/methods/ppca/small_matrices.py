"""Many small symmetric matrices at once: one row of an array per entry, one column per matrix.

In this layout, a step of a factorisation is one vector operation over all matrices, and inputs and results
are factors of ordinary matrix products.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.buffers import scratch

_CACHED_BYTES = 2 << 20
_WIDE_BYTES = 16 << 20
_FEWEST, _MOST = 64, 4096
_TURN = threading.Lock()
"""Held through a run of short numpy calls.

Each call releases the GIL and acquires it again microseconds later. Two threads that do so at once spend more
time on switching than on arithmetic. So one thread factorises while others multiply.
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


def invert(packed: Array, vectors: Array, *, with_outer: bool = False) -> tuple[Array, Array, Array]:
    """Replace positive semidefinite A by B = (I + A)^-1; return x = B v, v'B v and ln det (I + A) for each.

    `with_outer` replaces them by B + x x' instead. With L the Cholesky factor and X its inverse, B is X'X.
    The vector is appended as a row of A: its row of L is (X v)'. Likewise x is appended as a row of X.
    """
    order, number = vectors.shape
    lower = scratch("factor", (order + 1, order, number), packed.dtype)
    inverse = scratch("inverse factor", (order + 1, order, number), packed.dtype)
    with _TURN, np.errstate(invalid="ignore", divide="ignore"):
        for row, entries in triangle(order):
            lower[row, : row + 1] = packed[entries]
            inverse[row, row + 1 :] = 0.0
        lower[order] = vectors
        for j in range(order):
            column = lower[j:, j]
            column[0] += 1.0
            if j:
                column -= np.einsum("imn,mn->in", lower[j:, :j], lower[j, :j])
            pivot = np.divide(1.0, np.sqrt(column[0], out=inverse[j, j]), out=inverse[j, j])
            column[1:] *= pivot
            if j:
                half = j // 2  # the upper right of X is zero: in two parts, half of that is left out
                np.einsum("mn,mjn->jn", lower[j, :j], inverse[:j, :half], out=inverse[j, :half])
                np.einsum("mn,mjn->jn", lower[j, half:j], inverse[half:j, half:j], out=inverse[j, half:j])
                inverse[j, :j] *= -pivot
        halves, solved = lower[order], inverse[order]
        np.einsum("mn,mjn->jn", halves, inverse[:order], out=solved)
        rows = order + 1 if with_outer else order
        for i, entries in triangle(order):
            np.einsum("mn,mjn->jn", inverse[i:rows, i], inverse[i:rows, : i + 1], out=packed[entries])
        quadratic = np.einsum("mn,mn->n", halves, halves)
        log_determinant = -2.0 * np.log(np.einsum("iin->in", inverse[:order])).sum(axis=0)
    return solved.copy(), quadratic, log_determinant
