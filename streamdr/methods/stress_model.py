"""What iterative scaling gives: a configuration, and the place of new points in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from streamdr.accumulators.base import Accumulator
from streamdr.accumulators.tiles import TILE_BYTES, row_tiles
from streamdr.blocks import Array, Settled, widen
from streamdr.distances import ROUNDING, point_distances
from streamdr.methods.disparities import Steps
from streamdr.methods.placing import place
from streamdr.stresses import weights_of

_ANCHORS = 2_000
"""The most points that a new one is placed by."""


@dataclass(frozen=True, eq=False)
class StressModel(Settled):
    """A configuration of points whose distances are near the given ones, or rise with them.

    A row that was there when it was fitted is where it was put. A new one is put where its stress against
    those is least.
    """

    outputs_are_features: ClassVar[bool] = False

    embedding: Array = field(metadata={"dims": ("sample", "component")})
    stress: float
    """By the measure that was asked for, of all pairs, or of some where there are too many."""
    measure: str
    """Which stress that is."""
    stress_history: Array = field(metadata={"dims": ("iteration",)})
    """The lowest stress after each iteration, of the best start."""
    start_stresses: Array = field(metadata={"dims": ("start",)})
    """Where each start led."""
    converged: bool
    algorithm: str
    metric: str | Callable[[Any, Any], Any]
    n_features: int
    shepard_dissimilarities: Array = field(metadata={"dims": ("pair",)})
    """How unlike some pairs of points are."""
    shepard_distances: Array = field(metadata={"dims": ("pair",)})
    """How far apart they are."""
    points: Array | None = field(default=None, metadata={"dims": ("sample", "feature")})
    """The rows that it was fitted to, unless they are distances."""
    shepard_disparities: Array | None = field(default=None, metadata={"dims": ("pair",)})
    disparity_edges: Array | None = field(default=None, metadata={"dims": ("edge",)})
    disparity_values: Array | None = field(default=None, metadata={"dims": ("step",)})
    """The distances that are wanted for dissimilarities up to each edge, and beyond the last."""

    @property
    def holes(self) -> bool:
        """Whether NaN stands for a distance that is not known: points have no holes."""
        return self.points is None

    @property
    def n_outputs(self) -> int:
        """How many columns `transform` gives."""
        return int(self.embedding.shape[1])

    @property
    def n_iter(self) -> int:
        """How many iterations the best start took."""
        return len(self.stress_history)

    def summary(self) -> dict[str, Any]:
        """What a report says of it."""
        told: dict[str, Any] = {
            "solver": self.algorithm,
            "n_components": self.n_outputs,
            "stress": self.stress,
            "measure": self.measure,
            "n_iter": self.n_iter,
        }
        if not self.converged:
            told["notes"] = [f"stopped after {self.n_iter} iterations, before the stress had settled"]
        return told

    def transform(self, values: Array) -> Array:
        """The place of each row: points, or rows of distances to the points that it was fitted to."""
        rows = widen(values)
        mapped = np.empty((len(rows), self.n_outputs), rows.dtype)
        for tile in row_tiles(len(rows), max(len(self._anchors), self.n_features)):
            mapped[tile] = self._placed(rows[tile].astype(np.float64))
        return mapped

    def _placed(self, rows: Array) -> Array:
        known = self._known(rows)
        where = np.full((len(rows), self.n_outputs), np.nan)
        there = known >= 0
        where[there] = self.embedding[known[there]]
        if not there.all():
            new = rows[~there]
            anchors = self._anchors
            if self.points is None:
                unlike = new[:, anchors]
            else:
                unlike = point_distances(self.metric, self.points[anchors]).between(new)
            measure = self.measure if self.disparity_edges is None else "normalized"
            weights = weights_of(measure, unlike)
            wanted = np.where(weights > 0, self._wanted(unlike), 0.0)
            where[~there] = place(wanted, weights, self.embedding[anchors])
        return where

    def _wanted(self, unlike: Array) -> Array:
        if self.disparity_edges is None or self.disparity_values is None:
            return unlike
        return Steps(self.disparity_edges, self.disparity_values).wanted(unlike)

    def _known(self, rows: Array) -> Array:
        """The number of the point that each row is, or -1."""
        if self.points is None:  # one at distance zero
            at = np.argmin(np.where(np.isnan(rows), np.inf, rows), axis=1)
            rounding = ROUNDING * np.nanmax(rows, axis=1, initial=0.0)
            return np.where(rows[np.arange(len(rows)), at] <= rounding, at, -1)
        keys, order = self._index
        mine = _keys(rows)
        places = np.minimum(np.searchsorted(keys, mine), len(keys) - 1)
        return np.where(keys[places] == mine, order[places], -1)

    @cached_property
    def _index(self) -> tuple[Array, Array]:
        assert self.points is not None
        keys = _keys(self.points)
        order = np.argsort(keys, kind="stable")
        return keys[order], order

    @cached_property
    def _anchors(self) -> Array:
        n = len(self.embedding)
        return np.arange(n) if n <= _ANCHORS else np.sort(np.random.default_rng(0).permutation(n)[:_ANCHORS])

    def scratch_bytes(self, n_rows: int) -> int:
        """What mapping so many rows allocates besides the result."""
        width = max(len(self._anchors), self.n_features)
        index = 0 if self.points is None else 3 * self.points.nbytes
        anchors = 0 if self.points is None else 3 * 8 * len(self._anchors) * self.n_features
        return 10 * max(TILE_BYTES, 8 * width) + index + anchors

    def scores_by_columns(self, n_rows: int) -> Accumulator | None:
        """It needs whole rows."""
        return None


def _keys(rows: Array) -> Array:
    """Rows as single values that can be sorted and compared; zeros of either sign are the same."""
    plain = np.ascontiguousarray(rows.astype(np.float64) + 0.0)
    return plain.view(np.dtype((np.void, plain.shape[1] * 8))).ravel()
