"""The running mean, and the corrections that centring on it owes to any second-order statistic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from streamdr.blocks import Array, Block, widen
from streamdr.linalg import shift_near_mean, slabs
from streamdr.scratch import room_for


class Corrections(NamedTuple):
    """Rank-one terms, `sum_i coefficients[i] * outer(vectors[i], vectors[i])`."""

    vectors: Array
    coefficients: Array


class Joint(NamedTuple):
    """Two groups of rows as one."""

    weight: Any
    origin: Array
    offset: Array
    delta: Array
    """From the mean of the first to that of the second."""
    between: Any
    """How much the outer product of that adds to their scatter."""


def joined(
    weight: Any, origin: Array, offset: Array, later_weight: Any, later_origin: Array, later_offset: Array
) -> Joint:
    """Join two groups, of which the second has some weight; of several at once, weights are a column each."""
    nothing = np.equal(weight, 0.0)
    origin, offset = np.where(nothing, later_origin, origin), np.where(nothing, 0.0, offset)
    delta = (later_origin - origin) + later_offset - offset
    total = weight + later_weight
    share = later_weight / total
    return Joint(total, origin, offset + delta * share, delta, weight * share)


@dataclass
class Centre:
    """How many rows have any weight, of what total weight they are, and their mean.

    The mean is kept as an origin, a value of the data's own, and a small offset from it: near 1e8 a double
    alone would round the mean by 1e-8 at every merge.
    """

    n_cols: int
    count: int = 0
    weight: float = 0.0
    origin: Array = field(default_factory=lambda: np.zeros(0))
    offset: Array = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if not len(self.origin):
            self.origin, self.offset = np.zeros(self.n_cols), np.zeros(self.n_cols)

    @property
    def mean(self) -> Array:
        """The weighted mean of the rows."""
        return self.origin + self.offset

    def absorb(self, later: Centre, *, moments_about_origin: bool) -> Corrections:
        """Take in more rows; say what their second moments lack to be centred on the new mean.

        Two centred groups merge by Chan's formula M = M1 + M2 + (w1 w2 / (w1 + w2)) (m2 - m1)(m2 - m1)'.
        Moments about the origin are centred by taking off w offset offset' first.
        """
        self.count += later.count
        if later.weight == 0.0:
            return Corrections(np.zeros((0, self.n_cols)), np.zeros(0))
        joint = joined(self.weight, self.origin, self.offset, later.weight, later.origin, later.offset)
        self.weight, self.origin, self.offset = joint.weight, joint.origin, joint.offset
        uncentred = later.weight if moments_about_origin else 0.0
        return Corrections(np.stack([later.offset, joint.delta]), np.array([-uncentred, joint.between]))

    def value(self) -> dict[str, Array]:
        """Count, weight and mean."""
        return {"count": np.array(self.count), "weight": np.array(self.weight), "mean": self.mean}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        numbers = {"count": np.array(self.count), "weight": np.array(self.weight)}
        return {**numbers, "origin": self.origin, "offset": self.offset}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take up a saved state."""
        self.count, self.weight = int(arrays["count"]), float(arrays["weight"])
        self.origin, self.offset = arrays["origin"], arrays["offset"]


@dataclass(frozen=True)
class Shifted:
    """A block moved to the origin of its `centre`, its rows scaled by the root of their weights.

    The values are the block's own memory if it may be overwritten, or the thread's scratch: they last until
    it moves another block.
    """

    centre: Centre
    values: Array


def shifted(block: Block, *, double: bool) -> Shifted:
    """Move a block near the origin, in its working precision or in double."""
    values = widen(block.values)
    if double:
        values = values.astype(np.float64, copy=False)
    shift = shift_near_mean(values, block.weights)
    weights = np.ones(len(values)) if block.weights is None else block.weights
    moved = room_for(values, block)
    sums = np.zeros(values.shape[1])
    # A slab at a time, so that it is summed while it is still in cache.
    for slab in slabs(values):
        np.subtract(values[slab], shift, out=moved[slab])
        sums += weights[slab].astype(moved.dtype) @ moved[slab]
        if block.weights is not None:
            moved[slab] *= np.sqrt(weights[slab]).astype(moved.dtype)[:, None]
    if not np.isfinite(sums).all():
        block.suspect()
    weight = float(weights.sum())
    count = int(np.count_nonzero(weights))
    centre = Centre(len(sums), count, weight, shift.astype(np.float64), sums / (weight or 1.0))
    return Shifted(centre, moved)
