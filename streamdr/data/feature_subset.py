"""A source with those features of another that a model uses, weighted if the method does not do so itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from streamdr.core.axes import FeatureAxes
from streamdr.core.blocks import Array, Axis, Span, SparseRows
from streamdr.core.buffers import scratch
from streamdr.core.digests import array_digest
from streamdr.core.method import Phase
from streamdr.data.snapshot import Snapshot
from streamdr.data.source import Source
from streamdr.errors import MissingValuesError

_ADVICE = (
    "use the method ppca, which takes missing values (in Python streamdr.PPCA), or set min_observed to leave "
    "out features that are observed less often"
)
_FIRST_ROWS = 64
"""A feature without a value in so many rows is taken for one that is never observed."""
_SLAB_BYTES = 1 << 19
"""The bytes of rows that are copied at a time."""


class FeatureSubset(Source):
    """The features of a source that are kept, with its row weights, labels and sample coordinates.

    Parameters
    ----------
    whole : Source
        All features.
    axes : FeatureAxes
        Which of them are kept, and their weights.
        If they are `weighted`, values are multiplied by the weights, in double precision. Otherwise the
        weights are in the spec, for a method that applies them after centring.
    unobserved : ndarray of bool or None
        Which features were taken for ones that are never observed. A value of one of them is an error.
    counting : Phase or None
        The memory of the pass over the whole source that comes first, if there is one.
    """

    counting: Phase | None = None
    """The memory of the pass over the whole source that comes first, if there is one."""

    def __init__(
        self,
        whole: Source,
        axes: FeatureAxes,
        *,
        unobserved: Array | None = None,
        counting: Phase | None = None,
    ) -> None:
        self.name = whole.name
        self.axes = axes
        self._whole = whole
        self._columns = axes.columns
        self._unobserved = np.zeros(0, np.intp) if unobserved is None else np.flatnonzero(unobserved)
        self.counting = counting
        self._factors = axes.kept_weights if axes.weighted else None
        n_kept = len(self._columns)
        self.spec = replace(
            whole.spec,
            n_cols=n_kept,
            dtype=whole.spec.dtype if self._factors is None else np.dtype(np.float64),
            feature_weights=None if axes.weighted else axes.kept_weights,
            columns=self._columns if axes.kept is not None else None,
            # Weighted rows are centred, and a feature that must be missing is not zero.
            density=None if axes.weights is not None or len(self._unobserved) else whole.spec.density,
        )
        self.chunks = (whole.chunks[0], max(1, whole.chunks[1] * n_kept // whole.spec.n_cols))
        self.grain = (whole.grain[0], 1)
        if whole.feature_names is not None:
            self.feature_names = tuple(whole.feature_names[column] for column in self._columns)
        self.sample_shape, self.dims = whole.sample_shape, whole.dims
        self.sample_dims, self.sample_coords = whole.sample_dims, whole.sample_coords
        self.weights, self.labels = whole.weights, whole.labels
        self.cost_factor = whole.cost_factor
        self.private_buffers = whole.private_buffers or self._copies

    @property
    def whole(self) -> Source:
        """The source with all features."""
        return self._whole

    @property
    def client(self) -> Any:
        """The client of the whole source."""
        return self._whole.client

    @property
    def identity(self) -> str:
        """The name in keys of the ledger: that of the whole, and which features are kept."""
        identity = self._whole.identity
        if len(self._columns) < self._whole.spec.n_cols:
            identity += f", features {array_digest(self._columns)}"
        if len(self._unobserved):
            identity += f", never observed {array_digest(self._unobserved)}"
        if self._factors is not None:
            identity += f", weighted by {array_digest(self._factors)}"
        return identity

    @property
    def names(self) -> tuple[str, ...]:
        """The names that errors may quote."""
        return self._whole.names

    def stored_row(self, row: int) -> tuple[str, int]:
        """Return the file or array of a row, and its number there."""
        return self._whole.stored_row(row)

    @property
    def _reads_from(self) -> tuple[Source | None, ...]:
        return (*super()._reads_from, self._whole)

    @property
    def _copies(self) -> bool:
        """Whether values are copied: not if all features are kept as they are."""
        return self._factors is not None or len(self._columns) < self._whole.spec.n_cols

    @property
    def stored_itemsize(self) -> int:
        """The bytes that are read per value, as in the whole source."""
        return self._whole.stored_itemsize

    def stored_line_bytes(self, axis: Axis) -> int:
        """Return the bytes that are read per line. A row is read with the features that are left out."""
        return self._whole.stored_line_bytes(axis)

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region."""
        return self._gathered(self._whole.read, np.empty, rows, cols)

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """Return the region, in memory that this thread's next call overwrites."""
        return self._gathered(self._whole.read_scratch, partial(scratch, "kept features"), rows, cols)

    def _gathered(
        self,
        read: Callable[[Span, Span], Array],
        memory: Callable[[tuple[int, ...], np.dtype[Any]], Array],
        rows: Span,
        cols: Span,
    ) -> Array:
        """Read the columns from the first to the last kept one, and copy those that are kept."""
        around = self._around(cols)
        stored = read(rows, around)
        if not self._copies:
            return stored
        values = memory((len(rows), len(cols)), self.spec.dtype)
        kept, unobserved = self._columns[cols.slice] - around.start, self._unobserved_within(around)
        factors = None if self._factors is None else self._factors[cols.slice]
        # A few rows at a time, which are in cache for the check, and again for the copy.
        step = max(1, _SLAB_BYTES // max(1, stored[:1].nbytes))
        for start in range(0, len(stored), step):
            few, here = stored[start : start + step], values[start : start + step]
            if len(unobserved) and not self._all_missing(few, unobserved):
                self._refuse_observed(stored, rows, around)
            # The columns exist. Of the modes that do not copy through a buffer, "wrap" is the fastest.
            if factors is None:
                np.take(few, kept, axis=1, out=here, mode="wrap")
            else:
                np.multiply(np.take(few, kept, axis=1, mode="wrap"), factors, out=here)
        return values

    def read_sparse(self, rows: Span) -> SparseRows:
        """Return the kept columns of sparse rows."""
        found = self._whole.read_sparse(rows)
        return SparseRows(found[:, self._columns]) if self._copies else found

    def sparse_lengths(self, rows: Span) -> Iterator[Array]:
        """Yield how many values of each row are read: those of features that are left out as well."""
        return self._whole.sparse_lengths(rows)

    def sparse_bytes(self, n_rows: int) -> int:
        """Return the bytes of sparse rows of the whole, and of the kept columns."""
        return (2 if self._copies else 1) * self._whole.sparse_bytes(n_rows)

    def _around(self, cols: Span) -> Span:
        """Return the columns of the whole source to read: with those that are left out before and after.

        Consecutive spans of kept columns then cover all columns once.
        """
        start = int(self._columns[cols.start]) if cols.start else 0
        stop = int(self._columns[cols.stop]) if cols.stop < len(self._columns) else self._whole.spec.n_cols
        return Span(start, stop)

    def _unobserved_within(self, around: Span) -> Array:
        """Return which columns of a run of the whole source must be missing, counted from its start."""
        first, last = np.searchsorted(self._unobserved, (around.start, around.stop))
        columns: Array = self._unobserved[first:last] - around.start
        return columns

    def _all_missing(self, values: Array, columns: Array) -> bool:
        """Whether these columns of some rows, which are all that must be missing, have no value.

        Counting is faster than gathering. If a kept value is missing in place of one of these, the sums of
        the method show it.
        """
        others = self._whole.spec.n_cols - len(self._columns) - len(self._unobserved)
        if others == 0 and int(np.count_nonzero(np.isnan(values))) == len(values) * len(columns):
            return True
        return bool(np.isnan(np.take(values, columns, axis=1)).all())

    def _refuse_observed(self, stored: Array, rows: Span, around: Span) -> None:
        """Raise an error that names the first feature that has a value, although it had none before."""
        columns = self._unobserved_within(around)
        observed = ~np.isnan(stored[:, columns])
        row, position = (int(index) for index in np.argwhere(observed)[0])
        found = int(observed.any(axis=0).sum())
        column = self._whole.described_column(around.start + int(columns[position]))
        such = "such feature" if found == 1 else "such features"
        raise MissingValuesError(
            f"{self.name}: {column} has a value in row {rows.start + row}, but none in the first rows "
            f"({found} {such} in {self._region(rows, Span(0, 0))}): it is "
            f"missing in some rows only; {_ADVICE}"
        )

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the overhead of the whole source, and the bytes of its columns."""
        own = super().overhead(n_rows, n_cols)
        if not self._copies:
            return max(own, self._whole.overhead(n_rows, n_cols))
        padded = np.concatenate([[0], self._columns[1:], [self._whole.spec.n_cols]])
        width = int((padded[min(n_cols, len(padded) - 1) :] - padded[: len(padded) - n_cols]).max())
        item = self._whole.spec.dtype.itemsize
        # Besides what is read: the numbers of its columns, and a few rows of them.
        copying = 24 * width + 2 * max(_SLAB_BYTES, 8 * width)
        return own + self._whole.overhead(n_rows, width) + n_rows * width * item + copying

    def _require_chunks(self) -> None:
        self._whole._require_chunks()

    def snapshot(self) -> Snapshot:
        """Return the snapshot of the whole source."""
        return self._whole.snapshot()

    def _snapshot(self) -> Snapshot:
        return self._whole._snapshot()

    def described_column(self, column: int) -> str:
        """Return the number and name of a column in the whole, for a message."""
        return self._whole.described_column(int(self._columns[column]))

    def _region(self, rows: Span, cols: Span) -> str:
        return f"rows {rows.start}-{rows.stop - 1}"


def first_rows_bytes(source: Source) -> int:
    """Return the memory that `unobserved_features` needs."""
    rows = Span(0, min(_FIRST_ROWS, source.spec.n_rows))
    some_rows, cols = next(source._pieces_to_check(rows, Span(0, source.spec.n_cols)))
    shape = len(some_rows), len(cols)
    return source.overhead(*shape) + 2 * shape[0] * shape[1] * source.spec.working.itemsize


def unobserved_features(source: Source) -> Array | None:
    """Return which features have no value in the first rows; None if all have one.

    A feature that is never observed is among them. One that is observed later is missing in some rows only.
    """
    if source.spec.dtype.kind != "f":
        return None
    rows, missing = Span(0, min(_FIRST_ROWS, source.spec.n_rows)), np.ones(source.spec.n_cols, dtype=np.bool_)
    for piece_rows, cols in source._pieces_to_check(rows, Span(0, source.spec.n_cols)):
        if missing[cols.slice].any():
            missing[cols.slice] &= np.isnan(source.read(piece_rows, cols)).all(axis=0)
    return missing if missing.any() else None
