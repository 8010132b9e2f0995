"""Inspection of a path or an address: a store, a model or an output of rows. Reads none of the data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamdr import store
from streamdr.core.addresses import Address, Location
from streamdr.core.blocks import Axis
from streamdr.core.row_outputs import ROW_OUTPUTS, RowKind
from streamdr.data import Source, open_source
from streamdr.data.expanding import expand, is_several
from streamdr.data.file_formats import groups_in_hdf5, is_hdf5, is_parquet, open_hdf5
from streamdr.data.in_memory import open_npy
from streamdr.data.sparse.groups import ZarrNodes
from streamdr.data.zarr.locate import Located, arrays_below, is_array, locate, stale_copy
from streamdr.data.zarr.missing_chunks import Present, find_missing
from streamdr.data.zarr.objects import node_at
from streamdr.data.zarr.source import ZarrSource
from streamdr.data.zarr.stores import Directory, Node
from streamdr.engine.partition import partition
from streamdr.errors import DataError
from streamdr.workflow.findings import (
    ArrayInspection,
    Blocks,
    FoundArray,
    LabelsInspection,
    MissingChunks,
    ModelInspection,
    RowsInspection,
    StoreInspection,
    UnusableArray,
)
from streamdr.workflow.sparse_parts import inspect_group

if TYPE_CHECKING:
    from streamdr.data.hdf5 import Hdf5File

_AXES: tuple[Axis, Axis] = ("rows", "columns")


def inspect(place: Location) -> ModelInspection | RowsInspection | StoreInspection:
    """Return what is stored at a path or an address: shapes, types, chunks, and what made it."""
    if isinstance(place, Path) and is_several(str(place)):
        found = expand(str(place))
        raise DataError(f"{place}: is {len(found)} files; inspect one of them, such as {found[0]}")
    output = store.open_backend(place)
    record = output.draft() or {}
    if record.get("kind") == "model":
        return _model(output)
    for kind in ROW_OUTPUTS:
        if record.get("kind") == kind.name:
            return _rows(output, kind.name)
    try:
        if isinstance(place, Address):
            return _store(place, node_at(place), record)
        if place.is_dir():
            return _store(place, Directory(place.absolute(), str(place)), record)
        return _file(place)
    except OSError as error:
        raise DataError(f"{place}: cannot be read: {error}; check the path") from error


def _model(output: store.Backend) -> ModelInspection:
    saved = output.load_model()
    return ModelInspection(
        path=str(output),
        method=saved.method,
        parameters=dict(saved.parameters),
        n_features=saved.model.n_features if saved.axes is None else saved.axes.n_features,
        n_left_out=0 if saved.axes is None else saved.axes.n_left_out,
        n_outputs=saved.model.n_outputs,
        summary=saved.model.summary(),
        input=saved.record["extra"].get("input"),
        n_rows=saved.n_rows,
        created=saved.record["created"],
        version=saved.record["version"],
        facts=(*(() if saved.axes is None else saved.axes.facts()), *saved.model.facts()),
        tables=saved.model.tables(),
    )


def _rows(output: store.Backend, kind: RowKind) -> RowsInspection:
    array = output.open_rows(kind)
    record = output.read_group(kind).record
    return RowsInspection(
        kind=kind,
        path=str(output),
        n_rows=record["n_rows"],
        n_outputs=record["n_outputs"],
        shape=tuple(array.shape),
        dims=tuple(array.dims),
        dtype=str(array.dtype),
        chunks=tuple(array.chunks),
        stored_bytes=output.stored_bytes(),
        model=record.get("model"),
        method=record.get("method"),
        created=record.get("created"),
        version=record.get("version"),
        step=record.get("step"),
    )


def _store(place: Location, node: Node, record: Mapping[str, Any]) -> StoreInspection:
    if is_array(node):
        kind = "zarr array"
        found: Iterator[FoundArray] = iter([_array(node, None, place.name or place.resolve().name)])
    else:
        kind, names = "zarr group", list(arrays_below(node))
        if not names:
            locate(node, None)  # raises the error that says what is wrong
        group = ZarrNodes(node, allow_missing=True)
        found = inspect_group(group, names, lambda name: _array(node, name, name))
    return StoreInspection(kind, str(place), _origin(record), tuple(found))


def _origin(record: Mapping[str, Any]) -> str | None:
    if record.get("kind") == "ingested":
        return f"ingested from {record.get('source')}"
    made = {"synthetic": "synthetic data", "example": "example data"}
    return made.get(record.get("kind", ""))


def _array(node: Node, name: str | None, shown: str) -> ArrayInspection | LabelsInspection | UnusableArray:
    try:
        found = locate(node, name)
        if found.metadata.is_text and len(found.metadata.grid.shape) == 1:
            return LabelsInspection(shown, found.metadata.grid.shape[0])
        stale = None if name is None else stale_copy(node, name, found.metadata)
        return _inspect_array(shown, found, None if stale is None else tuple(stale))
    except DataError as error:
        return UnusableArray(shown, str(error))


def _inspect_array(name: str, found: Located, stale: tuple[Any, ...] | None) -> ArrayInspection:
    node, metadata, shards = found.node, found.metadata, found.metadata.sharding
    source = ZarrSource(node, metadata, sample_axis=0, allow_missing=True)
    chunks = node.stored_chunks(metadata.grid, metadata.keys)
    stored = int(chunks.stamps[:, 0].sum())
    missing = find_missing(node, metadata, Present.of(chunks.numbers, metadata.grid))
    return ArrayInspection(
        name=name,
        shape=tuple(metadata.grid.shape),
        dtype=str(metadata.dtype),
        bytes=math.prod(metadata.grid.shape) * metadata.dtype.itemsize,
        zarr_format=metadata.zarr_format,
        dims=None if metadata.dims is None else tuple(metadata.dims),
        chunks=tuple(metadata.smallest),
        shards=None if shards is None else tuple(metadata.grid.chunk),
        codecs=tuple(codec.name for codec in (metadata.codecs if shards is None else shards.codecs)),
        stored_bytes=stored,
        missing=MissingChunks(
            count=0 if missing is None else missing.count,
            total=metadata.grid.n_chunks if missing is None else missing.total,
            first=None if missing is None else missing.chunk,
        ),
        n_rows=source.spec.n_rows,
        n_cols=source.spec.n_cols,
        blocks=_blocks(source),
        stale_copy=stale,
    )


def _file(path: Path) -> StoreInspection:
    if is_hdf5(path):
        file = open_hdf5(path, allow_missing=True)
        names = [name for name in file.names() if file.shape(name)]
        groups = groups_in_hdf5(path, allow_missing=True)
        found = inspect_group(groups, names, lambda name: _array_in(file, name))
        return StoreInspection("HDF5 file", str(path), None, tuple(found))
    source, size = open_source(path), path.stat().st_size
    if is_parquet(path):
        table = _plain_array(path.name, source, (source.spec.n_rows, source.spec.n_cols), size)
        return StoreInspection("Parquet file", str(path), None, (replace(table, chunks=source.chunks),))
    array = _plain_array(path.name, source, tuple(open_npy(path).shape), size)
    return StoreInspection("npy file", str(path), None, (replace(array, bytes=size),))


def _array_in(file: Hdf5File, name: str) -> ArrayInspection | LabelsInspection | UnusableArray:
    shape = file.shape(name)
    if file.is_text(name):
        return LabelsInspection(name, shape[0])
    try:
        source = file.open(name)
    except DataError as error:
        return UnusableArray(name, str(error))
    array = _plain_array(name, source, shape, file.stored_bytes(name))
    dims = file.dims(name)
    return replace(array, dims=None if None in dims else dims, chunks=source.chunk_shape)


def _plain_array(name: str, source: Source, shape: tuple[int, ...], stored: int) -> ArrayInspection:
    return ArrayInspection(
        name=name,
        shape=shape,
        dtype=str(source.spec.dtype),
        bytes=math.prod(shape) * source.spec.dtype.itemsize,
        zarr_format=None,
        dims=None,
        chunks=None,
        shards=None,
        codecs=(),
        stored_bytes=stored,
        missing=None,
        n_rows=source.spec.n_rows,
        n_cols=source.spec.n_cols,
        blocks=_blocks(source),
    )


def _blocks(source: Source) -> dict[str, Blocks]:
    """Return the blocks in which a pass with a small accumulator would read samples and features."""
    partitions = {axis: partition(source.spec, source.chunks, axis, accumulator_bytes=0) for axis in _AXES}
    return {
        axis: Blocks(
            count=math.ceil(pieces.length / pieces.block),
            lines=min(pieces.block, pieces.length),
            bytes=min(pieces.block, pieces.length) * source.spec.line_bytes(axis),
        )
        for axis, pieces in partitions.items()
    }
