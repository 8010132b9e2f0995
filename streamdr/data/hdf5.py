"""HDF5 and netCDF-4 files as input: a container of named arrays, each of which is a source."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from streamdr.core.blocks import Array, MatrixSpec, Span
from streamdr.core.buffers import scratch
from streamdr.core.system import memory_limit
from streamdr.data.dtypes import not_numeric, require_numeric
from streamdr.data.grid_source import GridSource
from streamdr.data.hdf5_chunks import ChunkDecoder, filters_of, require_filters
from streamdr.data.hdf5_file import (
    DAMAGED,
    ArrayInfo,
    arrays_in,
    attributes_of,
    opened,
    require_same_file,
    require_values_within,
)
from streamdr.data.labelled.container import Container
from streamdr.data.layout import MatrixLayout, Region
from streamdr.data.snapshot import FileSnapshot
from streamdr.data.text_labels import TextArray
from streamdr.data.zarr.decompression import encoded_limit
from streamdr.data.zarr.grid import ChunkGrid, Overlap
from streamdr.errors import DataError, InputError

_SLAB_BYTES = 4 << 20
"""The bytes that are read at a time of a dataset without chunks."""
_MAX_TEXT_BYTES = 256 << 20


class Hdf5File(Container):
    """A file of named arrays with named dimensions. It is open only while something is read of it.

    Parameters
    ----------
    path : Path
        The file.
    allow_missing : bool
        Read chunks that were never written as the fill value. Otherwise they are an error.
    """

    def __init__(self, path: Path, *, allow_missing: bool = False) -> None:
        self.name = str(path)
        self._path = path
        self._allow_missing = allow_missing
        with opened(path) as file:
            self._arrays = arrays_in(path, file)
            self._attributes = attributes_of(file)

    @property
    def attributes_of_root(self) -> Mapping[str, Any]:
        """The attributes of the file."""
        return self._attributes

    def names(self) -> list[str]:
        """Return the paths of all arrays of numbers or text."""
        return list(self._arrays)

    def dims(self, name: str) -> tuple[str | None, ...]:
        """Return the names of the dimensions of an array."""
        return self._array(name).dims

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array."""
        return self._array(name).shape

    def dtype(self, name: str) -> np.dtype[Any]:
        """Return the type of an array, as it is stored."""
        return self._array(name).dtype

    def attributes(self, name: str) -> Mapping[str, Any]:
        """Return the attributes of an array: numbers as numpy scalars of their type."""
        return self._array(name).attributes

    def stored_bytes(self, name: str) -> int:
        """Return the bytes that the values of an array take in the file."""
        return self._array(name).stored_bytes

    def is_text(self, name: str) -> bool:
        """Whether the values of an array are text."""
        return self._array(name).is_text

    def fill_value(self, name: str) -> Any:
        """Return None: what stands for missing values is an attribute."""
        return None

    def open(self, name: str, sample_axis: int | str = 0) -> Hdf5Source:
        """Open an array of numbers."""
        return Hdf5Source(
            self._path, self._array(name), sample_axis=sample_axis, allow_missing=self._allow_missing
        )

    def open_coordinate(self, name: str) -> Hdf5Source:
        """Open a coordinate of numbers. Chunks of the fill value may not be written."""
        return Hdf5Source(self._path, self._array(name), sample_axis=0, allow_missing=True)

    def open_text(self, name: str) -> TextArray:
        """Open a one-dimensional array of text. It is read completely."""
        info = self._array(name)
        if len(info.shape) != 1 or not info.is_text:
            raise DataError(f"{self.name}/{name}: is not text with one value per row")
        if info.shape[0] * max(info.dtype.itemsize, 64) > _MAX_TEXT_BYTES:
            raise DataError(f"{self.name}/{name}: {info.shape[0]:,} texts are too many to hold in memory")
        with opened(self._path) as file:
            dataset = file[info.key]
            require_values_within(self._path, dataset)
            values = dataset.asstr(errors="replace")[...]
        return TextArray(values, f"{self.name}/{name}")

    def only(self, array: str | None) -> str:
        """Return the name of an array, or that of the only array with dimensions."""
        names = [name for name, info in self._arrays.items() if info.shape and not info.is_text]
        if array is not None:
            wanted = array.strip("/")
            if wanted in names:
                return wanted
            raise InputError("array", f"{self.name}: no array {array!r}; it has {', '.join(names) or 'none'}")
        if len(names) != 1:
            raise InputError(
                "array",
                f"{self.name}: the file has the arrays {', '.join(names) or 'none'}; say which with "
                "`variable`, if its dimensions have names, or with `array`",
            )
        return names[0]

    def _array(self, name: str) -> ArrayInfo:
        if name not in self._arrays:
            raise InputError("variable", f"{self.name}: no variable {name!r}")
        return self._arrays[name]


