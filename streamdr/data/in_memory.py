"""Arrays in memory, and arrays in files that are memory-mapped."""

from __future__ import annotations

import hashlib
import mmap
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from streamdr.core.blocks import Array, MatrixSpec, Span
from streamdr.core.files import map_npy, open_regular
from streamdr.data.dtypes import require_numeric
from streamdr.data.grid_source import GridSource
from streamdr.data.layout import MatrixLayout, Region
from streamdr.data.snapshot import WholeSnapshot
from streamdr.data.source import Source
from streamdr.errors import DataError

_BATCH_BYTES = 2**24
"""The bytes that are mapped, or digested, at a time."""
_READAHEAD_BYTES = 2**22
"""The bytes that the system maps in addition, around those that are accessed."""


class ArraySource(GridSource):
    """A numpy array. Reads are views if the features can be flattened without a copy."""

    chunks = (1, 1)

    def __init__(self, array: ArrayLike, *, sample_axis: int | str = 0, name: str = "array") -> None:
        require_unmasked(array, name)
        array = np.asarray(array)
        require_numeric(array.dtype, name)
        self.name = name
        self.layout = MatrixLayout.of(array.shape, sample_axis, name)
        self.spec = MatrixSpec(self.layout.n_rows, self.layout.n_cols, array.dtype)
        self.chunk_shape = self.piece_shape = (1,) * array.ndim
        self._array = array

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region."""
        region, part = self.layout.select(rows, cols)
        return self.layout.matrix(self._array[region])[:, part.slice]

    def fill_box(self, region: Region, box: Array) -> None:
        """Copy a region of the array into `box`."""
        box[...] = self._array[region]

    def _snapshot(self) -> WholeSnapshot:
        """Return a digest of the contents."""
        return WholeSnapshot(digest_contents(self).hexdigest())


class MappedSource(Source):
    """An array in a file. Small parts are mapped at a time, so that pages do not accumulate in memory."""

    chunks = (1, 1)

    def __init__(self, array: np.memmap[Any, Any], *, sample_axis: int | str = 0) -> None:
        root = _whole_mapping(array)
        self.name = str(root.filename)
        require_numeric(array.dtype, self.name)
        self.layout = MatrixLayout.of(array.shape, sample_axis, self.name)
        self.spec = MatrixSpec(self.layout.n_rows, self.layout.n_cols, array.dtype)
        self.sample_shape = self.layout.features
        self._offset = root.offset + array.ctypes.data - root.ctypes.data
        self._order: Literal["C", "F"] = "C" if array.flags.c_contiguous else "F"

    @staticmethod
    def can_map(array: np.memmap[Any, Any]) -> bool:
        """Whether the array is a contiguous part of the file, without private changes."""
        root = _whole_mapping(array)
        on_disk = isinstance(root.base, mmap.mmap) and root.mode != "c" and root.filename is not None
        return on_disk and (array.flags.c_contiguous or array.flags.f_contiguous)

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region, copied from short-lived mappings."""
        region, part = self.layout.select(rows, cols)
        matrix, box = self.layout.empty(region, self.spec.dtype)
        slowest = 0 if self._order == "C" else len(region) - 1
        length = max(1, _BATCH_BYTES * self.layout.shape[slowest] // self._size)
        for batch in Span(region[slowest].start, region[slowest].stop).split(length):
            here, there = list(region), [slice(None)] * len(region)
            here[slowest] = batch.slice
            there[slowest] = slice(batch.start - region[slowest].start, batch.stop - region[slowest].start)
            box[tuple(there)] = self._map()[tuple(here)]
        return self.layout.trimmed(matrix, part)

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the bytes of what is mapped at a time, and of columns that are read with those requested."""
        excess = n_rows * self.layout.excess(n_cols) * self.spec.dtype.itemsize
        return super().overhead(n_rows, n_cols) + min(_BATCH_BYTES, self._size) + _READAHEAD_BYTES + excess

    def _snapshot(self) -> WholeSnapshot:
        """Return a digest of the path, size and modification time of the file."""
        try:
            status = os.stat(self.name)
        except OSError as error:
            raise DataError(f"{self.name}: cannot be read: {error}") from error
        file = (os.path.abspath(self.name), status.st_size, status.st_mtime_ns, self._offset, self._order)
        identity = f"{file} {self.layout} {self.spec.dtype.str}"
        return WholeSnapshot(hashlib.blake2b(identity.encode(), digest_size=20).hexdigest())

    @property
    def _size(self) -> int:
        """The size of the array in bytes."""
        return self.spec.n_rows * self.spec.n_cols * self.spec.dtype.itemsize

    def _map(self) -> Array:
        """Return a new mapping of the file."""
        try:
            with open_regular(self.name) as file:
                return np.memmap(
                    file, self.spec.dtype, "r", self._offset, shape=self.layout.shape, order=self._order
                )
        except (OSError, ValueError) as error:
            raise DataError(f"{self.name}: cannot be read: {error}") from error


def open_npy(path: Path) -> np.memmap[Any, Any]:
    """Return a `.npy` file as a memory map."""
    try:
        return map_npy(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be opened as a .npy file: {error}") from error


def require_unmasked(array: object, name: str) -> None:
    """Raise an error for a masked array: its masked values would be read as data."""
    if isinstance(array, np.ma.MaskedArray):
        raise DataError(
            f"{name}: masked arrays cannot be read; give data and mask separately, or fill the masked values"
        )


def digest_contents(source: Source) -> hashlib.blake2b:
    """Return a digest of the values of a source, read in batches of rows."""
    spec = source.spec
    digest = hashlib.blake2b(f"{spec.n_rows} {spec.n_cols} {spec.dtype.str}".encode(), digest_size=20)
    length = max(source.chunks[0], _BATCH_BYTES // (spec.n_cols * spec.dtype.itemsize))
    for rows in Span(0, spec.n_rows).split(length):
        values = source.read(rows, Span(0, spec.n_cols))
        digest.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
    return digest


def _whole_mapping(array: np.memmap[Any, Any]) -> np.memmap[Any, Any]:
    """Return the mapping that this array is a slice of. A slice has the offset of the whole mapping."""
    while isinstance(array.base, np.memmap):
        array = array.base
    return array
