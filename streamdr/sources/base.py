"""A source: a matrix that is read block by block, wherever it lives. Validation happens here."""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from typing import Self

import numpy as np

from streamdr.blocks import Array, Axis, Block, MatrixSpec, Span, widen
from streamdr.errors import DataError, MissingValuesError
from streamdr.sources.snapshot import JoinedSnapshot, Snapshot

_MEND = "remove or fill these values before fitting"
_TAKES_HOLES = "or use the method ppca, which takes missing values"


_MOST_KEPT = 1 << 20
_mine = threading.local()


class Source(ABC):
    """Rows x features, read a region at a time. Pickles small: a worker reopens its own store.

    Subclasses set the attributes below and implement `read` and `_snapshot`. Any number of threads
    may read at once.
    """

    name: str
    """What errors and reports call it: a path where there is one."""
    spec: MatrixSpec
    chunks: tuple[int, int]
    """The storage's own granularity in (rows, columns) of the flattened matrix."""
    feature_names: tuple[str, ...] | None = None
    sample_shape: tuple[int, ...] | None = None
    """The shape of a sample before it became a row, where that is known."""
    dims: tuple[str | None, ...] | None = None
    """What the dimensions are called, that of the samples first, where they have names."""
    weights: Source | None = None
    """Row weights, as an n x 1 source."""
    labels: Source | None = None
    """Row labels, as an n x 1 source of numbers or of text."""
    labour: int = 1
    """How many times as much is read as is delivered."""
    lends: bool = False
    """Whether what `borrow` gives is nobody else's, and may be overwritten."""

    @property
    def identity(self) -> str:
        """What the ledger calls it: its name, and those of its weights and labels."""
        return self.name + self._company

    @property
    def _company(self) -> str:
        weighted = "" if self.weights is None else f" by {self.weights.name}"
        return weighted if self.labels is None else f"{weighted} labelled by {self.labels.name}"

    @property
    def names(self) -> tuple[str, ...]:
        """What errors may call it and what comes with it."""
        return (self.name, *(other.name for other in (self.weights, self.labels) if other is not None))

    @abstractmethod
    def read(self, rows: Span, cols: Span) -> Array:
        """The region as stored: 2-D, of the spec's dtype. Errors name the chunk and its rows."""

    def borrow(self, rows: Span, cols: Span) -> Array:
        """The region as stored, in memory that may last only until this thread borrows again."""
        return self.read(rows, cols)

    @abstractmethod
    def _snapshot(self) -> Snapshot:
        """What the values are like now. Cheap for stores; their contents for plain memory."""

    def snapshot(self) -> Snapshot:
        """What the input is like now, weights and labels included."""
        own = self._snapshot()
        others = [other.snapshot() for other in (self.weights, self.labels) if other is not None]
        return JoinedSnapshot((own, *others)) if others else own

    def fingerprint(self) -> str:
        """A digest that changes when the data does."""
        return self.snapshot().digest(self.spec.n_rows)

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Bytes that one `block` of such a region allocates besides its values."""
        stored, working = self.spec.dtype, self.spec.working
        widening = 0 if stored == working else n_rows * n_cols * stored.itemsize
        beside = sum(
            _beside_bytes(other, n_rows) for other in (self.weights, self.labels) if other is not None
        )
        return widening + (n_rows + n_cols) * working.itemsize + beside

    def validate(self) -> None:
        """Refuse, before the first read, what can be seen to be wrong: chunks missing, for one."""
        for other in (self.weights, self.labels):
            if other is not None:
                other.validate()

    def unlabelled(self) -> Self:
        """The same without labels, for who has no use for them."""
        plain = copy.copy(self)
        plain.labels, plain.spec = None, replace(self.spec, labels=None)
        return plain

    def block(self, span: Span, axis: Axis = "rows", *, holes: bool = False) -> Block:
        """Whole rows (or whole columns) as native floats, checked to be finite, or NaN where holes may be."""
        rows, cols = self._area(span, axis)
        values = widen(self.read(rows, cols))
        if self.spec.dtype.kind == "f":
            self._require_finite(values, rows, cols, holes=holes)
        return Block(span, values, self._labels(rows), self._weights(rows))

    def loan(self, span: Span, axis: Axis = "rows", *, holes: bool = False) -> Block:
        """The same to be used up at once: it lasts until this thread takes the next.

        That saves the system a block's worth of fresh pages every time. It is not checked: whoever sums
        it looks at every value anyway, and calls `suspect` when a sum is not finite.
        """
        rows, cols = self._area(span, axis)
        stored = self.borrow(rows, cols)
        values = widen(stored)
        disposable = self.lends or values is not stored
        suspect = partial(self.block, span, axis, holes=holes)
        return Block(span, values, self._labels(rows), self._weights(rows), disposable, suspect)

    def _area(self, span: Span, axis: Axis) -> tuple[Span, Span]:
        everything = Span(0, self.spec.length("columns" if axis == "rows" else "rows"))
        return (span, everything) if axis == "rows" else (everything, span)

    def _labels(self, rows: Span) -> Array | None:
        if self.labels is None:
            return None
        return checked_labels(_beside("labels", self.labels, rows), self.labels.name, rows)

    def _weights(self, rows: Span) -> Array | None:
        if self.weights is None:
            return None
        weights = widen(_beside("weights", self.weights, rows)).astype(np.float64)
        bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
        if bad.size:
            row = rows.start + int(bad[0])
            raise DataError(
                f"{self.weights.name}: row {row} has weight {weights[bad[0]]}; "
                "weights must be finite and not negative"
            )
        return weights

    def _require_finite(self, values: Array, rows: Span, cols: Span, *, holes: bool) -> None:
        # One BLAS product is the cheapest look at every value: a NaN or an Inf anywhere in a column
        # leaves its sum not finite. Only then (or when huge finite values overflow) look one by one.
        with np.errstate(over="ignore", invalid="ignore"):
            sums = np.ones(len(values), dtype=values.dtype) @ values
        if np.isfinite(sums).all():
            return
        bad = np.argwhere(np.isinf(values) if holes else ~np.isfinite(values))
        if not len(bad):
            return
        row, col = (int(i) for i in bad[0])
        value = values[row, col]
        told = (
            f"{self.name}: {value} at row {rows.start + row}, {self._column(cols.start + col)} "
            f"({len(bad)} such values in {self._region(rows, cols)}); "
        )
        if np.isnan(value):
            raise MissingValuesError(f"{told}{_MEND}, {_TAKES_HOLES}")
        raise DataError(f"{told}{'make them NaN if they stand for missing values' if holes else _MEND}")

    def _column(self, column: int) -> str:
        if self.feature_names is None:
            return f"column {column}"
        return f"column {column} ({self.feature_names[column]!r})"

    def _region(self, rows: Span, cols: Span) -> str:
        where = f"rows {rows.start}-{rows.stop - 1}"
        if len(cols) < self.spec.n_cols:
            where += f", columns {cols.start}-{cols.stop - 1}"
        return where


def _beside(what: str, source: Source, rows: Span) -> Array:
    """The values of a source of one column. Its chunks may be longer than a block: the last ones are kept."""
    chunk = source.chunks[0]
    whole = Span(rows.start // chunk * chunk, min(-(-rows.stop // chunk) * chunk, source.spec.n_rows))
    kept: tuple[Source, Span, Array] | None = getattr(_mine, what, None)
    if kept is not None and kept[0] is source and kept[1].start <= rows.start and rows.stop <= kept[1].stop:
        return kept[2][rows.start - kept[1].start : rows.stop - kept[1].start]
    if len(whole) > _MOST_KEPT:
        return source.read(rows, Span(0, 1))[:, 0]
    values = source.read(whole, Span(0, 1))[:, 0]
    setattr(_mine, what, (source, whole, values))
    return values[rows.start - whole.start : rows.stop - whole.start]


def _beside_bytes(source: Source, n_rows: int) -> int:
    """What one column takes that comes with so many rows: as stored, as kept, and as numbers."""
    kept = min(n_rows + 2 * source.chunks[0], _MOST_KEPT)
    return source.overhead(n_rows, 1) + 16 * (kept + n_rows)


def checked_labels(labels: Array, name: str, rows: Span) -> Array:
    """Labels as they go with a block: numbers in double precision, none of them missing, or text."""
    if labels.dtype.kind == "U":
        return labels
    numbers = labels.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        raise DataError(
            f"{name}: row {rows.start + int(bad[0])} has the label {numbers[bad[0]]} ({bad.size} such labels "
            f"in rows {rows.start}-{rows.stop - 1}); every row needs one: give it one, or leave the row out"
        )
    return numbers
