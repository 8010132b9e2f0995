"""Lazy arrays: dask arrays, and xarray variables that are loaded without dask."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from streamdr.core import blocks
from streamdr.core.blocks import Array, Axis, MatrixSpec, Span
from streamdr.core.buffers import scratch
from streamdr.data.dtypes import require_numeric
from streamdr.data.grid_source import GridSource
from streamdr.data.in_memory import digest_contents, require_unmasked
from streamdr.data.layout import MatrixLayout, Region
from streamdr.data.shared_tasks import Key
from streamdr.data.snapshot import WholeSnapshot
from streamdr.data.sparse.scipy_matrices import as_scipy, is_sparse
from streamdr.data.zarr.grid import Overlap, overlaps
from streamdr.data.zarr.locate import Located
from streamdr.data.zarr.source import ZarrSource
from streamdr.errors import DataError, StreamdrError

if TYPE_CHECKING:
    from streamdr.data.dask_graphs import Graph


def open_dask(array: Any, sample_axis: int | str) -> GridSource:
    """Open a dask array. One that is a whole zarr array, as da.from_zarr returns it, is read as the store."""
    from streamdr.data.dask_stores import whole_store

    found = whole_store(array)
    return DaskSource(array, sample_axis=sample_axis) if found is None else LazyStore(found, sample_axis)


class LazyStore(ZarrSource):
    """A dask array that is a whole zarr array. Chunks that are not stored have the fill value, as in dask."""

    def __init__(self, found: Located, sample_axis: int | str) -> None:
        super().__init__(found.node, found.metadata, sample_axis=sample_axis, allow_missing=True)
        self.feature_names = self.dims = None  # a dask array has no names

    @property
    def client(self) -> Any:
        """The client that dask would use; None without one."""
        from streamdr.data.dask_graphs import active_client

        return active_client()


class DaskSource(GridSource):
    """A dask array. A read computes the chunks that it needs, in the calling thread or by a dask client."""

    def __init__(self, array: Any, *, sample_axis: int | str = 0, name: str | None = None) -> None:
        from streamdr.data.dask_graphs import futures_in

        self.name = name or f"dask array {array.name}"
        require_numeric(array.dtype, self.name)
        require_unmasked(array._meta, self.name)
        if any(np.isnan(length) for length in array.shape):
            raise DataError(
                f"{self.name}: its shape {array.shape} is unknown; call compute_chunk_sizes() on it first"
            )
        self.layout = MatrixLayout.of(array.shape, sample_axis, self.name)
        self.spec = MatrixSpec(self.layout.n_rows, self.layout.n_cols, array.dtype)
        self.chunks = self.layout.granularity(array.chunksize)
        self.chunk_shape = self.piece_shape = array.chunksize
        self._array = array
        self._identity = f"{array.name} {self.layout} {array.dtype.str} {array.chunks}"
        self._is_persisted = bool(futures_in(array))
        self._held: dict[Axis, dict[Any, Any]] = {}
        self._lock = threading.Lock()
        self._edges = tuple(tuple(accumulate(lengths, initial=0)) for lengths in array.chunks)

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region. All its chunks are one computation, so shared results are computed once."""
        region, part = self.layout.select(rows, cols)
        pieces, chunks = self._computed(region)
        whole = self._whole(region, chunks)
        if whole is None:
            whole, box = self.layout.empty(region, self.spec.dtype)
            _place(pieces, chunks, box)
        return self.layout.trimmed(whole, part)

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """Return the region: a chunk as it is, several in memory that this thread's next call overwrites."""
        region, part = self.layout.select(rows, cols)
        pieces, chunks = self._computed(region)
        whole = self._whole(region, chunks)
        if whole is None:
            whole = scratch("region", self.layout.shape_of(region), self.spec.dtype)
            _place(pieces, chunks, self.layout.box(whole, region))
        return self.layout.trimmed(whole, part)

    def _whole(self, region: Region, chunks: list[Array]) -> Array | None:
        """Return a region that is one chunk as a matrix, without a copy; None for other regions."""
        if len(chunks) != 1 or chunks[0].size != math.prod(self.layout.shape_of(region)):
            return None
        return self.layout.matrix(np.asarray(chunks[0], self.spec.dtype))

    def fill_box(self, region: Region, box: Array) -> None:
        """Compute a region of the array, and copy it into `box`."""
        _place(*self._computed(region), box)

    def _computed(self, region: Region) -> tuple[list[Overlap], list[Array]]:
        """Compute the chunks that a region overlaps, in one computation, and check them."""
        pieces, chunks = self._computed_chunks(region)
        return pieces, [
            self._checked(piece.coords, chunk) for piece, chunk in zip(pieces, chunks, strict=True)
        ]

    def _computed_chunks(self, region: Region) -> tuple[list[Overlap], list[Any]]:
        """Compute the chunks that a region overlaps, in one computation."""
        pieces = list(overlaps(self._edges, region))
        graph = self._prepared_for(self.layout.covers(region)[1])
        keys = self._keys(pieces)
        try:
            chunks = graph.compute(keys, graph.client(self.name))
        except StreamdrError:
            raise
        except Exception as error:
            raise DataError(
                f"{self.name}: {self._region(*self.layout.covers(region))} cannot be computed: "
                f"{error or type(error).__name__}"
            ) from error
        return pieces, [as_scipy(chunk) for chunk in chunks]

    def _checked(self, coords: tuple[int, ...], chunk: Any) -> Array:
        """Return the values of a chunk."""
        values: Array = chunk.toarray() if is_sparse(chunk) else np.asanyarray(chunk)
        self._require_like(coords, values)
        require_unmasked(values, self.name)
        return values

    def _require_like(self, coords: tuple[int, ...], values: Any) -> None:
        """Raise an error unless a chunk has the shape and the type of the array: dask does not check that."""
        shape = tuple(edges[at + 1] - edges[at] for edges, at in zip(self._edges, coords, strict=True))
        if values.shape != shape or not np.can_cast(values.dtype, self.spec.dtype, "same_kind"):
            raise DataError(
                f"{self.name}: chunk {coords} is {values.dtype} of shape {values.shape}, and the array says "
                f"{self.spec.dtype} of shape {shape}; tell dask what its functions return (dtype and chunks "
                "of map_blocks, shape and dtype of from_delayed)"
            )

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the bytes of the chunks that are read, and as much for their inputs, which is an estimate.

        The results that all blocks share are added.
        """
        self._prepared("rows" if n_cols == self.spec.n_cols else "columns")
        n_values = 1
        for length, chunk in zip((n_rows, n_cols), self.chunks, strict=True):
            n_values *= (-(-length // chunk) + (length % chunk > 0)) * chunk
        from dask.sizeof import sizeof

        held: int = sum(sizeof(value) for results in self._held.values() for value in results.values())
        return super().overhead(n_rows, n_cols) + 2 * n_values * self.spec.dtype.itemsize + held

    @property
    def client(self) -> Any:
        """The client whose cluster computes the array; None without one, or if a cluster holds chunks."""
        return None if self._is_persisted else self._graph.client(self.name)

    @property
    def holder(self) -> Any:
        """The client whose cluster holds chunks of the array; None without one.

        None also if tasks need more than these chunks: weights or labels that a cluster holds, or the axes of
        features, by which another source chooses what it reads of this one.
        """
        if not self._is_persisted or super().is_process_local or self.axes is not None:
            return None
        return self._graph.client(self.name)

    def remote_results(self, regions: Iterable[tuple[Span, Span]]) -> Mapping[Any, Any]:
        """Return the futures of the results on a cluster that reading regions needs, by their keys."""
        if not self._is_persisted:
            return {}
        found: dict[Any, Any] = {}
        for rows, cols in regions:
            region, _ = self.layout.select(rows, cols)
            found |= self._prepared_for(cols).futures(self._keys(overlaps(self._edges, region)))
        return found

    @property
    def is_process_local(self) -> bool:
        """Whether a cluster holds chunks of the array: only this process can get them."""
        return super().is_process_local or self._is_persisted

    def _snapshot(self) -> WholeSnapshot:
        """Return a digest of the name of the array, which dask derives from its graph."""
        return WholeSnapshot(hashlib.blake2b(self._identity.encode(), digest_size=20).hexdigest())

    def _prepared(self, axis: Axis) -> Graph:
        """Return the graph, after computing the results that blocks along an axis share."""
        graph = self._graph
        if axis not in self._held:
            with self._lock:
                if axis not in self._held:
                    self._held[axis] = self._shared(graph, axis)
                    graph.hold(self._held[axis])
        return graph

    def _prepared_for(self, cols: Span) -> Graph:
        """Return the graph, prepared for reads of these columns."""
        return self._prepared("rows" if len(cols) == self.spec.n_cols else "columns")

    def _keys(self, pieces: Iterable[Overlap]) -> list[Key]:
        """Return the keys of chunks."""
        return [(self._graph.name, *piece.coords) for piece in pieces]

    def _shared(self, graph: Graph, axis: Axis) -> dict[Any, Any]:
        """Compute and return the results that blocks along an axis share."""
        chunk = self.chunks[0 if axis == "rows" else 1]  # the last rows are read in pieces as short as this
        block = max(1, blocks.BLOCK_BYTES // (chunk * self.spec.line_bytes(axis))) * chunk
        try:
            return graph.shared(self._bands(axis, chunk), self._bands(axis, block), self.name)
        except StreamdrError:
            raise
        except Exception as error:
            raise DataError(
                f"{self.name}: the results that its blocks share cannot be computed: "
                f"{error or type(error).__name__}"
            ) from error

    def _bands(self, axis: Axis, lines: int) -> list[list[Any]]:
        """Return the keys that are computed together, for each read of this number of rows or columns."""
        everything = Span(0, self.spec.length("columns" if axis == "rows" else "rows"))
        bands = []
        for span in Span(0, self.spec.length(axis)).split(lines):
            region, _ = self.layout.select(*((span, everything) if axis == "rows" else (everything, span)))
            bands.append(self._keys(overlaps(self._edges, region)))
        return bands

    @cached_property
    def _graph(self) -> Graph:
        """The flattened graph. A pickle has either the array, or its graph without what a cluster holds."""

        from streamdr.data.dask_graphs import Graph

        graph = Graph(self._array)
        for results in self._held.values():
            graph.hold(results)
        return graph

    def __getstate__(self) -> dict[str, Any]:
        state = {key: value for key, value in self.__dict__.items() if key not in ("_graph", "_lock")}
        if self._is_persisted:  # tasks receive what the cluster holds, the shared results too
            state |= {"_array": None, "_graph": self._graph, "_held": {"rows": {}, "columns": {}}}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._lock = threading.Lock()


class XarraySource(GridSource):
    """A lazy xarray variable: xarray loads and decodes the part of a file that is indexed."""

    def __init__(self, variable: Any, *, sample_axis: int | str = 0, name: str) -> None:
        self.name = name
        require_numeric(variable.dtype, name)
        self.layout = MatrixLayout.of(variable.shape, sample_axis, name, variable.dims)
        self.spec = MatrixSpec(self.layout.n_rows, self.layout.n_cols, variable.dtype)
        preferred = variable.encoding.get("preferred_chunks") or {}
        self._chunk = tuple(preferred.get(dim, 1) for dim in variable.dims)
        self.chunks = self.layout.granularity(self._chunk)
        self.chunk_shape = self.piece_shape = self._chunk
        self._variable = variable

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region."""
        region, part = self.layout.select(rows, cols)
        return self.layout.trimmed(self.layout.matrix(self._loaded(region)), part)

    def fill_box(self, region: Region, box: Array) -> None:
        """Load a region of the variable, and copy it into `box`."""
        box[...] = self._loaded(region)

    def _loaded(self, region: Region) -> Array:
        """Load and decode a region of the variable."""
        try:
            loaded: Array = self._variable[region].values
        except Exception as error:
            raise DataError(
                f"{self.name}: {self._region(*self.layout.covers(region))} cannot be read: "
                f"{error or type(error).__name__}"
            ) from error
        return loaded

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return an estimate: the values before and after decoding, and the chunks being decoded."""
        region = n_rows * (self.layout.excess(n_cols) or n_cols)
        chunk = int(np.prod(self._chunk))
        return super().overhead(n_rows, n_cols) + (2 * region + 20 * chunk) * self.spec.dtype.itemsize

    def _snapshot(self) -> WholeSnapshot:
        """Return a digest of the contents: the file behind the variable is not accessible."""
        return WholeSnapshot(digest_contents(self).hexdigest())


def _place(pieces: list[Overlap], chunks: list[Array], box: Array) -> None:
    """Move the parts of chunks that belong to a region into `box`. Chunks are freed one by one."""
    for piece in reversed(pieces):
        box[piece.target] = chunks.pop()[piece.within]
