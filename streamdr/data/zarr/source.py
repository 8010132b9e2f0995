"""A zarr array as a source: v2 or v3, sharded or not, chunked along any of its axes."""

from __future__ import annotations

import json
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamdr.core.blocks import Array, MatrixSpec, Span
from streamdr.core.buffers import scratch
from streamdr.core.safe_text import redact
from streamdr.data.dtypes import not_numeric
from streamdr.data.grid_source import GridSource
from streamdr.data.layout import MatrixLayout, Region
from streamdr.data.snapshot import ChunkSnapshot
from streamdr.data.zarr.codec_pipeline import MissingChunkError
from streamdr.data.zarr.codecs import shortened
from streamdr.data.zarr.grid import Overlap
from streamdr.data.zarr.locate import array_at
from streamdr.data.zarr.metadata import ArrayMetadata
from streamdr.data.zarr.missing_chunks import Present, find_missing
from streamdr.data.zarr.read_ahead import ReadAhead
from streamdr.data.zarr.reading import WholeReader, chunk_reader, declared_fill_value
from streamdr.data.zarr.stored_chunks import StoredChunks
from streamdr.data.zarr.stores import Node
from streamdr.errors import DataError
from streamdr.store.remote import RemoteError

# The metadata keys of zarr versions 2 and 3 that determine how chunks are decoded: no shape, no attributes.
_DECODING_KEYS = (
    *("zarr_format", "data_type", "chunk_grid", "chunk_key_encoding", "codecs", "storage_transformers"),
    *("dtype", "chunks", "compressor", "filters", "order", "dimension_separator", "fill_value"),
)
_MISSING_ADVICE = (
    "set allow_missing_chunks if it was left out on purpose (in Python, an argument of open_source)"
)
COMPANION_ADVICE = "write it again, with zarr's write_empty_chunks where all of its values are the fill value"


