"""The best matching unit of each row, and the difference between the two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec, Span, aligned, widen
from streamdr.core.buffers import scratch
from streamdr.core.work import Work, products

_TILE_BYTES = 2 << 20
"""Products of a tile of rows with all units. Shorter calls of numpy would hand the GIL to and fro."""
_WIDE_BYTES = 4 << 20
_MOST_ROWS, _LEAST_ROWS = 4096, 64


def tile_rows(n_units: int, n_cols: int, itemsize: int) -> int:
    """The number of rows in a tile. It depends on the shape of the codebook only."""
    least = max(1, min(_LEAST_ROWS, _WIDE_BYTES // (itemsize * n_cols)))
    rows = min(_MOST_ROWS, _TILE_BYTES // (itemsize * max(n_units, n_cols)))
    return max(least, rows - rows % 16)


def search_bytes(n_units: int, n_cols: int, itemsize: int) -> int:
    """The bytes that a search allocates, for any number of rows: copies of the codebook, and a tile."""
    rows = tile_rows(n_units, n_cols, itemsize)
    codebook = n_units * (n_cols + 4)
    tile = rows * (4 * n_cols + 2 * n_units + 16)
    return 8 * n_units * n_cols + 8 * itemsize * codebook + itemsize * tile + 16 * 8 * rows


def search_work(data: MatrixSpec, n_units: int, dtype: np.dtype[Any]) -> Work:
    """The work of all products of rows and units, and of finding the least of each row."""
    n, moved = float(data.n_rows), 2.0 * dtype.itemsize * data.n_rows * n_units
    return products(n * n_units * data.n_cols, dtype, "product") + Work(
        moved=moved + 3 * n * data.line_bytes("rows"), cached=2 * n * n_units
    )


class Tile(NamedTuple):
    """Some rows of a block, each with its best matching unit."""

    rows: slice
    units: Array
    differences: Array
    """Rows minus their units. The thread's scratch memory: valid until its next tile."""
    scores: Array
    """|c|^2 / 2 - x'c for each row x and each unit c. Scratch memory too."""

    def second(self) -> Array:
        """The second best matching unit of each row. Overwrites the scores."""
        self.scores[np.arange(len(self.units)), self.units] = np.inf
        units: Array = np.argmin(self.scores, axis=1)
        return units


class Search:
    """Finds best matching units; of units at equal distances the first.

    The unit nearest to a row x has the least |c|^2 / 2 - x'c, so one matrix product serves all units and all
    rows of a tile. Rows and units are taken about an origin near the data. Every product has the same shape,
    whatever the number of rows, so a row finds the same unit in any block. Of equal units, only the first
    one is found.
    """

    def __init__(self, codebook: Array, origin: Array, dtype: np.dtype[Any]) -> None:
        self.n_units, self.n_cols = codebook.shape
        self.dtype = dtype
        self._origin = origin.astype(dtype)
        exact = codebook - origin
        self._units = exact.astype(dtype)
        # The last column adds half the squared length of a unit to the product.
        factors = np.empty((self.n_units, self.n_cols + 1), dtype)
        np.negative(self._units, out=factors[:, :-1])
        factors[:, -1] = 0.5 * np.einsum("ij,ij->i", exact, exact)
        self._repeated = _repeated(self._units)
        self.n_places = self.n_units - len(self._repeated)
        """The number of distinct units."""
        self._factors = aligned(factors.T)
        self.tile = tile_rows(self.n_units, self.n_cols, dtype.itemsize)

    def tiles(self, values: Array) -> Iterator[Tile]:
        """Search rows tile by tile."""
        rows = scratch("som rows", (self.tile, self.n_cols + 1), self.dtype)
        scores = scratch("som scores", (self.tile, self.n_units), self.dtype)
        differences = scratch("som differences", (self.tile, self.n_cols), self.dtype)
        rows[:, -1] = 1.0
        for span in Span(0, len(values)).split(self.tile):
            size = len(span)
            np.subtract(widen(values[span.slice]), self._origin, out=rows[:size, :-1], casting="same_kind")
            rows[size:, :-1] = 0.0  # the last tile may be shorter than the one before
            np.matmul(rows, self._factors, out=scores)
            here = scores[:size]
            if len(self._repeated):
                here[:, self._repeated] = np.inf
            units = np.argmin(here, axis=1)
            apart = np.take(self._units, units, axis=0, out=differences[:size], mode="clip")
            np.subtract(rows[:size, :-1], apart, out=apart)
            yield Tile(span.slice, units, apart, here)


def _repeated(units: Array) -> Array:
    """The numbers of units that are equal to an earlier one."""
    _, first = np.unique(units, axis=0, return_index=True)
    return np.setdiff1d(np.arange(len(units)), first)
