"""The running mean, and the corrections that centring on it owes to any second-order statistic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamdr.blocks import Array, Block, widen
from streamdr.linalg import shift_near_mean


class Corrections(NamedTuple):
    """Rank-one terms, `sum_i coefficients[i] * outer(vectors[i], vectors[i])`."""

    vectors: Array
    coefficients: Array


@dataclass(frozen=True)
class Shifted:
    """A block moved near the origin, its rows scaled by the root of their weights."""

    count: int
    weight: float
    shift: Array
    sums: Array
    values: Array


def shifted(block: Block, *, double: bool) -> Shifted:
    """Move a block near the origin, in its working precision or in double."""
    values = widen(block.values)
    if double:
        values = values.astype(np.float64, copy=False)
    shift = shift_near_mean(values)
    moved = values - shift
    if block.weights is None:
        sums, weight = np.ones(len(moved), moved.dtype) @ moved, float(len(moved))
    else:
        sums, weight = block.weights.astype(moved.dtype) @ moved, float(block.weights.sum())
        moved *= np.sqrt(block.weights).astype(moved.dtype)[:, None]
    return Shifted(len(moved), weight, shift.astype(np.float64), sums.astype(np.float64), moved)


class Centre:
    """How many rows, of what total weight, and their mean."""

    def __init__(self, n_cols: int) -> None:
        self.count = 0
        self.weight = 0.0
        self.mean = np.zeros(n_cols)

    def absorb(self, count: int, weight: float, shift: Array, sums: Array | None = None) -> Corrections:
        """Take in rows whose second moments were taken about `shift`, where they sum to `sums`.

        Returns what must be added, besides those moments, to keep the total centred on the new mean:
        their own mean is shift + sums / weight, and two centred groups merge by Chan's formula
        M = M1 + M2 + (w1 w2 / (w1 + w2)) (m2 - m1)(m2 - m1)'.
        """
        self.count += count
        if weight == 0.0:
            return Corrections(np.zeros((0, len(self.mean))), np.zeros(0))
        residue = np.zeros_like(shift) if sums is None else sums
        delta = shift + residue / weight - self.mean
        total = self.weight + weight
        between = self.weight * (weight / total)
        self.mean += delta * (weight / total)
        self.weight = total
        return Corrections(np.stack([residue, delta]), np.array([-1.0 / weight, between]))

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"count": np.array(self.count), "weight": np.array(self.weight), "mean": self.mean}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take up a saved state."""
        self.count = int(arrays["count"])
        self.weight = float(arrays["weight"])
        self.mean = np.array(arrays["mean"])
