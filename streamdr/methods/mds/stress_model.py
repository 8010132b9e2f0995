"""The model of metric and nonmetric MDS: a configuration, and the placement of new points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import AlignedArrays, Array, MatrixSpec, widen
from streamdr.core.facts import Fact, Table, notes
from streamdr.core.outline import unallocated
from streamdr.core.pictures import Picture
from streamdr.methods.mds.disparities import StepFunction
from streamdr.methods.mds.distances import ROUNDING, point_distances
from streamdr.methods.mds.out_of_sample import place_points
from streamdr.methods.mds.parameters import N_PAIRS
from streamdr.methods.mds.plots import SHEPARD, STRESS
from streamdr.methods.mds.stresses import weights_of
from streamdr.methods.mds.tiles import TILE_BYTES, row_tiles

_ANCHORS = 2_000
"""The largest number of fitted points that a new point is placed by."""


@dataclass(frozen=True, eq=False)
class StressModel(AlignedArrays):
    """A configuration of points whose distances are near the given ones, or rise with them.

    A row that was there when it was fitted is where it was put. A new one is put where its stress against
    those is least.
    """

    pictures: ClassVar[tuple[Picture, ...]] = (SHEPARD, STRESS)

    outputs_are_features: ClassVar[bool] = False

    embedding: Array = field(metadata={"dims": ("sample", "component")})
    """The configuration: the coordinates of the rows that it was fitted to."""
    stress: float
    """By the measure that was asked for, of all pairs, or of some where there are too many."""
    measure: str
    """Which stress that is."""
    stress_history: Array = field(metadata={"dims": ("iteration",)})
    """The lowest stress after each iteration, of the best start."""
    start_stresses: Array = field(metadata={"dims": ("start",)})
    """Where each start led."""
    converged: bool
    """Whether the best start ended by its tolerance."""
    algorithm: str
    """How the stress was made small."""
    metric: str | Callable[[Any, Any], Any]
    """How unlike two rows are."""
    n_features: int
    """How many columns `transform` takes."""
    shepard_dissimilarities: Array = field(metadata={"dims": ("pair",)})
    """How unlike some pairs of points are."""
    shepard_distances: Array = field(metadata={"dims": ("pair",)})
    """How far apart they are."""
    points: Array | None = field(default=None, metadata={"dims": ("sample", "feature")})
    """The rows that it was fitted to, unless they are distances."""
    shepard_disparities: Array | None = field(default=None, metadata={"dims": ("pair",)})
    """How far apart these pairs should be, by the order of their dissimilarities."""
    disparity_edges: Array | None = field(default=None, metadata={"dims": ("edge",)})
    """The dissimilarities at which the wanted distance changes."""
    disparity_values: Array | None = field(default=None, metadata={"dims": ("step",)})
    """The distances that are wanted for dissimilarities up to each edge, and beyond the last."""

    @property
    def allow_nan(self) -> bool:
        """Whether NaN is a missing distance: only where rows are distances."""
        return self.points is None

    @property
    def n_outputs(self) -> int:
        """How many columns `transform` returns."""
        return int(self.embedding.shape[1])

    @property
    def n_iter(self) -> int:
        """How many iterations the best start took."""
        return len(self.stress_history)

    def summary(self) -> dict[str, Any]:
        """Algorithm, stress and iterations, for reports."""
        entries: dict[str, Any] = {
            "solver": self.algorithm,
            "n_components": self.n_outputs,
            "stress": self.stress,
            "measure": self.measure,
            "n_iter": self.n_iter,
        }
        if found := self._notes():
            entries["notes"] = found
        return entries

    def facts(self) -> tuple[Fact, ...]:
        """Algorithm, number of coordinates, stress and iterations."""
        return (
            Fact("solver", self.algorithm),
            Fact("components", self.n_outputs),
            Fact("stress", self.stress, f"({self.measure})"),
            Fact("iterations", self.n_iter),
            *notes(self._notes()),
        )

    def tables(self) -> tuple[Table, ...]:
        """None."""
        return ()

    def _notes(self) -> list[str]:
        if self.converged:
            return []
        return [f"stopped after {self.n_iter} iterations, before the stress had converged"]

    def transform(self, values: Array) -> Array:
        """The coordinates of rows, which are points or distances to the fitted points."""
        rows = widen(values)
        mapped = np.empty((len(rows), self.n_outputs), rows.dtype)
        for tile in row_tiles(len(rows), max(len(self._anchors), self.n_features)):
            mapped[tile] = self._placed(rows[tile].astype(np.float64))
        return mapped

    def _placed(self, rows: Array) -> Array:
        known = self._fitted_index(rows)
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
            where[~there] = place_points(wanted, weights, self.embedding[anchors])
        return where

    def _wanted(self, unlike: Array) -> Array:
        if self.disparity_edges is None or self.disparity_values is None:
            return unlike
        return StepFunction(self.disparity_edges, self.disparity_values).wanted(unlike)

    def _fitted_index(self, rows: Array) -> Array:
        """The index of the fitted point that equals each row, or -1."""
        if self.points is None:  # a point at distance zero
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
        """Bytes that mapping `n_rows` rows allocates besides the result."""
        width = max(len(self._anchors), self.n_features)
        index = 0 if self.points is None else 3 * self.points.nbytes
        anchors = 0 if self.points is None else 3 * 8 * len(self._anchors) * self.n_features
        return 10 * max(TILE_BYTES, 8 * width) + index + anchors

    def scores_by_columns(self, n_rows: int) -> Accumulator | None:
        """None: distances need whole rows."""
        return None


def _keys(rows: Array) -> Array:
    """Rows as single values that can be sorted and compared; -0.0 equals 0.0."""
    plain = np.ascontiguousarray(rows.astype(np.float64) + 0.0)
    return plain.view(np.dtype((np.void, plain.shape[1] * 8))).ravel()


def stress_outline(data: MatrixSpec, k: int, metric: Any) -> StressModel:
    """An outline of a model of all points."""
    return StressModel(
        embedding=unallocated(data.n_rows, k),
        stress=0.0,
        measure="normalized",
        stress_history=unallocated(1),
        start_stresses=unallocated(1),
        converged=True,
        algorithm="outline",
        metric=metric,
        n_features=data.n_cols,
        shepard_dissimilarities=unallocated(N_PAIRS),
        shepard_distances=unallocated(N_PAIRS),
        points=None if metric == "precomputed" else unallocated(data.n_rows, data.n_cols),
    )
