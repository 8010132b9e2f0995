"""The model of classical and landmark MDS: a linear map of squared distances, or of points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import AlignedArrays, Array, MatrixSpec, widen
from streamdr.core.facts import Fact, Table, notes
from streamdr.core.outline import unallocated
from streamdr.core.pictures import Picture
from streamdr.core.work import Work, products
from streamdr.methods.mds.distances import distance_work, point_distances
from streamdr.methods.mds.parameters import N_PAIRS
from streamdr.methods.mds.plots import SHEPARD
from streamdr.methods.mds.tiles import TILE_BYTES, row_tiles, tile_rows


@dataclass(frozen=True, eq=False)
class ScalingModel(AlignedArrays):
    """Coordinates by classical scaling, for fitted and for new points.

    A point with squared distances s to the landmarks has the coordinates P (s - m), with m the mean squared
    distances of the landmarks. For Euclidean distances, this is a projection of the point, A (x - c).
    """

    pictures: ClassVar[tuple[Picture, ...]] = (SHEPARD,)
    allow_nan: ClassVar[bool] = False
    outputs_are_features: ClassVar[bool] = False

    eigenvalues: Array = field(metadata={"dims": ("component",)})
    """The largest eigenvalues of B, the matrix of inner products that corresponds to the distances."""
    metric: str | Callable[[Any, Any], Any]
    """The metric: the distance between two rows."""
    n_features: int
    """The number of columns that `transform` takes."""
    solver: str
    """The solver that computed the coordinates."""
    stress: float
    """Kruskal's stress-1 of the sampled pairs."""
    shepard_dissimilarities: Array = field(metadata={"dims": ("pair",)})
    """The given distances of the sampled pairs."""
    shepard_distances: Array = field(metadata={"dims": ("pair",)})
    """The distances of these pairs in the configuration."""
    origin: Array | None = field(default=None, metadata={"dims": ("feature",)})
    """The mean of the rows, or of the landmarks, for Euclidean distances of points."""
    axes: Array | None = field(default=None, metadata={"dims": ("component", "feature"), "mapped": True})
    """The projection of rows minus `origin` to coordinates, for Euclidean distances of points."""
    projection: Array | None = field(default=None, metadata={"dims": ("component", "landmark")})
    """The linear map from centred squared distances to coordinates."""
    mean_squares: Array | None = field(default=None, metadata={"dims": ("landmark",)})
    """The mean squared distance of each landmark to all landmarks."""
    landmarks: Array | None = field(default=None, metadata={"dims": ("landmark", "feature")})
    """The landmarks: new rows are placed by their distances to these rows."""
    landmark_rows: Array | None = field(default=None, metadata={"dims": ("landmark",)})
    """The row numbers of the landmarks."""
    embedding: Array | None = field(default=None, metadata={"dims": ("sample", "component")})
    """The coordinates of the fitted rows, if all their pairs were used."""
    negative_eigenvalues: Array | None = field(default=None, metadata={"dims": ("negative",)})
    """The most negative eigenvalues that were found: the part of the distances that is not Euclidean."""
    goodness_of_fit: float | None = None
    """The sum of the kept eigenvalues, divided by the sum of the absolute values of all."""
    explained_squares: float | None = None
    """The sum of the squares of the kept eigenvalues, divided by that of all."""
    residuals: Array | None = field(default=None, metadata={"dims": ("component",)})
    """The residual |B v - lambda v| of each eigenvector, for the iterative solver."""

    @property
    def n_outputs(self) -> int:
        """The number of columns that `transform` returns."""
        return len(self.eigenvalues)

    def summary(self) -> dict[str, Any]:
        """Solver, stress and goodness of fit, for reports."""
        entries: dict[str, Any] = {
            "solver": self.solver,
            "n_components": self.n_outputs,
            "stress": self.stress,
        }
        if self.landmark_rows is not None:
            entries["n_landmarks"] = len(self.landmark_rows)
        if self.goodness_of_fit is not None:
            entries["goodness_of_fit"] = self.goodness_of_fit
        if self.explained_squares is not None:
            entries["explained_squares"] = self.explained_squares
        if found := self._notes():
            entries["notes"] = found
        return entries

    def facts(self) -> tuple[Fact, ...]:
        """Solver, number of coordinates, and goodness of fit."""
        found = [
            Fact("solver", self.solver),
            Fact("components", self.n_outputs),
            Fact("stress", self.stress, "(Kruskal's stress-1)"),
        ]
        if self.landmark_rows is not None:
            found.append(Fact("landmarks", len(self.landmark_rows)))
        if self.goodness_of_fit is not None:
            found.append(Fact("goodness of fit", self.goodness_of_fit))
        if self.explained_squares is not None:
            found.append(Fact("explained squares", self.explained_squares))
        return (*found, *notes(self._notes()))

    def tables(self) -> tuple[Table, ...]:
        """No tables."""
        return ()

    def _notes(self) -> list[str]:
        """A note if the distances are not Euclidean."""
        if self.negative_eigenvalues is None or not len(self.negative_eigenvalues):
            return []
        lowest = float(self.negative_eigenvalues[0])
        share = -lowest / float(self.eigenvalues[0])
        return [
            f"the distances are not Euclidean: the most negative eigenvalue is {lowest:.4g}, {share:.2g} "
            "of the largest"
        ]

    def transform(self, values: Array) -> Array:
        """Map points, or rows of distances to the fitted points, to coordinates."""
        rows = widen(values)
        if self.axes is not None and self.origin is not None:
            near = self.origin.astype(rows.dtype)
            rest = self.axes @ (self.origin - near)  # the rounding of the origin in single precision
            mapped: Array = (rows - near) @ self.axes.T.astype(rows.dtype)
            mapped -= rest.astype(rows.dtype)
            return mapped
        assert self.projection is not None
        mapped = np.empty((len(rows), self.n_outputs), rows.dtype)
        for tile in row_tiles(len(rows), self.projection.shape[1]):
            squares = self._distances(rows[tile])
            np.multiply(squares, squares, out=squares)
            squares -= self.mean_squares
            # P ignores a term common to all landmarks. For distant points it would dominate the rounding.
            squares -= squares.mean(axis=1, keepdims=True)
            mapped[tile] = squares @ self.projection.T
        return mapped

    def _distances(self, rows: Array) -> Array:
        """The distance of each row to each landmark."""
        if self.landmarks is not None:
            return point_distances(self.metric, self.landmarks).between(rows)
        if self.landmark_rows is not None:
            return rows[:, self.landmark_rows.astype(np.int64)].astype(np.float64)
        return rows.astype(np.float64)

    def mapping_work(self, data: MatrixSpec, operation: str) -> Work:
        """The work of a product with the axes, or of distances to the landmarks and a product with these."""
        n, d = float(data.n_rows), self.n_features
        if self.projection is None:
            moved = Work(moved=3 * n * data.line_bytes("rows"))
            return products(n * d * self.n_outputs, data.working, "thin") + moved
        width = int(self.projection.shape[1])
        placed = products(n * width * self.n_outputs, np.dtype(np.float64), "thin")
        if self.landmarks is None:
            return placed + Work(moved=32 * n * width)
        return placed + distance_work(data.n_rows, width, d) + Work(moved=64 * n * width)

    def scratch_bytes(self, n_rows: int) -> int:
        """Bytes that mapping `n_rows` rows allocates besides the result."""
        if self.axes is not None:
            return 8 * n_rows * self.n_features
        assert self.projection is not None
        width = int(self.projection.shape[1])
        # Rows of a tile, and landmarks, are widened, and scaled to length one.
        points = 0 if self.landmarks is None else 3 * 8 * tile_rows(width) * self.n_features
        points += 0 if self.landmarks is None else 2 * self.landmarks.nbytes
        return 4 * max(TILE_BYTES, 8 * width) + 16 * width * self.n_outputs + points

    def scores_by_columns(self, n_rows: int) -> Accumulator | None:
        """None: distances need whole rows."""
        return None


def scaling_outline(
    data: MatrixSpec, k: int, metric: Any, n_landmarks: int | None, *, linear: bool
) -> ScalingModel:
    """An outline of a model with `n_landmarks` landmarks, if any, and axes where it is linear."""
    m, points, alone = n_landmarks or 0, metric != "precomputed", n_landmarks is None
    return ScalingModel(
        eigenvalues=unallocated(k),
        metric=metric,
        n_features=data.n_cols,
        solver="outline",
        stress=0.0,
        shepard_dissimilarities=unallocated(N_PAIRS),
        shepard_distances=unallocated(N_PAIRS),
        origin=unallocated(data.n_cols) if linear else None,
        axes=unallocated(k, data.n_cols) if linear else None,
        projection=None if alone else unallocated(k, m),
        mean_squares=None if alone else unallocated(m),
        landmarks=unallocated(m, data.n_cols) if points and not alone else None,
        landmark_rows=None if alone or m == data.n_rows else unallocated(m),
        embedding=None if alone or m < data.n_rows else unallocated(m, k),
    )
