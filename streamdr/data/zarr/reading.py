"""Reading chunks straight from their files.

zarr decodes every chunk into a buffer of its own, ten at a time, and copies them all in one thread; and it
decodes whatever a chunk becomes. Read straight, a chunk costs one file and one codec call in the thread
that asked for it, memory stays at one chunk whatever the region, and nothing is decoded beyond the size of
a chunk. Two threads then read lz4 about one and a half times as fast and shards about twice as fast; zstd,
whose decoding is the cost, hardly gains.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
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
    """Fills memory with parts of chunks."""

    @property
    def overhead(self) -> int:
        """The bytes that reading one chunk takes besides the result, at most."""

    def fill(self, piece: Overlap, target: Array) -> None:
        """Read the part that `piece` says; raise MissingChunkError, or whatever the codec raises."""


def chunk_reader(node: Node, metadata: ArrayMetadata, *, allow_missing: bool) -> ChunkReader:
    """The fastest of the ways to read this array."""
    fill_value = declared_fill_value(metadata, node.name)
    absent = Absent((0 if fill_value is None else fill_value) if allow_missing else None)
    decoder, index = ChunkDecoder.of(metadata), ShardIndex.of(metadata)
    if decoder is not None and metadata.sharding is None:
        return FileReader(node, metadata, decoder, absent)
    if decoder is not None and index is not None:
        return ShardReader(node, metadata, decoder, index, absent)
    return WholeReader(node, metadata, pipeline(metadata, absent.fill_value, node.name), absent)


def declared_fill_value(metadata: ArrayMetadata, name: str) -> Any:
    """What a chunk that was never written stands for; None where the store does not say.

    zarr looks at the metadata, and has the last word on whether it makes sense.
    """
    kind = ArrayV3Metadata if metadata.zarr_format == 3 else ArrayV2Metadata
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # codecs beyond the specification, which are on our own list
            return kind.from_dict(dict(metadata.document)).fill_value
    except Exception as error:
        raise DataError(f"{name}: zarr cannot open this array: {redact(str(error))}") from error


@dataclass(frozen=True)
class Absent:
    """What a chunk that is not there stands for: its fill value, or (None) an error."""

    fill_value: Any

    def fill(self, target: Array, chunk: str) -> None:
        """Stand in for a chunk, if that is allowed."""
        if self.fill_value is None:
            raise MissingChunkError(chunk)
        target[...] = self.fill_value


@dataclass(frozen=True)
class FileReader:
    """A chunk is a file."""

    node: Node
    metadata: ArrayMetadata
    decoder: ChunkDecoder
    absent: Absent

    @property
    def overhead(self) -> int:
        """The encoded and the decoded chunk."""
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
    """A chunk is a shard: a file of smaller chunks, of which only those asked for are read."""

    node: Node
    metadata: ArrayMetadata
    decoder: ChunkDecoder
    index: ShardIndex
    absent: Absent

    @property
    def overhead(self) -> int:
        """One of the smaller chunks, encoded and decoded, and the index."""
        return self.decoder.overhead + 2 * self.index.size

    def fill(self, piece: Overlap, target: Array) -> None:
        """Read the index and then chunk after chunk."""
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
                    raise ValueError(f"chunk {inner.coords} of the shard is too long to be one")
                data = part(int(offset), int(length))
                if len(data) != length:
                    raise ValueError(f"the file ends within chunk {inner.coords} of the shard")
                try:
                    self.decoder.decode(data, inner.within, into)
                except Exception as error:
                    raise ValueError(f"chunk {inner.coords} of the shard: {error}") from error


@dataclass(frozen=True)
class WholeReader:
    """A chunk or shard that is decoded in one piece: filters, text, shards within shards."""

    node: Node
    metadata: ArrayMetadata
    pipeline: Pipeline
    absent: Absent

    @property
    def overhead(self) -> int:
        """What the codecs hold at once."""
        return self.pipeline.overhead

    def fill(self, piece: Overlap, target: Array) -> None:
        """Read one file, and decode all of it."""
        key = self.metadata.keys.key(piece.coords)
        data = self.node.read_scratch(key, self.pipeline.encoded_limit)
        if data is None:
            self.absent.fill(target, key)
        else:
            target[...] = self.pipeline.decode(data, piece.within)[piece.within]
