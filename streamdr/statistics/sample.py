"""A random sample of rows, chosen by row number: independent of how the rows are partitioned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import Array, Block, SparseBlock
from streamdr.core.linalg import slabs
from streamdr.statistics.splits import mixed


class Sample:
    """The `size` rows with the smallest random keys. The key of a row is a hash of its row number.

    With the size of the data it gathers all rows. With `labelled`, numeric labels are appended as a column.
    """

    kind: ClassVar[str] = "sample"

    def __init__(
        self, n_cols: int, size: int, seed: int = 0, *, allow_nan: bool = True, labelled: bool = False
    ) -> None:
        self.n_cols = n_cols
        self.labelled = labelled
        self.size = size
        self.seed = seed
        self.allow_nan = allow_nan
        self.keys = np.zeros(0, np.uint64)
        self.numbers = np.zeros(0, np.int64)
        self.rows = np.zeros((0, n_cols + labelled))
        self.weights = np.zeros(0)

    def update(self, block: Block) -> None:
        """Fold one block of rows in. Rows of weight zero are ignored."""
        if not all(self._is_valid(block.values[slab]) for slab in slabs(block.values)):
            block.locate_nonfinite()
        self._take_best(block, lambda rows: block.values[rows])

    def update_sparse(self, block: SparseBlock) -> None:
        """Fold one block of sparse rows in. Only rows of the sample become dense."""
        if not self._is_valid(block.values.data):
            block.locate_nonfinite()
        self._take_best(block, lambda rows: block.values[rows].toarray())

    def _take_best(self, block: Block | SparseBlock, values_of: Callable[[Array], Array]) -> None:
        """Add the rows with the smallest keys."""
        keys = mixed(block.numbers.astype(np.uint64), self.seed)
        weights = np.ones(len(keys)) if block.weights is None else block.weights
        chosen = np.flatnonzero(weights > 0)
        if len(self.keys) == self.size:  # of equal keys the earlier one is kept
            chosen = chosen[keys[chosen] < self.keys[-1]]
        best = chosen[np.argsort(keys[chosen], kind="stable")[: self.size]]
        rows = np.empty((len(best), self.n_cols + self.labelled))
        for slab in slabs(rows):
            rows[slab, : self.n_cols] = values_of(best[slab])
        if self.labelled:
            assert block.labels is not None  # methods that need labels are never run without them
            rows[:, self.n_cols] = block.labels[best]
        self._absorb(keys[best], block.numbers[best].astype(np.int64), rows, weights[best])

    def _is_valid(self, values: Array) -> bool:
        """Whether all values are finite, or missing if that is allowed."""
        bad = np.isinf(values) if self.allow_nan else ~np.isfinite(values)
        return not bad.any()

    def merge(self, later: Self) -> None:
        """Fold in the sample of the rows that follow."""
        self._absorb(later.keys, later.numbers, later.rows, later.weights)

    def _absorb(self, keys: Array, numbers: Array, rows: Array, weights: Array) -> None:
        """Keep the rows with the smallest keys of both."""
        keys = np.concatenate([self.keys, keys])
        order = np.argsort(keys, kind="stable")[: self.size]
        self.keys = keys[order]
        self.numbers = np.concatenate([self.numbers, numbers])[order]
        self.rows = _picked(self.rows, rows, order)
        self.weights = np.concatenate([self.weights, weights])[order]

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.n_cols, self.size, self.seed, allow_nan=self.allow_nan, labelled=self.labelled)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        own = {"n_cols": self.n_cols, "size": self.size, "seed": self.seed, "holes": self.allow_nan}
        return own | {"labelled": True} if self.labelled else own

    def value(self) -> dict[str, Array]:
        """The keys, in ascending order, and the rows with their numbers and weights."""
        numbers = self.numbers.astype(np.float64)
        return {"lots": self.keys.astype(np.float64), "numbers": numbers} | self._kept()

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"lots": self.keys, "numbers": self.numbers} | self._kept()

    def _kept(self) -> dict[str, Array]:
        """The rows and their weights."""
        return {"rows": self.rows, "weights": self.weights}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.keys, self.numbers = arrays["lots"], arrays["numbers"]
        self.rows, self.weights = arrays["rows"], arrays["weights"]


def _picked(first: Array, second: Array, order: Array) -> Array:
    """`np.concatenate([first, second])[order]`, without the memory for all of both."""
    picked = np.empty((len(order), first.shape[1]))
    for slab in slabs(picked):
        places = order[slab]
        early = places < len(first)
        picked[slab][early] = first[places[early]]
        picked[slab][~early] = second[places[~early] - len(first)]
    return picked
