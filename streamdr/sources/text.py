"""Text, one piece a row: what labels may be besides numbers."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from streamdr.blocks import Array, MatrixSpec, Span
from streamdr.errors import DataError
from streamdr.sources.base import Source
from streamdr.sources.locate import document_of
from streamdr.sources.snapshot import ChunkSnapshot, Snapshot, WholeSnapshot
from streamdr.sources.stores import Node

TEXT = np.dtype(np.str_)
_V3_TYPES = ("string", "variable_length_utf8", "fixed_length_utf32")


class TextArray(Source):
    """Text that is in memory."""

    chunks = (1, 1)

    def __init__(self, values: Any, name: str) -> None:
        self._values = _as_text(np.asarray(values), name)
        self.name = name
        self.spec = MatrixSpec(len(self._values), 1, TEXT)

    def read(self, rows: Span, cols: Span) -> Array:
        """The text of some rows."""
        return self._values[rows.slice, None]

    def _snapshot(self) -> Snapshot:
        """A digest of the contents."""
        return WholeSnapshot(_digest(self._values))


class TextStore(Source):
    """Text in a zarr array of one dimension."""

    def __init__(self, node: Node, zarr_format: int) -> None:
        self.name = node.name
        self._node = node
        self._format = zarr_format
        array = node.open(zarr_format)
        if array.ndim != 1:
            raise DataError(f"{self.name}: text of shape {array.shape} is not one label a row")
        self.spec = MatrixSpec(array.shape[0], 1, TEXT)
        self.chunks = ((array.shards or array.chunks)[0], 1)

    @classmethod
    def at(cls, node: Node) -> TextStore | None:
        """The text at a node; None where there is none."""
        kind = document_of(node, "zarr.json")
        if kind is not None:
            declared = kind.get("data_type")
            name = declared.get("name") if isinstance(declared, dict) else declared
            return cls(node, 3) if name in _V3_TYPES else None
        kind = document_of(node, ".zarray")
        if kind is None:
            return None
        declared = kind.get("dtype")
        filters = [step.get("id") for step in kind.get("filters") or [] if isinstance(step, dict)]
        text = isinstance(declared, str) and (declared[1:2] == "U" or filters == ["vlen-utf8"])
        return cls(node, 2) if text else None

    def read(self, rows: Span, cols: Span) -> Array:
        """The text of some rows."""
        try:
            stored = np.asarray(self._node.open(self._format)[rows.slice])
        except Exception as error:
            raise DataError(f"{self.name}: {self._region(rows, cols)} cannot be read: {error}") from error
        return _as_text(stored, self.name)[:, None]

    def _snapshot(self) -> Snapshot:
        """The size of every chunk and when it was modified."""
        found = [(key, key.replace(".", "/").rpartition("/")[2]) for key in self._node.list_keys()]
        chunks = sorted((int(last), key) for key, last in found if last.isdecimal())
        stamps = [(number, *self._node.stamp(key)) for number, key in chunks]
        table = np.array(stamps, np.int64).reshape(-1, 3)
        return ChunkSnapshot(b"text", self.chunks[0], table[:, 0].copy(), table, self._contents)

    def _contents(self, start: int, stop: int) -> bytes:
        return _digest(self.read(Span(start, stop), Span(0, 1))).encode()


def _as_text(values: Array, name: str) -> Array:
    if values.dtype.kind == "O":
        strange = [value for value in values.ravel() if not isinstance(value, str)]
        if strange:
            raise DataError(f"{name}: {strange[0]!r} is among labels that are text; make all of them text")
    if values.dtype.kind == "T":  # text of any length, which numpy does not cast to text of a given one
        return np.array(values.tolist(), np.str_).reshape(values.shape)
    return values.astype(np.str_)


def _digest(values: Array) -> str:
    return hashlib.blake2b("\0".join(values.ravel().tolist()).encode(), digest_size=20).hexdigest()
