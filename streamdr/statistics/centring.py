"""The running mean, and the rank-one corrections that second-order statistics need when it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from streamdr.core.blocks import Array, Block, widen
from streamdr.core.buffers import output_buffer
from streamdr.core.linalg import shift_near_mean, slabs


class Corrections(NamedTuple):
    """Rank-one terms, `sum_i coefficients[i] * outer(vectors[i], vectors[i])`."""

    vectors: Array
    coefficients: Array


class Joint(NamedTuple):
    """The weight and mean of two groups of rows together."""

    weight: Any
    origin: Array
    offset: Array
    delta: Array
    """The mean of the second group minus that of the first."""
    between: Any
    """The coefficient of the outer product of `delta` in their joint scatter."""


def joined(
    weight: Any, origin: Array, offset: Array, later_weight: Any, later_origin: Array, later_offset: Array
) -> Joint:
    """Join two groups, the second of positive weight. For several pairs, weights are a column vector."""
    nothing = np.equal(weight, 0.0)
    origin, offset = np.where(nothing, later_origin, origin), np.where(nothing, 0.0, offset)
    delta = (later_origin - origin) + later_offset - offset
    total = weight + later_weight
    share = later_weight / total
    return Joint(total, origin, offset + delta * share, delta, weight * share)


@dataclass
class Centre:
    """The number of rows of positive weight, their total weight, and their mean.

    The mean is stored as an origin, exact in the data's type, and a small offset from it. A double alone
    would round a mean of 1e8 by 1e-8 at every merge.
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
        """Add more rows; return the corrections that centre the second moments on the new mean.

        Two centred groups merge by Chan's formula M = M1 + M2 + (w1 w2 / (w1 + w2)) (m2 - m1)(m2 - m1)'.
        Moments about the origin are first centred by subtracting w offset offset'.
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
        """Restore a saved state."""
        self.count, self.weight = int(arrays["count"]), float(arrays["weight"])
        self.origin, self.offset = arrays["origin"], arrays["offset"]


@dataclass(frozen=True)
class Shifted:
    """A block minus the origin of its `centre`, its rows scaled by the square root of their weights.

    The values are in the block's own memory if it is disposable, else in a scratch buffer of the thread. They
    are valid until the thread shifts another block.
    """

    centre: Centre
    values: Array


def shifted(block: Block, *, double: bool) -> Shifted:
    """Shift a block by a row near its mean, in its working precision or in double."""
    values = widen(block.values)
    if double:
        values = values.astype(np.float64, copy=False)
    shift = shift_near_mean(values, block.weights)
    weights = np.ones(len(values)) if block.weights is None else block.weights
    moved = output_buffer(values, block)
    sums = np.zeros(values.shape[1])
    # A slab at a time, so that it is summed while it is still in cache.
    for slab in slabs(values):
        np.subtract(values[slab], shift, out=moved[slab])
        sums += weights[slab].astype(moved.dtype) @ moved[slab]
        if block.weights is not None:
            moved[slab] *= np.sqrt(weights[slab]).astype(moved.dtype)[:, None]
    if not np.isfinite(sums).all():
        block.locate_nonfinite()
    weight = float(weights.sum())
    count = int(np.count_nonzero(weights))
    centre = Centre(len(sums), count, weight, shift.astype(np.float64), sums / (weight or 1.0))
    return Shifted(centre, moved)
