"""Which chunks of an array are stored, with stamps that change with them: the result of one listing."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from errno import ELOOP
from stat import S_ISDIR
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdr.data.zarr.grid import ChunkGrid, KeyEncoding


class StoredChunks(NamedTuple):
    """The stored chunks (or shards) of an array, in C order: 24 bytes each, as there may be millions."""

    numbers: NDArray[np.int64]
    """The number of each chunk."""
    stamps: NDArray[np.int64]
    """For each chunk, the two numbers that change when it changes. For a file, the first one is its size."""

    @classmethod
    def of(cls, found: Iterable[tuple[int, int, int]]) -> StoredChunks:
        """Return the chunks with these numbers and stamps."""
        entries = array("q")
        for chunk in found:
            entries.extend(chunk)
        table = np.frombuffer(entries, np.int64).reshape(-1, 3)
        numbers, rows = np.unique(table[:, 0], return_index=True)
        return cls(numbers, table[rows, 1:])


def chunks_in_directory(root: str, grid: ChunkGrid, keys: KeyEncoding) -> StoredChunks:
    """Return the chunks in the directory of an array, with their sizes and modification times."""
    start = os.path.join(root, keys.prefix)
    if keys.separator == "." or not grid.shape:
        return StoredChunks.of(_in_one_directory(root, grid, keys))
    if os.path.isdir(root) and not os.path.isdir(start):  # no chunk was written yet
        return StoredChunks.of(())
    return StoredChunks.of(_Nested(grid, root, start).below(start))


def _in_one_directory(root: str, grid: ChunkGrid, keys: KeyEncoding) -> Iterator[tuple[int, int, int]]:
    """Yield the chunks that are files of one directory."""
    number_of = keys.reader(grid)
    with _scanned(root) as (descriptor, entries):
        for entry in entries:
            number = number_of(entry.name)
            if number is not None and (status := _status(entry.name, descriptor)) is not None:
                yield number, status.st_size, status.st_mtime_ns


class _Nested:
    """Chunks in directories of directories. Only names that positions of chunks can have are looked at."""

    def __init__(self, grid: ChunkGrid, *roots: str) -> None:
        self._counts = grid.counts
        self._linked = {_identity(root) for root in roots}
        """The directories that a link may not lead to again: a loop would never end."""

    def below(self, directory: str, axis: int = 0, first: int = 0) -> Iterator[tuple[int, int, int]]:
        """Yield the chunks below a directory, in which names are positions along an axis."""
        count, others = self._counts[axis], self._counts[axis + 1 :]
        # Where a directory can only have one chunk, it is not listed: a third of the time.
        rest = "/0" * len(others) if all(other == 1 for other in others) else None
        with _scanned(directory) as (descriptor, entries):
            for entry in entries:
                name = entry.name
                if not (name.isascii() and name.isdecimal()) or (name[0] == "0" and name != "0"):
                    continue
                if entry.is_symlink() and entry.is_dir():
                    self._follow(f"{directory}/{name}")
                number = first * count + int(name)
                if int(name) >= count:
                    continue
                if rest is None:
                    if entry.is_dir():
                        yield from self.below(f"{directory}/{name}", axis + 1, number)
                elif (status := _status(name + rest, descriptor)) is not None:
                    yield number, status.st_size, status.st_mtime_ns

    def _follow(self, directory: str) -> None:
        """Refuse a link to a directory that was entered by another link, or that all are in."""
        if (identity := _identity(directory)) in self._linked:
            raise OSError(ELOOP, "links lead to the same directory twice", directory)
        self._linked.add(identity)


def _status(name: str, directory: int) -> os.stat_result | None:
    """Return the status of a file, or None if it does not exist. A link that leads nowhere is an error."""
    try:
        status = os.stat(name, dir_fd=directory)
    except NotADirectoryError:
        return None
    except FileNotFoundError:
        try:
            os.lstat(name, dir_fd=directory)
        except FileNotFoundError:
            return None
        raise
    return None if S_ISDIR(status.st_mode) else status


def _identity(directory: str) -> tuple[int, int]:
    """Return what identifies a directory by any of its names."""
    status = os.stat(directory)
    return status.st_dev, status.st_ino


@contextmanager
def _scanned(directory: str) -> Iterator[tuple[int, Iterator[os.DirEntry[str]]]]:
    """Open a directory: its descriptor, relative to which files are found faster, and its entries."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(descriptor) as entries:
            yield descriptor, entries
    finally:
        os.close(descriptor)
