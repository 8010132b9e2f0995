"""The base class of inputs: a matrix that is read block by block. Values are validated here."""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, Self

import numpy as np

from streamdr.core.axes import FeatureAxes
from streamdr.core.blocks import (
    SPARSE_PIECE,
    Array,
    Axis,
    Block,
    MatrixSpec,
    Span,
    SparseBlock,
    SparseRows,
    widen,
    working_dtype,
)
from streamdr.core.buffers import widened
from streamdr.data.snapshot import JoinedSnapshot, Snapshot
from streamdr.data.sparse.pieces import pieces_by_length
from streamdr.errors import DataError, MissingValuesError

_ADVICE = "remove or fill these values before fitting"
_PPCA_ADVICE = (
    "or use the method ppca, which takes missing values (in Python streamdr.PPCA, with NaN for them), or set "
    "min_observed to leave out columns that are observed in a smaller share of the rows"
)
_MAX_KEPT_ROWS = 1 << 20
"""Weights and labels of at most this many rows are kept between blocks."""
_CHECKED_BYTES = 1 << 22
"""How many bytes of values are checked together when non-finite values are located."""
_per_thread = threading.local()


@dataclass(frozen=True, eq=False)
class SampleCoordinate:
    """A coordinate of the samples, one value per row, as it is stored: times are numbers with units."""

    name: str
    values: Source
    """An n x 1 source of numbers or of text."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """CF attributes, such as units and calendar: plain JSON values."""


@dataclass(frozen=True)
class RowsTaken:
    """Which rows of stored data a source has."""

    n_rows: int
    """The number of stored rows."""
    numbers: Callable[[Span], Array]
    """Returns the numbers that a span of rows has in the stored data, ascending."""


class SampleColumns(ABC):
    """Columns beside the rows, such as `obs` of AnnData. A column is opened when somebody names it."""

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Return the names of the columns, in their order."""

    @abstractmethod
    def open(self, name: str) -> Source:
        """Open a column: an n x 1 source of numbers or of text."""


