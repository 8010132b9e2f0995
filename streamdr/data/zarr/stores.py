"""Access to the files of zarr arrays: in a local directory, or in any store that zarr can open."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol, Self

import numpy as np
from zarr.abc.store import RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import collect_aiterator, sync

from streamdr.core.blocks import Array
from streamdr.core.buffers import scratch
from streamdr.core.files import open_descriptor, open_regular, read_regular, too_large
from streamdr.data.zarr.grid import ChunkGrid, KeyEncoding
from streamdr.data.zarr.stored_chunks import StoredChunks, chunks_in_directory
from streamdr.errors import DataError

ReadPart = Callable[[int, int], bytes]
"""Returns bytes, given start and length. A negative start counts from the end; a short file returns less."""


class Node(Protocol):
    """An array or a group in a store: its files by key. A file is read only on request."""

    @property
    def name(self) -> str:
        """The name in error messages."""

    def child(self, path: str) -> Self:
        """Return the node at a path below this one."""

    def children(self) -> list[str]:
        """Return the sorted names of files and nodes directly below this one."""

    def stored_chunks(self, grid: ChunkGrid, keys: KeyEncoding) -> StoredChunks:
        """List the chunks of the array at this node."""

    def read(self, key: str, limit: int) -> bytes | None:
        """Return the contents of a file of at most `limit` bytes, or None if there is none."""

    def read_scratch(self, key: str, limit: int) -> Array | None:
        """Return the same, in memory that this thread's next call may overwrite."""

    def read_soon(self, key: str) -> bool:
        """Ask the system to read a file from the disk; False if it is in memory, or cannot be asked."""

    def parts(self, key: str) -> AbstractContextManager[ReadPart | None]:
        """Return a function that reads parts of a file, or None if there is none."""

    def exists(self, key: str) -> bool:
        """Whether there is such a file."""


