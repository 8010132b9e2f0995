"""Two ways to read a chunk: straight from its file, or through zarr.

zarr decodes every chunk into a buffer of its own, ten at a time, and copies them all in one thread. Read
straight, a chunk costs one file and one codec call in the thread that asked for it, and memory stays at
one chunk whatever the region. Two threads then read lz4 about one and a half times as fast and shards
about twice as fast; zstd, whose decoding is the cost, hardly gains. Where the codecs are not among the
plain ones zarr does it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import zarr

from streamdr.addresses import redact
from streamdr.blocks import Array
from streamdr.errors import DataError
from streamdr.sources.decoding import ChunkDecoder, blosc_size
from streamdr.sources.grid import Overlap
from streamdr.sources.metadata import ArrayMetadata
from streamdr.sources.shards import ABSENT, ShardIndex
from streamdr.sources.stores import Node


class MissingChunkError(Exception):
    """A chunk that should be there and is not."""


class ChunkReader(Protocol):
    """Fills memory with parts of chunks."""

    @property
    def overhead(self) -> int:
        """The bytes that reading one chunk takes besides the result, at most."""

    def fill(self, piece: Overlap, target: Array) -> None:
        """Read the part that `piece` says; raise MissingChunkError, or whatever the codec raises."""


def chunk_reader(node: Node, metadata: ArrayMetadata, *, allow_missing: bool) -> ChunkReader:
    """The faster of the ways to read this array."""
    try:
        array = node.open(metadata.zarr_format)
    except Exception as error:
        raise DataError(f"{node.name}: zarr cannot open this array: {redact(str(error))}") from error
    fill_value = array.fill_value if array.fill_value is not None else 0
    absent = Absent(fill_value if allow_missing else None)
    decoder, index = ChunkDecoder.of(metadata), ShardIndex.of(metadata)
    if decoder is not None and metadata.sharding is None:
        return FileReader(node, metadata, decoder, absent)
    if decoder is not None and index is not None:
        return ShardReader(node, metadata, decoder, index, absent)
    return ZarrReader(node, metadata, array, absent)


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
        data = self.node.borrow(key)
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
                data = part(int(offset), int(length))
                if len(data) != length:
                    raise ValueError(f"the file ends within chunk {inner.coords} of the shard")
                try:
                    self.decoder.decode(data, inner.within, into)
                except Exception as error:
                    raise ValueError(f"chunk {inner.coords} of the shard: {error}") from error


@dataclass(frozen=True)
class ZarrReader:
    """Anything that zarr can read, one chunk (or shard) at a time."""

    node: Node
    metadata: ArrayMetadata
    array: zarr.Array[Any]
    absent: Absent

    @property
    def overhead(self) -> int:
        """What zarr holds at once: the encoded chunk, and the decoded one before and after each filter."""
        itemsize = self.metadata.dtype.itemsize
        whole = 4 * prod(self.metadata.grid.chunk) * itemsize
        concurrent = 2 * zarr.config.get("async.concurrency") * prod(self.metadata.smallest) * itemsize
        return whole if self.metadata.sharding is None else whole + min(whole, concurrent)

    def fill(self, piece: Overlap, target: Array) -> None:
        """Read one chunk through zarr, which takes an absent one for its fill value without a word."""
        key = self.metadata.keys.key(piece.coords)
        if not self.node.exists(key):
            self.absent.fill(target, key)
            return
        if self.metadata.codecs and self.metadata.codecs[-1].name in ("blosc", "numcodecs.blosc"):
            blosc_size(self.node.read(key))
        corner = [i * length for i, length in zip(piece.coords, self.metadata.grid.chunk, strict=True)]
        region = tuple(
            slice(start + part.start, start + part.stop)
            for start, part in zip(corner, piece.within, strict=True)
        )
        target[...] = self.array[region]