class Source(ABC):
    """Rows x features, read one region at a time. Its pickle is small: a worker opens the store again.

    Subclasses set the attributes below and implement `read` and `_snapshot`. Any number of threads
    may read at once.
    """

    name: str
    """The name in errors and reports: the path, if there is one."""
    spec: MatrixSpec
    chunks: tuple[int, int]
    """The size of a stored chunk in (rows, columns) of the flattened matrix."""
    grain: tuple[int, int] = (1, 1)
    """The rows and columns that are always read together, even if only some of them are requested."""
    feature_names: tuple[str, ...] | None = None
    sample_shape: tuple[int, ...] | None = None
    """The shape of a sample before it was flattened to a row, if known."""
    dims: tuple[str | None, ...] | None = None
    """The names of the dimensions, that of the samples first, if they have names."""
    axes: FeatureAxes | None = None
    """The dimensions, coordinates and weights of the features, if they are labelled."""
    sample_dims: tuple[str, ...] = ()
    """The names of the dimensions of the samples, if they have names; rows go through them in C order."""
    sample_coords: tuple[SampleCoordinate, ...] = ()
    """The coordinates of the samples. They are read block by block, like the rows."""
    sample_columns: SampleColumns | None = None
    """Columns that labels and conditions may name. They are not written with outputs, as coordinates are."""
    selected: Mapping[str, tuple[int, int | None]] = {}
    """The positions that are read of dimensions of which a part was selected; None for up to the end."""
    part_ends: tuple[tuple[str, int], ...] = ()
    """The names of the files, and the row at which each ends, if the rows come from several files."""
    weights: Source | None = None
    """Row weights, as an n x 1 source."""
    labels: Source | None = None
    """Row labels, as an n x 1 source of numbers or of text."""
    cost_factor: int = 1
    """The ratio of the bytes read to the bytes returned."""
    client: Any = None
    """The dask client whose cluster computes the values, if there is one."""
    holder: Any = None
    """The dask client whose cluster holds the values. Its tasks get them by `remote_results`."""
    line_name: str = "row"
    """What errors call a row."""
    private_buffers: bool = False
    """Whether the caller of `read_scratch` may overwrite the result: nothing else refers to it."""

    @property
    def named_spec(self) -> MatrixSpec:
        """The spec with the names of the features and the size of chunks, as methods see it."""
        return replace(self.spec, feature_names=self.feature_names, chunks=self.chunks)

    def column_beside(self, name: int | str) -> Source | None:
        """Open a column beside the rows; None if there is none of this name."""
        if self.sample_columns is None or name not in self.sample_columns.names():
            return None
        return self.sample_columns.open(str(name))

    def take_samples(self, other: Source) -> None:
        """Take over the dimensions and coordinates of the rows of a source with the same rows."""
        self.sample_dims, self.sample_coords = other.sample_dims, other.sample_coords
        self.sample_columns = other.sample_columns
        self.part_ends, self.selected = other.part_ends, other.selected

    def take_labels(self, other: Source) -> None:
        """Take over the dimensions and coordinates of a source with the same rows and features."""
        self.take_samples(other)
        self.feature_names, self.sample_shape, self.dims = other.feature_names, other.sample_shape, other.dims
        self.axes = other.axes

    @property
    def identity(self) -> str:
        """The name in keys of the ledger: its own, and those of its weights and labels."""
        return self.name + self._companion_names

    @property
    def _companion_names(self) -> str:
        """The part of the identity that names weights and labels."""
        weighted = "" if self.weights is None else f" by {self.weights.name}"
        return weighted if self.labels is None else f"{weighted} labelled by {self.labels.name}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the source, its weights and its labels, as errors may quote them."""
        return (self.name, *(other.name for other in (self.weights, self.labels) if other is not None))

    @property
    def _reads_from(self) -> tuple[Source | None, ...]:
        """The sources that this one reads: weights and labels, and those that it wraps."""
        return self.weights, self.labels

    @property
    def is_process_local(self) -> bool:
        """Whether only this process can read the source, or one that it reads from."""
        return any(part.is_process_local for part in self._reads_from if part is not None)

    def remote_results(self, regions: Iterable[tuple[Span, Span]]) -> Mapping[Any, Any]:
        """Return the futures of the results on a cluster that reading regions needs, by their keys."""
        return {}

    @property
    def held_bytes(self) -> int:
        """The bytes that the source keeps in memory as long as it is open."""
        return sum(part.held_bytes for part in self._reads_from if part is not None)

    def stored_row(self, row: int) -> tuple[str, int]:
        """Return the file or array of a row, and its number there, for a message."""
        return self.name, row

    @property
    def rows_taken(self) -> RowsTaken | None:
        """Which rows of the stored data these are, if they were selected; None if they are all of them."""
        same = (
            part for part in self._reads_from if part is not None and part.spec.n_rows == self.spec.n_rows
        )
        return next((part.rows_taken for part in same if part.rows_taken is not None), None)

    @property
    def codecs(self) -> tuple[str, ...]:
        """The compressors and checksums of the stored values, on which the speed of reading depends."""
        wrapped = (part.codecs for part in reversed(self._reads_from) if part is not None)
        return next((codecs for codecs in wrapped if codecs), ())

    @property
    def stored_itemsize(self) -> int:
        """The bytes that are read per value, before it is converted: with its mask, if there is one."""
        return self.spec.dtype.itemsize

    def stored_line_bytes(self, axis: Axis) -> int:
        """Return the bytes that are read per row or column."""
        return self.spec.length("columns" if axis == "rows" else "rows") * self.stored_itemsize

    def stored_bytes(self, spans: Iterable[Span], axis: Axis = "rows") -> int:
        """Return the bytes that are read for spans of lines, one after the other, in whole grains."""
        grain, length = self.grain[0 if axis == "rows" else 1], self.spec.length(axis)
        lines = sum(
            min(-(-span.stop // grain) * grain, length) - span.start // grain * grain
            for span in spans
            if span
        )
        return lines * self.stored_line_bytes(axis)

    @property
    def complete_rows(self) -> int:
        """How many of the first rows are in complete chunks, which do not change when rows are appended."""
        return self.spec.n_rows - self.spec.n_rows % self.chunks[0]

    @abstractmethod
    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region as stored: 2-D, of the spec's dtype. Errors name the chunk and its rows."""

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """Return the region as stored, in memory that this thread's next call may overwrite."""
        return self.read(rows, cols)

    @abstractmethod
    def _snapshot(self) -> Snapshot:
        """Return a snapshot of the values: from metadata for stores, from the values for arrays in memory."""

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the input, with weights and labels."""
        own = self._snapshot()
        weights, labels = (
            None if other is None else other.snapshot() for other in (self.weights, self.labels)
        )
        return JoinedSnapshot.of(own, weights, labels)

    def fingerprint(self) -> str:
        """Return a digest that changes when the data changes."""
        return self.snapshot().digest(self.spec.n_rows)

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the bytes that a `block` of this size allocates besides its values."""
        stored, working = self.spec.dtype, self.spec.working
        widening = 0 if stored == working else n_rows * n_cols * stored.itemsize
        companions = sum(
            _companion_bytes(other, n_rows) for other in (self.weights, self.labels) if other is not None
        )
        return widening + (n_rows + n_cols) * working.itemsize + companions

    def validate(self, seen: Snapshot | None = None) -> None:
        """Check before the first read for errors that can be found without it, such as missing chunks.

        `seen` is a recent snapshot of this source. If it is given, chunks are not listed again.
        """
        if seen is None:
            self._require_chunks()
        else:
            seen.require_chunks()
        if self.weights is not None:
            self._require_weight(self.weights)

    def _require_chunks(self) -> None:
        """List the chunks, and raise an error if some are missing and that is not allowed."""
        for other in (self.weights, self.labels):
            if other is not None:
                other._require_chunks()

    def _require_weight(self, weights: Source) -> None:
        """Raise an error if all weights are zero. Reads only up to the first weight that is not."""
        for span in Span(0, self.spec.n_rows).split(max(1, min(weights.chunks[0], _MAX_KEPT_ROWS))):
            if np.any(self._weights(span)):
                return
        raise DataError(
            f"{weights.name}: every weight is zero, so there is nothing to fit; give some rows a positive "
            "weight, or leave the weights out"
        )

    def unlabelled(self) -> Self:
        """Return the same source without labels."""
        plain = copy.copy(self)
        plain.labels, plain.spec = None, replace(self.spec, labels=None)
        return plain

    def block(self, span: Span, axis: Axis = "rows", *, allow_nan: bool = False) -> Block:
        """Return whole rows (or columns) as native floats, checked to be finite, or NaN if `allow_nan`."""
        rows, cols = self.area(span, axis)
        values = widen(self.read(rows, cols))
        if self.spec.dtype.kind == "f" and not _is_finite(values):
            pieces = (
                (piece, _within(values, piece, rows, cols)) for piece in self._pieces_to_check(rows, cols)
            )
            self._require_valid(pieces, rows, cols, allow_nan=allow_nan)
        return Block(span, values, self._labels(rows), self._weights(rows))

    def check(self, span: Span, axis: Axis = "rows", *, allow_nan: bool = False) -> None:
        """Raise an error that locates the first non-finite value, or infinite value if NaN is allowed.

        The values are read again in small pieces along whole chunks: a block may take most of the memory.
        """
        if self.spec.dtype.kind == "f":
            rows, cols = self.area(span, axis)
            pieces = ((piece, widen(self.read(*piece))) for piece in self._pieces_to_check(rows, cols))
            self._require_valid(pieces, rows, cols, allow_nan=allow_nan)

    def checking_bytes(self, n_rows: int, n_cols: int) -> int:
        """Return the bytes that `check` of a region allocates: a piece as stored, as read, and its flags.

        Decoding is not counted. It needs the same memory as for the region, which is free again by then.
        """
        if self.spec.dtype.kind != "f":
            return 0
        rows, cols = next(self._pieces_to_check(Span(0, n_rows), Span(0, n_cols)))
        return len(rows) * len(cols) * (2 * self.spec.working.itemsize + 2)

    def _pieces_to_check(self, rows: Span, cols: Span) -> Iterator[tuple[Span, Span]]:
        """Yield a region in pieces: whole chunks of columns, and fewer rows if such columns are long."""
        item, chunk = self.spec.working.itemsize, min(self.chunks[1], len(cols))
        wide = chunk * max(1, _CHECKED_BYTES // (len(rows) * chunk * item))
        tall = max(1, _CHECKED_BYTES // (min(wide, len(cols)) * item))
        for some_rows in rows.split(tall):
            for some_cols in cols.split(wide):
                yield some_rows, some_cols

    def scratch_block(self, span: Span, axis: Axis = "rows", *, allow_nan: bool = False) -> Block:
        """Return a block in scratch memory. It is valid until this thread's next call.

        This avoids allocating new pages for every block. The values are not checked here: an accumulator
        sums all of them anyway, and calls `locate_nonfinite` if a sum is not finite.
        """
        stored = self.stored_block(span, axis, allow_nan=allow_nan)
        values = widened(stored.values)
        return replace(stored, values=values, disposable=stored.disposable or values is not stored.values)

    def scratch_tile(self, span: Span, cols: Span, *, allow_nan: bool = False) -> Block:
        """Return some columns of rows like `scratch_block`."""
        stored = self.read_scratch(span, cols)
        values = widened(stored)
        disposable = self.private_buffers or values is not stored
        locate_nonfinite = partial(self.check, span, allow_nan=allow_nan)
        return Block(span, values, self._labels(span), self._weights(span), disposable, locate_nonfinite)

    def stored_block(self, span: Span, axis: Axis = "rows", *, allow_nan: bool = False) -> Block:
        """Return a block like `scratch_block`, in the type in which its values are stored."""
        rows, cols = self.area(span, axis)
        stored = self.read_scratch(rows, cols)
        locate_nonfinite = partial(self.check, span, axis, allow_nan=allow_nan)
        labels, weights = self._labels(rows), self._weights(rows)
        return Block(span, stored, labels, weights, self.private_buffers, locate_nonfinite)

    def read_sparse(self, rows: Span) -> SparseRows:
        """Return whole rows as stored. Only sources whose spec has a density have sparse rows."""
        raise NotImplementedError(f"{type(self).__name__} has no sparse rows")

    def sparse_pieces(self, rows: Span) -> Iterator[Span]:
        """Yield rows in pieces of at most `SPARSE_PIECE` stored values, or of one row.

        They depend only on the data and on where `rows` begins, and so do the bits of sums over them.
        """
        return pieces_by_length(rows.start, self.sparse_lengths(rows))

    def sparse_lengths(self, rows: Span) -> Iterator[Array]:
        """Yield how many values of each row are stored, a window of rows at a time."""
        raise NotImplementedError(f"{type(self).__name__} has no sparse rows")

    def sparse_bytes(self, n_rows: int) -> int:
        """Return the most bytes that a block of sparse rows takes, out of `n_rows`, with those to read it."""
        values = max(self.spec.n_cols, min(n_rows * self.spec.n_cols, SPARSE_PIECE))
        stored, working = self.spec.dtype.itemsize, self.spec.working.itemsize
        companions = (other for other in (self.weights, self.labels) if other is not None)
        return values * (stored + working + 8) + sum(_companion_bytes(other, n_rows) for other in companions)

    def sparse_blocks(self, span: Span, *, allow_nan: bool = False) -> Iterator[SparseBlock]:
        """Yield sparse rows as native floats, piece by piece. They are checked as in `scratch_block`."""
        for rows in self.sparse_pieces(span):
            stored = self.read_sparse(rows)
            values = stored.astype(working_dtype(stored.dtype), copy=False)
            locate_nonfinite = partial(self.check_sparse, rows, allow_nan=allow_nan)
            labels, weights = self._labels(rows), self._weights(rows)
            yield SparseBlock(rows, values, labels, weights, locate_nonfinite=locate_nonfinite)

    def check_sparse(self, rows: Span, *, allow_nan: bool = False) -> None:
        """Raise an error that locates the first non-finite value of sparse rows, as `check` does."""
        for piece in self.sparse_pieces(rows):
            found = self.read_sparse(piece)
            bad = np.isinf(found.data) if allow_nan else ~np.isfinite(found.data)
            if bad.any():
                at = int(np.argmax(bad))
                row = piece.start + int(np.searchsorted(found.indptr, at, side="right")) - 1
                self._refuse(
                    row,
                    int(found.indices[at]),
                    found.data[at],
                    int(np.count_nonzero(bad)),
                    self._region(piece, Span(0, self.spec.n_cols)),
                    allow_nan=allow_nan,
                )

    def area(self, span: Span, axis: Axis) -> tuple[Span, Span]:
        """Return the rows and columns of a span along an axis."""
        everything = Span(0, self.spec.length("columns" if axis == "rows" else "rows"))
        return (span, everything) if axis == "rows" else (everything, span)

    def _labels(self, rows: Span) -> Array | None:
        """Return the checked labels of rows."""
        if self.labels is None:
            return None
        return checked_labels(_read_companion("labels", self.labels, rows), self.labels.name, rows)

    def _weights(self, rows: Span) -> Array | None:
        """Return the checked weights of rows."""
        if self.weights is None:
            return None
        weights = widen(_read_companion("weights", self.weights, rows)).astype(np.float64)
        bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
        if bad.size:
            row = rows.start + int(bad[0])
            raise DataError(
                f"{self.weights.name}: row {row} has weight {weights[bad[0]]}; "
                "weights must be finite and not negative"
            )
        return weights

    def _require_valid(
        self,
        pieces: Iterable[tuple[tuple[Span, Span], Array]],
        rows: Span,
        cols: Span,
        *,
        allow_nan: bool,
    ) -> None:
        """Raise an error for the first non-finite value of a region that is given in pieces."""
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
        self._refuse(row, col, value, count, self._region(rows, cols), allow_nan=allow_nan)

    def _refuse(
        self, row: int, col: int, value: Any, count: int, region: str, *, allow_nan: bool
    ) -> NoReturn:
        """Raise the error for a non-finite value, the first of `count` in a region."""
        where = f"row {row}, {self.described_column(col)} ({count} such values in {region})"
        message = f"{self.name}: {value} at {where}; "
        if np.isnan(value):
            raise MissingValuesError(f"{message}{_ADVICE}, {_PPCA_ADVICE}")
        raise DataError(
            f"{message}{'make them NaN if they stand for missing values' if allow_nan else _ADVICE}"
        )

    def described_column(self, column: int) -> str:
        """Return the number and name of a column, for a message."""
        if self.feature_names is not None:
            return f"column {column} ({self.feature_names[column]!r})"
        return f"column {column}" if self.axes is None else f"column {column} ({self.axes.described(column)})"

    def _region(self, rows: Span, cols: Span) -> str:
        """Return the rows and columns of a region, for a message."""
        where = f"{self.line_name}s {rows.start}-{rows.stop - 1}"
        if len(cols) < self.spec.n_cols:
            where += f", columns {cols.start}-{cols.stop - 1}"
        return where


def _within(values: Array, piece: tuple[Span, Span], rows: Span, cols: Span) -> Array:
    """Return a piece of a region that is in memory."""
    down, across = (
        slice(part.start - whole.start, part.stop - whole.start)
        for part, whole in zip(piece, (rows, cols), strict=True)
    )
    return values[down, across]


def _is_finite(values: Array) -> bool:
    """Whether the sum of every column is finite. One BLAS product is the cheapest such check.

    A NaN or an infinity in a column makes its sum non-finite. So do huge finite values that overflow.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.ones(len(values), dtype=values.dtype) @ values
    return bool(np.isfinite(sums).all())


def _read_companion(what: str, source: Source, rows: Span) -> Array:
    """Return the values of weights or labels. The last chunks are kept: they may be longer than a block."""
    chunk = source.chunks[0]
    whole = Span(rows.start // chunk * chunk, min(-(-rows.stop // chunk) * chunk, source.spec.n_rows))
    kept: tuple[Source, Span, Array] | None = getattr(_per_thread, what, None)
    if kept is not None and kept[0] is source and kept[1].start <= rows.start and rows.stop <= kept[1].stop:
        return kept[2][rows.start - kept[1].start : rows.stop - kept[1].start]
    if len(whole) > _MAX_KEPT_ROWS:
        return source.read(rows, Span(0, 1))[:, 0]
    values = source.read(whole, Span(0, 1))[:, 0]
    setattr(_per_thread, what, (source, whole, values))
    return values[rows.start - whole.start : rows.stop - whole.start]


def _companion_bytes(source: Source, n_rows: int) -> int:
    """Return the bytes of the weights or labels of `n_rows` rows: as stored, as kept, and as numbers."""
    kept = min(n_rows + 2 * source.chunks[0], _MAX_KEPT_ROWS)
    return source.overhead(n_rows, 1) + 16 * (kept + n_rows)


def checked_labels(labels: Array, name: str, rows: Span) -> Array:
    """Return the labels of a block: text, or numbers in double precision. None may be missing."""
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
