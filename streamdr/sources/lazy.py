"""Arrays that are computed or loaded when asked for: dask graphs, and what xarray opens without dask."""

from __future__ import annotations

import hashlib
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from streamdr.blocks import Array, MatrixSpec, Span
from streamdr.errors import DataError, StreamdrError
from streamdr.sources.arrays import digest_contents, require_unmasked
from streamdr.sources.base import Source
from streamdr.sources.dtypes import require_numeric
from streamdr.sources.grid import overlaps
from streamdr.sources.layout import Layout
from streamdr.sources.snapshot import WholeSnapshot


class DaskSource(Source):
    """A dask array. A read computes the chunks it touches, in the calling thread."""

    def __init__(self, array: Any, *, sample_axis: int | str = 0, name: str | None = None) -> None:
        self.name = name or f"dask array {array.name}"
        require_numeric(array.dtype, self.name)
        require_unmasked(array._meta, self.name)
        if any(np.isnan(length) for length in array.shape):
            raise DataError(
                f"{self.name}: its shape {array.shape} is not known; call compute_chunk_sizes() on it first"
            )
        self.layout = Layout.of(array.shape, sample_axis, self.name)
        self.spec = MatrixSpec(self.layout.n_rows, self.layout.n_cols, array.dtype)
        self.chunks = self.layout.granularity(array.chunksize)
        self._array = array
        self._edges = tuple(tuple(accumulate(lengths, initial=0)) for lengths in array.chunks)

    def read(self, rows: Span, cols: Span) -> Array:
        """The region, all chunks of it in one computation so that what they share is computed once."""
        import dask
        from dask.optimization import cull

        region, part = self.layout.select(rows, cols)
        pieces = list(overlaps(self._edges, region))
        graph, name = self._graph
        keys = [(name, *piece.coords) for piece in pieces]
        try:
            chunks = dask.get(cull(graph, keys)[0], keys)
        except StreamdrError:
            raise
        except Exception as error:
            raise DataError(
                f"{self.name}: {self._region(rows, cols)} cannot be computed: {error or type(error).__name__}"
            ) from error
        matrix, box = self.layout.empty(region, self.spec.dtype)
        if len(chunks) == 1 and chunks[0].shape == box.shape:
            whole = np.asarray(chunks[0], self.spec.dtype)
            return self.layout.trimmed(self.layout.matrix(whole), part)
        for piece, chunk in zip(pieces, chunks, strict=True):
            box[piece.target] = chunk[piece.within]
        return self.layout.trimmed(matrix, part)

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """The chunks touched, whole, and one more each for what they are computed from: a guess."""
        touched = 1
        for length, chunk in zip((n_rows, n_cols), self.chunks, strict=True):
            touched *= (-(-length // chunk) + (length % chunk > 0)) * chunk
        return super().overhead(n_rows, n_cols) + 2 * touched * self.spec.dtype.itemsize

    def _snapshot(self) -> WholeSnapshot:
        """A digest of the graph's name, which is dask's own digest of how the array came about."""
        array = self._array
        identity = f"{array.name} {self.layout} {array.dtype.str} {array.chunks}"
        return WholeSnapshot(hashlib.blake2b(identity.encode(), digest_size=20).hexdigest())

    @cached_property
    def _graph(self) -> tuple[dict[Any, Any], str]:
        # Optimised and flattened once. Slicing the array for each block would go through the whole graph
        # each time, and the time for all blocks would grow with the square of their number.
        import dask

        (optimised,) = dask.optimize(self._array)
        return dict(optimised.__dask_graph__()), optimised.name

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_graph"}


class XarraySource(Source):
    """An xarray variable that loads what is indexed: a file that xarray opened, decoded on the way."""

    def __init__(self, variable: Any, *, sample_axis: int | str = 0, name: str) -> None:
        self.name = name
        require_numeric(variable.dtype, name)
        self.layout = Layout.of(variable.shape, sample_axis, name, variable.dims)
        self.spec = MatrixSpec(self.layout.n_rows, self.layout.n_cols, variable.dtype)
        preferred = variable.encoding.get("preferred_chunks") or {}
        self._chunk = tuple(preferred.get(dim, 1) for dim in variable.dims)
        self.chunks = self.layout.granularity(self._chunk)
        self._variable = variable

    def read(self, rows: Span, cols: Span) -> Array:
        """The region."""
        region, part = self.layout.select(rows, cols)
        try:
            box = self._variable[region].values
        except Exception as error:
            raise DataError(
                f"{self.name}: {self._region(rows, cols)} cannot be read: {error or type(error).__name__}"
            ) from error
        return self.layout.trimmed(self.layout.matrix(box), part)

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """The values before and after decoding, and the chunks on their way: a guess."""
        region = n_rows * (self.layout.excess(n_cols) or n_cols)
        chunk = int(np.prod(self._chunk))
        return super().overhead(n_rows, n_cols) + (2 * region + 20 * chunk) * self.spec.dtype.itemsize

    def _snapshot(self) -> WholeSnapshot:
        """A digest of the contents: what lies behind the variable cannot be told from outside."""
        return WholeSnapshot(digest_contents(self).hexdigest())
