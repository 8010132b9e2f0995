"""Groups of arrays in HDF5 files, such as `.h5ad`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec, Span
from streamdr.data.hdf5 import Hdf5File, Hdf5Source
from streamdr.data.hdf5_file import attributes_of, opened, require_same_file, require_values_within
from streamdr.data.snapshot import FileSnapshot
from streamdr.data.source import Source
from streamdr.data.sparse.groups import StoredGroup
from streamdr.data.text_labels import TEXT
from streamdr.errors import DataError


class Hdf5Groups(StoredGroup):
    """A group in an HDF5 file.

    Parameters
    ----------
    file : Hdf5File
        The file.
    path : Path
        Where it is.
    inside : str
        The path of the group in the file; empty for that of the file itself.
    """

    def __init__(self, file: Hdf5File, path: Path, inside: str = "") -> None:
        self.name = f"{path}/{inside}" if inside else str(path)
        self._file, self._path, self._inside = file, path, inside

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes of the group."""
        with opened(self._path) as file:
            return attributes_of(file[self._inside or "/"])

    def group(self, path: str) -> Hdf5Groups | None:
        """Return the group at a path in this one; None if there is none, or only a link to another file."""
        key = self._key(path)
        there = any(name.startswith(f"{key}/") for name in self._file.names())
        return Hdf5Groups(self._file, self._path, key) if there else None

    def groups(self) -> list[str]:
        """Return the names of the groups in this one."""
        start = self._key("")
        inside = (name.removeprefix(start) for name in self._file.names() if name.startswith(start))
        return sorted({name.partition("/")[0] for name in inside if "/" in name})

    def has_array(self, path: str) -> bool:
        """Whether there is an array at a path in this group."""
        return self._key(path) in self._file.names()

    def length(self, path: str) -> int:
        """Return the length of an array along its first dimension."""
        shape = self._file.shape(self._found(path))
        return shape[0] if shape else 0

    def dtype(self, path: str) -> np.dtype[Any]:
        """Return the type of an array."""
        return self._file.dtype(self._found(path))

    def is_text(self, path: str) -> bool:
        """Whether an array is text."""
        return self._file.is_text(self._found(path))

    def numbers(self, path: str, *, sample_axis: int | str = 0) -> Hdf5Source:
        """Open an array of numbers."""
        return self._file.open(self._found(path), sample_axis)

    def only(self, array: str | None, sample_axis: int | str) -> Hdf5Source:
        """Open an array of the file, or its only array."""
        return self._file.open(self._file.only(array), sample_axis)

    def text(self, path: str) -> Hdf5Text:
        """Open a one-dimensional array of text."""
        return Hdf5Text(self._path, self._found(path))

    def _key(self, path: str) -> str:
        return f"{self._inside}/{path}" if self._inside else path

    def _found(self, path: str) -> str:
        if not self.has_array(path):
            raise DataError(f"{self.name}: has no array {path}; restore it from a copy or write it again")
        return self._key(path)


class Hdf5Text(Source):
    """Text in a one-dimensional dataset, which is read block by block.

    Parameters
    ----------
    path : Path
        The file.
    key : str
        The path of the dataset in it.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.name = f"{path}/{key}"
        self._path, self._key = path, key
        with opened(path) as file:
            dataset = file[key]
            require_values_within(path, dataset)
            require_same_file(path, file, dataset)
            if len(dataset.shape) != 1 or not dataset.shape[0]:
                raise DataError(f"{self.name}: has the shape {dataset.shape}; text needs one value per row")
            self.spec = MatrixSpec(dataset.shape[0], 1, TEXT)
            self.chunks = ((dataset.chunks or (1,))[0], 1)

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the text of a range of rows."""
        with opened(self._path) as file:
            dataset = file.get(self._key)
            if dataset is None or dataset.shape != (self.spec.n_rows,):
                raise DataError(
                    f"{self.name}: has changed since it was opened; run again when nothing writes to it"
                )
            texts = np.asarray(dataset.asstr(errors="replace")[rows.slice])
        return texts.astype(np.str_)[:, None]

    def _snapshot(self) -> FileSnapshot:
        return FileSnapshot.of(self._path, self.name, self._key, lambda: None)
