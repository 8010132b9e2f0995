"""Arrays that are computed or loaded when asked for: dask graphs, and what xarray opens without dask."""

from __future__ import annotations

import hashlib
import sys
import threading
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from streamdr.core import blocks
from streamdr.core.blocks import Array, Axis, MatrixSpec, Span
from streamdr.data.dtypes import require_numeric
from streamdr.data.in_memory import digest_contents, require_unmasked
from streamdr.data.layout import MatrixLayout
from streamdr.data.shared_tasks import Key
from streamdr.data.snapshot import WholeSnapshot
from streamdr.data.source import Source
from streamdr.data.zarr.grid import overlaps
from streamdr.errors import DataError, StreamdrError

if TYPE_CHECKING:
    from streamdr.data.dask_graphs import Graph


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
        self.layout = MatrixLayout.of(array.shape, sample_axis, self.name)
        self.spec = MatrixSpec(self.layout.n_rows, self.layout.n_cols, array.dtype)
        self.chunks = self.layout.granularity(array.chunksize)
        self._array = array
        self._identity = f"{array.name} {self.layout} {array.dtype.str} {array.chunks}"
        self._is_persisted = holds_futures(array)
        self._held: dict[Axis, dict[Any, Any]] = {}
        self._lock = threading.Lock()
        self._edges = tuple(tuple(accumulate(lengths, initial=0)) for lengths in array.chunks)

    def read(self, rows: Span, cols: Span) -> Array:
        """The region, all chunks of it in one computation so that what they share is computed once."""
        region, part = self.layout.select(rows, cols)
        pieces = list(overlaps(self._edges, region))
        graph = self._prepared("rows" if len(cols) == self.spec.n_cols else "columns")
        keys: list[Key] = [(graph.name, *piece.coords) for piece in pieces]
        try:
            chunks = graph.compute(keys, graph.client(self.name))
        except StreamdrError:
            raise
        except Exception as error:
            raise DataError(
                f"{self.name}: {self._region(rows, cols)} cannot be computed: {error or type(error).__name__}"
            ) from error
        chunks = [self._checked(piece.coords, chunk) for piece, chunk in zip(pieces, chunks, strict=True)]
        matrix, box = self.layout.empty(region, self.spec.dtype)
        if len(chunks) == 1 and chunks[0].shape == box.shape:
            whole = np.asarray(chunks[0], self.spec.dtype)
            return self.layout.trimmed(self.layout.matrix(whole), part)
        for piece, chunk in zip(pieces, chunks, strict=True):
            box[piece.target] = chunk[piece.within]
        return self.layout.trimmed(matrix, part)

    def _checked(self, coords: tuple[int, ...], chunk: Any) -> Array:
        """The values of a chunk, if they are what the array says: dask itself never compares them."""
        values: Array = np.asanyarray(chunk)
        shape = tuple(edges[at + 1] - edges[at] for edges, at in zip(self._edges, coords, strict=True))
        if values.shape != shape or not np.can_cast(values.dtype, self.spec.dtype, "same_kind"):
            raise DataError(
                f"{self.name}: chunk {coords} is {values.dtype} of shape {values.shape}, and the array says "
                f"{self.spec.dtype} of shape {shape}; tell dask what its functions return (dtype and chunks "
                "of map_blocks, shape and dtype of from_delayed)"
            )
        require_unmasked(values, self.name)
        return values

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """The chunks touched, whole, and one more each for what they are computed from: a guess.

        And what is kept since all blocks share it.
        """
        self._prepared("rows" if n_cols == self.spec.n_cols else "columns")
        touched = 1
        for length, chunk in zip((n_rows, n_cols), self.chunks, strict=True):
            touched *= (-(-length // chunk) + (length % chunk > 0)) * chunk
        from dask.sizeof import sizeof

        held: int = sum(sizeof(value) for known in self._held.values() for value in known.values())
        return super().overhead(n_rows, n_cols) + 2 * touched * self.spec.dtype.itemsize + held

    @property
    def client(self) -> Any:
        """The client whose cluster computes the array, or holds its chunks; None where there is none."""
        return None if self._is_persisted else self._graph.client(self.name)

    @property
    def stays(self) -> bool:
        """Whether a cluster holds chunks of it, which it gives to this process only."""
        return super().stays or self._is_persisted

    def _snapshot(self) -> WholeSnapshot:
        """A digest of the graph's name, which is dask's own digest of how the array came about."""
        return WholeSnapshot(hashlib.blake2b(self._identity.encode(), digest_size=20).hexdigest())

    def _prepared(self, axis: Axis) -> Graph:
        """The graph, with what blocks along an axis share computed before the first of them is."""
        graph = self._graph
        if axis not in self._held:
            with self._lock:
                if axis not in self._held:
                    self._held[axis] = self._shared(graph, axis)
                    graph.hold(self._held[axis])
        return graph

    def _shared(self, graph: Graph, axis: Axis) -> dict[Any, Any]:
        chunk = self.chunks[0 if axis == "rows" else 1]  # the last rows are read in so short pieces
        block = max(1, blocks.BLOCK_BYTES // (chunk * self.spec.line_bytes(axis))) * chunk
        try:
            return graph.shared(self._bands(graph, axis, chunk), self._bands(graph, axis, block), self.name)
        except StreamdrError:
            raise
        except Exception as error:
            raise DataError(
                f"{self.name}: what its blocks share cannot be computed: {error or type(error).__name__}"
            ) from error

    def _bands(self, graph: Graph, axis: Axis, lines: int) -> list[list[Any]]:
        """The keys that are computed together by reads of so many rows, or columns."""
        everything = Span(0, self.spec.length("columns" if axis == "rows" else "rows"))
        bands = []
        for span in Span(0, self.spec.length(axis)).split(lines):
            region, _ = self.layout.select(*((span, everything) if axis == "rows" else (everything, span)))
            bands.append([(graph.name, *piece.coords) for piece in overlaps(self._edges, region)])
        return bands

    @cached_property
    def _graph(self) -> Graph:
        from streamdr.data.dask_graphs import Graph

        graph = Graph(self._array)
        for known in self._held.values():
            graph.hold(known)
        return graph

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_graph", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._lock = threading.Lock()


class XarraySource(Source):
    """An xarray variable that loads what is indexed: a file that xarray opened, decoded on the way."""

    def __init__(self, variable: Any, *, sample_axis: int | str = 0, name: str) -> None:
        self.name = name
        require_numeric(variable.dtype, name)
        self.layout = MatrixLayout.of(variable.shape, sample_axis, name, variable.dims)
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


def holds_futures(array: Any) -> bool:
    """Whether chunks of a dask array, or of what it is computed from, are held by a cluster."""
    if "distributed" not in sys.modules:
        return False
    future = sys.modules["distributed"].Future
    return any(isinstance(value, future) for value in array.__dask_graph__().values())
