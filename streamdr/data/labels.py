"""Labels of rows: an array beside the data, or a column of the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from streamdr.core.blocks import Array, Axis, Block, Span
from streamdr.core.buffers import scratch
from streamdr.data.snapshot import Snapshot
from streamdr.data.source import Source, checked_labels
from streamdr.errors import InputError, ParameterError


def require_one_per_row(labels: Source, source: Source) -> None:
    """Raise an error unless there is one label per row."""
    n_rows, n_cols = labels.spec.n_rows, labels.spec.n_cols
    if (n_rows, n_cols) != (source.spec.n_rows, 1):
        given = str(n_rows) if n_cols == 1 else f"{n_rows} x {n_cols}"
        raise InputError(
            "labels",
            f"{labels.name}: {given} labels for the {source.spec.n_rows} rows of {source.name}; "
            "one label per row is needed",
        )


def column_number(source: Source, column: int | str) -> int:
    """Return the number of a column, given its number or its name."""
    if isinstance(column, str):
        names = source.feature_names
        if names is None:
            message = f"{source.name}: its columns have no names; give the number of the column instead"
            raise ParameterError("label_column", message)
        if column not in names:
            raise ParameterError("label_column", f"{source.name}: no column is named {column!r}")
        return names.index(column)
    n_cols = source.spec.n_cols
    if not -n_cols <= column < n_cols:
        raise ParameterError(
            "label_column", f"{source.name}: there is no column {column} among {n_cols}, counted from 0"
        )
    if n_cols == 1:
        raise ParameterError("label_column", f"{source.name}: its only column cannot be the labels")
    return column % n_cols


class LabelColumnSource(Source):
    """A source without one of its columns. That column holds the labels."""

    def __init__(self, base: Source, column: int | str) -> None:
        self.column = column_number(base, column)
        self._base = base
        self.name = base.name
        self.spec = replace(base.spec, n_cols=base.spec.n_cols - 1, labels=base.spec.dtype, density=None)
        self.chunks = (base.chunks[0], min(base.chunks[1], self.spec.n_cols))
        self.grain = base.grain
        self.sample_shape = (self.spec.n_cols,)
        self.take_samples(base)
        self.weights = base.weights
        self.private_buffers = True
        if base.feature_names is not None:
            names = base.feature_names
            self.feature_names = names[: self.column] + names[self.column + 1 :]

    @property
    def identity(self) -> str:
        """The name in keys of the ledger."""
        return f"{super().identity} labelled by column {self.column}"

    def stored_row(self, row: int) -> tuple[str, int]:
        """Return the file or array of a row, and its number there."""
        return self._base.stored_row(row)

    @property
    def _reads_from(self) -> tuple[Source | None, ...]:
        return (*super()._reads_from, self._base)

    @property
    def stored_itemsize(self) -> int:
        """The bytes that are read per value, as in the base."""
        return self._base.stored_itemsize

    def stored_line_bytes(self, axis: Axis) -> int:
        """Return the bytes that are read per line, as in the base: a row is read with its label."""
        return self._base.stored_line_bytes(axis)

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region."""
        return self._read_without_labels(self._base.read, rows, cols)

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """Return the region, in memory that this thread's next call overwrites."""
        return self._read_without_labels(self._base.read_scratch, rows, cols)

    def _read_without_labels(self, read: Callable[[Span, Span], Array], rows: Span, cols: Span) -> Array:
        """Read a region, without the label column."""
        if cols.stop <= self.column:
            return read(rows, cols)
        if cols.start >= self.column:
            return read(rows, Span(cols.start + 1, cols.stop + 1))
        values = read(rows, Span(cols.start, cols.stop + 1))
        return self._drop_column(
            values, self.column - cols.start, np.empty((len(rows), len(cols)), values.dtype)
        )

    def _drop_column(self, values: Array, column: int, out: Array) -> Array:
        """Copy all columns but one to `out`, and return it."""
        out[:, :column] = values[:, :column]
        out[:, column:] = values[:, column + 1 :]
        return out

    def _labels(self, rows: Span) -> Array | None:
        if self.spec.labels is None:
            return None
        labels = self._base.read(rows, Span(self.column, self.column + 1))[:, 0]
        return checked_labels(labels, self._base.name, rows)

    def scratch_block(self, span: Span, axis: Axis = "rows", *, allow_nan: bool = False) -> Block:
        """Return rows and their labels, read together, valid until this thread's next call."""
        if axis == "columns":
            return self.block(span, axis, allow_nan=allow_nan)
        whole = self._base.scratch_block(span, allow_nan=True)
        shape = (len(span), self.spec.n_cols)
        values = self._drop_column(
            whole.values, self.column, scratch("unlabelled", shape, whole.values.dtype)
        )
        labels = None
        if self.spec.labels is not None:
            labels = checked_labels(whole.values[:, self.column], self._base.name, span)
        locate_nonfinite = partial(self.check, span, axis, allow_nan=allow_nan)
        return replace(
            whole, values=values, labels=labels, disposable=True, locate_nonfinite=locate_nonfinite
        )

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the overhead of the base with the labels, plus the rows without them."""
        wider = n_rows * (n_cols + 1) * self.spec.working.itemsize
        return self._base.overhead(n_rows, n_cols + 1) + wider + 8 * n_rows

    def _require_chunks(self) -> None:
        super()._require_chunks()
        self._base._require_chunks()

    def _snapshot(self) -> Snapshot:
        return self._base._snapshot()
