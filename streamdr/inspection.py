"""What lies at a path or an address: a store, a model, an embedding or other rows. Reads none of the data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from streamdr import store
from streamdr.addresses import Address, Place
from streamdr.blocks import Axis
from streamdr.errors import DataError
from streamdr.methods.rows import ROW_OUTPUTS, RowKind
from streamdr.segments import cut
from streamdr.sources import Source, open_source
from streamdr.sources.arrays import open_npy
from streamdr.sources.locate import Located, arrays_below, is_array, locate, stale_copy
from streamdr.sources.missing import find_missing, present_chunks
from streamdr.sources.objects import node_at
from streamdr.sources.stores import Directory, Node
from streamdr.sources.zarr_source import ZarrSource

Report = dict[str, Any]

_AXES: tuple[Axis, Axis] = ("rows", "columns")


def inspect(place: Place) -> Report:
    """Everything that a person, or a script, wants to know of a place before using it."""
    record = store.draft(place) or {}
    if record.get("kind") == "model":
        return _model(place)
    for kind in ROW_OUTPUTS:
        if record.get("kind") == kind.name:
            return _rows(place, kind.name)
    try:
        if isinstance(place, Address):
            return _store(place, node_at(place), record)
        if place.is_dir():
            return _store(place, Directory(place.absolute(), str(place)), record)
        return _file(place)
    except OSError as error:
        raise DataError(f"{place}: cannot be read: {error}; check the path") from error


def _model(place: Place) -> Report:
    saved = store.load_model(place)
    return {
        "kind": "model",
        "path": str(place),
        "method": saved.method,
        "parameters": dict(saved.parameters),
        "n_features": saved.model.n_features,
        "n_outputs": saved.model.n_outputs,
        "summary": saved.model.summary(),
        "input": saved.record["extra"].get("input"),
        "n_rows": saved.n_rows,
        "created": saved.record["created"],
        "version": saved.record["version"],
    }


def _rows(place: Place, kind: RowKind) -> Report:
    array = store.open_rows(place, kind)
    record = store.read_group(place, kind).record
    return {
        "kind": kind,
        "path": str(place),
        "n_rows": record["n_rows"],
        "n_outputs": record["n_outputs"],
        "shape": list(array.shape),
        "dims": list(array.dims),
        "dtype": str(array.dtype),
        "chunks": list(array.chunks),
        "stored_bytes": store.stored_bytes(place),
        **{name: record.get(name) for name in ("model", "method", "created", "version")},
    }


def _store(place: Place, node: Node, record: Report) -> Report:
    names = [None] if is_array(node) else list(arrays_below(node))
    if not names:
        locate(node, None)  # which says what is wrong
    return {
        "kind": "zarr array" if None in names else "zarr group",
        "path": str(place),
        "origin": _origin(record),
        "arrays": [_array(node, name, name or place.name or place.resolve().name) for name in names],
    }


def _origin(record: Report) -> str | None:
    if record.get("kind") == "ingested":
        return f"ingested from {record.get('source')}"
    made = {"synthetic": "synthetic data", "example": "an example of scikit-learn"}
    return made.get(record.get("kind", ""))


def _array(node: Node, name: str | None, shown: str) -> Report:
    try:
        found = locate(node, name)
        if found.metadata.is_text and len(found.metadata.grid.shape) == 1:
            told = "holds text: labels, which input.labels can name"
            return {"name": shown, "problem": told, "labels": found.metadata.grid.shape[0]}
        stale = None if name is None else stale_copy(node, name, found.metadata)
        return {"name": shown, "problem": None, "stale_copy": stale, **_described(found)}
    except DataError as error:
        return {"name": shown, "problem": str(error)}


def _described(found: Located) -> Report:
    node, metadata, shards = found.node, found.metadata, found.metadata.sharding
    source = ZarrSource(node, metadata, sample_axis=0, allow_missing=True)
    chunks = (metadata.grid.coords(number) for number in present_chunks(node, metadata).tolist())
    stored = sum(node.stamp(metadata.keys.key(coords))[0] for coords in chunks)
    missing = find_missing(node, metadata)
    return {
        "shape": list(metadata.grid.shape),
        "dtype": str(metadata.dtype),
        "bytes": math.prod(metadata.grid.shape) * metadata.dtype.itemsize,
        "zarr_format": metadata.zarr_format,
        "dims": None if metadata.dims is None else list(metadata.dims),
        "chunks": list(metadata.smallest),
        "shards": None if shards is None else list(metadata.grid.chunk),
        "codecs": [codec.name for codec in (metadata.codecs if shards is None else shards.codecs)],
        "stored_bytes": stored,
        "missing": {
            "count": 0 if missing is None else missing.count,
            "total": metadata.grid.n_chunks if missing is None else missing.total,
            "first": None if missing is None else missing.chunk,
        },
        **_as_matrix(source),
    }


def _file(path: Path) -> Report:
    source = open_source(path)
    size = path.stat().st_size
    array = {
        "name": path.name,
        "problem": None,
        "shape": list(open_npy(path).shape),
        "dtype": str(source.spec.dtype),
        "bytes": size,
        "zarr_format": None,
        "dims": None,
        "chunks": None,
        "shards": None,
        "codecs": [],
        "stored_bytes": size,
        "missing": None,
        **_as_matrix(source),
    }
    return {"kind": "npy file", "path": str(path), "origin": None, "arrays": [array]}


def _as_matrix(source: Source) -> Report:
    """The samples and features, and the blocks in which a pass with a small accumulator would read them."""
    cuts = {axis: cut(source.spec, source.chunks, axis, accumulator_bytes=0) for axis in _AXES}
    return {
        "n_rows": source.spec.n_rows,
        "n_cols": source.spec.n_cols,
        "blocks": {
            axis: {
                "count": math.ceil(pieces.length / pieces.block),
                "lines": min(pieces.block, pieces.length),
                "bytes": min(pieces.block, pieces.length) * source.spec.line_bytes(axis),
            }
            for axis, pieces in cuts.items()
        },
    }
