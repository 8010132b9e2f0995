"""Reading chunks directly from their files.

zarr decodes ten chunks at a time into separate buffers, copies all of them in one thread, and decodes a chunk
to any size. Read directly, a chunk costs one file and one codec call in the calling thread. Memory stays at
one chunk for any region, and nothing is decoded beyond the size of a chunk. Two threads then read lz4 about
1.5 times as fast and shards about twice as fast. zstd hardly gains, since decoding takes most of its time.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata

from streamdr.core.blocks import Array
from streamdr.core.safe_text import redact
from streamdr.data.zarr.codec_pipeline import MissingChunkError, Pipeline, pipeline
from streamdr.data.zarr.decoding import ChunkDecoder
from streamdr.data.zarr.grid import Overlap
from streamdr.data.zarr.metadata import ArrayMetadata
from streamdr.data.zarr.shards import ABSENT, ShardIndex
from streamdr.data.zarr.stores import Node
from streamdr.errors import DataError


class ChunkReader(Protocol):
    """Reads parts of chunks into memory."""

    @property
    def overhead(self) -> int:
        """The most bytes that reading a chunk needs besides the result."""

    def fill(self, piece: Overlap, target: Array) -> None:
        """Read one part of a chunk; raise MissingChunkError, or any exception of the codec."""


def chunk_reader(node: Node, metadata: ArrayMetadata, *, allow_missing: bool) -> ChunkReader:
    """Return the fastest reader for this array."""
    fill_value = declared_fill_value(metadata, node.name)
    absent = Absent((0 if fill_value is None else fill_value) if allow_missing else None)
    decoder, index = ChunkDecoder.of(metadata), ShardIndex.of(metadata)
    if decoder is not None and metadata.sharding is None:
        return FileReader(node, metadata, decoder, absent)
    if decoder is not None and index is not None:
        return ShardReader(node, metadata, decoder, index, absent)
    return WholeReader(node, metadata, pipeline(metadata, absent.fill_value, node.name), absent)


def declared_fill_value(metadata: ArrayMetadata, name: str) -> Any:
    """Return the value of chunks that were never written; None if the store does not define it.

    zarr parses the metadata here, and may still reject it.
    """
    try:
        return _parsed_fill_value(json.dumps(metadata.document), metadata.zarr_format)
    except Exception as error:
        raise DataError(f"{name}: zarr cannot open this array: {redact(str(error))}") from error


@lru_cache(maxsize=256)
def _parsed_fill_value(document: str, zarr_format: int) -> Any:
    """Return the fill value that zarr finds in metadata. Many stores of one input have the same."""
    kind = ArrayV3Metadata if zarr_format == 3 else ArrayV2Metadata
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about codecs outside the specification: `codecs` checks them
        return kind.from_dict(json.loads(document)).fill_value


@dataclass(frozen=True)
class Absent:
    """How a missing chunk is read: as the fill value, or (None) as an error."""

    fill_value: Any

    def fill(self, target: Array, chunk: str) -> None:
        """Fill the target with the fill value, or raise an error if missing chunks are not allowed."""
        if self.fill_value is None:
            raise MissingChunkError(chunk)
        target[...] = self.fill_value


@dataclass(frozen=True)
class FileReader:
    """Reads chunks that are one file each."""

    node: Node
    metadata: ArrayMetadata
    decoder: ChunkDecoder
    absent: Absent

    @property
    def overhead(self) -> int:
        """The bytes of the encoded and the decoded chunk."""
        return self.decoder.overhead

    def fill(self, piece: Overlap, target: Array) -> None:
        """Read one file."""
        key = self.metadata.keys.key(piece.coords)
        data = self.node.read_scratch(key, self.decoder.encoded_limit)
        if data is None:
            self.absent.fill(target, key)
        else:
            self.decoder.decode(data, piece.within, target)


@dataclass(frozen=True)
class ShardReader:
    """Reads shards: files of smaller chunks, of which only those needed are read."""

    node: Node
    metadata: ArrayMetadata
    decoder: ChunkDecoder
    index: ShardIndex
    absent: Absent

    @property
    def overhead(self) -> int:
        """The bytes of one inner chunk, encoded and decoded, and of the index."""
        return self.decoder.overhead + 2 * self.index.size

    def fill(self, piece: Overlap, target: Array) -> None:
        """Read the index, then the chunks one by one."""
        key = self.metadata.keys.key(piece.coords)
        with self.node.parts(key) as part:
            if part is None:
                self.absent.fill(target, key)
                return
            index = self.index.read(part)
            for inner in self.index.grid.overlaps(piece.within):
                offset, length = index[inner.coords]
                into = target[inner.target]
                if offset == ABSENT:
                    self.absent.fill(into, f"{inner.coords} of shard {key}")
                    continue
                if length > self.decoder.encoded_limit:
                    raise ValueError(f"chunk {inner.coords} of the shard is longer than a chunk can be")
                data = part(int(offset), int(length))
                if len(data) != length:
                    raise ValueError(f"the file ends within chunk {inner.coords} of the shard")
                try:
                    self.decoder.decode(data, inner.within, into)
                except Exception as error:
                    raise ValueError(f"chunk {inner.coords} of the shard: {error}") from error


@dataclass(frozen=True)
class WholeReader:
    """Reads chunks or shards that are decoded in one piece: with filters, text, or nested shards."""

    node: Node
    metadata: ArrayMetadata
    pipeline: Pipeline
    absent: Absent

    @property
    def overhead(self) -> int:
        """The most bytes that the codecs hold at a time."""
        return self.pipeline.overhead

    def fill(self, piece: Overlap, target: Array) -> None:
        """Read one file and decode all of it."""
        key = self.metadata.keys.key(piece.coords)
        data = self.node.read_scratch(key, self.pipeline.encoded_limit)
        if data is None:
            self.absent.fill(target, key)
        else:
            target[...] = self.pipeline.decode(data, piece.within)[piece.within]
