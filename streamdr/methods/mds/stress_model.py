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
"""The largest number of fitted points against which a new point is placed."""


@dataclass(frozen=True, eq=False)
class StressModel(AlignedArrays):
    """A configuration of points whose distances approximate the given ones, or their order.

    A fitted row keeps its coordinates. A new row is placed where its stress against the fitted points is
    least.
    """

    pictures: ClassVar[tuple[Picture, ...]] = (SHEPARD, STRESS)

    outputs_are_features: ClassVar[bool] = False

    embedding: Array = field(metadata={"dims": ("sample", "component")})
    """The configuration: the coordinates of the fitted rows."""
    stress: float
    """The stress by `measure`, of all pairs, or of sampled pairs if there are too many."""
    measure: str
    """The name of the stress."""
    stress_history: Array = field(metadata={"dims": ("iteration",)})
    """The lowest stress so far after each iteration of the best start."""
    start_stresses: Array = field(metadata={"dims": ("start",)})
    """The final stress of each start."""
    converged: bool
    """Whether the best start converged."""
    algorithm: str
    """The algorithm that minimised the stress."""
    metric: str | Callable[[Any, Any], Any]
    """The metric: the dissimilarity of two rows."""
    n_features: int
    """The number of columns that `transform` takes."""
    shepard_dissimilarities: Array = field(metadata={"dims": ("pair",)})
    """The dissimilarities of the sampled pairs."""
    shepard_distances: Array = field(metadata={"dims": ("pair",)})
    """The distances of these pairs in the configuration."""
    points: Array | None = field(default=None, metadata={"dims": ("sample", "feature")})
    """The fitted rows, unless they are distances."""
    shepard_disparities: Array | None = field(default=None, metadata={"dims": ("pair",)})
    """The disparities of these pairs: the isotonic regression of the distances."""
    disparity_edges: Array | None = field(default=None, metadata={"dims": ("edge",)})
    """The dissimilarities at which the disparity changes."""
    disparity_values: Array | None = field(default=None, metadata={"dims": ("step",)})
    """The disparities for dissimilarities up to each edge, and beyond the last."""

    @property
    def allow_nan(self) -> bool:
        """Whether NaN is a missing distance: only where rows are distances."""
        return self.points is None

    @property
    def n_outputs(self) -> int:
        """The number of columns that `transform` returns."""
        return int(self.embedding.shape[1])

    @property
    def n_iter(self) -> int:
        """The number of iterations of the best start."""
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
        """No tables."""
        return ()

    def _notes(self) -> list[str]:
        """A note if the stress has not converged."""
        if self.converged:
            return []
        return [f"stopped after {self.n_iter} iterations, before the stress had converged"]

    def transform(self, values: Array) -> Array:
        """The coordinates of rows, which are points or distances to the fitted points."""
        rows = widen(values)
        mapped = np.empty((len(rows), self.n_outputs), rows.dtype)
        for tile in row_tiles(len(rows), max(len(self._anchors), self.n_features)):
            mapped[tile] = self._coordinates(rows[tile].astype(np.float64))
        return mapped

    def _coordinates(self, rows: Array) -> Array:
        """The coordinates of a tile of rows."""
        indices = self._fitted_index(rows)
        coordinates = np.full((len(rows), self.n_outputs), np.nan)
        fitted = indices >= 0
        coordinates[fitted] = self.embedding[indices[fitted]]
        if not fitted.all():
            new = rows[~fitted]
            anchors = self._anchors
            if self.points is None:
                dissimilarities = new[:, anchors]
            else:
                dissimilarities = point_distances(self.metric, self.points[anchors]).between(new)
            measure = self.measure if self.disparity_edges is None else "normalized"
            weights = weights_of(measure, dissimilarities)
            targets = np.where(weights > 0, self._targets(dissimilarities), 0.0)
            coordinates[~fitted] = place_points(targets, weights, self.embedding[anchors])
        return coordinates

    def _targets(self, dissimilarities: Array) -> Array:
        """The target distance for each dissimilarity."""
        if self.disparity_edges is None or self.disparity_values is None:
            return dissimilarities
        return StepFunction(self.disparity_edges, self.disparity_values).distances(dissimilarities)

    def _fitted_index(self, rows: Array) -> Array:
        """The index of the fitted point that equals each row, or -1."""
        if self.points is None:  # a point at distance zero
            nearest = np.argmin(np.where(np.isnan(rows), np.inf, rows), axis=1)
            rounding = ROUNDING * np.nanmax(rows, axis=1, initial=0.0)
            return np.where(rows[np.arange(len(rows)), nearest] <= rounding, nearest, -1)
        keys, order = self._index
        row_keys = _keys(rows)
        positions = np.minimum(np.searchsorted(keys, row_keys), len(keys) - 1)
        return np.where(keys[positions] == row_keys, order[positions], -1)

    @cached_property
    def _index(self) -> tuple[Array, Array]:
        """The sorted keys of the fitted points, and their order."""
        assert self.points is not None
        keys = _keys(self.points)
        order = np.argsort(keys, kind="stable")
        return keys[order], order

    @cached_property
    def _anchors(self) -> Array:
        """The indices of the fitted points against which new points are placed."""
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