class ZarrSource(GridSource):
    """A zarr array. Chunks are read one by one in the calling thread, and errors name the chunk.

    Parameters
    ----------
    node, metadata
        The array.
    sample_axis : int or str
        The axis, or the named dimension, of the samples.
    allow_missing : bool
        Whether a chunk that is not stored is read as the fill value. Otherwise it is an error.
    may_be_unwritten : bool
        Whether chunks of features of which no chunk is stored for any row are read as the fill value.
    """

    private_buffers = True
    missing_advice = _MISSING_ADVICE
    """The advice in errors about missing chunks."""
    _takes_text = False

    def __init__(
        self,
        node: Node,
        metadata: ArrayMetadata,
        *,
        sample_axis: int | str,
        allow_missing: bool,
        may_be_unwritten: bool = False,
    ) -> None:
        self.name = node.name
        if metadata.is_text and not self._takes_text:
            file, key = ("zarr.json", "data_type") if metadata.zarr_format == 3 else (".zarray", "dtype")
            raise not_numeric(shortened(metadata.document[key]), f"{self.name}/{file}")
        self.layout = MatrixLayout.of(metadata.grid.shape, sample_axis, self.name, metadata.dims)
        # Chunks are converted to native byte order when they are copied to the result.
        dtype = metadata.dtype.newbyteorder("=")
        self.spec = MatrixSpec(self.layout.n_rows, self.layout.n_cols, dtype)
        # An incomplete chunk counts as complete, so that blocks stay the same when rows are appended.
        columns = self.layout.granularity(metadata.grid.chunk)[1]
        self.chunks = (metadata.grid.chunk[self.layout.sample_axis], columns)
        self.sample_shape = self.layout.features
        self.dims = None if metadata.dims is None else self.layout.samples_first(metadata.dims)
        names = metadata.feature_names
        self.feature_names = names if names is not None and len(names) == self.spec.n_cols else None
        self._node = node
        self._metadata = metadata
        self._allow_missing = allow_missing
        self._unwritten_along = self.layout.sample_axis if may_be_unwritten else None
        self._reader = chunk_reader(node, metadata, allow_missing=allow_missing or may_be_unwritten)
        self._read_ahead = ReadAhead(node, metadata, self.layout.sample_axis)
        self.attributes = metadata.attributes
        self.chunk_shape = metadata.grid.chunk
        whole = isinstance(self._reader, WholeReader)
        self.piece_shape = metadata.grid.chunk if whole else metadata.smallest
        self.grain = (self.piece_shape[self.layout.sample_axis], self.layout.granularity(self.piece_shape)[1])

    @property
    def fill_value(self) -> Any:
        """The value of chunks that were never written; None if the store does not define it."""
        return declared_fill_value(self._metadata, self.name)

    @property
    def codecs(self) -> tuple[str, ...]:
        """The compressors and checksums of the chunks, or of those inside a shard."""
        return self._metadata.compressors

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region, in native byte order."""
        region, part = self.layout.select(rows, cols)
        dtype = self._metadata.dtype.newbyteorder("=")
        return self._filled(np.empty(self.layout.shape_of(region), dtype), region, part)

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """Return the region, in memory that this thread's next call overwrites."""
        region, part = self.layout.select(rows, cols)
        memory = scratch("region", self.layout.shape_of(region), self.spec.dtype)
        return self._filled(memory, region, part)

    def _filled(self, matrix: Array, region: Region, part: Span) -> Array:
        """Read a region into a matrix, and return the requested columns."""
        self.fill_box(region, self.layout.box(matrix, region))
        return self.layout.trimmed(matrix, part)

    def fill_box(self, region: Region, box: Array) -> None:
        """Read a region of the array into `box`, chunk by chunk."""
        for piece in self._metadata.grid.overlaps(region):
            try:
                self._reader.fill(piece, box[piece.target])
            except Exception as error:
                raise self._unreadable(piece, error) from error
        self._read_ahead.after(region)

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the bytes of one chunk being decoded, and of columns that are read with those requested."""
        excess = n_rows * self.layout.excess(n_cols) * self.spec.dtype.itemsize
        return super().overhead(n_rows, n_cols) + self._reader.overhead + excess

    def _require_chunks(self) -> None:
        super()._require_chunks()
        if self._allow_missing:
            return
        try:
            present = self._present(self._stored_chunks().numbers)
        except OSError as error:
            raise DataError(f"{self.name}: its chunks cannot be listed: {error}") from error
        self._require_complete(present)

    def _stored_chunks(self) -> StoredChunks:
        """List the chunks of the array."""
        return self._node.stored_chunks(self._metadata.grid, self._metadata.keys)

    def _present(self, numbers: NDArray[np.int64]) -> Present:
        """Return which chunks are stored, from their numbers."""
        return Present.of(numbers, self._metadata.grid, self._unwritten_along)

    def _require_complete(self, present: Present) -> None:
        """Raise an error if chunks are missing, unless that is allowed."""
        if self._allow_missing:
            return
        try:
            missing = find_missing(self._node, self._metadata, present)
        except OSError as error:
            raise DataError(f"{self.name}: its chunks cannot be listed: {error}") from error
        if missing is not None:
            some = f" ({missing.count} of {missing.total} are)" if missing.count > 1 else ""
            where = self._covered(missing.region)
            raise DataError(
                f"{self.name}: chunk {missing.chunk} is missing, {where}{some}; {self.missing_advice}"
            )

    def _snapshot(self) -> ChunkSnapshot:
        """Return a snapshot of the metadata, and of the size and modification time of every chunk."""
        axis, grid = self.layout.sample_axis, self._metadata.grid
        try:
            numbers, stamps = self._stored_chunks()
            meaning = self._meaning()
        except OSError as error:
            raise DataError(f"{self.name}: its chunks cannot be listed: {error}") from error
        table = np.column_stack([*np.unravel_index(numbers, grid.counts), stamps])
        if axis:  # in C order, chunks are sorted by the first axis
            table = table[np.argsort(table[:, axis], kind="stable")]
        # One number per row is cheap to read. So chunks of weights need not end where chunks of the data end.
        contents = self._contents if self.spec.n_cols == 1 else None
        # Cached, because it reads the indexes of all shards.
        require = cache(partial(self._require_complete, self._present(numbers)))
        return ChunkSnapshot(meaning, grid.chunk[axis], table[:, axis].copy(), table, require, contents)

    def _meaning(self) -> bytes:
        """Return the metadata that determines how chunks are decoded and does not change with appended rows.

        It is read again from the store, since replacing it during a run changes what the chunks mean.
        """
        found = array_at(self._node)
        if found is None:
            raise DataError(f"{self.name}: the metadata of the array is gone; restore it from a copy")
        axis, shape = self.layout.sample_axis, found.metadata.grid.shape
        values = {key: found.metadata.document.get(key) for key in _DECODING_KEYS}
        changed = [key for key in _DECODING_KEYS if values[key] != self._metadata.document.get(key)]
        if (
            len(shape) != len(self.layout.shape)
            or shape[axis] < self.layout.n_rows
            or (*shape[:axis], *shape[axis + 1 :]) != self.layout.features
        ):
            changed.append("shape")
        if changed:
            raise DataError(
                f"{self.name}: its metadata has changed since it was opened ({', '.join(changed)}), so its "
                "chunks mean something else; run again when nothing writes to it"
            )
        return json.dumps([values, (*self.layout.features, axis)], sort_keys=True).encode()

    def _contents(self, start: int, stop: int) -> bytes:
        """Return the bytes of rows of a single column."""
        return self.read(Span(start, stop), Span(0, 1)).tobytes()

    def _unreadable(self, piece: Overlap, error: Exception) -> DataError:
        """Return the error for a chunk that cannot be read."""
        key = self._metadata.keys.key(piece.coords)
        where = self._covered(self._metadata.grid.bounds(piece.coords))
        if isinstance(error, MissingChunkError):
            return DataError(f"{self.name}: chunk {error} is missing, {where}; {self.missing_advice}")
        fault = redact(str(error)) or type(error).__name__
        message = f"{self.name}: chunk {key} cannot be read, {where}: {fault}"
        if isinstance(error, RemoteError):  # the server failed, not the chunk, and the error says what to do
            return DataError(message)
        return DataError(f"{message}; restore it from a copy or write it again")

    def _covered(self, region: Region) -> str:
        """Return the rows and columns of a region of the array, for a message."""
        return self._region(*self.layout.covers(region))
