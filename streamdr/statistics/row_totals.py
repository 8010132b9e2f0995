"""The totals of rows, and their median, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import Array, Block, SparseBlock, SparseRows

MOST_KEYS = 1 << 17
"""The most different totals that are counted one by one."""


def row_totals(rows: Array | SparseRows) -> Array:
    """The sum of each row, in double precision."""
    if isinstance(rows, np.ndarray):
        totals: Array = rows.sum(axis=1, dtype=np.float64)
        return totals
    lengths = np.diff(rows.indptr)
    sums, filled = np.zeros(len(lengths)), np.flatnonzero(lengths)
    if len(filled):
        sums[filled] = np.add.reduceat(rows.data, rows.indptr[filled], dtype=np.float64)
    return sums


class RowTotals:
    """The weight of the rows by their total, for positive totals from `low` up to `high`.

    The bits of a positive double, as an integer, ascend with its value. The key of a total is that integer
    without its last `shift` bits, and each key has a weight. Nothing is dropped while there are at most
    `most` different totals. With more, the shift grows just as far as is needed: it depends on the totals
    only, not on the order in which they come, so merging is associative. Then the median is known up to a
    range, and another pass counts the totals in that range.
    """

    kind: ClassVar[str] = "row totals"
    allow_nan: ClassVar[bool] = False

    def __init__(
        self, low: float = 0.0, high: float = float(np.finfo(np.float64).max), *, most: int = MOST_KEYS
    ):
        self.low, self.high, self.most = low, high, most
        self.below = 0.0
        """The weight of the positive totals below the range."""
        self.total = 0.0
        """The weight of all positive totals."""
        self.shift = 0
        self.keys = np.zeros(0, np.int64)
        self.weights = np.zeros(0)
        self._waiting: list[tuple[Array, Array]] = []
        self._n_waiting = 0

    @property
    def exact(self) -> bool:
        """Whether each key is one total."""
        return self.shift == 0

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        self._add(row_totals(block.values), block)

    def update_sparse(self, block: SparseBlock) -> None:
        """Fold one block of sparse rows in."""
        self._add(row_totals(block.values), block)

    def _add(self, totals: Array, block: Block | SparseBlock) -> None:
        if not np.isfinite(totals).all():
            block.locate_nonfinite()
        weights = np.ones(len(totals)) if block.weights is None else block.weights
        counted = (totals > 0) & (weights > 0)
        totals, weights = totals[counted], weights[counted]
        self.total += float(weights.sum())
        self.below += float(weights[totals < self.low].sum())
        within = (totals >= self.low) & (totals <= self.high)
        # They wait until they are as many as the keys, so that the work of joining is spread.
        self._waiting.append((totals[within].view(np.int64) >> self.shift, weights[within]))
        self._n_waiting += len(self._waiting[-1][0])
        if self._n_waiting > max(4096, len(self.keys)):
            self._join()

    def merge(self, later: Self) -> None:
        """Fold in the totals of the rows that follow."""
        for each in (self, later):
            each._join()
        self.below += later.below
        self.total += later.total
        shift = max(self.shift, later.shift)
        self.keys, later_keys = self.keys >> (shift - self.shift), later.keys >> (shift - later.shift)
        self.shift = shift
        self._waiting, self._n_waiting = [(later_keys, later.weights)], len(later_keys)
        self._join()

    def _join(self) -> None:
        """Count the totals that wait. Sums go from the first row to the last."""
        if not self._waiting:
            return
        keys = np.concatenate([self.keys, *(keys for keys, _ in self._waiting)])
        weights = np.concatenate([self.weights, *(weights for _, weights in self._waiting)])
        self._waiting, self._n_waiting = [], 0
        self.keys, self.weights = _counted(keys, weights)
        while len(self.keys) > self.most:
            self.shift += 1
            self.keys, self.weights = _counted(self.keys >> 1, self.weights)

    def median_range(self) -> tuple[float, float]:
        """The lower and the upper median of the totals; if keys are not exact, bounds of both."""
        self._join()
        reached = self.below + np.cumsum(self.weights)
        half = self.total / 2
        last = len(self.keys) - 1
        low, high = (min(int(np.searchsorted(reached, half, side=side)), last) for side in ("left", "right"))
        first = self.keys[low] << self.shift
        end = ((self.keys[high] + 1) << self.shift) - 1
        return tuple(float(bits) for bits in np.array([first, end]).view(np.float64))  # type: ignore[return-value]

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.low, self.high, most=self.most)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        return {"low": self.low, "high": self.high, "most": self.most}

    def value(self) -> dict[str, Array]:
        """The totals and their weights."""
        return {**self.arrays(), "keys": (self.keys << self.shift).view(np.float64)}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        self._join()
        sums = {"below": np.array(self.below), "total": np.array(self.total), "shift": np.array(self.shift)}
        return {**sums, "keys": self.keys, "weights": self.weights}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.below, self.total = float(arrays["below"]), float(arrays["total"])
        self.shift, self.keys, self.weights = int(arrays["shift"]), arrays["keys"], arrays["weights"]
        self._waiting, self._n_waiting = [], 0


def _counted(keys: Array, weights: Array) -> tuple[Array, Array]:
    """The different keys, ascending, and the sum of the weights of each."""
    different, places = np.unique(keys, return_inverse=True)
    return different, np.bincount(places, weights, len(different))
