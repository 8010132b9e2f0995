"""Labels that are text: one string per row, in memory or in a zarr array."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec, Span
from streamdr.data.snapshot import Snapshot, WholeSnapshot
from streamdr.data.source import Source
from streamdr.data.zarr.locate import Located, array_at
from streamdr.data.zarr.source import COMPANION_ADVICE, ZarrSource
from streamdr.data.zarr.stores import Node
from streamdr.errors import DataError

TEXT = np.dtype(np.str_)
_LAST_CODE_POINT = 0x10FFFF
_MAX_BYTES = 256 << 20
_RESTORE = "restore it from a copy or write it again"


class TextArray(Source):
    """Text labels in memory."""

    chunks = (1, 1)

    def __init__(self, values: Any, name: str) -> None:
        self._values = _as_text(np.asarray(values), name)
        self.name = name
        self.spec = MatrixSpec(len(self._values), 1, TEXT)

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the labels of a range of rows."""
        return self._values[rows.slice, None]

    def _snapshot(self) -> Snapshot:
        """Return a digest of the contents."""
        return WholeSnapshot(_text_digest(self._values))


class TextStore(ZarrSource):
    """Text labels in a one-dimensional zarr array. They are read and checked like the data."""

    private_buffers = False
    missing_advice = COMPANION_ADVICE
    _takes_text = True

    def __init__(self, found: Located) -> None:
        super().__init__(found.node, found.metadata, sample_axis=0, allow_missing=False)
        if len(self.layout.shape) != 1:
            raise DataError(
                f"{self.name}: text of shape {self.layout.shape} is not one label per row; "
                "give an array of one dimension"
            )
        self.spec = replace(self.spec, dtype=TEXT)

    @classmethod
    def at(cls, node: Node) -> TextStore | None:
        """Return the text array at a node, or None if there is none."""
        try:
            found = array_at(node)
        except OSError as error:
            raise DataError(f"{node.name}: cannot be read: {error}") from error
        return cls(found) if found is not None and found.metadata.is_text else None

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the labels of a range of rows."""
        stored = super().read(rows, cols)
        if stored.dtype.kind == "U":
            points = np.ascontiguousarray(stored).view(np.uint32)
            if (points > _LAST_CODE_POINT).any() or ((points >= 0xD800) & (points < 0xE000)).any():
                raise DataError(f"{self.name}: {self._region(rows, cols)} are not valid text; {_RESTORE}")
            return stored
        longest = max(map(len, stored.flat), default=1)
        if 4 * longest * len(stored) > _MAX_BYTES:
            raise DataError(
                f"{self.name}: a label of {longest} characters in {self._region(rows, cols)} makes them too "
                "long to compare; use short labels, or numbers"
            )
        return _as_text(stored, self.name)

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """Return the labels of a range of rows."""
        return self.read(rows, cols)

    def _contents(self, start: int, stop: int) -> bytes:
        return _text_digest(self.read(Span(start, stop), Span(0, 1))).encode()


def _as_text(values: Array, name: str) -> Array:
    """Return labels as strings of fixed length. Other objects are an error."""
    if values.dtype.kind == "O":
        others = [value for value in values.ravel() if not isinstance(value, str)]
        if others:
            raise DataError(f"{name}: {others[0]!r} is among labels that are text; make all of them text")
    if values.dtype.kind == "T":  # numpy does not cast strings of variable length to strings of fixed length
        return np.array(values.tolist(), np.str_).reshape(values.shape)
    return values.astype(np.str_)


def _text_digest(values: Array) -> str:
    """Return a digest of strings."""
    return hashlib.blake2b(
        "\0".join(values.ravel().tolist()).encode("utf-8", "surrogatepass"), digest_size=20
    ).hexdigest()
