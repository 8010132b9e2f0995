"""Reading one dataset of an HDF5 file, aligned to its chunks."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from streamdr.core.blocks import Array
from streamdr.data.hdf5_chunks import DEFLATE, filters_of, require_declared_sizes
from streamdr.data.hdf5_file import DAMAGED, require_values_within
from streamdr.data.ingest.table import ArrayFile, Options
from streamdr.data.zarr.decompression import encoded_limit, inflate
from streamdr.data.zarr.grid import ChunkGrid
from streamdr.errors import DataError, InputError
from streamdr.store.arrays import Index
from streamdr.store.matrix import LARGEST_BAND_BYTES, LARGEST_CHUNK_BYTES, is_wide

_CACHE_SLOTS = 100_003
_CACHE_BYTES = 2 * LARGEST_BAND_BYTES
_MAX_LINKS = 100


@contextmanager
def open_hdf5(path: Path, options: Options) -> Iterator[ArrayFile]:
    """Open the dataset that the options name, or the only dataset of the file."""
    with _naming(path):
        file = h5py.File(path, "r")
    with file:
        with _naming(path):
            dataset = _find(path, file, options.dataset)
            name, shape, dtype, chunks = dataset.name, dataset.shape, dataset.dtype, dataset.chunks
            bounds = None if chunks is None else _Bounds(dataset)

        def read(region: Index) -> Array:
            try:
                if bounds is not None:
                    bounds.require(region)
                return np.asarray(dataset[region])
            except DAMAGED as error:
                rows = f"rows {region[0].start}-{region[0].stop - 1}"
                raise DataError(
                    f"{path}: dataset {name!r} cannot be read at {rows} ({error}); "
                    "the file is damaged, or was compressed by a filter that is not installed"
                ) from error

        yield ArrayFile(shape, dtype, read, chunks)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Convert errors of h5py to a DataError that names the file."""
    try:
        yield
    except DataError:
        raise
    except DAMAGED as error:
        raise DataError(f"{path}: cannot be read as HDF5 ({error}); was it copied whole?") from error


def _find(path: Path, file: h5py.File, name: str | None) -> h5py.Dataset:
    """Return the dataset with a name, or the only one."""
    found: dict[str, str] = {}

    def collect(key: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape:
            found[key] = f"{key!r} ({' x '.join(map(str, item.shape))} {item.dtype})"

    file.visititems(collect)
    listing = ", ".join(found.values()) or "none"
    if name is None:
        if len(found) != 1:
            message = f"{path}: name the dataset to read with `--dataset`; the file has {listing}"
            raise InputError("dataset", message, located=True)
        (name,) = found
    _require_links_within(path, file, name)
    dataset = file.get(name)
    if not isinstance(dataset, h5py.Dataset):
        raise InputError("dataset", f"{path}: has no dataset {name!r}; it has {listing}", located=True)
    require_values_within(path, dataset)
    return _with_chunk_cache(dataset)


def _require_links_within(path: Path, file: h5py.File, name: str) -> None:
    """Raise an error if an external link is anywhere on the path to the dataset."""
    names, here = [part for part in name.split("/") if part], ""
    for _ in range(_MAX_LINKS):
        if not names:
            return
        here, part = f"{here}/{names.pop(0)}", here
        link = file.get(here, getlink=True)
        if isinstance(link, h5py.ExternalLink):
            raise DataError(f"{path}: {here!r} is a link to another file; ingest that file instead")
        if isinstance(link, h5py.SoftLink):
            inside = [step for step in link.path.split("/") if step and step != "."]
            names, here = inside + names, "" if link.path.startswith("/") else part
    raise DataError(f"{path}: the links to dataset {name!r} form a loop; name the dataset itself")


def _with_chunk_cache(dataset: h5py.Dataset) -> h5py.Dataset:
    """Return the dataset with a cache for chunks that several reads need.

    Without it, each of these reads would decompress a whole band of chunks again.
    """
    if dataset.chunks is None:
        return dataset
    chunk = math.prod(dataset.chunks) * dataset.dtype.itemsize
    if chunk > _CACHE_BYTES:
        raise DataError(
            f"{dataset.file.filename}: dataset {dataset.name!r} has chunks of {chunk / 1e9:.3g} GB, "
            f"more than the maximum of {_CACHE_BYTES / 1e9:.3g} GB; make them smaller with h5repack"
        )
    band = dataset.chunks[0] * math.prod(dataset.shape[1:]) * dataset.dtype.itemsize
    aligned = band <= LARGEST_CHUNK_BYTES and not is_wide(dataset.shape)
    access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
    access.set_chunk_cache(_CACHE_SLOTS, LARGEST_CHUNK_BYTES if aligned else _CACHE_BYTES, 1.0)
    return h5py.Dataset(h5py.h5d.open(dataset.file.id, dataset.name.encode(), access))


class _Bounds:
    """Limits for the decoded size of the chunks of a dataset: HDF5 itself has none."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self._dataset = dataset
        self._grid = ChunkGrid(dataset.shape, dataset.chunks)
        size = math.prod(dataset.chunks) * dataset.dtype.itemsize
        filters = filters_of(dataset)
        require_declared_sizes(filters, size)
        self._filters = [one.number for one in filters]
        self._limits = [size]
        """The most bytes before the first filter encodes, and after each filter."""
        for _ in filters:
            self._limits.append(encoded_limit(self._limits[-1]))
        self._stored = self._find_stored()

    def require(self, region: Index) -> None:
        """Raise an error if a chunk of the region inflates to more than the size of a chunk."""
        if DEFLATE not in self._filters:
            return
        for coords, _, _ in self._grid.overlaps(region):
            number = np.ravel_multi_index(coords, self._grid.counts)
            position = int(np.searchsorted(self._stored, number))
            if position < len(self._stored) and self._stored[position] == number:
                start = tuple(part.start for part in self._grid.bounds(coords))
                self._inflate(*self._dataset.id.read_direct_chunk(start))

    def _inflate(self, skipped: int, data: Any) -> None:
        """Inflate a chunk within the limits. `skipped` has a bit for each filter that was not applied."""
        used = [number for i, number in enumerate(self._filters) if not skipped >> i & 1]
        for limit, number in reversed(list(zip(self._limits, used, strict=False))):
            if number == DEFLATE:
                data = inflate(data, limit)

    def _find_stored(self) -> NDArray[np.int64]:
        """Return the numbers of the stored chunks. A chunk with more bytes than its limit is an error."""
        numbers = array("q")

        def add(stored: Any) -> None:
            if stored.size > self._limits[-1]:
                raise ValueError(f"a chunk of {self._limits[0]:,} bytes is stored in {stored.size:,}")
            lengths = zip(stored.chunk_offset, self._grid.chunk, strict=True)
            number = self._grid.number(tuple(start // length for start, length in lengths))
            if number is not None:
                numbers.append(number)

        if self._filters:
            self._dataset.id.chunk_iter(add)
        return np.sort(np.frombuffer(numbers, np.int64)) if numbers else np.empty(0, np.int64)
