"""Scores in an .h5ad file. HDF5 has no atomic write, so a copy of the file is changed, and replaces it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from streamdr.core.addresses import Location
from streamdr.core.blocks import Array
from streamdr.core.files import require_regular
from streamdr.errors import OverlapError, StoreError
from streamdr.store.anndata.backend import AnnDataBackend, is_made, require_written
from streamdr.store.anndata.elements import OURS, Reader, Rows, Writer
from streamdr.store.anndata.hidden import Hidden
from streamdr.store.locking import locked
from streamdr.store.publish import Fence, resolved, sync
from streamdr.store.record import OutputKind

_VERSIONS = ("v108", "v110")
"""The versions of the HDF5 format that are written. From 1.8 on, attributes may be larger than 64 KiB."""


class Hdf5Writer:
    """Writes groups and datasets into an open file."""

    def __init__(self, file: h5py.File) -> None:
        self._file = file

    def group(self, path: str, attributes: Mapping[str, Any]) -> None:
        """Create a group."""
        group = self._file.require_group(path) if path else self._file
        _describe(group, attributes)

    def array(self, path: str, values: Array, attributes: Mapping[str, Any]) -> None:
        """Write a dataset."""
        if values.dtype.kind == "U":
            found = self._file.create_dataset(path, values.shape, h5py.string_dtype())
            found[...] = values.astype(object)
        else:
            found = self._file.create_dataset(path, data=values)
        _describe(found, attributes)

    def rows(self, path: str, rows: Rows, attributes: Mapping[str, Any]) -> None:
        """Write a dataset piece by piece."""
        is_text = rows.dtype.kind == "U"
        dtype = h5py.string_dtype() if is_text else rows.dtype
        chunks = (min(rows.chunk_rows, rows.shape[0]), *rows.shape[1:]) if rows.shape[0] else None
        found, start = self._file.create_dataset(path, rows.shape, dtype, chunks=chunks), 0
        for piece in rows.pieces:
            found[start : start + len(piece)] = piece.astype(object) if is_text else piece
            start += len(piece)
        _describe(found, attributes)

    def describe(self, path: str, attributes: Mapping[str, Any]) -> None:
        """Add attributes to a dataset."""
        _describe(self._file[path], attributes)


class Hdf5Reader:
    """Reads a file."""

    def __init__(self, path: Path) -> None:
        self._file = h5py.File(path, "r")

    def attributes(self, path: str) -> Mapping[str, Any] | None:
        """Return the attributes of a group or a dataset; None if there is none."""
        node = self._file.get(path) if path else self._file
        return None if node is None else dict(node.attrs)

    def array(self, path: str) -> Any:
        """Return a dataset; None if there is none."""
        node = self._file.get(path)
        return node if isinstance(node, h5py.Dataset) else None

    def members(self, path: str) -> Sequence[str]:
        """Return the names of what is in a group, sorted."""
        node = self._file.get(path) if path else self._file
        return sorted(node) if isinstance(node, h5py.Group) else []

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Hdf5AnnData(AnnDataBackend):
    """The scores of one method in an .h5ad file."""

    def reader(self) -> Hdf5Reader:
        """Open the file for reading."""
        try:
            require_regular(self.place)
            found = Hdf5Reader(self.place)
        except OSError as error:
            raise StoreError(f"{self}: is not an HDF5 file ({error}); choose another path") from error
        if any("_index" not in (found.attributes(table) or {}) for table in ("obs", "var")):
            found.close()
            raise StoreError(f"{self}: is not an AnnData file with obs and var; choose another path")
        return found

    def is_ours_alone(self, reader: Reader) -> bool:
        """Return whether streamdr has made the file, and nothing was added since."""
        if not is_made(reader):
            return False
        record = self.read_group().record if reader.attributes(self.scores) else {"entries": {}}
        own = {"obs/_index", "var/_index", self.scores, *record["entries"]}
        return {f"{table}/{name}" for table in reader.members("") for name in reader.members(table)} <= own

    def check_output(
        self,
        *,
        kind: OutputKind,
        inputs: Sequence[Location],
        overwrite: bool,
        other_outputs: Sequence[Location] = (),
    ) -> None:
        """Refuse a file that cannot or must not be written, and the input itself."""
        if any(self._is(root) for root in inputs):
            raise OverlapError(
                f"{self}: is the input. An .h5ad file is replaced as a whole, so the input would change with "
                "every run; write to another .h5ad file, or convert the input to zarr, which takes scores in "
                "place"
            )
        super().check_output(kind=kind, inputs=inputs, overwrite=overwrite, other_outputs=other_outputs)

    def require_space(self, nbytes: int) -> None:
        """Refuse to write where there is no space for the rows and for a copy of the file."""
        super().require_space(nbytes + self._copied_bytes // 2)  # which is doubled

    def require_room(self, nbytes: int) -> None:
        """Refuse to write where there is no space: libhdf5 crashes when the disk becomes full."""
        super().require_space((nbytes + self._copied_bytes) // 2)  # which is doubled

    @property
    def _copied_bytes(self) -> int:
        """The size of the file that is copied, if there is one."""
        return self.place.stat().st_size if self.place.is_file() else 0

    def create(self, hidden: Hidden, write: Callable[[Writer], None], fence: Fence) -> None:
        """Make a new file, and make it the target in one step."""
        file = hidden.folder / "new.h5ad"
        with h5py.File(file, "w", libver=_VERSIONS) as opened:
            write(Hdf5Writer(opened))
        self._become_target(file, fence)

    def add(
        self,
        hidden: Hidden,
        paths: Sequence[str],
        columns: Sequence[str],
        write: Callable[[Writer], None],
        fence: Fence,
    ) -> None:
        """Replace the file by a copy of it with what `write` writes at some paths."""
        file = hidden.folder / "copy.h5ad"
        shutil.copyfile(self.place, file)
        with h5py.File(file, "r+", libver=_VERSIONS) as opened:
            for path in paths:
                if path in opened:
                    del opened[path]
            write(Hdf5Writer(opened))
            order = [*map(str, opened["var"].attrs.get("column-order", ()))]
            added = [name for name in columns if name not in order]
            if added:
                _describe(opened["var"], {"column-order": [*order, *added]})
        self._become_target(file, fence)

    def _become_target(self, file: Path, fence: Fence) -> None:
        with closing(Hdf5Reader(file)) as written:
            require_written(written, self.scores, self)
        place = resolved(self.place)
        sync(file)
        with locked(place.parent):
            fence()
            os.replace(file, place)
        sync(place.parent)


def _describe(node: Any, attributes: Mapping[str, Any]) -> None:
    """Set attributes. Lists are arrays of text, and records are JSON."""
    for name, value in attributes.items():
        if name == OURS:
            value = json.dumps(value)
        elif isinstance(value, list):
            value = np.array(value, dtype=h5py.string_dtype())
        node.attrs[name] = value
