"""The three arrays of a sparse matrix, each read from a first to a last position."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from streamdr.core.blocks import Array, Span
from streamdr.core.digests import array_digest
from streamdr.data.grid_source import GridSource
from streamdr.data.snapshot import ChunkSnapshot, Snapshot, WholeSnapshot
from streamdr.data.sparse.kept_chunks import MOST, kept_chunks
from streamdr.errors import DataError

_LARGEST_DIGESTED = 1 << 20
"""A chunk of more values is known by its stamp, not by the values of its first rows."""


class Vector(ABC):
    """A one-dimensional array that is read in parts, by any number of threads."""

    name: str
    """The name in errors."""
    length: int
    dtype: np.dtype[Any]
    chunk: int = 1
    """The number of values that are stored together."""
    codecs: tuple[str, ...] = ()
    """The compressors and checksums of its values."""

    @abstractmethod
    def read(self, start: int, stop: int) -> Array:
        """Return the values from `start` to before `stop`. The caller must not change them."""

    def complete(self, *, by_value: bool) -> int:
        """Return how many of the first values a snapshot recognises after others were appended."""
        return self.length

    @abstractmethod
    def snapshot(self, *, by_value: bool) -> Snapshot:
        """Return a snapshot; `by_value` if values of a last chunk are to be recognised after it has grown."""

    @property
    def overhead(self) -> int:
        """The bytes that reading needs besides its result, for a thread."""
        return 0

    @property
    def held_bytes(self) -> int:
        """The bytes that the array will keep in memory, besides what it keeps already."""
        return 0

    @abstractmethod
    def require_chunks(self) -> None:
        """Raise an error if chunks are missing, and that is not allowed."""


class StoredVector(Vector):
    """An array in a store. Chunks at the ends of what is read are kept, since the next read needs them."""

    def __init__(self, array: GridSource) -> None:
        self.name = array.name
        if len(array.layout.shape) != 1:
            raise DataError(
                f"{self.name}: has the shape {array.layout.shape}; the arrays of a sparse matrix have one "
                "dimension"
            )
        array.line_name = "value"
        self.length, self.dtype, self.chunk = array.spec.n_rows, array.spec.dtype, array.chunks[0]
        self.codecs = array.codecs
        self._array = array
        self._piece = array.piece_shape[0]

    def read(self, start: int, stop: int) -> Array:
        """Return the values from `start` to before `stop`."""
        values = np.empty(stop - start, self.dtype)
        for span in self._spans(start, stop):
            target = values[span.start - start : span.stop - start]
            number = span.start // self._piece
            first = number * self._piece
            last = min(first + self._piece, self.length)
            if span.start == first and span.stop >= last:
                self._array.fill_box((span.slice,), target)
                continue
            chunk = kept_chunks.get(self, number, len(span), partial(self._new, Span(first, last)))
            target[...] = chunk[span.start - first : span.stop - first]
        return values

    def _new(self, span: Span) -> Array:
        """Return values in new memory."""
        values = np.empty(len(span), self.dtype)
        self._array.fill_box((span.slice,), values)
        return values

    def _spans(self, start: int, stop: int) -> Iterator[Span]:
        """Yield the part of a first chunk, all whole chunks together, and the part of a last chunk."""
        first = min(-(-start // self._piece) * self._piece, stop)
        last = stop if stop == self.length else max(stop // self._piece * self._piece, first)
        for span in (Span(start, first), Span(first, last), Span(last, stop)):
            if len(span) > 0:
                yield span

    def complete(self, *, by_value: bool) -> int:
        """Return how many of the first values are in complete chunks, or all if they are known by value."""
        known = by_value and self.chunk <= _LARGEST_DIGESTED
        return self.length if known else self.length - self.length % self.chunk

    def snapshot(self, *, by_value: bool) -> Snapshot:
        """Return the snapshot of the array."""
        found = self._array.snapshot()
        if isinstance(found, ChunkSnapshot) and not (by_value and self.chunk <= _LARGEST_DIGESTED):
            return replace(found, contents=None)
        return found

    @property
    def overhead(self) -> int:
        """The bytes of the chunks that are kept, and of one that is decoded."""
        return MOST * min(self._piece, self.length) * self.dtype.itemsize + self._array.overhead(1, 1)

    def require_chunks(self) -> None:
        """Raise an error if chunks are missing, and that is not allowed."""
        self._array._require_chunks()


class HeldVector(Vector):
    """An array in memory."""

    def __init__(self, values: Array, name: str) -> None:
        self.name = name
        self.length, self.dtype = len(values), values.dtype
        self._values = values

    def read(self, start: int, stop: int) -> Array:
        """Return a view."""
        return self._values[start:stop]

    def snapshot(self, *, by_value: bool) -> Snapshot:
        """Return a digest of the values."""
        return WholeSnapshot(array_digest(self._values))

    def require_chunks(self) -> None:
        """Do nothing: there are no chunks."""


class LoadedArrays:
    """Three arrays that are loaded when they are first read. A pickle has only what it takes to load them.

    Parameters
    ----------
    load : callable
        Returns pointers, columns and values. It must be possible to pickle it.
    """

    def __init__(self, load: Callable[[], tuple[Array, Array, Array]]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._arrays: tuple[Array, Array, Array] | None = None

    def __reduce__(self) -> tuple[type[LoadedArrays], tuple[Callable[[], tuple[Array, Array, Array]]]]:
        return LoadedArrays, (self._load,)

    @property
    def is_loaded(self) -> bool:
        """Whether the arrays are in the memory of this process."""
        return self._arrays is not None

    def get(self) -> tuple[Array, Array, Array]:
        """Return the arrays."""
        with self._lock:
            if self._arrays is None:
                self._arrays = self._load()
            return self._arrays


class LoadedVector(Vector):
    """One of three arrays that are loaded together.

    Parameters
    ----------
    arrays : LoadedArrays
        All three.
    number : int
        Which of them this is.
    length : int
        Its length.
    dtype : dtype
        Its type.
    name : str
        The name in errors.
    snapshot : callable
        Returns a snapshot of what the arrays are loaded from. It must be possible to pickle it.
    """

    def __init__(
        self,
        arrays: LoadedArrays,
        number: int,
        length: int,
        dtype: np.dtype[Any],
        name: str,
        snapshot: Callable[[], Snapshot],
    ) -> None:
        self.name, self.length, self.dtype = name, length, dtype
        self._arrays, self._number, self._make_snapshot = arrays, number, snapshot

    def read(self, start: int, stop: int) -> Array:
        """Return a view."""
        return self._arrays.get()[self._number][start:stop]

    def snapshot(self, *, by_value: bool) -> Snapshot:
        """Return the snapshot of everything that the arrays are loaded from."""
        return self._make_snapshot()

    @property
    def held_bytes(self) -> int:
        """The bytes that loading will take. Once loaded, they are part of the memory of the process."""
        return 0 if self._arrays.is_loaded else self.length * self.dtype.itemsize

    def require_chunks(self) -> None:
        """List the chunks of what the arrays are loaded from."""
        self._make_snapshot().require_chunks()
