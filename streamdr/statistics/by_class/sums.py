"""Means of classes, and the sum of squares of each column within them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import Array, Block, SparseBlock
from streamdr.core.linalg import column_squares
from streamdr.statistics.by_class.classes import (
    MOST_CLASSES,
    comparable_classes,
    require_few,
    union_of_classes,
)
from streamdr.statistics.by_class.grouping import coded, grouped
from streamdr.statistics.by_class.sparse_grouping import grouped_sparse
from streamdr.statistics.centring import Centre


class ClassSums:
    """Weight and mean of each class, and for each column the sum of squares about the class means.

    The latter is the diagonal of the scatter in `ClassMoments`, enough for tests of single columns. Classes
    are collected during the pass, and are sorted.
    """

    kind: ClassVar[str] = "class_sums"
    allow_nan: ClassVar[bool] = False

    def __init__(self, n_cols: int, *, double: bool = False, max_classes: int = MOST_CLASSES) -> None:
        self.n_cols = n_cols
        self.double = double
        self.max_classes = max_classes
        self.classes = np.zeros(0)
        self.centres: list[Centre] = []
        self.squares = np.zeros(n_cols)

    @property
    def weights(self) -> Array:
        """The sum of the weights of each class's rows."""
        return np.array([centre.weight for centre in self.centres])

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        if len(block.values) == 0:
            return
        classes, codes = coded(block, self.classes)
        rows = grouped(block, codes, double=self.double)
        self._absorb(classes[rows.groups], list(rows.centres), column_squares(rows.values), about_origin=True)

    def update_sparse(self, block: SparseBlock) -> None:
        """Fold one block of sparse rows in."""
        classes, codes = coded(block, self.classes)
        for rows in grouped_sparse(block, codes, len(classes), double=self.double):
            centres = list(rows.centres)
            self._absorb(classes[rows.groups], centres, rows.column_squares(), about_origin=True)

    def merge(self, later: Self) -> None:
        """Fold in the sums of the rows that follow."""
        self._absorb(later.classes, later.centres, later.squares, about_origin=False)

    def _absorb(
        self, classes: Array, centres: Sequence[Centre], squares: Array, *, about_origin: bool
    ) -> None:
        """Add the sums of more rows, by class."""
        self._add_classes(classes)
        self.squares = self.squares + squares
        for place, centre in zip(np.searchsorted(self.classes, classes), centres, strict=True):
            corrections = self.centres[place].absorb(centre, moments_about_origin=about_origin)
            self.squares += corrections.coefficients @ corrections.vectors**2

    def _add_classes(self, classes: Array) -> None:
        """Add new classes."""
        every = union_of_classes(self.classes, classes)
        require_few(every, self.max_classes)
        known = dict(zip(np.searchsorted(every, self.classes), self.centres, strict=True))
        self.centres = [known.get(number) or Centre(self.n_cols) for number in range(len(every))]
        self.classes = every

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.n_cols, double=self.double, max_classes=self.max_classes)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        return {"n_cols": self.n_cols, "double": self.double, "max_classes": self.max_classes}

    def value(self) -> dict[str, Array]:
        """Classes, their counts, weights and means, and the squares."""
        state = self.arrays()
        means = state["origins"] + state["offsets"]
        counted = {name: state[name] for name in ("counts", "weights", "squares")}
        return {"classes": comparable_classes(self.classes), "means": means, **counted}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        table = (len(self.centres), self.n_cols)
        return {
            "classes": self.classes,
            "counts": np.array([centre.count for centre in self.centres], np.int64),
            "weights": self.weights,
            "origins": np.array([centre.origin for centre in self.centres]).reshape(table),
            "offsets": np.array([centre.offset for centre in self.centres]).reshape(table),
            "squares": self.squares,
        }

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.classes, self.squares = arrays["classes"], arrays["squares"]
        columns = (arrays[name] for name in ("counts", "weights", "origins", "offsets"))
        self.centres = [
            Centre(self.n_cols, int(count), float(weight), origin, offset)
            for count, weight, origin, offset in zip(*columns, strict=True)
        ]
