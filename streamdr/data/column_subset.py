"""A source with a subset of the columns of another source. Chunks without such columns are not read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from streamdr.core.blocks import Array, Axis, Span, SparseRows
from streamdr.core.buffers import scratch
from streamdr.data.snapshot import Snapshot
from streamdr.data.source import Source


class ColumnSubset(Source):
    """The columns of a source with the given ascending numbers, without weights and labels."""

    private_buffers = True

    def __init__(self, whole: Source, columns: Array) -> None:
        self.name = whole.name
        self.spec = replace(whole.spec, n_cols=len(columns), labels=None)
        self.chunks = (whole.chunks[0], min(whole.chunks[1], len(columns)))
        self.grain = (whole.grain[0], 1)
        if whole.feature_names is not None:
            self.feature_names = tuple(whole.feature_names[column] for column in columns)
        self.sample_dims, self.sample_coords = whole.sample_dims, whole.sample_coords
        self._whole = whole
        self._columns = np.asarray(columns)
        self._groups = self._by_chunk(whole.chunks[1])
        width = sum(span.stop - span.start for span, _ in self._groups)
        self.cost_factor = max(1, width // len(columns))

    def _by_chunk(self, chunk: int) -> list[tuple[Span, Span]]:
        """Return, for each chunk, the columns of the whole to read and the selected ones among them."""
        chunks = self._columns // chunk
        bounds = [0, *(np.flatnonzero(np.diff(chunks)) + 1), len(chunks)]
        return [
            (Span(int(self._columns[a]), int(self._columns[b - 1]) + 1), Span(int(a), int(b)))
            for a, b in pairwise(bounds)
        ]

    def stored_row(self, row: int) -> tuple[str, int]:
        """Return the file or array of a row, and its number there."""
        return self._whole.stored_row(row)

    @property
    def _reads_from(self) -> tuple[Source | None, ...]:
        return (*super()._reads_from, self._whole)

    @property
    def stored_itemsize(self) -> int:
        """The bytes that are read per value, as in the whole source."""
        return self._whole.stored_itemsize

    def stored_line_bytes(self, axis: Axis) -> int:
        """Return the bytes that are read per line. A row has all columns that are read with the selected."""
        if axis == "columns":
            return self._whole.stored_line_bytes(axis)
        grain, length = self._whole.grain[1], self._whole.spec.n_cols
        grains = np.unique(
            np.concatenate([np.arange(w.start // grain, -(-w.stop // grain)) for w, _ in self._groups])
        )
        columns = np.minimum((grains + 1) * grain, length) - grains * grain
        return int(columns.sum()) * self.stored_itemsize

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region."""
        memory = np.empty((len(rows), len(cols)), self.spec.dtype)
        return self._gathered(memory, self._whole.read, rows, cols)

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """Return the region, in memory that this thread's next call overwrites."""
        memory = scratch("selected columns", (len(rows), len(cols)), self.spec.dtype)
        return self._gathered(memory, self._whole.read_scratch, rows, cols)

    def _gathered(self, memory: Array, read: Callable[[Span, Span], Array], rows: Span, cols: Span) -> Array:
        """Read the selected columns into `memory`, one group of columns at a time, and return it."""
        for wide, selected in self._groups:
            here = Span(max(selected.start, cols.start), min(selected.stop, cols.stop))
            if here.start < here.stop:
                positions: Array | slice = self._columns[here.slice] - wide.start
                if len(here) == len(wide):  # all of them: a slice is copied faster
                    positions = slice(None)
                memory[:, here.start - cols.start : here.stop - cols.start] = read(rows, wide)[:, positions]
        return memory

    def read_sparse(self, rows: Span) -> SparseRows:
        """Return the selected columns of sparse rows."""
        return SparseRows(self._whole.read_sparse(rows)[:, self._columns])

    def sparse_lengths(self, rows: Span) -> Iterator[Array]:
        """Yield how many values of each row are read: those of columns that are not selected as well."""
        return self._whole.sparse_lengths(rows)

    def sparse_bytes(self, n_rows: int) -> int:
        """Return the bytes of sparse rows of the whole, and of the selected columns."""
        return 2 * self._whole.sparse_bytes(n_rows)

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the overhead of the whole for the widest group of columns, plus that group twice."""
        widest = max(len(wide) for wide, _ in self._groups)
        copies = 2 * n_rows * widest * self.spec.dtype.itemsize
        return super().overhead(n_rows, n_cols) + self._whole.overhead(n_rows, widest) + copies

    def validate(self, seen: Snapshot | None = None) -> None:
        """Validate the whole source."""
        self._whole.validate(seen)

    @property
    def identity(self) -> str:
        """The name in keys of the ledger."""
        return f"{self._whole.identity}, columns {', '.join(map(str, self._columns))}"

    def _snapshot(self) -> Snapshot:
        return self._whole.snapshot()

    def described_column(self, column: int) -> str:
        """Return the number and name of a column in the whole, for a message."""
        return self._whole.described_column(int(self._columns[column]))

    def _region(self, rows: Span, cols: Span) -> str:
        return f"rows {rows.start}-{rows.stop - 1}"
