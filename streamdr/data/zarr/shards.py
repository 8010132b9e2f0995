"""The index of a shard: the offset and length of each chunk in it, and which chunks were never written."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from streamdr.data.zarr.codecs import named
from streamdr.data.zarr.grid import ChunkGrid
from streamdr.data.zarr.metadata import ArrayMetadata, Sharding
from streamdr.data.zarr.stores import ReadPart

ABSENT = np.uint64(2**64 - 1)
"""The offset and the length of a chunk that was never written."""


@dataclass(frozen=True)
class ShardIndex:
    """The format of the index of a shard: 16 bytes per chunk, at one end, with or without a checksum."""

    grid: ChunkGrid
    """The chunks inside one shard."""
    at_end: bool
    checksum: bool
    byte_order: str

    @classmethod
    def of(cls, metadata: ArrayMetadata) -> ShardIndex | None:
        """Return the index of the shards of an array, or None if its codecs are not the usual ones."""
        if metadata.sharding is None or named(metadata.codecs) != ("sharding_indexed",):
            return None
        return cls.within(metadata.grid.chunk, metadata.sharding)

    @classmethod
    def within(cls, shard: tuple[int, ...], sharding: Sharding) -> ShardIndex | None:
        """Return the index of shards of a shape, or None if its codecs are not the usual ones."""
        if named(sharding.index_codecs) not in (("bytes",), ("bytes", "crc32c")):
            return None
        return cls(
            ChunkGrid(shard, sharding.inner),
            sharding.index_at_end,
            checksum=len(sharding.index_codecs) == 2,
            byte_order=">" if sharding.index_codecs[0].configuration.get("endian") == "big" else "<",
        )

    @property
    def size(self) -> int:
        """The size of the index in bytes."""
        return 16 * prod(self.grid.counts) + 4 * self.checksum

    def read(self, part: ReadPart) -> NDArray[np.uint64]:
        """Return the offset and the length of every chunk of a shard."""
        return self.parse(part(-self.size if self.at_end else 0, self.size))

    def parse(self, data: bytes | memoryview) -> NDArray[np.uint64]:
        """Return the offsets and lengths, from the bytes of the index."""
        if len(data) != self.size:
            raise ValueError(f"the file ends within the index of the shard, {self.size} bytes")
        if self.checksum:
            data, stored = data[:-4], data[-4:]
            if google_crc32c.value(bytes(data)) != int.from_bytes(stored, "little"):
                raise ValueError("the checksum of the shard's index does not match")
        index = np.frombuffer(data, f"{self.byte_order}u8").astype(np.uint64, copy=False)
        return index.reshape(*self.grid.counts, 2)
