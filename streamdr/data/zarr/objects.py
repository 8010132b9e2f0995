"""Zarr arrays and groups in object stores and other remote stores."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, ObjectStore

from streamdr.core.addresses import Address
from streamdr.core.blocks import Array
from streamdr.data.zarr.grid import ChunkGrid, KeyEncoding
from streamdr.data.zarr.icechunk_node import repository_at
from streamdr.data.zarr.metadata import METADATA_FILES
from streamdr.data.zarr.stored_chunks import StoredChunks
from streamdr.data.zarr.stores import Directory, Node, ReadPart, StoreNode
from streamdr.errors import DataError, InputError
from streamdr.store.remote import Objects, RemoteError, open_objects, opened_objects


def node_at(address: Address, key: str = "path") -> Node:
    """Return the node at an address; `key` is its configuration key. An empty address is an error."""
    objects = open_objects(address)
    try:
        # If there is metadata, no listing is needed.
        there = any(objects.size(name) is not None for name in METADATA_FILES)
        if not there and (repository := repository_at(address, key)) is not None:
            return repository
        if not there and next(objects.listed(), None) is None:
            raise InputError(key, f"{address}: there is nothing at this address; check it")
    except RemoteError as error:
        raise DataError(f"{address}: cannot be read: {error}") from error
    except FileNotFoundError:
        message = f"{address}: there is no such bucket or directory; check the address"
        raise InputError(key, message) from None
    return ObjectNode(objects, "")


def node_of(opened: zarr.Array[Any] | zarr.Group) -> Node:
    """Return the node of an array or a group that zarr has opened."""
    root = local_root(opened.store)
    if root is not None:
        return Directory(root / opened.path, str(root / opened.path))
    if isinstance(opened.store, ObjectStore):
        return ObjectNode(opened_objects(opened.store.store), opened.path)
    return StoreNode(opened.store, opened.path)


def local_root(store: Store) -> Path | None:
    """Return the directory of a store of local files, which dask opens through fsspec; None for others."""
    if isinstance(store, LocalStore):
        return store.root
    local = sys.modules.get("fsspec.implementations.local")
    if local is None or not isinstance(store, FsspecStore):
        return None
    files = getattr(store.fs, "sync_fs", store.fs)
    return Path(store.path) if type(files) is local.LocalFileSystem else None


class ObjectNode:
    """A node at a path in an object store."""

    def __init__(self, objects: Objects, path: str) -> None:
        self.objects = objects
        self.path = path

    def __reduce__(self) -> tuple[type[ObjectNode], tuple[Objects, str]]:
        return ObjectNode, (self.objects, self.path)

    @property
    def name(self) -> str:
        """The address."""
        return f"{self.objects.name}/{self.path}" if self.path else self.objects.name

    def child(self, path: str) -> ObjectNode:
        """Return the node at a path below this one."""
        return ObjectNode(self.objects, self._key(path))

    def children(self) -> list[str]:
        """Return the sorted names of files and nodes directly below this one."""
        return self.objects.children(self.path)

    def stored_chunks(self, grid: ChunkGrid, keys: KeyEncoding) -> StoredChunks:
        """List the chunks, with their sizes and versions: a request for a thousand of them."""
        below, number_of = len(self._key("")), keys.reader(grid)
        listed = ((number_of(one.key[below:]), one) for one in self.objects.listed(self.path))
        return StoredChunks.of((number, one.size, one.stamp) for number, one in listed if number is not None)

    def read(self, key: str, limit: int) -> bytes | None:
        """Return the contents of an object, or None if there is none."""
        data = self.objects.get(self._key(key), limit)
        return None if data is None else bytes(data)

    def read_scratch(self, key: str, limit: int) -> Array | None:
        """Return the contents of an object without a copy, or None if there is none."""
        data = self.objects.get(self._key(key), limit)
        return None if data is None else np.frombuffer(data, np.uint8)

    def read_soon(self, key: str) -> bool:
        """Return False: only files are read ahead."""
        return False

    @contextmanager
    def parts(self, key: str) -> Iterator[ReadPart | None]:
        """Return a function that reads parts of an object, or None if there is none."""
        size = self.objects.size(self._key(key))
        if size is None:
            yield None
            return

        def part(start: int, length: int) -> bytes:
            first = max(0, size + start) if start < 0 else min(start, size)
            return bytes(self.objects.get_part(self._key(key), first, min(length, size - first)))

        yield part

    def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        return self.objects.size(self._key(key)) is not None

    def _key(self, key: str) -> str:
        return f"{self.path}/{key}" if self.path else key
