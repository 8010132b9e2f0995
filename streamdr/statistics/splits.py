"""Folds of rows, drawn by their numbers: for cross-validation in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self, cast

import numpy as np

from streamdr.core.accumulator import Accumulator, UpdatesSparse
from streamdr.core.blocks import Array, Block, Span, SparseBlock
from streamdr.core.buffers import scratch
from streamdr.statistics.sparse_rows import picked_rows


def fold_of(numbers: Array, folds: int, seed: int) -> Array:
    """The fold of each row, by its number."""
    if folds == 1:
        return np.zeros(len(numbers), np.int64)
    fold_numbers: Array = (mixed(numbers.astype(np.uint64), seed) % np.uint64(folds)).astype(np.int64)
    return fold_numbers


def folds(n_rows: int, n_folds: int = 5, random_state: int = 0) -> Array:
    """Return the fold of each row, as methods with cross-validation draw it.

    The fold of a row depends on its number only, not on the number of rows. scikit-learn's `PredefinedSplit`
    takes the array.

    Parameters
    ----------
    n_rows : int
        The number of rows.
    n_folds : int
        The number of folds.
    random_state : int
        The seed: the `random_state` of the method.

    Returns
    -------
    folds : ndarray of int
        A number from 0 to n_folds - 1 for each row.

    Examples
    --------
    >>> import streamdr
    >>> streamdr.folds(8, n_folds=3)
    array([1, 2, 1, 0, 1, 2, 2, 0])
    """
    return fold_of(np.arange(n_rows), n_folds, random_state)


class ByFold:
    """The same statistic for each fold of the rows. Folds are merged, never subtracted."""

    kind: ClassVar[str] = "by_fold"

    def __init__(self, empty: Accumulator, n_folds: int, seed: int = 0) -> None:
        self.n_folds = n_folds
        self.seed = seed
        self.parts = [empty.empty_like() for _ in range(n_folds)]

    @property
    def allow_nan(self) -> bool:
        """Whether the statistic allows missing values."""
        return self.parts[0].allow_nan

    def update(self, block: Block) -> None:
        """Fold one block of rows in: each row into the statistic of its fold, in the order of the block."""
        numbers = block.numbers
        fold_numbers = fold_of(numbers, self.n_folds, self.seed)
        for fold, part in enumerate(self.parts):
            rows = np.flatnonzero(fold_numbers == fold)
            if not len(rows):
                continue
            shape = (len(rows), block.values.shape[1])
            values = scratch("fold", shape, block.values.dtype)
            np.take(block.values, rows, axis=0, out=values, mode="clip")  # "raise" would buffer
            labels, weights = (None if each is None else each[rows] for each in (block.labels, block.weights))
            own_rows = Block(Span(0, len(rows)), values, labels, weights, True, rows=numbers[rows])
            part.update(replace(own_rows, locate_nonfinite=block.locate_nonfinite))

    @property
    def takes_sparse(self) -> bool:
        """Whether the statistic takes sparse rows."""
        return isinstance(self.parts[0], UpdatesSparse)

    def update_sparse(self, block: SparseBlock) -> None:
        """Fold one block of sparse rows in, in the same way."""
        fold_numbers = fold_of(block.numbers, self.n_folds, self.seed)
        for fold, part in enumerate(self.parts):
            rows = np.flatnonzero(fold_numbers == fold)
            if len(rows):
                cast(UpdatesSparse, part).update_sparse(picked_rows(block, rows))

    def merge(self, later: Self) -> None:
        """Fold in the statistics of the rows that follow."""
        for mine, other in zip(self.parts, later.parts, strict=True):
            mine.merge(other)

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.parts[0], self.n_folds, self.seed)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters of the statistic, and of the folds."""
        own = {"n_folds": self.n_folds, "seed": self.seed, "of": self.parts[0].kind}
        return own | {f"0.{name}": value for name, value in self.parts[0].parameters().items()}

    def value(self) -> dict[str, Array]:
        """The statistics of each fold."""
        return self._named([part.value() for part in self.parts])

    def arrays(self) -> dict[str, Array]:
        """The states of all folds as plain arrays."""
        return self._named([part.arrays() for part in self.parts])

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        for number, part in enumerate(self.parts):
            prefix = f"{number}."
            part.restore(
                {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
            )

    def _named(self, entries: list[dict[str, Array]]) -> dict[str, Array]:
        """The entries of all folds; the number of a fold precedes each name."""
        return {f"{n}.{name}": array for n, each in enumerate(entries) for name, array in each.items()}


def mixed(numbers: Array, seed: int) -> Array:
    """A hash of each number, of 64 bits (the finaliser of SplitMix64, Steele, Lea and Flood 2014)."""
    bits = numbers + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed_bits: Array = bits ^ (bits >> np.uint64(31))
    return mixed_bits
