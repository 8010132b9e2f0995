"""Embeddings and other rows as files: one array, written by many tasks in whole chunks, and then sealed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import DTypeLike

from streamdr import __version__
from streamdr.core.addresses import Location
from streamdr.core.axes import is_array_name
from streamdr.core.blocks import Array, Span
from streamdr.core.row_outputs import RowKind
from streamdr.errors import StoreError
from streamdr.store import ours
from streamdr.store.arrays import ArrayLayout, create_array, open_writable, parse_layout, stored_attributes
from streamdr.store.record import (
    ROOT,
    arrays_in,
    draft,
    is_as_written,
    parse_json,
    peek,
    read_group,
    to_json,
    write_record,
)


@dataclass(frozen=True)
class RowCoordinate:
    """A coordinate beside the rows of an output: of the samples, or of the features.

    Parameters
    ----------
    name : str
        Its name.
    layout : ArrayLayout
        Its shape, chunks, type and dimensions. It is cut along the first dimension only.
    read : callable
        Returns the values of a span along its first dimension.
    attributes : mapping
        CF attributes.
    """

    name: str
    layout: ArrayLayout
    read: Callable[[Span], Array]
    attributes: Mapping[str, Any] = field(default_factory=dict)


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

    def require_intact(self) -> None:
        """Read everything, a chunk of rows at a time. A chunk that fails its checksum is a StoreError."""
        if not self.shape:
            self[...]
        for rows in Span(0, self.shape[0]).split(self.chunks[0]) if self.shape else ():
            self[rows.slice]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.asarray(self[:], dtype)


def lay_out(
    folder: Path,
    kind: RowKind,
    layout: ArrayLayout,
    entries: Mapping[str, Any],
    attributes: Mapping[str, Any],
    coordinates: Sequence[RowCoordinate],
) -> None:
    """Create an array without rows in a folder, with `attributes`, and those of its coordinates.

    Keep the rows that a killed run of the same output wrote.
    """
    if coordinates:
        entries = {**entries, "coordinates": [one.name for one in coordinates]}
    arrays = {str(kind): (layout, attributes)}
    arrays |= {one.name: (one.layout, one.attributes) for one in coordinates}
    if _continues(folder, kind, entries, arrays):
        return
    (folder / ROOT).unlink(missing_ok=True)
    ours.clear(folder)
    for name, (of_array, about) in arrays.items():
        create_array(folder / name, of_array, about)
    write_record(folder, kind, entries, complete=False)


def coordinate_files(folder: Path, coordinate: RowCoordinate) -> Iterator[str]:
    """Write the chunks of a coordinate whose array exists in a folder, and yield the name of each.

    Only one chunk is in memory at a time, however many rows there are.
    """
    array = open_writable(folder / coordinate.name)
    for key, region in coordinate.layout.files():
        if not region:  # a scalar
            array[...] = coordinate.read(Span(0, 1))
        else:
            array[region] = coordinate.read(Span(region[0].start, region[0].stop))
        yield f"{coordinate.name}/{key}"


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


def sealed_layouts(path: Path, kind: RowKind) -> dict[str, ArrayLayout]:
    """Return the layouts of a finished output and of its coordinates, the output first.

    Refuse metadata that was damaged or edited.
    """
    group = read_group(path, kind)
    layouts = {}
    for name in (kind, *coordinate_names(group.record)):
        metadata = group.arrays.get(name)
        layouts[name] = parse_layout(metadata, path / name, text=name != kind)
        if parse_json(path / name / ROOT) != metadata:
            raise StoreError(
                f"{path / name / ROOT}: is not what was written: damaged or edited; transform again"
            )
    layout: ArrayLayout = layouts[kind]
    recorded = (group.record.get("n_rows"), group.record.get("n_outputs"))
    if (*layout.shape[:1], prod(layout.shape[1:])) != recorded:
        raise StoreError(f"{path}: the shape {layout.shape} is not the recorded one; transform again")
    return layouts


def _continues(
    path: Path,
    kind: RowKind,
    entries: Mapping[str, Any],
    arrays: Mapping[str, tuple[ArrayLayout, Mapping[str, Any]]],
) -> bool:
    """Return whether the path holds the same output, begun by this version and undamaged."""
    document, record = peek(path)
    return (
        record is not None
        and record.get("version") == __version__
        and record.get("kind") == kind
        and _entries(record) == entries
        and is_as_written(path)
        and arrays_in(document).keys() == arrays.keys()
        and all(
            parse_layout(found, path / name, text=name != kind) == arrays[name][0]
            and found.get("attributes") == to_json(stored_attributes(arrays[name][1], arrays[name][0].dtype))
            for name, found in arrays_in(document).items()
        )
    )


def _entries(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a record without those that `write_record` adds."""
    added = {"schema", "kind", "version", "created", "complete", "digest"}
    return {key: value for key, value in record.items() if key not in added}


def read_layout(path: Path, kind: RowKind) -> ArrayLayout:
    """Return the layout of an output, finished or not."""
    return parse_layout(parse_json(path / kind / ROOT), path / kind)


def read_layouts(path: Path, kind: RowKind) -> dict[str, ArrayLayout]:
    """Return the layouts of an output and of its coordinates, finished or not, the output first."""
    layouts = {str(kind): read_layout(path, kind)}
    for name in coordinate_names(draft(path) or {}):
        layouts[name] = parse_layout(parse_json(path / name / ROOT), path / name, text=True)
    return layouts


def coordinate_names(record: Mapping[str, Any]) -> list[str]:
    """Return the names of the coordinates that a record lists. Names that streamdr does not write are not."""
    names = record.get("coordinates")
    return [name for name in names if is_array_name(str(name))] if isinstance(names, list) else []
