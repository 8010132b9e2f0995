"""Chunks of HDF5 datasets, decoded here: within the limits of the metadata, outside the lock of HDF5."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import h5py
import numcodecs
import numpy as np

from streamdr.core.blocks import Array
from streamdr.data.layout import Region
from streamdr.data.zarr.codecs import Codec
from streamdr.data.zarr.decompression import decompressor, encoded_limit

DEFLATE, SHUFFLE, FLETCHER32, NBIT, SCALE_OFFSET = 1, 2, 3, 5, 6
"""The numbers of filters that HDF5 has built in."""
_COMPRESSORS = {DEFLATE: "zlib", 307: "bz2", 32001: "blosc", 32015: "zstd"}
"""The filters whose chunks are plain data of a compressor."""
_NAMES = {4: "szip", 32000: "lzf", 32004: "lz4", 32008: "bitshuffle", 32013: "zfp", 32026: "blosc2"}
_CHECKSUM_WORDS = 1 << 15
"""The words of a checksum that are summed at a time: their weighted sum fits in 64 bits."""


class Filter(NamedTuple):
    """A filter of a dataset, and its parameters."""

    number: int
    values: tuple[int, ...]


def filters_of(dataset: h5py.Dataset) -> tuple[Filter, ...]:
    """Return the filters of a dataset, in the order of writing."""
    properties = dataset.id.get_create_plist()
    found = (properties.get_filter(i) for i in range(properties.get_nfilters()))
    return tuple(Filter(number, tuple(values)) for number, _, values, _ in found)


def require_declared_sizes(filters: tuple[Filter, ...], size: int) -> None:
    """Raise an error if a filter would decode a chunk to something else than `size` bytes."""
    for number, values in filters:
        # For these filters the file declares the number of values and their size.
        if number in (NBIT, SCALE_OFFSET) and values[2] * values[4] != size:
            raise ValueError("a filter declares another size than that of a chunk")


def require_filters(filters: tuple[Filter, ...], size: int) -> None:
    """Raise an error if chunks of `size` bytes cannot be decoded, or not within this size."""
    require_declared_sizes(filters, size)
    for number, _ in filters:
        known = number in _COMPRESSORS or number in (SHUFFLE, FLETCHER32)
        if not known and not h5py.h5z.filter_avail(number):
            name = _NAMES.get(number, f"number {number}")
            raise ValueError(f"its chunks were compressed by the filter {name}, which is not installed")


@dataclass(frozen=True)
class ChunkDecoder:
    """Decodes stored chunks, for filters that need no library of HDF5."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    filters: tuple[Filter, ...]

    @classmethod
    def of(cls, dataset: h5py.Dataset) -> ChunkDecoder | None:
        """Return the decoder of a dataset; None where HDF5 has to decode or convert its values."""
        filters, dtype = filters_of(dataset), dataset.dtype
        own = all(number in _COMPRESSORS or number in (SHUFFLE, FLETCHER32) for number, _ in filters)
        stored_so = dataset.id.get_type().equal(h5py.h5t.py_create(dtype))
        return cls(dataset.chunks, dtype, filters) if own and stored_so and dtype.kind in "iuf" else None

    @property
    def size(self) -> int:
        """The size of a decoded chunk in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def overhead(self) -> int:
        """The most bytes that decoding needs besides the result: the chunk after each of two filters."""
        return self.limits[-1] + 2 * self.size

    @cached_property
    def limits(self) -> list[int]:
        """The most bytes before the first filter encodes, and after each filter."""
        limits = [self.size]
        for _ in self.filters:
            limits.append(encoded_limit(limits[-1]))
        return limits

    def decode(self, skipped: int, stored: bytes, within: Region, target: Array) -> None:
        """Decode a chunk into `target`. `skipped` has a bit for each filter that was not applied."""
        data: Any = stored
        for i, (number, values) in reversed(list(enumerate(self.filters))):
            if skipped >> i & 1:
                continue
            if number == SHUFFLE:
                data = _unshuffled(data, values[0] if values else self.dtype.itemsize)
            elif number == FLETCHER32:
                data = _checked(data)
            else:
                data = _decoders[number](data, self.limits[i])
        values_of_chunk = np.frombuffer(data, np.uint8)
        if values_of_chunk.size != self.size:
            raise ValueError(f"it decodes to {values_of_chunk.size:,} bytes where {self.size:,} are expected")
        target[...] = values_of_chunk.view(self.dtype).reshape(self.shape)[within]


def _compressor(name: str) -> Callable[[Any, int], Any]:
    decoder = decompressor(Codec(name, {}))
    assert decoder is not None
    return decoder


_decoders = {number: _compressor(name) for number, name in _COMPRESSORS.items()}


def _unshuffled(data: Any, size: int) -> Any:
    """Return data whose bytes were sorted by significance."""
    values = np.frombuffer(data, np.uint8)
    whole = values.size - values.size % size if size > 0 else 0
    if size < 2 or not whole:
        return values
    restored = np.empty_like(values)
    restored[:whole] = np.frombuffer(numcodecs.Shuffle(size).decode(values[:whole]), np.uint8)
    restored[whole:] = values[whole:]
    return restored


def _checked(data: Any) -> Any:
    """Return data without its checksum at the end, or raise an error if that does not match."""
    values = np.frombuffer(data, np.uint8)
    if values.size < 4:
        raise ValueError("it is too short to end in a checksum (fletcher32)")
    found = int.from_bytes(values[-4:].tobytes(), "little")
    expected = _fletcher32(values[:-4])
    # HDF5 before 1.6.3 swapped the bytes of both halves on some machines.
    swapped = (expected & 0x00FF00FF) << 8 | (expected & 0xFF00FF00) >> 8
    if found not in (expected, swapped):
        raise ValueError("the checksum (fletcher32) does not match")
    return values[:-4]


def _fletcher32(values: Array) -> int:
    """Return the checksum of bytes, as HDF5 computes it: sums of 16-bit words, modulo 65535."""
    padded = np.append(values, np.zeros(values.size % 2, np.uint8))
    words = padded.view(">u2")
    low = high = 0
    for start in range(0, len(words), _CHECKSUM_WORDS):
        part = words[start : start + _CHECKSUM_WORDS].astype(np.uint64)
        weights = np.arange(len(part), 0, -1, dtype=np.uint64)
        high += low * len(part) + int(part @ weights)
        low += int(part.sum())
    # Folding a sum that is not zero never gives zero, but 65535.
    return _folded(high) << 16 | _folded(low)


def _folded(number: int) -> int:
    return (number - 1) % 65535 + 1 if number else 0
