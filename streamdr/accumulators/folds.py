"""Folds of rows, drawn by their numbers: for cross-validation in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.accumulators.base import Accumulator
from streamdr.accumulators.holdout import mixed
from streamdr.blocks import Array, Block, Span
from streamdr.scratch import scratch


def fold_of(numbers: Array, folds: int, seed: int) -> Array:
    """The fold of each row, by its number."""
    if folds == 1:
        return np.zeros(len(numbers), np.int64)
    lots: Array = (mixed(numbers.astype(np.uint64), seed) % np.uint64(folds)).astype(np.int64)
    return lots


def folds(n_rows: int, n_folds: int = 5, random_state: int = 0) -> Array:
    """The fold of each of the first rows, as every method here draws it that cross-validates.

    scikit-learn's `PredefinedSplit` takes it as it is. A row's fold is the same however many rows there are.
    """
    return fold_of(np.arange(n_rows), n_folds, random_state)


class ByFold:
    """The same statistic of each fold of the rows: what several folds come to is merged, never subtracted."""

    kind: ClassVar[str] = "by_fold"

    def __init__(self, empty: Accumulator, n_folds: int, seed: int = 0) -> None:
        self.n_folds = n_folds
        self.seed = seed
        self.parts = [empty.empty_like() for _ in range(n_folds)]

    @property
    def holes(self) -> bool:
        """Whether the statistic can do with values that are missing."""
        return self.parts[0].holes

    def update(self, block: Block) -> None:
        """Fold one block of rows in: each row where it belongs, in the order of the block."""
        lots = fold_of(block.numbers, self.n_folds, self.seed)
        for fold, part in enumerate(self.parts):
            rows = np.flatnonzero(lots == fold)
            if not len(rows):
                continue
            shape = (len(rows), block.values.shape[1])
            values = scratch("fold", shape, block.values.dtype)
            np.take(block.values, rows, axis=0, out=values, mode="clip")  # "raise" would buffer
            labels, weights = (None if each is None else each[rows] for each in (block.labels, block.weights))
            mine = Block(Span(0, len(rows)), values, labels, weights, True, rows=block.numbers[rows])
            part.update(replace(mine, suspect=block.suspect))

    def merge(self, later: Self) -> None:
        """Fold in the statistics of the rows that follow."""
        for mine, other in zip(self.parts, later.parts, strict=True):
            mine.merge(other)

    def empty_like(self) -> Self:
        """A fresh one for the same folds."""
        return type(self)(self.parts[0], self.n_folds, self.seed)

    def parameters(self) -> Mapping[str, Any]:
        """Those of the statistic, and of the folds."""
        own = {"n_folds": self.n_folds, "seed": self.seed, "of": self.parts[0].kind}
        return own | {f"0.{name}": value for name, value in self.parts[0].parameters().items()}

    def value(self) -> dict[str, Array]:
        """The statistics of each fold."""
        return self._named([part.value() for part in self.parts])

    def arrays(self) -> dict[str, Array]:
        """The states of all folds as plain arrays."""
        return self._named([part.arrays() for part in self.parts])

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take up a saved state."""
        for number, part in enumerate(self.parts):
            prefix = f"{number}."
            part.restore(
                {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
            )

    def _named(self, entries: list[dict[str, Array]]) -> dict[str, Array]:
        return {f"{n}.{name}": array for n, each in enumerate(entries) for name, array in each.items()}
