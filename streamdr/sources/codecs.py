"""The codecs that a store may ask for: those that turn bytes into numbers, and can do nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from streamdr.errors import DataError

_LAYOUT = {"bytes", "transpose", "sharding_indexed"}
_COMPRESSORS = {"blosc", "zstd", "gzip", "zlib", "lz4", "lzma", "bz2", "zfpy", "pcodec"}
_CHECKSUMS = {"crc32c", "crc32", "adler32", "fletcher32"}
_FILTERS = {"shuffle", "delta", "fixedscaleoffset", "quantize", "bitround", "packbits", "astype"}
_NUMERIC = frozenset(_LAYOUT | _COMPRESSORS | _CHECKSUMS | _FILTERS)
"""The names allowed, with or without `numcodecs.` before them. A registry holds more: `pickle` runs code."""

_TYPE_PARAMETERS = ("dtype", "astype", "encode_dtype", "decode_dtype")


class Codec(NamedTuple):
    """A codec as metadata declares it."""

    name: str
    configuration: Mapping[str, Any]


def parse_v2(declared: object, where: str) -> Codec:
    """A compressor or filter of a v2 array: an object with an id among its parameters."""
    if not isinstance(declared, dict) or not isinstance(declared.get("id"), str):
        raise DataError(f"{where}: a compressor or filter is not an object with an id: {declared!r}")
    return _allowed(declared["id"], {key: value for key, value in declared.items() if key != "id"}, where)


def parse_v3(declared: object, where: str) -> tuple[Codec, ...]:
    """The codecs of a v3 array, or of a shard: a list of names and configurations."""
    if not isinstance(declared, list):
        raise DataError(f"{where}: codecs must be a list, not {declared!r}")
    return tuple(_named(codec, where) for codec in declared)


def named(codecs: Iterable[Codec]) -> tuple[str, ...]:
    """The names alone."""
    return tuple(codec.name for codec in codecs)


def _named(declared: object, where: str) -> Codec:
    if isinstance(declared, str):
        return _allowed(declared, {}, where)
    if not isinstance(declared, dict) or not isinstance(declared.get("name"), str):
        raise DataError(f"{where}: a codec is not an object with a name: {declared!r}")
    configuration = declared.get("configuration") or {}
    if not isinstance(configuration, dict):
        raise DataError(f"{where}: the configuration of codec {declared['name']!r} is not an object")
    if "id" in configuration:
        # Would be handed to numcodecs as the codec's own name, whatever the name beside it says.
        raise DataError(f"{where}: the configuration of codec {declared['name']!r} carries an id")
    return _allowed(declared["name"], configuration, where)


def _allowed(name: str, configuration: Mapping[str, Any], where: str) -> Codec:
    if name.removeprefix("numcodecs.") not in _NUMERIC:
        raise DataError(
            f"{where}: codec {name!r} is not one of the numeric codecs that are safe to run; "
            "write the array again without it"
        )
    for parameter in _TYPE_PARAMETERS:
        _require_plain_type(name, configuration.get(parameter), where)
    return Codec(name, configuration)


def _require_plain_type(name: str, dtype: object, where: str) -> None:
    if dtype is None:
        return
    try:
        plain = isinstance(dtype, str) and dtype.strip("<>|=").isalnum() and np.dtype(dtype).kind in "biuf"
    except TypeError:
        plain = False
    if not plain:
        raise DataError(f"{where}: codec {name!r} works on {dtype!r}, which is not a type of numbers")
