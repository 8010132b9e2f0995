"""A source: a matrix that is read block by block, wherever it lives. Validation happens here."""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np

from streamdr.core.blocks import Array, Axis, Block, MatrixSpec, Span, widen
from streamdr.data.snapshot import JoinedSnapshot, Snapshot
from streamdr.errors import DataError, MissingValuesError

_MEND = "remove or fill these values before fitting"
_TAKES_MISSING = (
    "or use the method ppca, which takes missing values (in Python streamdr.PPCA, with NaN for them)"
)


_MOST_KEPT = 1 << 20
_LOOKED_AT = 1 << 22
"""Bytes of values that are looked at together when a bad one is searched for."""
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
    grain: tuple[int, int] = (1, 1)
    """The rows and columns that are read together, whichever of them are asked for."""
    feature_names: tuple[str, ...] | None = None
    sample_shape: tuple[int, ...] | None = None
    """The shape of a sample before it became a row, where that is known."""
    dims: tuple[str | None, ...] | None = None
    """What the dimensions are called, that of the samples first, where they have names."""
    weights: Source | None = None
    """Row weights, as an n x 1 source."""
    labels: Source | None = None
    """Row labels, as an n x 1 source of numbers or of text."""
    cost_factor: int = 1
    """How many times as much is read as is delivered."""
    client: Any = None
    """The dask client whose cluster computes the values or holds them, where there is one."""
    private_buffers: bool = False
    """Whether the memory that `read_scratch` returns may be overwritten: nothing else refers to it."""

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

    @property
    def stays(self) -> bool:
        """Whether only this process can read it, or something that comes with it."""
        parts = (self.weights, self.labels, *(getattr(self, name, None) for name in ("_base", "_mask")))
        return any(part.stays for part in parts if part is not None)

    @property
    def stored_itemsize(self) -> int:
        """How many bytes are read for a value, before it is widened: its mask's among them."""
        return self.spec.dtype.itemsize

    def stored_line_bytes(self, axis: Axis) -> int:
        """How many bytes are read for a row, or column."""
        return self.spec.length("columns" if axis == "rows" else "rows") * self.stored_itemsize

    def stored_bytes(self, spans: Iterable[Span], axis: Axis = "rows") -> int:
        """How many bytes are read for runs of lines, one run after the other: those of whole grains."""
        grain, length = self.grain[0 if axis == "rows" else 1], self.spec.length(axis)
        lines = sum(
            min(-(-span.stop // grain) * grain, length) - span.start // grain * grain
            for span in spans
            if span
        )
        return lines * self.stored_line_bytes(axis)

    @abstractmethod
    def read(self, rows: Span, cols: Span) -> Array:
        """The region as stored: 2-D, of the spec's dtype. Errors name the chunk and its rows."""

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """The region as stored, in memory that this thread's next call may overwrite."""
        return self.read(rows, cols)

    @abstractmethod
    def _snapshot(self) -> Snapshot:
        """What the values are like now. Cheap for stores; their contents for plain memory."""

    def snapshot(self) -> Snapshot:
        """What the input is like now, weights and labels included."""
        own = self._snapshot()
        weights, labels = (
            None if other is None else other.snapshot() for other in (self.weights, self.labels)
        )
        return JoinedSnapshot.of(own, weights, labels)

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

    def validate(self, seen: Snapshot | None = None) -> None:
        """Refuse, before the first read, what can be seen to be wrong: chunks missing, for one.

        `seen` is a snapshot of this source that was just taken: its chunks are then not listed again.
        """
        if seen is None:
            self._require_chunks()
        else:
            seen.require_chunks()
        if self.weights is not None:
            self._require_weight(self.weights)

    def _require_chunks(self) -> None:
        """List the chunks, and refuse the source if some are missing that must not be."""
        for other in (self.weights, self.labels):
            if other is not None:
                other._require_chunks()

    def _require_weight(self, weights: Source) -> None:
        """Refuse weights that are all zero. It takes a look at the first of them, if that is not so."""
        for span in Span(0, self.spec.n_rows).split(max(1, min(weights.chunks[0], _MOST_KEPT))):
            if np.any(self._weights(span)):
                return
        raise DataError(
            f"{weights.name}: every weight is zero, so that no row counts and there is nothing to fit; give "
            "some row a weight, or leave the weights out"
        )

    def unlabelled(self) -> Self:
        """The same without labels, for who has no use for them."""
        plain = copy.copy(self)
        plain.labels, plain.spec = None, replace(self.spec, labels=None)
        return plain

    def block(self, span: Span, axis: Axis = "rows", *, allow_nan: bool = False) -> Block:
        """Whole rows (or columns) as native floats, checked to be finite, or NaN where that is allowed."""
        rows, cols = self._area(span, axis)
        values = widen(self.read(rows, cols))
        if self.spec.dtype.kind == "f" and not _is_finite(values):
            here = (
                (piece, _within(values, piece, rows, cols)) for piece in self._pieces_to_check(rows, cols)
            )
            self._require_sound(here, rows, cols, allow_nan=allow_nan)
        return Block(span, values, self._labels(rows), self._weights(rows))

    def check(self, span: Span, axis: Axis = "rows", *, allow_nan: bool = False) -> None:
        """Refuse values that are not finite (or, where values may be missing, infinite) and say where.

        They are read again, a few at a time along whole chunks: a block may be most of the memory there is.
        """
        if self.spec.dtype.kind == "f":
            rows, cols = self._area(span, axis)
            pieces = ((piece, widen(self.read(*piece))) for piece in self._pieces_to_check(rows, cols))
            self._require_sound(pieces, rows, cols, allow_nan=allow_nan)

    def checking_bytes(self, n_rows: int, n_cols: int) -> int:
        """What `check` of such a region allocates: a piece as stored, as read, and what of it is bad.

        Decoding takes what it took for the region itself, which is over by then.
        """
        if self.spec.dtype.kind != "f":
            return 0
        rows, cols = next(self._pieces_to_check(Span(0, n_rows), Span(0, n_cols)))
        return len(rows) * len(cols) * (2 * self.spec.working.itemsize + 2)

    def _pieces_to_check(self, rows: Span, cols: Span) -> Iterator[tuple[Span, Span]]:
        """A region in pieces of whole chunks of columns, and of few rows where such columns are long."""
        item, chunk = self.spec.working.itemsize, min(self.chunks[1], len(cols))
        wide = chunk * max(1, _LOOKED_AT // (len(rows) * chunk * item))
        tall = max(1, _LOOKED_AT // (min(wide, len(cols)) * item))
        for some_rows in rows.split(tall):
            for some_cols in cols.split(wide):
                yield some_rows, some_cols

    def scratch_block(self, span: Span, axis: Axis = "rows", *, allow_nan: bool = False) -> Block:
        """The same to be used up at once: it lasts until this thread takes the next.

        That saves the system a block's worth of fresh pages every time. It is not checked: whoever sums
        it looks at every value anyway, and calls `locate_nonfinite` when a sum is not finite.
        """
        rows, cols = self._area(span, axis)
        stored = self.read_scratch(rows, cols)
        values = widen(stored)
        disposable = self.private_buffers or values is not stored
        locate_nonfinite = partial(self.check, span, axis, allow_nan=allow_nan)
        return Block(span, values, self._labels(rows), self._weights(rows), disposable, locate_nonfinite)

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

    def _require_sound(
        self,
        pieces: Iterable[tuple[tuple[Span, Span], Array]],
        rows: Span,
        cols: Span,
        *,
        allow_nan: bool,
    ) -> None:
        """Refuse a region, given in pieces, for the first of its bad values."""
        first: tuple[int, int, Any] | None = None
        count = 0
        for (some_rows, some_cols), values in pieces:
            bad = np.isinf(values) if allow_nan else ~np.isfinite(values)
            if number := int(np.count_nonzero(bad)):
                count += number
                row, col = divmod(int(np.argmax(bad)), bad.shape[1])
                found = (some_rows.start + row, some_cols.start + col, values[row, col])
                first = found if first is None or found[:2] < first[:2] else first
        if first is None:
            return
        row, col, value = first
        message = (
            f"{self.name}: {value} at row {row}, {self._column(col)} "
            f"({count} such values in {self._region(rows, cols)}); "
        )
        if np.isnan(value):
            raise MissingValuesError(f"{message}{_MEND}, {_TAKES_MISSING}")
        raise DataError(
            f"{message}{'make them NaN if they stand for missing values' if allow_nan else _MEND}"
        )

    def _column(self, column: int) -> str:
        if self.feature_names is None:
            return f"column {column}"
        return f"column {column} ({self.feature_names[column]!r})"

    def _region(self, rows: Span, cols: Span) -> str:
        where = f"rows {rows.start}-{rows.stop - 1}"
        if len(cols) < self.spec.n_cols:
            where += f", columns {cols.start}-{cols.stop - 1}"
        return where


def _within(values: Array, piece: tuple[Span, Span], rows: Span, cols: Span) -> Array:
    """A piece of a region that is in memory."""
    down, across = (
        slice(part.start - whole.start, part.stop - whole.start)
        for part, whole in zip(piece, (rows, cols), strict=True)
    )
    return values[down, across]


def _is_finite(values: Array) -> bool:
    """One BLAS product is the cheapest look at every value.

    A NaN or an Inf anywhere in a column leaves its sum not finite; so do huge finite values that overflow.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.ones(len(values), dtype=values.dtype) @ values
    return bool(np.isfinite(sums).all())


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
        empty = np.flatnonzero(labels == "")
        if empty.size:
            raise DataError(
                f"{name}: row {rows.start + int(empty[0])} has an empty label ({empty.size} such in rows "
                f"{rows.start}-{rows.stop - 1}); every row needs one: give it one, or leave the row out"
            )
        return labels
    numbers = labels.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        raise DataError(
            f"{name}: row {rows.start + int(bad[0])} has the label {numbers[bad[0]]} ({bad.size} such labels "
            f"in rows {rows.start}-{rows.stop - 1}); every row needs one: give it one, or leave the row out"
        )
    return numbers
