"""Embeddings on disk: one array that many tasks write, whole chunks each, sealed once all are there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import DTypeLike

from streamdr import __version__
from streamdr.blocks import Array, Span
from streamdr.errors import StoreError
from streamdr.store.arrays import Layout, chunk_fault, create_array, parse_layout
from streamdr.store.record import ROOT, draft, is_as_written, parse_json, read_group, to_json, write_record

ARRAY = "embedding"
DIMS = ("sample", "component")


def create_embedding(
    path: Path,
    *,
    n_rows: int,
    n_outputs: int,
    dtype: DTypeLike,
    chunk_rows: int,
    output_names: Sequence[str] | None = None,
    attributes: Mapping[str, Any],
) -> None:
    """Lay out an embedding in a staging directory, keeping the rows that a killed run of the same left there.

    `attributes` go into the record. Rows are kept only if all of them are the same as before, so they
    must include whatever decides the values: the model's digest, the input's fingerprint.
    """
    layout = Layout((n_rows, n_outputs), (min(chunk_rows, n_rows), n_outputs), np.dtype(dtype), DIMS)
    names = None if output_names is None else list(output_names)
    entries = to_json({**attributes, "n_rows": n_rows, "n_outputs": n_outputs, "output_names": names})
    if _continues(path, entries, layout):
        return
    (path / ROOT).unlink(missing_ok=True)
    shutil.rmtree(path / ARRAY, ignore_errors=True)
    create_array(path / ARRAY, layout)
    write_record(path, "embedding", entries, complete=False)


def write_rows(path: Path, start: int, values: Array) -> None:
    """Write whole chunks of rows. Doing so twice, or beside other rows in other processes, is harmless."""
    array = _handle(path)
    require_whole_chunks(str(path), array.shape, array.chunks, start, values)
    array[start : start + len(values)] = values


def require_whole_chunks(
    name: str, shape: tuple[int, ...], chunks: tuple[int, ...], start: int, values: Array
) -> None:
    """Refuse rows that are not whole chunks of an embedding, or not of its width."""
    n_rows, chunk_rows, stop = shape[0], chunks[0], start + len(values)
    if start % chunk_rows or not (stop == n_rows or (stop < n_rows and stop % chunk_rows == 0)):
        raise StoreError(
            f"{name}: rows {start}-{stop - 1} are not whole chunks of {chunk_rows} of its {n_rows} rows; "
            "two writers of one chunk would undo each other's work"
        )
    if values.shape[1:] != shape[1:]:
        raise StoreError(f"{name}: rows of shape {values.shape[1:]} where {shape[1:]} are expected")


def adopt_rows(path: Path, earlier: Path, rows: int) -> None:
    """Take over the chunks of an earlier embedding that hold nothing but the first `rows` rows.

    No file of an embedding is ever changed, so one file may well belong to two.
    """
    layout = _layout(path)
    if _layout(earlier).chunks != layout.chunks:
        raise StoreError(f"{earlier}: has chunks of another shape than {path}; transform all of it again")
    for file, span in _chunks(path, layout):
        if span.stop > rows or len(span) < layout.chunks[0]:
            return
        old = earlier / file.relative_to(path)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(old, file)
            except OSError:  # a filesystem without links
                shutil.copyfile(old, file)


def existing_chunks(path: Path) -> set[int]:
    """The chunks that need not be written again: there, whole, and with the right checksum."""
    layout = _layout(path)
    return {i for i, (file, _) in enumerate(_chunks(path, layout)) if chunk_fault(file, layout) is None}


def finish(path: Path) -> None:
    """Read every chunk back, and only then record that the embedding is complete."""
    layout = _layout(path)
    chunks = dict(_chunks(path, layout))
    for file, rows in chunks.items():
        _require(chunk_fault(file, layout), file, rows)
    for file in (path / ARRAY / "c").rglob("*"):
        if file.is_file() and file not in chunks:
            file.unlink()  # a killed write's temporary file
    seal(path)


def seal(path: Path) -> None:
    """Record that an embedding is complete."""
    record = draft(path)
    if record is None:
        raise StoreError(f"{path / ROOT}: has no record; create the embedding before finishing it")
    write_record(path, "embedding", _entries(record), complete=True)


def open_embedding(path: Path) -> zarr.Array:
    """Open a finished embedding for reading, all of its chunks being there."""
    layout = sealed_layout(path)
    for file, rows in _chunks(path, layout):
        size = file.stat().st_size if file.is_file() else None
        if size != layout.file_bytes:
            _require(
                "is missing" if size is None else f"has {size} bytes, not {layout.file_bytes}", file, rows
            )
    return zarr.open_array(path / ARRAY, mode="r")


def sealed_layout(path: Path) -> Layout:
    """The layout of a finished embedding, if its metadata is as it was written."""
    group = read_group(path, "embedding")
    metadata = group.arrays.get(ARRAY)
    layout = parse_layout(metadata, path / ARRAY)
    if parse_json(path / ARRAY / ROOT) != metadata:
        raise StoreError(
            f"{path / ARRAY / ROOT}: is not what was written: damaged or edited; transform again"
        )
    if layout.shape != (group.record.get("n_rows"), group.record.get("n_outputs")):
        raise StoreError(f"{path}: the shape {layout.shape} is not the recorded one; transform again")
    return layout


def _continues(path: Path, entries: Mapping[str, Any], layout: Layout) -> bool:
    """Whether what lies at the path is the same embedding, begun by this version and whole so far."""
    record = draft(path)
    return (
        record is not None
        and record.get("version") == __version__
        and _entries(record) == entries
        and is_as_written(path)
        and _layout(path) == layout
    )


def _entries(record: Mapping[str, Any]) -> dict[str, Any]:
    """What the caller and the layout said of an embedding, without what every writing says anew."""
    anew = {"schema", "kind", "version", "created", "complete", "digest"}
    return {key: value for key, value in record.items() if key not in anew}


def _layout(path: Path) -> Layout:
    return parse_layout(parse_json(path / ARRAY / ROOT), path / ARRAY)


def _chunks(path: Path, layout: Layout) -> Iterator[tuple[Path, Span]]:
    """The file of each chunk, in order, with its rows."""
    for key, (rows, _) in layout.files():
        yield path / ARRAY / key, Span(rows.start, rows.stop)


def _require(fault: str | None, file: Path, rows: Span) -> None:
    if fault is not None:
        raise StoreError(f"{file}: {fault} (rows {rows.start}-{rows.stop - 1}); transform again")


def _handle(path: Path) -> zarr.Array:
    """The array, opened once a process: opening costs more than writing a chunk."""
    try:
        status = (path / ARRAY / ROOT).stat()
    except FileNotFoundError:
        raise StoreError(
            f"{path}: no embedding is being written here; was it removed or published?"
        ) from None
    return _open(path, status.st_ino, status.st_mtime_ns)


@lru_cache(maxsize=8)
def _open(path: Path, inode: int, modified: int) -> zarr.Array:
    # The last two arguments are there to be part of the cache's key: a staging may be made anew.
    return zarr.open_array(path / ARRAY, mode="r+", config={"write_empty_chunks": True})
