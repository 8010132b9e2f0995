"""What a zarr array says about itself, read as plain JSON and believed only as far as it makes sense.

Nothing is decoded, allocated or looked up in a registry on the word of a file before it passed here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from streamdr.errors import DataError
from streamdr.sources import codecs
from streamdr.sources.codecs import Codec
from streamdr.sources.dtypes import not_numeric
from streamdr.sources.grid import ChunkGrid, KeyEncoding

_TYPES = [np.dtype(code) for code in "?bhiqBHIQefd"]
_V3_TYPES = frozenset(dtype.name for dtype in _TYPES)
_V2_TYPES = frozenset(byte_order + dtype.str[1:] for dtype in _TYPES for byte_order in "<>|")


@dataclass(frozen=True)
class Sharding:
    """How a chunk of the grid is itself cut into chunks, with an index of where each one lies."""

    inner: tuple[int, ...]
    codecs: tuple[Codec, ...]
    index_codecs: tuple[Codec, ...]
    index_at_end: bool


@dataclass(frozen=True)
class ArrayMetadata:
    """A zarr array's own description, checked, the same for both formats."""

    zarr_format: int
    grid: ChunkGrid
    keys: KeyEncoding
    dtype: np.dtype[Any]
    """As stored: v2 has the byte order here, v3 in its `bytes` codec."""
    order: Literal["C", "F"]
    codecs: tuple[Codec, ...]
    """In the order of encoding: filters before the compressor."""
    sharding: Sharding | None
    dims: tuple[str | None, ...] | None
    feature_names: tuple[str, ...] | None
    document: Mapping[str, Any]
    """The metadata itself, without the attributes."""

    @property
    def smallest(self) -> tuple[int, ...]:
        """The shape that is decoded in one piece: a chunk, and of a shard a chunk inside it."""
        return self.grid.chunk if self.sharding is None else self.sharding.inner


