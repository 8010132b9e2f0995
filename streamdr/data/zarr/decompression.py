"""Bounded decompression: nothing is decoded beyond the expected size.

A few kilobytes can decompress to gigabytes. The metadata has the size of a chunk, which limits what a codec
may return.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import google_crc32c
import numcodecs
import numpy as np

from streamdr.data.zarr.codecs import Codec

Decode = Callable[[Any, int], Any]
"""Decodes bytes, given the most bytes of the result. Damaged data raises any exception."""

LZMA_MEMORY = 80 << 20
"""The memory that the strongest preset of lzma needs to decode any data."""
_ZSTD_BLOCK = 128 << 10


def encoded_limit(size: int) -> int:
    """Return the most bytes that a compressor makes of `size` bytes: noise becomes a little longer."""
    return size + size // 8 + (64 << 10)


def decompressor(codec: Codec) -> Decode | None:
    """Return the bounded decoder of a compressor or of the checksum of zarr v3; None for other codecs."""
    name = codec.name if codec.name == "numcodecs.crc32c" else codec.name.removeprefix("numcodecs.")
    if name == "lzma":
        return partial(_lzma, codec.configuration)
    return _DECODERS.get(name)


def blosc_size(data: Any) -> int:
    """Return the decoded size in the header of blosc data. Truncated data is an error.

    blosc does not check for it, and reads memory beyond the end of truncated data.
    """
    header = bytes(data[:16])
    if len(header) < 16 or int.from_bytes(header[12:16], "little") != len(data):
        raise ValueError(f"its {len(data)} bytes are not what its blosc header says")
    return int.from_bytes(header[4:8], "little")


def _require(size: int, limit: int) -> int:
    """Return the size, or raise an error if it exceeds the limit."""
    if size > limit:
        raise ValueError(f"it decodes to {size:,} bytes or more where {limit:,} are expected")
    return size


def _blosc(data: Any, limit: int) -> Any:
    _require(blosc_size(data), limit)
    return numcodecs.blosc.decompress(data)


def _lz4(data: Any, limit: int) -> Any:
    header = bytes(data[:4])
    if len(header) < 4:
        raise ValueError("the data ends within its header")
    _require(int.from_bytes(header, "little"), limit)
    return numcodecs.lz4.decompress(data)


def _zstd(data: Any, limit: int) -> Any:
    declared, most = zstd_sizes(data)
    if declared is not None:
        return numcodecs.zstd.decompress(data, np.empty(_require(declared, limit), np.uint8))
    if most <= encoded_limit(limit):
        return numcodecs.zstd.decompress(data)
    return numcodecs.zstd.decompress(data, np.empty(limit, np.uint8))


def zstd_sizes(data: Any) -> tuple[int | None, int]:
    """Return the decoded size if the frames of zstd data declare it, and the most that its blocks allow."""
    view = memoryview(data).cast("B")
    declared: int | None = 0
    most = position = 0
    while position < len(view):
        word = _number(view, position, 4)
        if word & 0xFFFFFFF0 == 0x184D2A50:  # a skippable frame
            position += 8 + _number(view, position + 4, 4)
            continue
        if word != 0xFD2FB528:
            raise ValueError("it is not zstd data")
        flags = _number(view, position + 4, 1)
        single = flags >> 5 & 1
        width = (single, 2, 4, 8)[flags >> 6]
        position += 5 + (not single) + (0, 1, 2, 4)[flags & 3]
        if not width:
            declared = None
        elif declared is not None:
            declared += _number(view, position, width) + (256 if width == 2 else 0)
        position += width
        last = False
        while not last:
            block = _number(view, position, 3)
            last, kind, length = bool(block & 1), block >> 1 & 3, block >> 3
            position += 3 + (1 if kind == 1 else length)
            most += _ZSTD_BLOCK if kind == 2 else length
        position += 4 * (flags >> 2 & 1)
    if position > len(view):
        raise ValueError("the data ends within a zstd frame")
    return declared, most


def _number(view: memoryview, start: int, length: int) -> int:
    """Return a little-endian integer in zstd data."""
    if start + length > len(view):
        raise ValueError("the data ends within a zstd frame")
    return int.from_bytes(view[start : start + length], "little")


def _read(file: Any, limit: int) -> bytes:
    """Read a decompressed file of at most `limit` bytes."""
    decoded: bytes = file.read(limit + 1)
    _require(len(decoded), limit)
    return decoded


def _gzip(data: Any, limit: int) -> Any:
    return _read(gzip.GzipFile(fileobj=io.BytesIO(data)), limit)


def _bz2(data: Any, limit: int) -> Any:
    return _read(bz2.BZ2File(io.BytesIO(data)), limit)


def inflate(data: Any, limit: int) -> Any:
    """Return decoded zlib data, of at most `limit` bytes."""
    return _complete(zlib.decompressobj(), data, limit)


def _lzma(configuration: Mapping[str, Any], data: Any, limit: int) -> Any:
    kind, filters = configuration.get("format", lzma.FORMAT_XZ), configuration.get("filters")
    memory = LZMA_MEMORY + limit
    if kind == lzma.FORMAT_RAW:  # lzma accepts no memory limit for this format
        sizes = [step.get("dict_size") or 0 for step in filters or []]
        if any(not isinstance(size, int) or size > memory for size in sizes):
            raise ValueError(f"its lzma dictionary is larger than {memory:,} bytes")
        return _complete(lzma.LZMADecompressor(kind, filters=filters), data, limit)
    return _complete(lzma.LZMADecompressor(kind, memlimit=memory), data, limit)


def _complete(decoder: Any, data: Any, limit: int) -> bytes:
    """Return the decoded data of one stream. An incomplete stream is an error."""
    decoded: bytes = decoder.decompress(data, limit + 1)
    _require(len(decoded), limit)
    if not decoder.eof:
        raise ValueError("the data ends within its stream")
    return decoded


def _crc32c(data: Any, limit: int) -> Any:
    values = np.frombuffer(data, np.uint8)
    if values.size < 4:
        raise ValueError("it is too short to end in a checksum (crc32c)")
    if google_crc32c.value(values[:-4]) != int.from_bytes(values[-4:].tobytes(), "little"):
        raise ValueError("the checksum (crc32c) does not match")
    return values[:-4]


_DECODERS: dict[str, Decode] = {
    "blosc": _blosc,
    "lz4": _lz4,
    "zstd": _zstd,
    "gzip": _gzip,
    "bz2": _bz2,
    "zlib": inflate,
    "crc32c": _crc32c,
}