class Hdf5Source(GridSource):
    """An array of an HDF5 file. Chunks are read one by one, and decoded in the calling thread."""

    private_buffers = True

    def __init__(self, path: Path, info: ArrayInfo, *, sample_axis: int | str, allow_missing: bool) -> None:
        self.name = f"{path}/{info.key}"
        if info.is_text:
            raise not_numeric("text", self.name)
        dtype = require_numeric(info.dtype, self.name)
        self.layout = MatrixLayout.of(info.shape, sample_axis, self.name, info.dims)
        self.attributes = info.attributes
        with opened(path) as file:
            dataset = file[info.key]
            require_values_within(path, dataset)
            require_same_file(path, file, dataset)
            self._chunk = dataset.chunks
            if self._chunk is not None:
                self._require_decodable(dataset)
            self._decoder = None if self._chunk is None else ChunkDecoder.of(dataset)
            self._fill_value = dataset.fillvalue
        self.spec = MatrixSpec(self.layout.n_rows, self.layout.n_cols, dtype.newbyteorder("="))
        # Without chunks any row can be read alone.
        self.chunk_shape = self.piece_shape = self._chunk or (1,) * len(info.shape)
        axis = self.layout.sample_axis
        self.chunks = (self.chunk_shape[axis], self.layout.granularity(self.chunk_shape)[1])
        self.grain = self.chunks
        self.sample_shape = self.layout.features
        self.dims = self.layout.samples_first(info.dims) if any(info.dims) else None
        self._grid = ChunkGrid(info.shape, self.chunk_shape)
        self._path, self._key, self._stored_dtype = path, info.key, dtype
        self._allow_missing = allow_missing

    def _require_decodable(self, dataset: h5py.Dataset) -> None:
        """Raise an error if chunks cannot be decoded."""
        size, memory = math.prod(dataset.chunks) * dataset.dtype.itemsize, memory_limit()
        if size > memory:
            raise DataError(
                f"{self.name}: a chunk of {dataset.chunks} takes {size:.3g} bytes, more than the "
                f"{memory:.3g} of memory; make its chunks smaller with h5repack"
            )
        try:
            require_filters(filters_of(dataset), size)
        except DAMAGED as error:
            raise DataError(f"{self.name}: {error}; write it with gzip, or with no compression") from error

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region, in native byte order."""
        region, part = self.layout.select(rows, cols)
        matrix, box = self.layout.empty(region, self.spec.dtype)
        self.fill_box(region, box)
        return self.layout.trimmed(matrix, part)

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """Return the region, in memory that this thread's next call overwrites."""
        region, part = self.layout.select(rows, cols)
        matrix = scratch("region", self.layout.shape_of(region), self.spec.dtype)
        self.fill_box(region, self.layout.box(matrix, region))
        return self.layout.trimmed(matrix, part)

    def fill_box(self, region: Region, box: Array) -> None:
        """Read a region, a slice for each axis of the array, into `box`."""
        with opened(self._path) as file:
            dataset = self._dataset(file)
            if self._chunk is None:
                for within, target in self._slabs(region):
                    self._fill_by_hdf5(dataset, within, box[target])
                return
            for piece in self._grid.overlaps(region):
                bounds = self._grid.bounds(piece.coords)
                try:
                    self._fill_chunk(dataset, piece, bounds, box[piece.target])
                except DataError:
                    raise
                except Exception as error:
                    where = self._covered(bounds)
                    raise DataError(
                        f"{self.name}: chunk {piece.coords} cannot be read, {where}: "
                        f"{error or type(error).__name__}; restore the file from a copy or write it again"
                    ) from error

    def _dataset(self, file: h5py.File) -> h5py.Dataset:
        """Return the dataset in an open file, if it is still the one that was opened."""
        dataset = file.get(self._key)
        if (
            not isinstance(dataset, h5py.Dataset)
            or (dataset.shape, dataset.dtype, dataset.chunks)
            != (self.layout.shape, self._stored_dtype, self._chunk)
            or (self._decoder is not None and filters_of(dataset) != self._decoder.filters)
        ):
            raise DataError(
                f"{self.name}: has changed since it was opened; run again when nothing writes to it"
            )
        require_values_within(self._path, dataset)
        require_same_file(self._path, file, dataset)
        return dataset

    def _fill_chunk(self, dataset: h5py.Dataset, piece: Overlap, bounds: Region, target: Array) -> None:
        """Read one part of a chunk."""
        start = tuple(edge.start for edge in bounds)
        limit = encoded_limit(self._chunk_bytes) if self._decoder is None else self._decoder.limits[-1]
        stored = dataset.id.get_chunk_info_by_coord(start)
        missing = stored.byte_offset is None
        if missing and not self._allow_missing:
            raise DataError(f"{self.name}: {self._missing(piece.coords)}")
        if stored.size > limit:
            raise ValueError(f"its {self._chunk_bytes:,} bytes are stored in {stored.size:,}")
        if missing:
            target[...] = self._fill_value
        elif self._decoder is None:
            starts = zip(bounds, piece.within, strict=True)
            within = tuple(slice(a.start + b.start, a.start + b.stop) for a, b in starts)
            self._fill_by_hdf5(dataset, within, target)
        else:
            skipped, data = dataset.id.read_direct_chunk(start)
            self._decoder.decode(skipped, data, piece.within, target)

    def _fill_by_hdf5(self, dataset: h5py.Dataset, within: Region, target: Array) -> None:
        """Read a part of the dataset as HDF5 decodes and converts it."""
        try:
            target[...] = dataset[within]
        except DAMAGED as error:
            raise DataError(
                f"{self.name}: {self._covered(within)} cannot be read ({error}); the file is damaged"
            ) from error

    def _slabs(self, region: Region) -> Iterator[tuple[Region, Region]]:
        """Yield a region in slabs along its first axis: where they are, and where they belong."""
        others = math.prod(edge.stop - edge.start for edge in region[1:]) * self.spec.dtype.itemsize
        first = region[0]
        for span in Span(first.start, first.stop).split(max(1, _SLAB_BYTES // max(1, others))):
            target = slice(span.start - first.start, span.stop - first.start)
            yield (span.slice, *region[1:]), (target, ...)  # type: ignore[misc]

    @property
    def _chunk_bytes(self) -> int:
        """The bytes of a decoded chunk, or of what is read at a time without chunks."""
        least, shape = (_SLAB_BYTES, self.layout.shape[1:]) if self._chunk is None else (0, self._chunk)
        return max(least, math.prod(shape) * self.spec.dtype.itemsize)

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the bytes of one chunk being decoded, and of columns that are read with those requested."""
        excess = n_rows * self.layout.excess(n_cols) * self.spec.dtype.itemsize
        # HDF5 holds a chunk as it is stored and after each of two filters, and returns another copy.
        decoding = 4 * self._chunk_bytes if self._decoder is None else self._decoder.overhead
        return super().overhead(n_rows, n_cols) + decoding + excess

    def _require_chunks(self) -> None:
        """Raise an error if chunks were never written, unless that is allowed."""
        super()._require_chunks()
        if self._allow_missing or self._chunk is None:
            return
        with opened(self._path) as file:
            dataset = self._dataset(file)
            n_missing = self._grid.n_chunks - dataset.id.get_num_chunks()
            if n_missing <= 0:
                return
            present: set[int | None] = set()
            dataset.id.chunk_iter(lambda stored: present.add(self._number(stored.chunk_offset)))
        first = next((number for number in range(self._grid.n_chunks) if number not in present), 0)
        raise DataError(f"{self.name}: {self._missing(self._grid.coords(first), n_missing)}")

    def _number(self, start: Sequence[int]) -> int | None:
        return self._grid.number(tuple(a // b for a, b in zip(start, self.chunk_shape, strict=True)))

    def _missing(self, coords: tuple[int, ...], count: int = 1) -> str:
        """Return what is missing, for a message."""
        some = f" ({count} of {self._grid.n_chunks} are)" if count > 1 else ""
        where = self._covered(self._grid.bounds(coords))
        return (
            f"chunk {coords} was never written, {where}{some}; set allow_missing_chunks if it was left out "
            "on purpose (in Python, an argument of open_source)"
        )

    def _snapshot(self) -> FileSnapshot:
        """Return a digest of the path, size and modification time of the file, and of what is read of it."""
        meaning = f"{self._key} {self.layout} {self._stored_dtype.str} {self._chunk}"
        return FileSnapshot.of(self._path, self.name, meaning, self._require_chunks)

    def _covered(self, region: Region) -> str:
        """Return the rows and columns of a region of the array, for a message."""
        return self._region(*self.layout.covers(region))
