"""The metadata of zarr arrays, parsed from JSON and validated.

Nothing is decoded, allocated or looked up in a registry before the metadata is validated here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from streamdr.core.system import memory_limit
from streamdr.data.dtypes import not_numeric
from streamdr.data.zarr import codecs
from streamdr.data.zarr.codecs import Codec, shortened
from streamdr.data.zarr.grid import ChunkGrid, KeyEncoding
from streamdr.errors import DataError

METADATA_BYTES = 32 << 20
"""The largest metadata file that is read: enough for the names of a million columns."""
METADATA_FILES = ("zarr.json", ".zarray", ".zgroup")
"""Every array and every group has one of these files."""
_MAX_VALUES = 4_000_000
_MAX_DEPTH = 64
_MAX_DIMENSIONS = 32
_SMALL = 16 << 20
"""The bytes of a chunk that fits in the memory of any machine."""
_TYPES = [np.dtype(code) for code in "?bhiqBHIQefd"]
_V3_TYPES = frozenset(dtype.name for dtype in _TYPES)
_V2_TYPES = frozenset(byte_order + dtype.str[1:] for dtype in _TYPES for byte_order in "<>|")
_V2_TEXT = re.compile("[<>]U[1-9][0-9]{0,3}")
_MAX_TEXT_BYTES = 4 * 9999
_ANY_TEXT = np.dtype(object)
"""The type of text of variable length. Other objects are not read."""


@dataclass(frozen=True)
class Sharding:
    """How a shard is divided into chunks, with an index of their offsets and lengths."""

    inner: tuple[int, ...]
    codecs: tuple[Codec, ...]
    index_codecs: tuple[Codec, ...]
    index_at_end: bool


@dataclass(frozen=True)
class ArrayMetadata:
    """The validated metadata of a zarr array, in one form for both versions."""

    zarr_format: Literal[2, 3]
    grid: ChunkGrid
    keys: KeyEncoding
    dtype: np.dtype[Any]
    """The stored type. In v2 it has the byte order; in v3 the `bytes` codec has it."""
    order: Literal["C", "F"]
    codecs: tuple[Codec, ...]
    """The codecs in the order of encoding: filters before the compressor."""
    sharding: Sharding | None
    dims: tuple[str | None, ...] | None
    feature_names: tuple[str, ...] | None
    document: Mapping[str, Any]
    """The metadata itself, without the attributes."""
    attributes: Mapping[str, Any]

    @property
    def is_text(self) -> bool:
        """Whether its values are text, not numbers."""
        return self.dtype.kind in "UO"

    @property
    def compressors(self) -> tuple[str, ...]:
        """The names of the compressors and checksums of what is decoded in one step; blosc with its own."""
        used = self.codecs if self.sharding is None else self.sharding.codecs
        return tuple(codecs.compressor_name(codec) for codec in used if codecs.is_compressor(codec))

    @property
    def smallest(self) -> tuple[int, ...]:
        """The shape that is decoded in one step: a chunk, or a chunk inside a shard."""
        return self.grid.chunk if self.sharding is None else self.sharding.inner


def parse_json(text: bytes, where: str) -> dict[str, Any]:
    """Return the JSON object in a metadata file."""
    if text.count(b",") + text.count(b"[") + text.count(b"{") > _MAX_VALUES:
        raise DataError(f"{where}: more than {_MAX_VALUES:,} values are not metadata; it is damaged")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not valid JSON ({error}); the metadata is damaged") from error
    if not isinstance(document, dict):
        raise DataError(f"{where}: not a JSON object; the metadata is damaged")
    _require_shallow(document, where)
    return document


def _require_shallow(document: dict[str, Any], where: str) -> None:
    """Raise an error for deeply nested values, since later code visits them recursively."""
    level: list[Any] = [document]
    for _ in range(_MAX_DEPTH):
        nested = (value.values() if isinstance(value, dict) else value for value in level)
        level = [inner for values in nested for inner in values if isinstance(inner, (dict, list))]
        if not level:
            return
    raise DataError(f"{where}: nested more than {_MAX_DEPTH} deep; the metadata is damaged")


def parse_array(document: Mapping[str, Any], attributes: Mapping[str, Any], where: str) -> ArrayMetadata:
    """Return the metadata of an array from its `zarr.json`, or from `.zarray` and `.zattrs`.

    Its values are numbers or text: see `ArrayMetadata.is_text`.
    """
    version, parse = (3, _parse_v3) if "node_type" in document else (2, _parse_v2)
    require_version(document, version, where)
    try:
        metadata = parse(document, attributes, where)
    except KeyError as error:
        raise DataError(f"{where}: {error.args[0]} is missing; the metadata is damaged") from error
    _require_decodable(metadata, where)
    return metadata


def require_version(document: Mapping[str, Any], version: int, where: str) -> None:
    """Raise an error if the metadata has another version than the name of its file implies."""
    found = document.get("zarr_format")
    if type(found) is not int or found != version:
        raise DataError(
            f"{where}: zarr_format is {shortened(found)} where {version} is expected; the metadata is "
            "damaged, or of a version that is not supported"
        )


def _type_v2(declared: object, filters: object, where: str) -> np.dtype[Any]:
    """Return the numpy type of a v2 array."""
    if isinstance(declared, str):
        if declared in _V2_TYPES or _V2_TEXT.fullmatch(declared):
            return np.dtype(declared)
        first = filters[0] if isinstance(filters, list) and filters else None
        if declared == "|O" and isinstance(first, dict) and first.get("id") == codecs.VLEN_TEXT:
            return _ANY_TEXT
    raise not_numeric(shortened(declared), where)


def _type_v3(declared: object, where: str) -> np.dtype[Any]:
    """Return the numpy type of a v3 array."""
    if isinstance(declared, str) and declared in _V3_TYPES:
        return np.dtype(declared)
    name, configuration = _extension(declared, "data_type", where)
    if name in ("string", "variable_length_utf8"):
        return _ANY_TEXT
    length = configuration.get("length_bytes")
    if (
        name == "fixed_length_utf32"
        and type(length) is int
        and 0 < length <= _MAX_TEXT_BYTES
        and length % 4 == 0
    ):
        return np.dtype(f"U{length // 4}")
    raise not_numeric(shortened(declared), where)


def _parse_v2(document: Mapping[str, Any], attributes: Mapping[str, Any], where: str) -> ArrayMetadata:
    """Return the metadata of a v2 array."""
    filters = document.get("filters") or []
    dtype = _type_v2(document["dtype"], filters, where)
    if not isinstance(filters, list):
        raise DataError(f"{where}: filters must be a list, not {shortened(filters)}")
    order = document.get("order", "C")
    if order not in ("C", "F"):
        raise DataError(f"{where}: order must be C or F, not {shortened(order)}")
    steps = [*filters, document.get("compressor")]
    return ArrayMetadata(
        zarr_format=2,
        grid=_grid(document["shape"], document["chunks"], where),
        keys=KeyEncoding("", _separator(document.get("dimension_separator", "."), where)),
        dtype=dtype,
        order=order,
        codecs=tuple(codecs.parse_v2(s, where, text=dtype.kind == "O") for s in steps if s is not None),
        sharding=None,
        dims=_dims(attributes.get("_ARRAY_DIMENSIONS"), document["shape"]),
        feature_names=_feature_names(attributes),
        document=document,
        attributes=attributes,
    )


def _parse_v3(document: Mapping[str, Any], attributes: Mapping[str, Any], where: str) -> ArrayMetadata:
    """Return the metadata of a v3 array."""
    dtype = _type_v3(document["data_type"], where)
    name, configuration = _extension(document["chunk_grid"], "chunk_grid", where)
    if name != "regular":
        raise DataError(f"{where}: chunk grid {shortened(name)} cannot be read; only regular grids can")
    grid = _grid(document["shape"], configuration.get("chunk_shape"), where)
    text = dtype.kind == "O"
    chain = codecs.parse_v3(document["codecs"], where, text=text)
    sharded = [codec for codec in chain if codec.name == "sharding_indexed"]
    return ArrayMetadata(
        zarr_format=3,
        grid=grid,
        keys=_key_encoding(document["chunk_key_encoding"], where),
        dtype=dtype,
        order="C",
        codecs=chain,
        sharding=parse_sharding(sharded[0].configuration, grid.chunk, where, text) if sharded else None,
        dims=_dims(document.get("dimension_names"), document["shape"]),
        feature_names=_feature_names(attributes),
        document={key: value for key, value in document.items() if key != "attributes"},
        attributes=attributes,
    )


def parse_sharding(
    configuration: Mapping[str, Any], shard: tuple[int, ...], where: str, text: bool
) -> Sharding:
    """Return how a shard of a shape is divided, from the configuration of its codec."""
    inner = _lengths(configuration.get("chunk_shape"), "the chunks of a shard", 1, where)
    if len(inner) != len(shard) or any(s % c for s, c in zip(shard, inner, strict=True)):
        raise DataError(f"{where}: shards of {shard} cannot hold chunks of {inner}")
    location = configuration.get("index_location", "end")
    if location not in ("start", "end"):
        raise DataError(f"{where}: index_location must be start or end, not {shortened(location)}")
    return Sharding(
        inner,
        codecs.parse_v3(configuration.get("codecs"), where, text=text),
        codecs.parse_v3(configuration.get("index_codecs"), where),
        index_at_end=location == "end",
    )


def _grid(shape: object, chunk: object, where: str) -> ChunkGrid:
    """Return the chunk grid of a shape."""
    lengths = _lengths(shape, "shape", 0, where)
    chunks = _lengths(chunk, "chunks", 1, where)
    if len(lengths) != len(chunks):
        raise DataError(f"{where}: shape {lengths} and chunks {chunks} differ in dimensions")
    return ChunkGrid(lengths, chunks)


def _lengths(declared: object, what: str, least: int, where: str) -> tuple[int, ...]:
    """Return a list of integers of at least `least` as a tuple."""
    if not isinstance(declared, list) or not all(type(n) is int and n >= least for n in declared):
        raise DataError(f"{where}: {what} must be integers of at least {least}, not {shortened(declared)}")
    if len(declared) > _MAX_DIMENSIONS:
        raise DataError(f"{where}: {len(declared)} dimensions are more than the maximum of {_MAX_DIMENSIONS}")
    return tuple(declared)


def _require_decodable(metadata: ArrayMetadata, where: str) -> None:
    """Raise an error for a shape of absurd size, and for a chunk that does not fit in memory."""
    if prod(metadata.grid.shape) * metadata.dtype.itemsize >= 2**63:
        raise DataError(f"{where}: shape {metadata.grid.shape} is absurd; the metadata is damaged")
    pieces = [("a chunk", metadata.smallest, metadata.dtype.itemsize)]
    if metadata.sharding is not None:
        index = ChunkGrid(metadata.grid.chunk, metadata.sharding.inner).counts
        pieces.append(("the index of a shard", index, 16))
    for what, shape, itemsize in pieces:
        # To ask for the limit takes longer than all else. There may be a thousand stores.
        if prod(shape) * itemsize > _SMALL and prod(shape) * itemsize > (memory := memory_limit()):
            raise DataError(
                f"{where}: {what} of {shape} takes {prod(shape) * itemsize:.3g} bytes, more than the "
                f"{memory:.3g} of memory; the metadata is damaged, or the array needs smaller chunks"
            )


def _key_encoding(declared: object, where: str) -> KeyEncoding:
    """Return the encoding of chunk keys of a v3 array."""
    name, configuration = _extension(declared, "chunk_key_encoding", where)
    if name == "default":
        return KeyEncoding("c", _separator(configuration.get("separator", "/"), where))
    if name == "v2":
        return KeyEncoding("", _separator(configuration.get("separator", "."), where))
    raise DataError(f"{where}: chunk key encoding {shortened(name)} is not supported")


def _separator(declared: object, where: str) -> str:
    """Return the separator in chunk keys."""
    if declared not in (".", "/"):
        raise DataError(f"{where}: the separator in chunk keys must be . or /, not {shortened(declared)}")
    return str(declared)


def _extension(declared: object, what: str, where: str) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the optional configuration of a v3 extension point."""
    if isinstance(declared, str):
        return declared, {}
    if isinstance(declared, dict) and isinstance(declared.get("name"), str):
        configuration = declared.get("configuration", {})
        if isinstance(configuration, dict):
            return declared["name"], configuration
    raise DataError(f"{where}: {what} is not an object with a name: {shortened(declared)}")


def _dims(declared: object, shape: list[int]) -> tuple[str | None, ...] | None:
    """Return the names of the dimensions, if there is an entry for each of them."""
    if not isinstance(declared, list) or len(declared) != len(shape):
        return None
    return tuple(name if isinstance(name, str) else None for name in declared)


def _feature_names(attributes: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the feature names in the attributes, if they are valid."""
    names = attributes.get("feature_names")
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return tuple(names)
    return None
