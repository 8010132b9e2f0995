"""Decoding of a chunk of noise by each codec, to measure how fast a machine does it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

import google_crc32c
import numcodecs
import numpy as np

from streamdr.data.zarr.codecs import Codec
from streamdr.data.zarr.decompression import decompressor

_VALUES = 1 << 18
"""A mebibyte, in single precision."""


class Decoding(NamedTuple):
    """The decoding of one chunk, and its size."""

    size: int
    decode: Callable[[], object]


def decodings() -> Mapping[str, Decoding]:
    """Return the decoding of noise, by the kinds of `Work`.

    Noise in single precision compresses by a few percent, as measured data do. Data that compress more are
    decoded a little faster.
    """
    noise = np.random.default_rng(0).standard_normal(_VALUES, dtype=np.float32)
    raw = noise.tobytes()
    encoded = {
        "blosc": numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE).encode(noise),
        "blosc_zstd": numcodecs.Blosc("zstd", 1, numcodecs.Blosc.SHUFFLE).encode(noise),
        "lz4": numcodecs.LZ4().encode(noise),
        "zstd": numcodecs.Zstd(0).encode(noise),
        "zlib": zlib.compress(raw, 1),
        "crc32c": raw + google_crc32c.value(raw).to_bytes(4, "little"),
    }
    return {name: _decoding(name, data, len(raw)) for name, data in encoded.items()}


def _decoding(name: str, data: bytes, size: int) -> Decoding:
    decode = decompressor(Codec(name.partition("_")[0], {}))
    assert decode is not None
    return Decoding(size, lambda: decode(data, size))