class Directory:
    """A node in a local directory."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root.absolute()
        self.name = name
        # Joined as strings: a store may have millions of files, and making a Path takes longer than a stat.
        self._prefix = f"{self.root}/"

    def child(self, path: str) -> Directory:
        """Return the node at a path below this one."""
        return Directory(self.root / path, f"{self.name}/{path}")

    def children(self) -> list[str]:
        """Return the sorted names of files and nodes directly below this one."""
        return sorted(os.listdir(self.root))

    def stored_chunks(self, grid: ChunkGrid, keys: KeyEncoding) -> StoredChunks:
        """List the chunks, with their sizes and modification times."""
        return chunks_in_directory(str(self.root), grid, keys)

    def read(self, key: str, limit: int) -> bytes | None:
        """Return the contents of a file, or None if there is none."""
        try:
            return read_regular(self._prefix + key, limit)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read_scratch(self, key: str, limit: int) -> Array | None:
        """Return the same, in memory that this thread's next call overwrites."""
        try:
            descriptor, size = open_descriptor(self._prefix + key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            if size > limit:
                raise too_large(size, limit)
            # One byte more than the size: a file that grew is detected, not truncated.
            memory = scratch("file", (size + 1,), np.dtype(np.uint8))
            filled = 0
            while count := os.readv(descriptor, [memory.data[filled:]]):
                filled += count
            return memory[:filled]
        finally:
            os.close(descriptor)

    def read_soon(self, key: str) -> bool:
        """Ask the system to read a file from the disk; False if it is in memory, or cannot be asked."""
        try:
            with open_regular(self._prefix + key, buffering=0) as file:
                if _is_in_memory(file):
                    return False
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
                return True
        except OSError:
            return False  # reading it will say why

    @contextmanager
    def parts(self, key: str) -> Iterator[ReadPart | None]:
        """Return a function that reads parts of a file, or None if there is none."""
        try:
            file = open_regular(self._prefix + key)
        except (FileNotFoundError, NotADirectoryError):
            yield None
            return
        with file:
            yield partial(_part_of, file)

    def exists(self, key: str) -> bool:
        """Whether there is such a file."""
        return os.path.isfile(self._prefix + key)


def _is_in_memory(file: BinaryIO) -> bool:
    """Return whether the beginning of a file can be read without waiting for the disk."""
    try:
        os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    return True


def _part_of(file: BinaryIO, start: int, length: int) -> bytes:
    """Return bytes of an open file. A negative start counts from the end; a short file returns less."""
    size = os.fstat(file.fileno()).st_size
    start = max(0, size + start) if start < 0 else min(start, size)
    file.seek(start)
    return file.read(min(length, size - start))


class StoreNode:
    """A node in a zarr store that is not a local directory: in memory, or a zip file."""

    def __init__(self, store: Store, path: str) -> None:
        if not store.supports_listing:
            raise DataError(
                f"{store}: the store cannot list its keys, so missing chunks cannot be found; "
                "copy it to a directory"
            )
        self.store = store
        self.path = path

    @property
    def name(self) -> str:
        """The store's address and the path in it."""
        return f"{self.store}/{self.path}" if self.path else str(self.store)

    def child(self, path: str) -> StoreNode:
        """Return the node at a path below this one."""
        return StoreNode(self.store, self._key(path))

    def children(self) -> list[str]:
        """Return the sorted names of files and nodes directly below this one."""
        return sorted(collect_aiterator(self.store.list_dir(self.path)))

    def stored_chunks(self, grid: ChunkGrid, keys: KeyEncoding) -> StoredChunks:
        """List the chunks, with what `stamp` returns."""
        number_of = keys.reader(grid)
        numbers = ((number_of(key), key) for key in self.list_keys())
        return StoredChunks.of((number, *self.stamp(key)) for number, key in numbers if number is not None)

    def list_keys(self) -> Iterator[str]:
        """Yield every key below this node, in no particular order."""
        below = self._key("")
        for key in collect_aiterator(self.store.list_prefix(below)):
            yield key.removeprefix(below)

    def read(self, key: str, limit: int) -> bytes | None:
        """Return the contents of a file, or None if there is none."""
        if not self.exists(key):
            return None
        size = sync(self.store.getsize(self._key(key)))
        if size > limit:
            raise too_large(size, limit)
        return self._get(key, None)

    def read_scratch(self, key: str, limit: int) -> Array | None:
        """Return the contents of a file, or None if there is none."""
        contents = self.read(key, limit)
        return None if contents is None else np.frombuffer(contents, np.uint8)

    def read_soon(self, key: str) -> bool:
        """Return False: only files are read ahead."""
        return False

    @contextmanager
    def parts(self, key: str) -> Iterator[ReadPart | None]:
        """Return a function that reads parts of a file, or None if there is none."""
        yield partial(self._part_of, key) if self.exists(key) else None

    def exists(self, key: str) -> bool:
        """Whether there is such a file."""
        return bool(sync(self.store.exists(self._key(key))))

    def stamp(self, key: str) -> tuple[int, int]:
        """Return size and digest of the contents: not all such stores have modification times."""
        contents = self._get(key, None) or b""
        return len(contents), int.from_bytes(hashlib.blake2b(contents, digest_size=7).digest())

    def _key(self, key: str) -> str:
        return f"{self.path}/{key}" if self.path else key

    def _part_of(self, key: str, start: int, length: int) -> bytes:
        if start < 0:
            return (self._get(key, SuffixByteRequest(-start)) or b"")[:length]
        return self._get(key, RangeByteRequest(start, start + length)) or b""

    def _get(self, key: str, part: RangeByteRequest | SuffixByteRequest | None) -> bytes | None:
        """Return the bytes of a file, or of a part of it."""
        buffer = sync(self.store.get(self._key(key), default_buffer_prototype(), byte_range=part))
        return None if buffer is None else buffer.to_bytes()
