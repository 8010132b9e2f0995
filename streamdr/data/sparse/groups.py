"""Groups of arrays in a zarr store or in an HDF5 file, seen alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from streamdr.data.grid_source import GridSource
from streamdr.data.source import Source
from streamdr.data.text_labels import TextStore
from streamdr.data.zarr.locate import Located, array_at, document_of, is_array, is_group
from streamdr.data.zarr.source import ZarrSource
from streamdr.data.zarr.stores import Node
from streamdr.errors import DataError


class StoredGroup(ABC):
    """A group: its attributes, and the arrays and groups in it. Nothing is read before it is asked for."""

    name: str
    """The name in errors."""

    @cached_property
    @abstractmethod
    def attributes(self) -> Mapping[str, Any]:
        """The attributes of the group."""

    @abstractmethod
    def group(self, path: str) -> StoredGroup | None:
        """Return the group at a path in this one; None if there is none."""

    def groups(self) -> Sequence[str]:
        """Return the names of the groups in this one, where they are known without listing a store."""
        return ()

    @abstractmethod
    def has_array(self, path: str) -> bool:
        """Whether there is an array at a path in this group."""

    @abstractmethod
    def length(self, path: str) -> int:
        """Return the length of an array along its first dimension."""

    @abstractmethod
    def dtype(self, path: str) -> np.dtype[Any]:
        """Return the type of an array."""

    @abstractmethod
    def is_text(self, path: str) -> bool:
        """Whether an array is text."""

    @abstractmethod
    def numbers(self, path: str, *, sample_axis: int | str = 0) -> GridSource:
        """Open an array of numbers."""

    @abstractmethod
    def text(self, path: str) -> Source:
        """Open a one-dimensional array of text."""

    def column(self, path: str) -> Source:
        """Open a one-dimensional array of numbers or of text."""
        return self.text(path) if self.is_text(path) else self.numbers(path)


@contextmanager
def readable(group: StoredGroup) -> Iterator[None]:
    """Raise an error that names the group if something in it cannot be read."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{group.name}: cannot be read: {error}") from error


class ZarrNodes(StoredGroup):
    """A group in a zarr store.

    Parameters
    ----------
    node : Node
        The group.
    allow_missing : bool
        Whether a chunk that is not stored is read as the fill value. Otherwise it is an error.
    """

    def __init__(self, node: Node, *, allow_missing: bool) -> None:
        self.name = node.name
        self._node = node
        self._allow_missing = allow_missing

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes of the group."""
        v3 = document_of(self._node, "zarr.json")
        found = document_of(self._node, ".zattrs") if v3 is None else v3.get("attributes")
        return found if isinstance(found, dict) else {}

    def group(self, path: str) -> ZarrNodes | None:
        """Return the group at a path in this one; None if there is none."""
        node = self._node.child(path)
        return ZarrNodes(node, allow_missing=self._allow_missing) if is_group(node) else None

    def has_array(self, path: str) -> bool:
        """Whether there is an array at a path in this group."""
        return is_array(self._node.child(path))

    def length(self, path: str) -> int:
        """Return the length of an array along its first dimension."""
        shape = self._found(path).metadata.grid.shape
        return shape[0] if shape else 0

    def dtype(self, path: str) -> np.dtype[Any]:
        """Return the type of an array."""
        return self._found(path).metadata.dtype

    def is_text(self, path: str) -> bool:
        """Whether an array is text."""
        return self._found(path).metadata.is_text

    def numbers(self, path: str, *, sample_axis: int | str = 0) -> ZarrSource:
        """Open an array of numbers."""
        found = self._found(path)
        return ZarrSource(
            found.node, found.metadata, sample_axis=sample_axis, allow_missing=self._allow_missing
        )

    def text(self, path: str) -> Source:
        """Open a one-dimensional array of text."""
        return TextStore(self._found(path))

    def _found(self, path: str) -> Located:
        found = array_at(self._node.child(path))
        if found is None:
            raise DataError(f"{self.name}: has no array {path}; restore it from a copy or write it again")
        return found
