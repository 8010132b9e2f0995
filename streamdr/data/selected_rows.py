"""A source with the rows of another source that a mask selects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
from scipy.sparse import vstack

from streamdr.core.blocks import GOOD_READ_BYTES, Array, Axis, Span, SparseRows
from streamdr.core.buffers import scratch
from streamdr.data.snapshot import DIGEST_BYTES, Snapshot
from streamdr.data.source import RowsTaken, Source

_GROUP = 4096
"""The number of selected rows is known up to every multiple of so many rows."""


class RowMask:
    """Which rows are selected: one bit per row. Its length is the number of selected rows."""

    def __init__(self, n_rows: int, pieces: Iterable[Array]) -> None:
        self._bits = np.zeros(-(-n_rows // 8), np.uint8)
        start = 0
        for flags in pieces:
            assert start % 8 == 0  # a piece begins with a new byte
            packed = np.packbits(flags)
            self._bits[start // 8 : start // 8 + len(packed)] = packed
            start += len(flags)
        groups = np.add.reduceat(
            np.bitwise_count(self._bits), np.arange(0, len(self._bits), _GROUP // 8), dtype=np.int64
        )
        self._before = np.concatenate([[0], np.cumsum(groups)])
        """The number of selected rows before each group."""

    def __len__(self) -> int:
        return int(self._before[-1])

    @property
    def nbytes(self) -> int:
        """The bytes of the mask."""
        return self._bits.nbytes + self._before.nbytes

    def numbers(self, selected: Span) -> Array:
        """Return the row numbers of a span of selected rows, ascending."""
        if not len(selected):
            return np.zeros(0, np.int64)
        first = int(np.searchsorted(self._before, selected.start, side="right")) - 1
        last = int(np.searchsorted(self._before, selected.stop, side="left"))
        flags = np.unpackbits(self._bits[first * _GROUP // 8 : last * _GROUP // 8])
        found = np.flatnonzero(flags) + first * _GROUP
        skipped = int(self._before[first])
        return found[selected.start - skipped : selected.stop - skipped]

    def count(self, rows: int) -> int:
        """Return how many of the first `rows` rows are selected."""
        group = rows // _GROUP
        flags = np.unpackbits(self._bits[group * _GROUP // 8 : -(-rows // 8)])
        return int(self._before[group]) + int(np.count_nonzero(flags[: rows - group * _GROUP]))

    def digest(self, rows: int) -> str:
        """Return a digest of the flags of the first `rows` rows."""
        whole, rest = divmod(rows, 8)
        digest = hashlib.blake2b(self._bits[:whole].data, digest_size=DIGEST_BYTES)
        digest.update(bytes(np.unpackbits(self._bits[whole : whole + 1])[:rest]))
        return digest.hexdigest()


class SelectedRows(Source):
    """The selected rows of a source, in their order. Errors give the row numbers of the whole."""

    private_buffers = True

    def __init__(self, whole: Source, mask: RowMask, condition: str) -> None:
        self.name = whole.name
        self.spec = replace(whole.spec, n_rows=len(mask))
        self.chunks, self.grain = whole.chunks, whole.grain
        self.client = whole.client
        self.condition = condition
        self._whole, self._mask = whole, mask
        self.take_labels(whole)
        self.sample_columns = None  # they have values of all rows
        self.part_ends = tuple((name, mask.count(end)) for name, end in whole.part_ends)
        self.sample_coords = tuple(
            replace(one, values=SelectedRows(one.values, mask, condition)) for one in whole.sample_coords
        )
        if whole.weights is not None:
            self.weights = SelectedRows(whole.weights, mask, condition)
        if whole.labels is not None:
            self.labels = SelectedRows(whole.labels, mask, condition)
        self.cost_factor = whole.cost_factor * max(1, whole.spec.n_rows // len(mask))
        chunk = whole.chunks[0]
        good = GOOD_READ_BYTES // max(1, whole.spec.n_cols * max(1, whole.spec.dtype.itemsize))
        self._read_rows = chunk * max(1, good // chunk)
        """The rows of the whole that are read at a time, in whole chunks."""

    @property
    def _reads_from(self) -> tuple[Source | None, ...]:
        return (*super()._reads_from, self._whole)

    @property
    def identity(self) -> str:
        """The name in keys of the ledger."""
        return f"{self._whole.identity}, rows where {self.condition}"

    @property
    def held_bytes(self) -> int:
        """The bytes of the mask, and those that the whole holds."""
        return self._mask.nbytes + self._whole.held_bytes

    @property
    def stored_itemsize(self) -> int:
        """The bytes that are read per value, as in the whole source."""
        return self._whole.stored_itemsize

    def stored_line_bytes(self, axis: Axis) -> int:
        """Return the bytes that are read per line: per selected row, those of the rows around it too."""
        whole = self._whole.stored_line_bytes(axis)
        return whole if axis == "columns" else -(-whole * self._whole.spec.n_rows // self.spec.n_rows)

    def stored_bytes(self, spans: Iterable[Span], axis: Axis = "rows") -> int:
        """Return the bytes that are read for spans of lines."""
        if axis == "columns":
            return self._whole.stored_bytes(spans, axis)
        pieces = [piece for span in spans for piece, _ in self._pieces(span)]
        return self._whole.stored_bytes(pieces, axis)

    @property
    def complete_rows(self) -> int:
        """How many of the first rows are in complete chunks of the whole."""
        return self._mask.count(self._whole.complete_rows)

    @property
    def rows_taken(self) -> RowsTaken:
        """Which rows of the stored data are selected."""
        before = self._whole.rows_taken
        numbers = self._mask.numbers if before is None else _Selected(self._mask, before)
        return RowsTaken(self._whole.spec.n_rows if before is None else before.n_rows, numbers)

    def stored_row(self, row: int) -> tuple[str, int]:
        """Return the file or array of a row, and its number there."""
        return self._whole.stored_row(int(self._mask.numbers(Span(row, row + 1))[0]))

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region."""
        return self._gathered(np.empty((len(rows), len(cols)), self.spec.dtype), rows, cols)

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """Return the region, in memory that this thread's next call overwrites."""
        return self._gathered(scratch("selected rows", (len(rows), len(cols)), self.spec.dtype), rows, cols)

    def _gathered(self, memory: Array, rows: Span, cols: Span) -> Array:
        """Read the selected rows into `memory`, and return it. Text is as long as it is in the whole."""
        parts, start = [], 0
        for piece, numbers in self._pieces(rows):
            values = self._whole.read_scratch(piece, cols)[numbers - piece.start]
            if memory.dtype.kind == "U":
                parts.append(values)
            else:
                memory[start : start + len(numbers)] = values
            start += len(numbers)
        return np.concatenate(parts) if parts else memory

    def _labels(self, rows: Span) -> Array | None:
        """Return the labels of rows, which may be a column of the whole."""
        if self.labels is not None or self.spec.labels is None:
            return super()._labels(rows)
        read = ((self._whole._labels(piece), numbers - piece.start) for piece, numbers in self._pieces(rows))
        return np.concatenate([labels[chosen] for labels, chosen in read if labels is not None])

    def read_sparse(self, rows: Span) -> SparseRows:
        """Return the selected rows as stored."""
        parts = [
            self._whole.read_sparse(Span(int(numbers[0]), int(numbers[-1]) + 1))[numbers - int(numbers[0])]
            for _, numbers in self._pieces(rows)
        ]
        return SparseRows(parts[0] if len(parts) == 1 else vstack(parts, "csr"))

    def sparse_pieces(self, rows: Span) -> Iterator[Span]:
        """Yield rows in the pieces in which the whole is read."""
        numbers = self._mask.numbers(rows)
        for piece in self._whole.sparse_pieces(Span(int(numbers[0]), int(numbers[-1]) + 1)):
            first, last = np.searchsorted(numbers, [piece.start, piece.stop])
            if first < last:
                yield Span(rows.start + int(first), rows.start + int(last))

    def sparse_bytes(self, n_rows: int) -> int:
        """Return the bytes of a block of the whole, and of the rows that are selected from it."""
        return 2 * self._whole.sparse_bytes(self._whole.spec.n_rows)

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the overhead of what is read of the whole at a time, and its values."""
        rows = min(self._read_rows, self._whole.spec.n_rows)
        read = self._whole.overhead(rows, n_cols) + rows * n_cols * self.spec.dtype.itemsize
        return super().overhead(n_rows, n_cols) + read + 8 * n_rows

    def _pieces(self, rows: Span) -> Iterator[tuple[Span, Array]]:
        """Yield the spans of the whole to read, and the numbers of the selected rows in each."""
        numbers = self._mask.numbers(rows)
        owners = numbers // self._read_rows
        bounds = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(numbers)]
        for first, last in pairwise(bounds):
            if first < last:
                here = numbers[first:last]
                yield Span(int(here[0]), int(here[-1]) + 1), here

    def _require_chunks(self) -> None:
        self._whole._require_chunks()

    def _snapshot(self) -> Snapshot:
        return _SelectedSnapshot(self._whole._snapshot(), self._mask)

    def described_column(self, column: int) -> str:
        """Return the number and name of a column in the whole, for a message."""
        return self._whole.described_column(column)

    def _refuse(
        self, row: int, col: int, value: Any, count: int, region: str, *, allow_nan: bool
    ) -> NoReturn:
        """Raise the error of the whole for this row, which names its file and the number there."""
        stored = int(self._mask.numbers(Span(row, row + 1))[0])
        self._whole.check(Span(stored, stored + 1), allow_nan=allow_nan)
        self._whole._refuse(stored, col, value, count, region, allow_nan=allow_nan)

    def _region(self, rows: Span, cols: Span) -> str:
        numbers = self._mask.numbers(Span(rows.start, rows.stop))
        return self._whole._region(Span(int(numbers[0]), int(numbers[-1]) + 1), cols)


@dataclass(frozen=True)
class _Selected:
    """The numbers of rows that are selected among selected rows."""

    mask: RowMask
    before: RowsTaken

    def __call__(self, rows: Span) -> Array:
        numbers = self.mask.numbers(rows)
        if not len(numbers):
            return numbers
        first = int(numbers[0])
        found: Array = self.before.numbers(Span(first, int(numbers[-1]) + 1))[numbers - first]
        return found


@dataclass(frozen=True)
class _SelectedSnapshot:
    """A snapshot of selected rows: of the whole up to the last of them, and of the flags up to there."""

    whole: Snapshot
    mask: RowMask

    def digest(self, rows: int) -> str:
        """Return a digest of the first `rows` selected rows."""
        stop = int(self.mask.numbers(Span(rows - 1, rows))[0]) + 1 if rows else 0
        return f"{self.whole.digest(stop)}-{self.mask.digest(stop)}-{rows}"

    def require_chunks(self) -> None:
        """Raise an error if chunks of the whole source were missing."""
        self.whole.require_chunks()
