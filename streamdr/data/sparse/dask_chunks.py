"""Dask arrays whose chunks are sparse matrices of scipy, or arrays of the package sparse."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
from scipy import sparse

from streamdr.core.blocks import LARGEST_BLOCK_BYTES, Array, Span, SparseRows
from streamdr.data.lazy_arrays import DaskSource
from streamdr.data.sparse.scipy_matrices import as_scipy, by_rows, is_sparse

_DENSITY = 0.1
"""A guess: how many values are stored is known only when they are computed."""
_per_thread = threading.local()


def has_sparse_chunks(array: Any) -> bool:
    """Whether the chunks of a dask array are sparse, as far as dask knows."""
    return array.ndim == 2 and is_sparse(as_scipy(array._meta))


class SparseDaskSource(DaskSource):
    """A dask array of sparse chunks. Rows are computed once: to count their values, and to return them."""

    def __init__(self, array: Any) -> None:
        super().__init__(array)
        self.spec = replace(self.spec, density=_DENSITY)
        chunk = self.chunks[0]
        self._window = chunk * max(1, LARGEST_BLOCK_BYTES // (chunk * self.spec.line_bytes("rows")))

    def sparse_pieces(self, rows: Span) -> Iterator[Span]:
        """Yield rows in pieces. They are kept until all pieces have been used."""
        try:
            yield from super().sparse_pieces(rows)
        finally:
            _per_thread.__dict__.pop("kept", None)

    def sparse_lengths(self, rows: Span) -> Iterator[Array]:
        """Yield how many values of each row are stored."""
        for window in rows.split(self._window):
            found = self._stacked(window)
            _per_thread.kept = (self, window, found)
            yield np.diff(found.indptr)

    def read_sparse(self, rows: Span) -> SparseRows:
        """Return whole rows."""
        kept: tuple[Any, Span, SparseRows] | None = getattr(_per_thread, "kept", None)
        if kept is None or kept[0] is not self or rows.start < kept[1].start or rows.stop > kept[1].stop:
            return self._stacked(rows)
        first = kept[1].start
        return kept[2][rows.start - first : rows.stop - first]

    def _stacked(self, rows: Span) -> SparseRows:
        """Compute rows: chunks beside each other, and below."""
        pieces, chunks = self._computed_chunks((rows.slice, slice(0, self.spec.n_cols)))
        bands = []
        for _, band in groupby(zip(pieces, chunks, strict=True), key=lambda pair: pair[0].coords[0]):
            parts = []
            for piece, chunk in band:
                self._require_like(piece.coords, chunk)
                found = by_rows(chunk if is_sparse(chunk) else SparseRows(np.asarray(chunk)), self.name)
                parts.append(found if found.shape == _lengths(piece.within) else found[piece.within])
            bands.append(parts[0] if len(parts) == 1 else sparse.hstack(parts, "csr"))
        stacked = bands[0] if len(bands) == 1 else sparse.vstack(bands, "csr")
        return by_rows(SparseRows(stacked, dtype=self.spec.dtype), self.name)

    def sparse_bytes(self, n_rows: int) -> int:
        """Return the most bytes that a block of sparse rows takes: computed, stacked, and as a piece."""
        n_values = min(n_rows + self.chunks[0], self._window + self.chunks[0]) * self.spec.n_cols
        return super().sparse_bytes(n_rows) + 2 * n_values * (self.spec.dtype.itemsize + 8)


def _lengths(region: tuple[slice, ...]) -> tuple[int, ...]:
    return tuple(each.stop - each.start for each in region)
