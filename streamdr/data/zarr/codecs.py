"""The codecs that a store may use: only those that decode bytes to values of bounded size."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from streamdr.errors import DataError

VLEN_TEXT = "vlen-utf8"
"""The codec of text arrays. It is allowed only for these."""
CHECKSUMS = frozenset({"crc32c", "crc32", "adler32", "fletcher32"})
ARRAY_FILTERS = frozenset(
    {"transpose", "delta", "fixedscaleoffset", "quantize", "bitround", "packbits", "astype"}
)
"""Array-to-array codecs. In zarr v2 they work on bytes like all others."""
_SERIALIZERS = {"bytes", "sharding_indexed"}
_COMPRESSORS = {"blosc", "zstd", "gzip", "zlib", "lz4", "lzma", "bz2", "shuffle"}
_ALLOWED = frozenset(_SERIALIZERS | _COMPRESSORS | CHECKSUMS | ARRAY_FILTERS)
"""The names allowed for every array, with or without the prefix `numcodecs.`. Others in the registry are not
safe: `pickle` runs code, and `zfpy` and `pcodec` decode to any size that the data declares."""

_TYPE_PARAMETERS = ("dtype", "astype", "encode_dtype", "decode_dtype")
_NUMBER_PARAMETERS = {
    "elementsize": (1, 256),
    "keepbits": (0, 64),
    "digits": (-400, 400),
    "scale": (-1e300, 1e300),
    "offset": (-1e300, 1e300),
}


def shortened(value: object) -> str:
    """Return a value from metadata for an error message: on one line, and not too long."""
    return reprlib.repr(value)


class Codec(NamedTuple):
    """A codec as declared in metadata."""

    name: str
    configuration: Mapping[str, Any]


def parse_v2(declared: object, where: str, *, text: bool = False) -> Codec:
    """Return a compressor or filter of a v2 array, from an object with an id and parameters."""
    if not isinstance(declared, dict) or not isinstance(declared.get("id"), str):
        raise DataError(f"{where}: a compressor or filter is not an object with an id: {shortened(declared)}")
    parameters = {key: value for key, value in declared.items() if key != "id"}
    return _allowed(declared["id"], parameters, where, text=text)


def parse_v3(declared: object, where: str, *, text: bool = False) -> tuple[Codec, ...]:
    """Return the codecs of a v3 array or of a shard, from a list of names and configurations."""
    if not isinstance(declared, list):
        raise DataError(f"{where}: codecs must be a list, not {shortened(declared)}")
    return tuple(_named(codec, where, text=text) for codec in declared)


def is_compressor(codec: Codec) -> bool:
    """Return whether a codec is a compressor or a checksum."""
    return codec.name.removeprefix("numcodecs.") in _COMPRESSORS | CHECKSUMS


def compressor_name(codec: Codec) -> str:
    """Return the name of a compressor without a prefix; `blosc-zstd` where blosc uses a slow one."""
    name, inner = codec.name.removeprefix("numcodecs."), codec.configuration.get("cname")
    return "blosc-zstd" if name == "blosc" and inner in ("zstd", "zlib") else name


def named(codecs: Iterable[Codec]) -> tuple[str, ...]:
    """Return the names of codecs."""
    return tuple(codec.name for codec in codecs)


def _named(declared: object, where: str, *, text: bool) -> Codec:
    """Return a v3 codec, declared by its name or by a name and a configuration."""
    if isinstance(declared, str):
        return _allowed(declared, {}, where, text=text)
    if not isinstance(declared, dict) or not isinstance(declared.get("name"), str):
        raise DataError(f"{where}: a codec is not an object with a name: {shortened(declared)}")
    configuration = declared.get("configuration") or {}
    if not isinstance(configuration, dict):
        raise DataError(f"{where}: the configuration of codec {shortened(declared['name'])} is not an object")
    if "id" in configuration:
        # numcodecs would use it as the name of the codec, in place of the name that was checked.
        raise DataError(f"{where}: the configuration of codec {shortened(declared['name'])} carries an id")
    return _allowed(declared["name"], configuration, where, text=text)


def _allowed(name: str, configuration: Mapping[str, Any], where: str, *, text: bool) -> Codec:
    """Return a codec if its name is allowed and its parameters are valid; else raise an error."""
    if name.removeprefix("numcodecs.") not in _ALLOWED and not (text and name == VLEN_TEXT):
        raise DataError(
            f"{where}: codec {shortened(name)} is not one of the codecs that are safe to run; "
            "write the array again without it"
        )
    for parameter in _TYPE_PARAMETERS:
        _require_plain_type(name, configuration.get(parameter), where)
    for parameter, (least, most) in _NUMBER_PARAMETERS.items():
        given = configuration.get(parameter)
        if given is not None and (type(given) not in (int, float) or not least <= given <= most):
            raise DataError(f"{where}: codec {name!r} has the {parameter} {shortened(given)}; it is damaged")
    if name == "sharding_indexed":  # codecs within codecs
        for chain in ("codecs", "index_codecs"):
            parse_v3(configuration.get(chain), where, text=text and chain == "codecs")
    if configuration.get("scale") == 0:
        raise DataError(f"{where}: codec {name!r} has the scale 0; it is damaged")
    return Codec(name, configuration)


def _require_plain_type(name: str, dtype: object, where: str) -> None:
    """Raise an error if a parameter of a codec is not a numeric type."""
    if dtype is None:
        return
    try:
        plain = isinstance(dtype, str) and dtype.strip("<>|=").isalnum() and np.dtype(dtype).kind in "biuf"
    except TypeError:
        plain = False
    if not plain:
        raise DataError(
            f"{where}: codec {name!r} works on {shortened(dtype)}, which is not a type of numbers"
        )
