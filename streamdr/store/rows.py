"""Embeddings and other rows as files: one array, written by many tasks in whole chunks, and then sealed."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import DTypeLike

from streamdr import __version__
from streamdr.core.addresses import Location
from streamdr.core.blocks import Array
from streamdr.core.row_outputs import RowKind
from streamdr.errors import StoreError
from streamdr.store import ours
from streamdr.store.arrays import ArrayLayout, create_array, parse_layout
from streamdr.store.record import ROOT, draft, is_as_written, parse_json, read_group, write_record


class SealedRows:
    """The array of a finished output, for reading. A chunk that fails its checksum is a StoreError."""

    def __init__(self, place: Location, array: zarr.Array[Any]) -> None:
        self.shape: tuple[int, ...] = array.shape
        self.chunks: tuple[int, ...] = array.chunks
        self.dtype: np.dtype[Any] = array.dtype
        metadata: Any = array.metadata  # zarr version 3, which has dimension names
        self.dims: tuple[str, ...] = tuple(metadata.dimension_names or ())
        self._place = place
        self._array = array

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """The size of the whole array in memory, in bytes."""
        return prod(self.shape) * self.dtype.itemsize

    def __getitem__(self, part: Any) -> Array:
        try:
            return np.asarray(self._array[part])
        except (ValueError, OSError) as error:
            rows = part[0] if isinstance(part, tuple) and part else part
            where = ""
            if isinstance(rows, slice):
                start, stop, _ = rows.indices(len(self))
                where = f"rows {start}-{stop - 1}: "
            raise StoreError(f"{self._place}: {where}{error}; transform again") from error

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.asarray(self[:], dtype)


def lay_out(folder: Path, kind: RowKind, layout: ArrayLayout, entries: Mapping[str, Any]) -> None:
    """Create an array without rows in a folder. Keep the rows that a killed run of the same output wrote."""
    if _continues(folder, kind, entries, layout):
        return
    (folder / ROOT).unlink(missing_ok=True)
    ours.clear(folder)
    create_array(folder / kind, layout)
    write_record(folder, kind, entries, complete=False)


def require_whole_chunks(
    name: str, shape: tuple[int, ...], chunks: tuple[int, ...], start: int, values: Array
) -> None:
    """Refuse rows that are not whole chunks of an array, or that have another shape."""
    n_rows, chunk_rows, stop = shape[0], chunks[0], start + len(values)
    if start % chunk_rows or not (stop == n_rows or (stop < n_rows and stop % chunk_rows == 0)):
        raise StoreError(
            f"{name}: rows {start}-{stop - 1} are not whole chunks of {chunk_rows} of its {n_rows} rows; "
            "two writers of one chunk would undo each other's work"
        )
    if values.shape[1:] != shape[1:]:
        raise StoreError(f"{name}: rows of shape {values.shape[1:]} where {shape[1:]} are expected")


def seal(path: Path, kind: RowKind) -> None:
    """Record that an output is complete."""
    record = draft(path)
    if record is None:
        raise StoreError(f"{path / ROOT}: has no record; create the output before finishing it")
    write_record(path, kind, _entries(record), complete=True)


def sealed_layout(path: Path, kind: RowKind) -> ArrayLayout:
    """Return the layout of a finished output. Refuse metadata that was damaged or edited."""
    group = read_group(path, kind)
    metadata = group.arrays.get(kind)
    layout = parse_layout(metadata, path / kind)
    if parse_json(path / kind / ROOT) != metadata:
        raise StoreError(f"{path / kind / ROOT}: is not what was written: damaged or edited; transform again")
    recorded = (group.record.get("n_rows"), group.record.get("n_outputs"))
    if (*layout.shape[:1], prod(layout.shape[1:])) != recorded:
        raise StoreError(f"{path}: the shape {layout.shape} is not the recorded one; transform again")
    return layout


def _continues(path: Path, kind: RowKind, entries: Mapping[str, Any], layout: ArrayLayout) -> bool:
    """Return whether the path holds the same output, begun by this version and undamaged."""
    record = draft(path)
    return (
        record is not None
        and record.get("version") == __version__
        and record.get("kind") == kind
        and _entries(record) == entries
        and is_as_written(path)
        and read_layout(path, kind) == layout
    )


def _entries(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a record without those that `write_record` adds."""
    added = {"schema", "kind", "version", "created", "complete", "digest"}
    return {key: value for key, value in record.items() if key not in added}


def read_layout(path: Path, kind: RowKind) -> ArrayLayout:
    """Return the layout of an output, finished or not."""
    return parse_layout(parse_json(path / kind / ROOT), path / kind)
