"""Text, one piece a row: what labels may be besides numbers."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec, Span
from streamdr.data.snapshot import Snapshot, WholeSnapshot
from streamdr.data.source import Source
from streamdr.data.zarr.locate import Located, array_at
from streamdr.data.zarr.source import MISSING_BESIDE, ZarrSource
from streamdr.data.zarr.stores import Node
from streamdr.errors import DataError

TEXT = np.dtype(np.str_)
_LAST_CHARACTER = 0x10FFFF
_MOST_BYTES = 256 << 20
_RESTORE = "restore it from a copy or write it again"


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
        return WholeSnapshot(_text_digest(self._values))


class TextStore(ZarrSource):
    """Text in a zarr array of one dimension. It is read and checked as the data is."""

    private_buffers = False
    missing_advice = MISSING_BESIDE
    _takes_text = True

    def __init__(self, found: Located) -> None:
        super().__init__(found.node, found.metadata, sample_axis=0, allow_missing=False)
        if len(self.layout.shape) != 1:
            raise DataError(f"{self.name}: text of shape {self.layout.shape} is not one label a row")
        self.spec = replace(self.spec, dtype=TEXT)

    @classmethod
    def at(cls, node: Node) -> TextStore | None:
        """The text at a node; None where there is none."""
        try:
            found = array_at(node)
        except OSError as error:
            raise DataError(f"{node.name}: cannot be read: {error}") from error
        return cls(found) if found is not None and found.metadata.is_text else None

    def read(self, rows: Span, cols: Span) -> Array:
        """The text of some rows."""
        stored = super().read(rows, cols)
        if stored.dtype.kind == "U":
            points = np.ascontiguousarray(stored).view(np.uint32)
            if (points > _LAST_CHARACTER).any() or ((points >= 0xD800) & (points < 0xE000)).any():
                raise DataError(f"{self.name}: {self._region(rows, cols)} hold what is not text; {_RESTORE}")
            return stored
        longest = max(map(len, stored.flat), default=1)
        if 4 * longest * len(stored) > _MOST_BYTES:
            raise DataError(
                f"{self.name}: a label of {longest} characters in {self._region(rows, cols)} makes them too "
                "long to be compared; give rows short labels, or numbers"
            )
        return _as_text(stored, self.name)

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """The text of some rows."""
        return self.read(rows, cols)

    def _contents(self, start: int, stop: int) -> bytes:
        return _text_digest(self.read(Span(start, stop), Span(0, 1))).encode()


def _as_text(values: Array, name: str) -> Array:
    if values.dtype.kind == "O":
        strange = [value for value in values.ravel() if not isinstance(value, str)]
        if strange:
            raise DataError(f"{name}: {strange[0]!r} is among labels that are text; make all of them text")
    if values.dtype.kind == "T":  # text of any length, which numpy does not cast to text of a given one
        return np.array(values.tolist(), np.str_).reshape(values.shape)
    return values.astype(np.str_)


def _text_digest(values: Array) -> str:
    return hashlib.blake2b(
        "\0".join(values.ravel().tolist()).encode("utf-8", "surrogatepass"), digest_size=20
    ).hexdigest()
