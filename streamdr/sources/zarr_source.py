"""A zarr array as a source: v2 or v3, sharded or not, chunked along any of its axes."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import numpy as np

from streamdr.addresses import redact
from streamdr.blocks import Array, MatrixSpec, Span
from streamdr.errors import DataError
from streamdr.remote import RemoteError
from streamdr.scratch import scratch
from streamdr.sources.base import Source
from streamdr.sources.grid import Overlap
from streamdr.sources.layout import Layout, Region
from streamdr.sources.metadata import ArrayMetadata
from streamdr.sources.missing import find_missing, present_chunks
from streamdr.sources.reading import MissingChunkError, chunk_reader
from streamdr.sources.snapshot import ChunkSnapshot
from streamdr.sources.stores import Node

# The words of zarr's metadata, versions 2 and 3, without the shape and whatever people note down.
_DECISIVE = (
    *("zarr_format", "data_type", "chunk_grid", "chunk_key_encoding", "codecs", "storage_transformers"),
    *("dtype", "chunks", "compressor", "filters", "order", "dimension_separator", "fill_value"),
)
_MISSING = "set allow_missing_chunks if it was never meant to be written"


class ZarrSource(Source):
    """Reads chunk after chunk in the calling thread, and knows which one failed."""

    lends = True

    def __init__(
        self, node: Node, metadata: ArrayMetadata, *, sample_axis: int | str, allow_missing: bool
    ) -> None:
        self.name = node.name
        self.layout = Layout.of(metadata.grid.shape, sample_axis, self.name, metadata.dims)
        # Byte order is the storage's affair: chunks become native as they are put in place.
        dtype = metadata.dtype.newbyteorder("=")
        self.spec = MatrixSpec(self.layout.n_rows, self.layout.n_cols, dtype)
        # A chunk that is not full yet counts as whole: it will be cut alike when rows are appended.
        columns = self.layout.granularity(metadata.grid.chunk)[1]
        self.chunks = (metadata.grid.chunk[self.layout.sample_axis], columns)
        self.sample_shape = self.layout.features
        self.dims = None if metadata.dims is None else self.layout.samples_first(metadata.dims)
        names = metadata.feature_names
        self.feature_names = names if names is not None and len(names) == self.spec.n_cols else None
        self._node = node
        self._metadata = metadata
        self._allow_missing = allow_missing
        self._reader = chunk_reader(node, metadata, allow_missing=allow_missing)

    @property
    def fill_value(self) -> Any:
        """What a chunk that was never written stands for; None where the store does not say."""
        return self._node.open(self._metadata.zarr_format).fill_value

    def read(self, rows: Span, cols: Span) -> Array:
        """The region, in native byte order."""
        region, part = self.layout.select(rows, cols)
        return self._filled(np.empty(self.layout.shape_of(region), self.spec.dtype), region, part)

    def borrow(self, rows: Span, cols: Span) -> Array:
        """The region, in memory that lasts until this thread borrows again."""
        region, part = self.layout.select(rows, cols)
        memory = scratch("region", self.layout.shape_of(region), self.spec.dtype)
        return self._filled(memory, region, part)

    def _filled(self, matrix: Array, region: Region, part: Span) -> Array:
        box = self.layout.box(matrix, region)
        for piece in self._metadata.grid.overlaps(region):
            try:
                self._reader.fill(piece, box[piece.target])
            except Exception as error:
                raise self._unreadable(piece, error) from error
        return self.layout.trimmed(matrix, part)

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """One chunk on its way, and the columns that come with those asked for."""
        excess = n_rows * self.layout.excess(n_cols) * self.spec.dtype.itemsize
        return super().overhead(n_rows, n_cols) + self._reader.overhead + excess

    def validate(self) -> None:
        """Refuse an array with missing chunks, unless that is allowed."""
        super().validate()
        if self._allow_missing:
            return
        try:
            missing = find_missing(self._node, self._metadata)
        except OSError as error:
            raise DataError(f"{self.name}: its chunks cannot be listed: {error}") from error
        if missing is not None:
            some = f" ({missing.count} of {missing.total} are)" if missing.count > 1 else ""
            where = self._covered(missing.region)
            raise DataError(f"{self.name}: chunk {missing.chunk} is missing, {where}{some}; {_MISSING}")

    def _snapshot(self) -> ChunkSnapshot:
        """The metadata, and every chunk's size and time of modification."""
        axis, grid = self.layout.sample_axis, self._metadata.grid
        try:
            numbers = present_chunks(self._node, self._metadata)
            coords = np.stack(np.unravel_index(numbers, grid.counts), axis=1)
            keys = (self._metadata.keys.key(place) for place in coords.tolist())
            stamps = np.fromiter(chain.from_iterable(self._node.stamp(key) for key in keys), np.int64)
        except OSError as error:
            raise DataError(f"{self.name}: its chunks cannot be listed: {error}") from error
        order = np.argsort(coords[:, axis], kind="stable")
        table = np.concatenate([coords, stamps.reshape(-1, 2)], axis=1)[order]
        # One number a row is cheap to read: weights then need no chunks that end where the data's do.
        contents = self._contents if self.spec.n_cols == 1 else None
        return ChunkSnapshot(self._meaning(), grid.chunk[axis], table[:, axis].copy(), table, contents)

    def _meaning(self) -> bytes:
        """What of the metadata decides how chunks are read, and does not change when rows are appended."""
        words = {key: self._metadata.document.get(key) for key in _DECISIVE}
        features = (*self.layout.features, self.layout.sample_axis)
        return json.dumps([words, features], sort_keys=True).encode()

    def _contents(self, start: int, stop: int) -> bytes:
        return self.read(Span(start, stop), Span(0, 1)).tobytes()

    def _unreadable(self, piece: Overlap, error: Exception) -> DataError:
        key = self._metadata.keys.key(piece.coords)
        where = self._covered(self._metadata.grid.bounds(piece.coords))
        if isinstance(error, MissingChunkError):
            return DataError(f"{self.name}: chunk {error} is missing, {where}; {_MISSING}")
        fault = redact(str(error)) or type(error).__name__
        said = f"{self.name}: chunk {key} cannot be read, {where}: {fault}"
        if isinstance(error, RemoteError):  # it is the store that is at fault, and the error says what to do
            return DataError(said)
        return DataError(f"{said}; restore it from a copy or write it again")

    def _covered(self, region: Region) -> str:
        return self._region(*self.layout.covers(region))
