"""Several variables of one grid as one matrix: their features side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamdr.core.blocks import Array, Axis, MatrixSpec, Span
from streamdr.core.buffers import scratch
from streamdr.data.layout import MatrixLayout
from streamdr.data.snapshot import DIGEST_BYTES, Snapshot
from streamdr.data.source import Source


class SideBySideSource(Source):
    """The columns of several sources of equal shape, one source after the other.

    Parameters
    ----------
    parts : sequence of Source
        The sources, with equal rows and columns.
    name : str
        The name in errors and reports.
    """

    private_buffers = True

    def __init__(self, parts: Sequence[Source], name: str) -> None:
        self.name = name
        self._parts = tuple(parts)
        first = parts[0]
        self._width = first.spec.n_cols
        dtype = np.result_type(*(part.spec.dtype for part in parts))
        self.spec = MatrixSpec(first.spec.n_rows, self._width * len(parts), dtype)
        shape = first.sample_shape or (self._width,)
        self.sample_shape = (len(parts), *shape)
        self.layout = MatrixLayout((self.spec.n_rows, *self.sample_shape), 0)
        self.chunks = (max(part.chunks[0] for part in parts), first.chunks[1])
        self.grain = (max(part.grain[0] for part in parts), first.grain[1])

    @property
    def identity(self) -> str:
        """The name in keys of the ledger: those of all parts."""
        return " and ".join(part.identity for part in self._parts) + self._companion_names

    @property
    def complete_rows(self) -> int:
        """How many of the first rows are in complete chunks of every part."""
        return min(part.complete_rows for part in self._parts)

    @property
    def client(self) -> Any:
        """The client of the first part that has one."""
        return next((part.client for part in self._parts if part.client is not None), None)

    @property
    def _reads_from(self) -> tuple[Source | None, ...]:
        return (*super()._reads_from, *self._parts)

    @property
    def stored_itemsize(self) -> int:
        """The most bytes that are stored per value."""
        return max(part.stored_itemsize for part in self._parts)

    def stored_line_bytes(self, axis: Axis) -> int:
        """Return the bytes that are read per row, of all parts; or per column, of one."""
        each = [part.stored_line_bytes(axis) for part in self._parts]
        return sum(each) if axis == "rows" else max(each)

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region."""
        return self._filled(np.empty((len(rows), len(cols)), self.spec.dtype), rows, cols)

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """Return the region, in memory that this thread's next call overwrites."""
        return self._filled(scratch("side by side", (len(rows), len(cols)), self.spec.dtype), rows, cols)

    def _filled(self, memory: Array, rows: Span, cols: Span) -> Array:
        for part, within, at in self._overlaps(cols):
            memory[:, at.slice] = part.read_scratch(rows, within)
        return memory

    def _overlaps(self, cols: Span) -> Iterator[tuple[Source, Span, Span]]:
        """Yield the parts that have some of the columns, with these columns in the part and in `cols`."""
        for number, part in enumerate(self._parts):
            offset = number * self._width
            start, stop = max(cols.start, offset), min(cols.stop, offset + self._width)
            if start < stop:
                yield part, Span(start - offset, stop - offset), Span(start - cols.start, stop - cols.start)

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the overhead of the widest part, with its values before they are copied."""
        width = min(n_cols, self._width)
        part = max(self._parts, key=lambda part: part.overhead(n_rows, width))
        values = n_rows * width * part.spec.dtype.itemsize
        return super().overhead(n_rows, n_cols) + part.overhead(n_rows, width) + values

    def _require_chunks(self) -> None:
        super()._require_chunks()
        for part in self._parts:
            part._require_chunks()

    def _snapshot(self) -> Snapshot:
        return SideBySideSnapshot(tuple(part.snapshot() for part in self._parts))


@dataclass(frozen=True)
class SideBySideSnapshot:
    """The snapshots of several sources."""

    parts: tuple[Snapshot, ...]

    def digest(self, rows: int) -> str:
        """Return one digest of all."""
        joined = " ".join(part.digest(rows) for part in self.parts)
        return hashlib.blake2b(joined.encode(), digest_size=DIGEST_BYTES).hexdigest()

    def require_chunks(self) -> None:
        """Raise an error if chunks of any of them were missing."""
        for part in self.parts:
            part.require_chunks()