def parse_json(text: bytes, where: str) -> dict[str, Any]:
    """One metadata file as a JSON object."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not valid JSON ({error}); the metadata is damaged") from error
    if not isinstance(document, dict):
        raise DataError(f"{where}: not a JSON object; the metadata is damaged")
    return document


def parse_array(document: Mapping[str, Any], attributes: Mapping[str, Any], where: str) -> ArrayMetadata:
    """The description of an array out of its `zarr.json`, or out of `.zarray` and `.zattrs`."""
    try:
        metadata = (_parse_v3 if "node_type" in document else _parse_v2)(document, attributes, where)
    except KeyError as error:
        raise DataError(f"{where}: {error.args[0]} is missing; the metadata is damaged") from error
    _require_decodable(metadata, where)
    return metadata


def _parse_v2(document: Mapping[str, Any], attributes: Mapping[str, Any], where: str) -> ArrayMetadata:
    declared = document["dtype"]
    if not isinstance(declared, str) or declared not in _V2_TYPES:
        raise not_numeric(str(declared), where)
    order = document.get("order", "C")
    if order not in ("C", "F"):
        raise DataError(f"{where}: order must be C or F, not {order!r}")
    steps = [*(document.get("filters") or []), document.get("compressor")]
    return ArrayMetadata(
        zarr_format=2,
        grid=_grid(document["shape"], document["chunks"], where),
        keys=KeyEncoding("", _separator(document.get("dimension_separator", "."), where)),
        dtype=np.dtype(declared),
        order=order,
        codecs=tuple(codecs.parse_v2(step, where) for step in steps if step is not None),
        sharding=None,
        dims=_dims(attributes.get("_ARRAY_DIMENSIONS")),
        feature_names=_feature_names(attributes),
        document=document,
    )


def _parse_v3(document: Mapping[str, Any], attributes: Mapping[str, Any], where: str) -> ArrayMetadata:
    declared = document["data_type"]
    if not isinstance(declared, str) or declared not in _V3_TYPES:
        raise not_numeric(str(declared), where)
    name, configuration = _extension(document["chunk_grid"], "chunk_grid", where)
    if name != "regular":
        raise DataError(f"{where}: chunk grid {name!r} cannot be read; only regular grids can")
    grid = _grid(document["shape"], configuration.get("chunk_shape"), where)
    chain = codecs.parse_v3(document["codecs"], where)
    sharded = [codec for codec in chain if codec.name == "sharding_indexed"]
    return ArrayMetadata(
        zarr_format=3,
        grid=grid,
        keys=_key_encoding(document["chunk_key_encoding"], where),
        dtype=np.dtype(declared),
        order="C",
        codecs=chain,
        sharding=_sharding(sharded[0].configuration, grid, where) if sharded else None,
        dims=_dims(document.get("dimension_names")),
        feature_names=_feature_names(attributes),
        document={key: value for key, value in document.items() if key != "attributes"},
    )


def _sharding(configuration: Mapping[str, Any], grid: ChunkGrid, where: str) -> Sharding:
    inner = _lengths(configuration.get("chunk_shape"), "the chunks of a shard", 1, where)
    if len(inner) != len(grid.chunk) or any(s % c for s, c in zip(grid.chunk, inner, strict=True)):
        raise DataError(f"{where}: shards of {grid.chunk} cannot hold chunks of {inner}")
    location = configuration.get("index_location", "end")
    if location not in ("start", "end"):
        raise DataError(f"{where}: index_location must be start or end, not {location!r}")
    return Sharding(
        inner,
        codecs.parse_v3(configuration.get("codecs"), where),
        codecs.parse_v3(configuration.get("index_codecs"), where),
        index_at_end=location == "end",
    )


def _grid(shape: object, chunk: object, where: str) -> ChunkGrid:
    lengths = _lengths(shape, "shape", 0, where)
    chunks = _lengths(chunk, "chunks", 1, where)
    if len(lengths) != len(chunks):
        raise DataError(f"{where}: shape {lengths} and chunks {chunks} differ in dimensions")
    return ChunkGrid(lengths, chunks)


def _lengths(declared: object, what: str, least: int, where: str) -> tuple[int, ...]:
    if not isinstance(declared, list) or not all(type(n) is int and n >= least for n in declared):
        raise DataError(f"{where}: {what} must be integers of at least {least}, not {declared!r}")
    return tuple(declared)


def _require_decodable(metadata: ArrayMetadata, where: str) -> None:
    """Refuse a shape that cannot be counted, and a chunk that no memory here could hold."""
    if prod(metadata.grid.shape) * metadata.dtype.itemsize >= 2**63:
        raise DataError(f"{where}: shape {metadata.grid.shape} is absurd; the metadata is damaged")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    pieces = [("a chunk", metadata.smallest, metadata.dtype.itemsize)]
    if metadata.sharding is not None:
        index = ChunkGrid(metadata.grid.chunk, metadata.sharding.inner).counts
        pieces.append(("the index of a shard", index, 16))
    for what, shape, itemsize in pieces:
        if prod(shape) * itemsize > memory:
            raise DataError(
                f"{where}: {what} of {shape} takes {prod(shape) * itemsize:.3g} bytes, more than the "
                f"{memory:.3g} of this machine; the metadata is damaged, or the array needs smaller chunks"
            )


def _key_encoding(declared: object, where: str) -> KeyEncoding:
    name, configuration = _extension(declared, "chunk_key_encoding", where)
    if name == "default":
        return KeyEncoding("c", _separator(configuration.get("separator", "/"), where))
    if name == "v2":
        return KeyEncoding("", _separator(configuration.get("separator", "."), where))
    raise DataError(f"{where}: chunk key encoding {name!r} is not known")


def _separator(declared: object, where: str) -> str:
    if declared not in (".", "/"):
        raise DataError(f"{where}: the separator in chunk keys must be . or /, not {declared!r}")
    return str(declared)


def _extension(declared: object, what: str, where: str) -> tuple[str, Mapping[str, Any]]:
    """A v3 extension point: a name with an optional configuration."""
    if isinstance(declared, str):
        return declared, {}
    if isinstance(declared, dict) and isinstance(declared.get("name"), str):
        configuration = declared.get("configuration", {})
        if isinstance(configuration, dict):
            return declared["name"], configuration
    raise DataError(f"{where}: {what} is not an object with a name: {declared!r}")


def _dims(declared: object) -> tuple[str | None, ...] | None:
    return tuple(declared) if isinstance(declared, Sequence) and not isinstance(declared, str) else None


def _feature_names(attributes: Mapping[str, Any]) -> tuple[str, ...] | None:
    names = attributes.get("feature_names")
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return tuple(names)
    return None
