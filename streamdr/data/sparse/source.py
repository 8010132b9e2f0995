"""Sparse rows as a source: the columns and values of each row, and where rows end (CSR)."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from streamdr.core.blocks import SPARSE_PIECE, Array, Axis, MatrixSpec, Span, SparseRows
from streamdr.core.buffers import scratch
from streamdr.data.snapshot import DIGEST_BYTES, Snapshot
from streamdr.data.source import Source
from streamdr.data.sparse.checks import require_columns, require_pointers, sorted_rows
from streamdr.data.sparse.vectors import Vector
from streamdr.errors import DataError

_WINDOW = 1 << 16
"""The rows whose ends are read at a time."""
_INT32 = np.iinfo(np.int32).max
_per_thread = threading.local()


class CsrSource(Source):
    """Rows of which only some values are stored. They are checked as they are read.

    Parameters
    ----------
    name : str
        The name in errors and reports.
    n_cols : int
        The number of columns.
    pointers : Vector
        Where each row begins in `columns` and `values`, and where the last one ends.
    columns, values : Vector
        The column and the value of each stored value.
    line_name : str
        What errors call a row.
    sorts : bool
        Whether the columns of a row may be in any order. Otherwise they must ascend.
    """

    private_buffers = True

    def __init__(
        self,
        name: str,
        n_cols: int,
        *,
        pointers: Vector,
        columns: Vector,
        values: Vector,
        line_name: str = "row",
        sorts: bool = False,
    ) -> None:
        self.name = name
        self.line_name = line_name
        self._sorts = sorts
        n_rows = pointers.length - 1
        if values.length != columns.length:
            raise DataError(
                f"{name}: data has {values.length} values, and indices has {columns.length}; they must have "
                "the same length: restore the matrix from a copy or write it again"
            )
        for vector in (pointers, columns):
            if vector.dtype.kind not in "iu":
                raise DataError(
                    f"{vector.name}: the indices of a sparse matrix are of type {vector.dtype}; write them "
                    "as integers"
                )
        # scipy has no sparse matrices of float16, whose values are exact in single precision.
        dtype = np.dtype(np.float32) if values.dtype == np.float16 else values.dtype
        density = min(1.0, values.length / (n_rows * n_cols))
        self.spec = MatrixSpec(n_rows, n_cols, dtype, density=density)
        # Any row can be read alone, with all of its columns.
        self.chunks = self.grain = (1, n_cols)
        self.sample_shape = (n_cols,)
        self._pointers, self._columns, self._values = pointers, columns, values

    @property
    def n_stored(self) -> int:
        """The number of values that are stored."""
        return self._values.length

    @property
    def held_bytes(self) -> int:
        """The bytes of arrays that are kept in memory as a whole."""
        return super().held_bytes + sum(
            vector.held_bytes for vector in (self._pointers, self._columns, self._values)
        )

    def stored_line_bytes(self, axis: Axis) -> int:
        """Return the bytes that are read per line, on average; all rows are read for a column."""
        per_value = self._values.dtype.itemsize + self._columns.dtype.itemsize
        total = self.n_stored * per_value + self._pointers.length * self._pointers.dtype.itemsize
        return -(-total // self.spec.length(axis))

    @property
    def codecs(self) -> tuple[str, ...]:
        """The compressors and checksums of the values."""
        return self._values.codecs

    @property
    def complete_rows(self) -> int:
        """How many of the first rows have all of their values in complete chunks."""
        n_rows = max(0, self._pointers.complete(by_value=True) - 1)
        whole = min(vector.complete(by_value=False) for vector in (self._values, self._columns))
        if whole == self.n_stored:
            return n_rows
        low, high = 0, n_rows  # the last row that ends within complete chunks is between them
        while high - low > _WINDOW:
            middle = (low + high) // 2
            low, high = (middle, high) if self._end(middle) <= whole else (low, middle)
        ends = self._bounds(Span(low, high))
        return low + int(np.searchsorted(ends, whole, side="right")) - 1

    def read_sparse(self, rows: Span) -> SparseRows:
        """Return whole rows as stored."""
        bounds = self._bounds(rows)
        start, stop = int(bounds[0]), int(bounds[-1])
        try:
            columns, values = self._columns.read(start, stop), self._values.read(start, stop)
        except DataError as error:
            raise self._unreadable(rows, error) from error
        bounds = bounds - start
        if self._sorts:
            columns, values = sorted_rows(columns, values, bounds)
        require_columns(columns, bounds, self.spec.n_cols, rows.start, self.name, line=self.line_name)
        index = np.int32 if max(self.spec.n_cols, stop - start) <= _INT32 else np.int64
        parts = (
            values.astype(self.spec.dtype, copy=False),
            columns.astype(index, copy=False),
            bounds.astype(index),
        )
        found = SparseRows(parts, shape=(len(rows), self.spec.n_cols))
        found.has_sorted_indices = found.has_canonical_format = True
        return found

    def sparse_lengths(self, rows: Span) -> Iterator[Array]:
        """Yield how many values of each row are stored."""
        for window in _windows(rows):
            yield np.diff(self._bounds(window))

    def sparse_bytes(self, n_rows: int) -> int:
        """Return the most bytes that a block of sparse rows takes, with those to read it."""
        values = self._most_values(n_rows)
        per_value = self.spec.working.itemsize + self._value_bytes
        return super().overhead(0, 0) + values * per_value + self._reading

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the bytes of sparse rows, which become dense in pieces."""
        sparse = self._most_values(n_rows) * (self._value_bytes + 12)
        return super().overhead(n_rows, n_cols) + sparse + self._reading

    def _most_values(self, n_rows: int) -> int:
        """Return the most values of a piece."""
        n_cols = self.spec.n_cols
        return min(self.n_stored, max(n_cols, min(n_rows * n_cols, SPARSE_PIECE)))

    @property
    def _value_bytes(self) -> int:
        """The bytes of a value and its column, as they are read and as they are returned, and of a check."""
        stored = self._values.dtype.itemsize + self._columns.dtype.itemsize
        return stored + self.spec.dtype.itemsize + 9

    @property
    def _reading(self) -> int:
        """The bytes of chunks while they are read, and of where rows end."""
        vectors = (self._pointers, self._columns, self._values)
        return sum(vector.overhead for vector in vectors) + 5 * 8 * min(_WINDOW, self.spec.n_rows + 1)

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region."""
        return self._filled(np.empty((len(rows), len(cols)), self.spec.dtype), rows, cols)

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """Return the region, in memory that this thread's next call overwrites."""
        return self._filled(scratch("region", (len(rows), len(cols)), self.spec.dtype), rows, cols)

    def _filled(self, dense: Array, rows: Span, cols: Span) -> Array:
        """Fill a dense region, one piece of rows after another, and return it."""
        for piece in self.sparse_pieces(rows):
            found = self.read_sparse(piece)
            target = dense[piece.start - rows.start : piece.stop - rows.start]
            if len(cols) == self.spec.n_cols:
                found.toarray(out=target)
                continue
            target[...] = 0
            within = (found.indices >= cols.start) & (found.indices < cols.stop)
            lines = np.repeat(np.arange(len(piece)), np.diff(found.indptr))[within]
            target[lines, found.indices[within] - cols.start] = found.data[within]
        return dense

    def _end(self, row: int) -> int:
        """Return where the row before `row` ends: how many values the first rows have."""
        return int(self._bounds(Span(row, row))[0])

    def _bounds(self, rows: Span) -> Array:
        """Return where rows begin, and where the last of them ends. What was read last is kept."""
        kept: tuple[CsrSource, Span, Array] | None = getattr(_per_thread, "bounds", None)
        if kept is None or kept[0]._pointers is not self._pointers or not _contains(kept[1], rows):
            n_rows = self.spec.n_rows
            first = rows.start // _WINDOW * _WINDOW
            last = min(max(-(-rows.stop // _WINDOW) * _WINDOW, first), n_rows)
            kept = _per_thread.bounds = (self, Span(first, last), self._read_bounds(Span(first, last)))
        return kept[2][rows.start - kept[1].start : rows.stop - kept[1].start + 1]

    def _read_bounds(self, rows: Span) -> Array:
        """Read and check where rows begin and end."""
        try:
            bounds = self._pointers.read(rows.start, rows.stop + 1).astype(np.int64, copy=False)
        except DataError as error:
            raise self._unreadable(rows, error) from error
        most = max(self.spec.n_cols, SPARSE_PIECE)
        require_pointers(bounds, rows.start, self.n_stored, most, self.name, line=self.line_name)
        return bounds

    def _unreadable(self, rows: Span, error: DataError) -> DataError:
        """Return the error for rows that cannot be read."""
        return DataError(
            f"{self.name}: {self._region(rows, Span(0, self.spec.n_cols))} cannot be read: {error}"
        )

    def _require_chunks(self) -> None:
        super()._require_chunks()
        for vector in (self._pointers, self._columns, self._values):
            vector.require_chunks()

    def _snapshot(self) -> Snapshot:
        return CsrSnapshot(
            f"{self.spec.n_cols} {self.spec.dtype.str}",
            self._pointers.snapshot(by_value=True),
            self._columns.snapshot(by_value=False),
            self._values.snapshot(by_value=False),
            self._end,
        )


@dataclass(frozen=True)
class CsrSnapshot:
    """The snapshots of the three arrays of sparse rows."""

    meaning: str
    pointers: Snapshot
    columns: Snapshot
    values: Snapshot
    end: Callable[[int], int]
    """Returns how many values a number of first rows have."""

    def digest(self, rows: int) -> str:
        """Return a digest of what is stored of the first `rows` rows."""
        end = self.end(rows)
        parts = (self.pointers.digest(rows + 1), self.columns.digest(end), self.values.digest(end))
        return hashlib.blake2b(
            " ".join((self.meaning, *parts)).encode(), digest_size=DIGEST_BYTES
        ).hexdigest()

    def require_chunks(self) -> None:
        """Raise an error if chunks were missing."""
        for part in (self.pointers, self.columns, self.values):
            part.require_chunks()


def _windows(rows: Span) -> Iterator[Span]:
    """Yield rows in the windows in which their ends are read."""
    start = rows.start
    while start < rows.stop:
        stop = min((start // _WINDOW + 1) * _WINDOW, rows.stop)
        yield Span(start, stop)
        start = stop


def _contains(window: Span, rows: Span) -> bool:
    return window.start <= rows.start and rows.stop <= window.stop
