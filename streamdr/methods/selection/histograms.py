"""Joint histograms of every column with the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import Array, Block, SparseBlock, widen
from streamdr.core.buffers import scratch
from streamdr.core.linalg import column_squares
from streamdr.errors import DataError
from streamdr.statistics.bins import number_at_or_below
from streamdr.statistics.by_class.classes import (
    MOST_CLASSES,
    comparable_classes,
    require_few,
    union_of_classes,
)
from streamdr.statistics.sparse_rows import picked_rows
from streamdr.statistics.splits import fold_of

_ZERO = np.zeros(1)
MOST_VALUES = 1024
"""The largest number of values of a discrete column."""


class Histograms:
    """Counts (or weights) by fold, class of the target, and bin: one table for each column.

    `points` are the bin edges of each column; an edge belongs to the bin above it. For a `discrete` column
    they are its values, each of which is a bin; new values are added during the pass. `target` has the edges
    of a numeric target; if it is None, every label is a class.
    """

    kind: ClassVar[str] = "histograms"
    allow_nan: ClassVar[bool] = False

    def __init__(
        self,
        points: Sequence[Array],
        discrete: Array,
        target: Array | None = None,
        *,
        n_folds: int = 1,
        seed: int = 0,
        max_classes: int = MOST_CLASSES,
        most_cells: int = 1 << 40,
    ) -> None:
        self.given = tuple(np.asarray(each, np.float64) for each in points)
        self.discrete = np.asarray(discrete, bool)
        self.target = target
        self.n_folds = n_folds
        self.seed = seed
        self.max_classes = max_classes
        self.most_cells = most_cells
        self.count = 0
        self.classes = np.zeros(0) if target is None else np.arange(len(target) + 1.0)
        self.points = list(self.given)
        self.tables = [np.zeros((n_folds, len(self.classes), width)) for width in self._widths()]

    def update(self, block: Block) -> None:
        """Fold one block of rows in. Rows of weight zero are ignored."""
        values, weights = widen(block.values), block.weights
        if not np.isfinite(column_squares(values)).all():
            block.locate_nonfinite()
        self.count += len(values)
        assert block.labels is not None  # methods that need labels are never run without them
        labels, numbers = block.labels, block.numbers
        if weights is not None and not (weights > 0).all():
            positive = weights > 0
            values, labels = values[positive], labels[positive]
            numbers, weights = numbers[positive], weights[positive]
        if not len(values):
            return
        codes = self._coded(labels)
        where = fold_of(numbers, self.n_folds, self.seed) * len(self.classes) + codes
        columns = scratch("columns", values.shape[::-1], values.dtype)
        columns[...] = values.T
        offsets: dict[int, Array] = {}
        for column, each in enumerate(columns):
            bins = self._bins(column, each)
            table = self.tables[column]
            width = table.shape[2]
            if width not in offsets:
                offsets[width] = where * width
            found = np.bincount(offsets[width] + bins, weights, table.size)
            table += found.reshape(table.shape)

    def update_sparse(self, block: SparseBlock) -> None:
        """Fold one block of sparse rows in. Zeros that are not stored are counted, column by column."""
        if not np.isfinite(block.values.data).all():
            block.locate_nonfinite()
        self.count += block.values.shape[0]
        if block.weights is not None and not (block.weights > 0).all():
            block = picked_rows(block, np.flatnonzero(block.weights > 0))
        n_rows, weights = block.values.shape[0], block.weights
        if not n_rows:
            return
        assert block.labels is not None  # methods that need labels are never run without them
        codes = self._coded(block.labels)
        where = fold_of(block.numbers, self.n_folds, self.seed) * len(self.classes) + codes
        n_groups = self.n_folds * len(self.classes)
        rows_of_groups = np.bincount(where, minlength=n_groups)
        totals = np.bincount(where, weights, n_groups)
        columns = block.values.tocsc()
        for column, (start, stop) in enumerate(pairwise(columns.indptr)):
            rows, values = columns.indices[start:stop], columns.data[start:stop]
            groups, own = where[rows], None if weights is None else weights[rows]
            unstored = np.bincount(groups, minlength=n_groups) < rows_of_groups
            zeros = np.where(unstored, totals - np.bincount(groups, own, n_groups), 0.0)
            if unstored.any():
                self._bins(column, _ZERO)  # before the bins of others are numbered
            bins = self._bins(column, values)
            table = self.tables[column]
            width = table.shape[2]
            table += np.bincount(groups * width + bins, own, table.size).reshape(table.shape)
            if unstored.any():
                (zero_bin,) = self._bins(column, _ZERO)
                table[:, :, zero_bin] += zeros.reshape(table.shape[:2])

    def merge(self, later: Self) -> None:
        """Fold in the counts of the rows that follow."""
        self.count += later.count
        self._add_classes(later.classes)
        indices = np.searchsorted(self.classes, later.classes)
        for column, table in enumerate(later.tables):
            if not self.discrete[column]:
                self.tables[column][:, indices] += table
                continue
            self._add_values(column, later.points[column])
            bins = np.searchsorted(self.points[column], later.points[column])
            self.tables[column][np.ix_(np.arange(self.n_folds), indices, bins)] += table

    def _coded(self, labels: Array) -> Array:
        """The index of the class of each row, or of the bin of its target."""
        if self.target is not None:
            return np.searchsorted(self.target, labels, side="right")
        indices = _indices_among(self.classes, labels)
        if indices is None:
            self._add_classes(np.unique(labels))
            indices = np.searchsorted(self.classes, labels)
        return indices

    def _bins(self, column: int, values: Array) -> Array:
        """The bin of each value of a column. New values of a discrete column are added."""
        points = self.points[column]
        if not self.discrete[column]:
            return number_at_or_below(points, values)
        indices = _indices_among(points, values)
        if indices is None:
            finite = values[np.isfinite(values)]
            self._add_values(column, np.unique(finite).astype(np.float64))
            indices = np.minimum(np.searchsorted(self.points[column], values), len(self.points[column]) - 1)
        return indices

    def _add_classes(self, classes: Array) -> None:
        """Add new classes to the tables."""
        every = union_of_classes(self.classes, classes)
        if len(every) == len(self.classes):
            return
        require_few(every, self.max_classes)
        self._require_room(len(every), sum(self._widths()))
        indices = np.searchsorted(every, self.classes)
        for column, table in enumerate(self.tables):
            wider = np.zeros((self.n_folds, len(every), table.shape[2]))
            wider[:, indices] = table
            self.tables[column] = wider
        self.classes = every

    def _add_values(self, column: int, values: Array) -> None:
        """Add new values of a discrete column to its table."""
        every = np.union1d(self.points[column], values)
        if len(every) == len(self.points[column]):
            return
        if len(every) > MOST_VALUES:
            raise DataError(
                f"column {column} has more than {MOST_VALUES:,} different values: it is not discrete; set "
                "discrete: false, which bins it into n_bins intervals"
            )
        table = self.tables[column]
        self._require_room(len(self.classes), sum(self._widths()) + len(every) - len(self.points[column]))
        wider = np.zeros((*table.shape[:2], len(every)))
        wider[:, :, np.searchsorted(every, self.points[column])] = table
        self.points[column], self.tables[column] = every, wider

    def _require_room(self, n_classes: int, n_bins: int) -> None:
        """Refuse tables that are larger than the planned memory."""
        if self.n_folds * n_classes * n_bins > self.most_cells:
            raise DataError(
                f"{n_classes:,} classes and {n_bins:,} bins of all columns exceed the planned memory: set "
                "n_bins to less, or discrete: false, or leave rare classes out"
            )

    def _widths(self) -> list[int]:
        """The number of bins of each column."""
        pairs = zip(self.points, self.discrete, strict=True)
        return [len(points) + (0 if discrete else 1) for points, discrete in pairs]

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.given, self.discrete, self.target, **self._numbers())

    def parameters(self) -> Mapping[str, Any]:
        """The initial bins, and the folds."""
        given = {"points": _joined(self.given), "lengths": np.array([len(each) for each in self.given])}
        target = np.zeros(0) if self.target is None else self.target
        cut = {"target": target, "cut": self.target is not None}
        return {**given, "discrete": self.discrete, **cut, **self._numbers()}

    def _numbers(self) -> dict[str, int]:
        """The parameters that are numbers."""
        names = ("n_folds", "seed", "max_classes", "most_cells")
        return {name: getattr(self, name) for name in names}

    def value(self) -> dict[str, Array]:
        """The classes, the bins, and the tables."""
        return {**self.arrays(), "classes": comparable_classes(self.classes)}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays, concatenated over columns."""
        return {
            "count": np.array(self.count),
            "classes": self.classes,
            "points": _joined(self.points),
            "lengths": np.array([len(each) for each in self.points], np.int64),
            "tables": _joined([table.ravel() for table in self.tables]),
        }

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.count, self.classes = int(arrays["count"]), arrays["classes"]
        self.points = np.split(arrays["points"], np.cumsum(arrays["lengths"])[:-1])
        shape = (self.n_folds, len(self.classes))
        sizes = [shape[0] * shape[1] * width for width in self._widths()]
        tables = np.split(arrays["tables"], np.cumsum(sizes)[:-1])
        self.tables = [
            table.reshape(*shape, width) for table, width in zip(tables, self._widths(), strict=True)
        ]


def _indices_among(seen: Array, values: Array) -> Array | None:
    """The index of each value among those seen before; None if any value is new."""
    if not len(seen):
        return None
    if seen.dtype.kind == "U":
        indices = np.minimum(np.searchsorted(seen, values), len(seen) - 1)
    else:
        indices = np.maximum(number_at_or_below(seen, values), 1) - 1
    return indices if np.array_equal(seen[indices], values) else None


def _joined(arrays: Sequence[Array]) -> Array:
    """Arrays concatenated to one; empty if there are none."""
    return np.concatenate([np.zeros(0), *arrays])
