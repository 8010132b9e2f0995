"""Outputs in files: staged in a hidden directory beside the target, which is then renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from os.path import realpath
from pathlib import Path
from typing import Any

import zarr

from streamdr.core.addresses import Location
from streamdr.core.blocks import Array
from streamdr.core.row_outputs import RowKind
from streamdr.errors import StoreError
from streamdr.store import ours, publish
from streamdr.store.arrays import chunk_fault, open_writable
from streamdr.store.backend import GROUP_MARKERS, Backend, SizeOf, bad_chunk, chunks_of, full_chunks
from streamdr.store.compare_and_swap import CompareAndSwap, CompareAndSwapFile
from streamdr.store.publish import Staging, require_replaceable, resolved, unwritable
from streamdr.store.record import ROOT, OutputKind
from streamdr.store.rows import (
    RowCoordinate,
    coordinate_files,
    read_layout,
    read_layouts,
    require_whole_chunks,
    seal,
)


class LocalBackend(Backend):
    """An output that is a directory of files."""

    staging = Staging

    def __init__(self, path: Path) -> None:
        self.place: Path = path

    def exists(self) -> bool:
        """Return whether there is a directory, or anything else."""
        return os.path.lexists(self.place)

    def sizes(self) -> dict[str, int]:
        """Return the size of each regular file."""
        files = (file for file in self.place.rglob("*") if file.is_file())
        return {file.relative_to(self.place).as_posix(): file.stat().st_size for file in files}

    def size_of(self) -> SizeOf:
        """Return a function that looks at one file at a time."""

        def size(name: str) -> int | None:
            file = self.place / name
            return file.stat().st_size if file.is_file() else None

        return size

    def metadata(self, *arrays: str) -> AbstractContextManager[Path]:
        """Provide the directory itself."""
        return nullcontext(self.place)

    def model_files(self) -> AbstractContextManager[Path]:
        """Provide the directory itself."""
        return nullcontext(self.place)

    def destination(self) -> Path:
        """Return the path without links."""
        return resolved(self.place)

    def contains(self, other: Location) -> bool:
        """Return whether another path is this one, or lies below it."""
        return isinstance(other, Path) and Path(realpath(other)).is_relative_to(realpath(self.place))

    def lies_in(self, other: Location) -> bool:
        """Return whether this path is another one, or lies below it."""
        return isinstance(other, Path) and Path(realpath(self.place)).is_relative_to(realpath(other))

    def group_around(self, source: Location) -> Location:
        """Return the outermost directory around a source that a marker shows to be a zarr group."""
        if isinstance(source, Path):
            source = resolved(source)
            while any((source.parent / marker).is_file() for marker in GROUP_MARKERS):
                source = source.parent
        return source

    def require_writable(self, kind: OutputKind, overwrite: bool) -> None:
        """Refuse a path that cannot be written, or whose content must not be replaced."""
        path = resolved(self.place)
        try:
            require_replaceable(path, kind, overwrite)
        except OSError as error:
            raise unwritable(self.place, error) from error
        self.require_writable_folders([next(above for above in path.parents if above.exists())])

    def require_writable_folders(self, folders: Sequence[Path]) -> None:
        """Refuse folders in which no file can be made."""
        try:
            for folder in folders:
                if not folder.is_dir():
                    raise StoreError(
                        f"{self}: cannot be written, since {folder} is a file; choose another path"
                    )
                # Only writing shows whether permissions, mounts and quotas allow it. Where possible, the file
                # has no name, so that a kill leaves nothing.
                tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise unwritable(self.place, error) from error

    def require_space(self, nbytes: int) -> None:
        """Refuse to write `nbytes` to a filesystem with too little space."""
        path = resolved(self.place)
        free = shutil.disk_usage(next(p for p in (path, *path.parents) if p.exists())).free
        if free < nbytes:
            raise StoreError(
                f"{self}: needs {nbytes / 1e9:.3g} GB, but its filesystem has {free / 1e9:.3g} GB free; "
                "free some space or choose another path"
            )

    def lease_file(self) -> CompareAndSwap:
        """Return a hidden file beside the directory."""
        path = self.destination()
        return CompareAndSwapFile(path.with_name(f".{path.name}.lease"))

    def sweep(self) -> None:
        """Remove the staging directories that killed runs left."""
        publish.sweep(self.place)

    def laying_out(self, kind: RowKind) -> AbstractContextManager[Path]:
        """Provide the directory itself."""
        return nullcontext(self.place)

    def adopt_rows(self, earlier: Location, rows: int, kind: RowKind = "embedding") -> None:
        """Link to the chunks. The files of an output never change, so two outputs may share them."""
        assert isinstance(earlier, Path)  # work is staged beside the output that it replaces
        layout = read_layout(self.place, kind)
        if read_layout(earlier, kind).chunks != layout.chunks:
            raise StoreError(f"{earlier}: has chunks of another shape than {self}; transform all of it again")
        for name in full_chunks(kind, layout, rows):
            old, file = earlier / name, self.place / name
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(old, file)
                except OSError:  # a filesystem without links
                    shutil.copyfile(old, file)

    def existing_chunks(self, kind: RowKind = "embedding") -> set[int]:
        """Return the numbers of the chunks whose files have the correct checksum."""
        layout = read_layout(self.place, kind)
        files = (self.place / name for name, _ in chunks_of(kind, layout))
        return {number for number, file in enumerate(files) if chunk_fault(file, layout) is None}

    def write_rows(self, start: int, values: Array, kind: RowKind = "embedding") -> None:
        """Write whole chunks of rows."""
        array = _writable_array(self.place, kind)
        require_whole_chunks(str(self), array.shape, array.chunks, start, values)
        array[start : start + len(values)] = values

    def write_coordinate(self, coordinate: RowCoordinate) -> None:
        """Write the chunks of a coordinate."""
        for _ in coordinate_files(self.place, coordinate):
            pass

    def finish(self, kind: RowKind = "embedding") -> None:
        """Read every chunk back, remove what killed writes left, and record that the output is complete."""
        for name, layout in read_layouts(self.place, kind).items():
            chunks = {self.place / chunk: rows for chunk, rows in chunks_of(name, layout)}
            for file, rows in chunks.items():
                if (fault := chunk_fault(file, layout)) is not None:
                    raise bad_chunk(file, fault, rows if name == kind else None)
            for file in (self.place / name).rglob("*"):
                # The temporary file of a killed write. Foreign files are detected when this is published.
                own = file.name != ROOT and ours.is_own(file.relative_to(self.place).as_posix())
                if own and file not in chunks and file.is_file():
                    file.unlink()
        seal(self.place, kind)

    def open_array(self, name: str) -> Any:
        """Return the zarr array of a name, opened for reading."""
        return zarr.open_array(self.place / name, mode="r")


def _writable_array(path: Path, kind: RowKind) -> zarr.Array[Any]:
    """Return the array, opened once per process: opening costs more than writing a chunk."""
    try:
        status = (path / kind / ROOT).stat()
    except FileNotFoundError:
        raise StoreError(f"{path}: no {kind} is being written here; was it removed or published?") from None
    return _opened(path / kind, status.st_ino, status.st_mtime_ns)


@lru_cache(maxsize=8)
def _opened(array: Path, inode: int, modified: int) -> zarr.Array[Any]:
    # The last two arguments are part of the key of the cache: a staging directory may be created again.
    return open_writable(array)
