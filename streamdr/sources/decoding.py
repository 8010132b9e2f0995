"""From the bytes of one chunk to its values, for the codecs that need no parameters to decode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import google_crc32c
import numcodecs
import numpy as np

from streamdr.blocks import Array
from streamdr.sources.layout import Region
from streamdr.sources.metadata import ArrayMetadata


def blosc_size(data: Any) -> int:
    """The size that blosc data decodes to, by its header, if all of the data is there.

    blosc itself does not look, and reads whatever lies in memory behind data that was cut short.
    """
    header = bytes(data[:16])
    if len(header) < 16 or int.from_bytes(header[12:16], "little") != len(data):
        raise ValueError(f"its {len(data)} bytes are not what its blosc header says")
    return int.from_bytes(header[4:8], "little")


def _decode_blosc(data: Any) -> Any:
    blosc_size(data)
    return numcodecs.blosc.decompress(data)


def _check_crc32c(data: Any) -> Any:
    values = np.frombuffer(data, np.uint8)
    if google_crc32c.value(values[:-4]) != int.from_bytes(values[-4:].tobytes(), "little"):
        raise ValueError("the checksum (crc32c) does not match")
    return values[:-4]


_STEPS: dict[str, Callable[[Any], Any]] = {
    "blosc": _decode_blosc,
    "zstd": numcodecs.Zstd().decode,
    "gzip": numcodecs.GZip().decode,
    "zlib": numcodecs.Zlib().decode,
    "lz4": numcodecs.LZ4().decode,
    "bz2": numcodecs.BZ2().decode,
    "crc32c": _check_crc32c,
}
_GROWING = frozenset({"gzip", "zlib", "bz2"})
"""These do not know the size of what they decode, and hold it twice for a moment."""


@dataclass(frozen=True)
class ChunkDecoder:
    """Bytes of one chunk to values."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: Literal["C", "F"]
    steps: tuple[str, ...]
    """The codecs, in the order of decoding."""

    @classmethod
    def of(cls, metadata: ArrayMetadata) -> ChunkDecoder | None:
        """The decoder of an array's chunks (of the chunks in its shards), or None if only zarr can."""
        chain, dtype = metadata.codecs, metadata.dtype
        if metadata.sharding is not None:
            chain = metadata.sharding.codecs
        if metadata.zarr_format == 3:
            if not chain or chain[0].name != "bytes":
                return None
            dtype = dtype.newbyteorder(">" if chain[0].configuration.get("endian") == "big" else "<")
            chain = chain[1:]
        names = tuple(codec.name for codec in reversed(chain))
        # Where the checksum is numcodecs' own, as in v2, it may stand at either end of the data.
        if ("crc32c" if metadata.zarr_format == 2 else "numcodecs.crc32c") in names:
            return None
        steps = tuple(name.removeprefix("numcodecs.") for name in names)
        return cls(metadata.smallest, dtype, metadata.order, steps) if _STEPS.keys() >= set(steps) else None

    @property
    def overhead(self) -> int:
        """The bytes that decoding takes besides the result: the encoded and the decoded chunk, at worst."""
        buffers = 3 if _GROWING & set(self.steps) else 2
        return buffers * prod(self.shape) * self.dtype.itemsize

    def decode(self, data: bytes | Array, within: Region, target: Array) -> None:
        """Fill `target` with the part `within` the chunk."""
        in_place = self.steps[-1:] == ("blosc",) and self._is_image(target)
        encoded: Any = data
        for step in self.steps[: -1 if in_place else None]:
            encoded = _STEPS[step](encoded)
        if in_place:
            # blosc would also fill a part of the target, without complaint.
            self._require_size(blosc_size(encoded))
            numcodecs.blosc.decompress(encoded, target)
            return
        decoded = np.frombuffer(encoded, np.uint8)
        self._require_size(decoded.size)
        target[...] = decoded.view(self.dtype).reshape(self.shape, order=self.order)[within]

    def _is_image(self, target: Array) -> bool:
        """Whether the target is laid out exactly as the decoded chunk, so that no copy is needed."""
        return (
            target.shape == self.shape
            and target.dtype == self.dtype
            and target.flags.c_contiguous
            and (self.order == "C" or target.ndim == 1)
        )

    def _require_size(self, size: int) -> None:
        expected = prod(self.shape) * self.dtype.itemsize
        if size != expected:
            raise ValueError(f"it decodes to {size} bytes where {expected} are expected")
