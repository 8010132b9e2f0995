"""Decoding of chunks, for codecs that need no parameters to decode."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

import numcodecs
import numpy as np

from streamdr.core.blocks import Array
from streamdr.data.layout import Region
from streamdr.data.zarr.codecs import Codec
from streamdr.data.zarr.decompression import Decode, blosc_size, decompressor, encoded_limit
from streamdr.data.zarr.metadata import ArrayMetadata

_PLAIN = frozenset({"blosc", "zstd", "gzip", "zlib", "lz4", "bz2", "crc32c"})
_GROWING = frozenset({"gzip", "zlib", "bz2"})
"""These do not know the decoded size in advance, and need the decoded data twice for a moment."""


@dataclass(frozen=True)
class ChunkDecoder:
    """Decodes the bytes of a chunk to values."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: Literal["C", "F"]
    steps: tuple[str, ...]
    """The codecs, in the order of decoding."""

    @classmethod
    def of(cls, metadata: ArrayMetadata) -> ChunkDecoder | None:
        """Return the decoder of chunks of an array (inside its shards); None if codecs need parameters."""
        chain, dtype = metadata.codecs, metadata.dtype
        if dtype.kind == "O":
            return None
        if metadata.sharding is not None:
            chain = metadata.sharding.codecs
        if metadata.zarr_format == 3:
            if not chain or chain[0].name != "bytes":
                return None
            dtype = dtype.newbyteorder(">" if chain[0].configuration.get("endian") == "big" else "<")
            chain = chain[1:]
        names = tuple(codec.name for codec in reversed(chain))
        # The checksum of numcodecs, as in v2, may be at either end of the data.
        if ("crc32c" if metadata.zarr_format == 2 else "numcodecs.crc32c") in names:
            return None
        steps = tuple(name.removeprefix("numcodecs.") for name in names)
        return cls(metadata.smallest, dtype, metadata.order, steps) if set(steps) <= _PLAIN else None

    @cached_property
    def size(self) -> int:
        """The size of a decoded chunk in bytes."""
        return prod(self.shape) * self.dtype.itemsize

    @cached_property
    def limits(self) -> tuple[int, ...]:
        """The most bytes that each step may return, in the order of decoding. The last is the exact size."""
        return tuple(_encoded_size(self.size, len(self.steps) - 1 - i) for i in range(len(self.steps)))

    @cached_property
    def encoded_limit(self) -> int:
        """The most bytes that an encoded chunk can have."""
        return _encoded_size(self.size, len(self.steps))

    @property
    def overhead(self) -> int:
        """The bytes that decoding needs besides the result: at most the encoded and the decoded chunk."""
        return (3 if _GROWING & set(self.steps) else 2) * self.size

    def decode(self, data: bytes | Array, within: Region, target: Array) -> None:
        """Decode a chunk and copy its part `within` to `target`."""
        in_place = self.steps[-1:] == ("blosc",) and self._has_chunk_layout(target)
        encoded: Any = data
        steps = list(zip(self.steps, self.limits, strict=True))
        for step, limit in steps[: -1 if in_place else None]:
            encoded = _DECODERS[step](encoded, limit)
        if in_place:
            # blosc would silently fill only a part of the target.
            self._require_size(blosc_size(encoded))
            numcodecs.blosc.decompress(encoded, target)
            return
        decoded = np.frombuffer(encoded, np.uint8)
        self._require_size(decoded.size)
        target[...] = decoded.view(self.dtype).reshape(self.shape, order=self.order)[within]

    def _has_chunk_layout(self, target: Array) -> bool:
        """Whether the target has the memory layout of the decoded chunk, so that no copy is needed."""
        return (
            target.shape == self.shape
            and target.dtype == self.dtype
            and target.flags.c_contiguous
            and (self.order == "C" or target.ndim == 1)
        )

    def _require_size(self, size: int) -> None:
        """Raise an error if a chunk does not have its expected size."""
        if size != self.size:
            raise ValueError(f"it decodes to {size} bytes where {self.size} are expected")


def _encoded_size(size: int, steps: int) -> int:
    """Return the most bytes after a number of encoding steps."""
    for _ in range(steps):
        size = encoded_limit(size)
    return size


def _plain_decoder(name: str) -> Decode:
    """Return the decoder of a codec without parameters."""
    decoder = decompressor(Codec(name, {}))
    assert decoder is not None
    return decoder


_DECODERS = {name: _plain_decoder(name) for name in _PLAIN}
