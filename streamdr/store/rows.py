"""Embeddings and the like on disk: one array that many tasks write, whole chunks each, and then sealed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import DTypeLike

from streamdr import __version__
from streamdr.addresses import Place
from streamdr.blocks import Array, Span
from streamdr.errors import StoreError
from streamdr.methods.rows import RowKind
from streamdr.store import ours
from streamdr.store.arrays import Layout, chunk_fault, create_array, parse_layout
from streamdr.store.record import ROOT, draft, is_as_written, parse_json, read_group, to_json, write_record


class SealedRows:
    """The array of a finished output, to be read. A chunk that fails its checksum is a StoreError."""

    def __init__(self, place: Place, array: zarr.Array[Any]) -> None:
        self.shape: tuple[int, ...] = array.shape
        self.chunks: tuple[int, ...] = array.chunks
        self.dtype: np.dtype[Any] = array.dtype
        self.dims: tuple[str, ...] = tuple(array.metadata.dimension_names or ())
        self._place = place
        self._array = array

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """What all of it takes in memory."""
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


def create_rows(
    path: Path,
    kind: RowKind,
    *,
    shape: tuple[int, ...],
    dims: tuple[str, ...],
    dtype: DTypeLike,
    chunk_rows: int,
    output_names: Sequence[str] | None = None,
    attributes: Mapping[str, Any],
) -> None:
    """Lay out an array in a staging directory, keeping the rows that a killed run of the same left there.

    `shape` begins with the number of rows; each is in one chunk. `attributes` go into the record. Rows are
    kept only if all of them are the same as before, so they must include whatever decides the values: the
    model's digest, the input's fingerprint.
    """
    layout = Layout(shape, (min(chunk_rows, shape[0]), *shape[1:]), np.dtype(dtype), dims)
    names = None if output_names is None else list(output_names)
    sizes = {"n_rows": shape[0], "n_outputs": prod(shape[1:])}
    entries = to_json({**attributes, **sizes, "output_names": names})
    if _continues(path, kind, entries, layout):
        return
    (path / ROOT).unlink(missing_ok=True)
    ours.clear(path)
    create_array(path / kind, layout)
    write_record(path, kind, entries, complete=False)


def write_rows(path: Path, kind: RowKind, start: int, values: Array) -> None:
    """Write whole chunks of rows. Doing so twice, or beside other rows in other processes, is harmless."""
    array = _handle(path, kind)
    require_whole_chunks(str(path), array.shape, array.chunks, start, values)
    array[start : start + len(values)] = values


def require_whole_chunks(
    name: str, shape: tuple[int, ...], chunks: tuple[int, ...], start: int, values: Array
) -> None:
    """Refuse rows that are not whole chunks of an array, or not of its width."""
    n_rows, chunk_rows, stop = shape[0], chunks[0], start + len(values)
    if start % chunk_rows or not (stop == n_rows or (stop < n_rows and stop % chunk_rows == 0)):
        raise StoreError(
            f"{name}: rows {start}-{stop - 1} are not whole chunks of {chunk_rows} of its {n_rows} rows; "
            "two writers of one chunk would undo each other's work"
        )
    if values.shape[1:] != shape[1:]:
        raise StoreError(f"{name}: rows of shape {values.shape[1:]} where {shape[1:]} are expected")


def adopt_rows(path: Path, kind: RowKind, earlier: Path, rows: int) -> None:
    """Take over the chunks of an earlier output that hold nothing but the first `rows` rows.

    No file of an output is ever changed, so one file may well belong to two.
    """
    layout = _layout(path, kind)
    if _layout(earlier, kind).chunks != layout.chunks:
        raise StoreError(f"{earlier}: has chunks of another shape than {path}; transform all of it again")
    for file, span in _chunks(path, kind, layout):
        if span.stop > rows or len(span) < layout.chunks[0]:
            return
        old = earlier / file.relative_to(path)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(old, file)
            except OSError:  # a filesystem without links
                shutil.copyfile(old, file)


def existing_chunks(path: Path, kind: RowKind) -> set[int]:
    """The chunks that need not be written again: there, whole, and with the right checksum."""
    layout = _layout(path, kind)
    return {i for i, (file, _) in enumerate(_chunks(path, kind, layout)) if chunk_fault(file, layout) is None}


def finish(path: Path, kind: RowKind) -> None:
    """Read every chunk back, and only then record that the output is complete."""
    layout = _layout(path, kind)
    chunks = dict(_chunks(path, kind, layout))
    for file, rows in chunks.items():
        _require(chunk_fault(file, layout), file, rows)
    for file in (path / kind / "c").rglob("*"):
        # A killed write's temporary file. What streamdr did not write is found when this is published.
        if file not in chunks and ours.is_own(file.relative_to(path).as_posix()) and file.is_file():
            file.unlink()
    seal(path, kind)


def seal(path: Path, kind: RowKind) -> None:
    """Record that an output is complete."""
    record = draft(path)
    if record is None:
        raise StoreError(f"{path / ROOT}: has no record; create the output before finishing it")
    write_record(path, kind, _entries(record), complete=True)


def open_rows(path: Path, kind: RowKind) -> SealedRows:
    """Open a finished output for reading, all of its chunks being there."""
    layout = sealed_layout(path, kind)
    for file, rows in _chunks(path, kind, layout):
        size = file.stat().st_size if file.is_file() else None
        if size != layout.file_bytes:
            _require(
                "is missing" if size is None else f"has {size} bytes, not {layout.file_bytes}", file, rows
            )
    return SealedRows(path, zarr.open_array(path / kind, mode="r"))


def sealed_layout(path: Path, kind: RowKind) -> Layout:
    """The layout of a finished output, if its metadata is as it was written."""
    group = read_group(path, kind)
    metadata = group.arrays.get(kind)
    layout = parse_layout(metadata, path / kind)
    if parse_json(path / kind / ROOT) != metadata:
        raise StoreError(f"{path / kind / ROOT}: is not what was written: damaged or edited; transform again")
    recorded = (group.record.get("n_rows"), group.record.get("n_outputs"))
    if (*layout.shape[:1], prod(layout.shape[1:])) != recorded:
        raise StoreError(f"{path}: the shape {layout.shape} is not the recorded one; transform again")
    return layout


def _continues(path: Path, kind: RowKind, entries: Mapping[str, Any], layout: Layout) -> bool:
    """Whether what lies at the path is the same output, begun by this version and whole so far."""
    record = draft(path)
    return (
        record is not None
        and record.get("version") == __version__
        and record.get("kind") == kind
        and _entries(record) == entries
        and is_as_written(path)
        and _layout(path, kind) == layout
    )


def _entries(record: Mapping[str, Any]) -> dict[str, Any]:
    """What the caller and the layout said of an output, without what every writing says anew."""
    anew = {"schema", "kind", "version", "created", "complete", "digest"}
    return {key: value for key, value in record.items() if key not in anew}


def _layout(path: Path, kind: RowKind) -> Layout:
    return parse_layout(parse_json(path / kind / ROOT), path / kind)


def _chunks(path: Path, kind: RowKind, layout: Layout) -> Iterator[tuple[Path, Span]]:
    """The file of each chunk, in order, with its rows."""
    for key, (rows, *_) in layout.files():
        yield path / kind / key, Span(rows.start, rows.stop)


def _require(fault: str | None, file: Path, rows: Span) -> None:
    if fault is not None:
        raise StoreError(f"{file}: {fault} (rows {rows.start}-{rows.stop - 1}); transform again")


def _handle(path: Path, kind: RowKind) -> zarr.Array:
    """The array, opened once a process: opening costs more than writing a chunk."""
    try:
        status = (path / kind / ROOT).stat()
    except FileNotFoundError:
        raise StoreError(f"{path}: no {kind} is being written here; was it removed or published?") from None
    return _open(path / kind, status.st_ino, status.st_mtime_ns)


@lru_cache(maxsize=8)
def _open(array: Path, inode: int, modified: int) -> zarr.Array:
    # The last two arguments are there to be part of the cache's key: a staging may be made anew.
    return zarr.open_array(array, mode="r+", config={"write_empty_chunks": True})
