"""What classical scaling gives: a map of distances to landmarks, or, if Euclidean, of points themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from streamdr.accumulators.base import Accumulator
from streamdr.accumulators.tiles import TILE_BYTES, row_tiles, tile_rows
from streamdr.blocks import Array, Settled, widen
from streamdr.distances import point_distances


@dataclass(frozen=True, eq=False)
class ScalingModel(Settled):
    """Coordinates by classical scaling, for points that were there and for new ones.

    A point at squared distances s from the landmarks is at P (s - m), with m the landmarks' own mean squares.
    For Euclidean distances that is a projection of the point itself, A (x - c).
    """

    holes: ClassVar[bool] = False
    outputs_are_features: ClassVar[bool] = False

    eigenvalues: Array = field(metadata={"dims": ("component",)})
    """Of the matrix of inner products B that the distances stand for: the largest ones."""
    metric: str | Callable[[Any, Any], Any]
    n_features: int
    solver: str
    stress: float
    """Kruskal's stress-1 of some pairs."""
    shepard_dissimilarities: Array = field(metadata={"dims": ("pair",)})
    """How far apart some pairs of points should be."""
    shepard_distances: Array = field(metadata={"dims": ("pair",)})
    """How far apart they are."""
    origin: Array | None = field(default=None, metadata={"dims": ("feature",)})
    axes: Array | None = field(default=None, metadata={"dims": ("component", "feature")})
    projection: Array | None = field(default=None, metadata={"dims": ("component", "landmark")})
    mean_squares: Array | None = field(default=None, metadata={"dims": ("landmark",)})
    landmarks: Array | None = field(default=None, metadata={"dims": ("landmark", "feature")})
    landmark_rows: Array | None = field(default=None, metadata={"dims": ("landmark",)})
    """The numbers of the landmarks' rows."""
    embedding: Array | None = field(default=None, metadata={"dims": ("sample", "component")})
    """The coordinates of the rows that it was fitted to, where all pairs of them were looked at."""
    negative_eigenvalues: Array | None = field(default=None, metadata={"dims": ("negative",)})
    """The most negative ones that were found: what no real space can show."""
    goodness_of_fit: float | None = None
    """The sum of the eigenvalues that are kept, as a part of the sum of the sizes of all."""
    explained_squares: float | None = None
    """The sum of their squares, as a part of that of all."""
    residuals: Array | None = field(default=None, metadata={"dims": ("component",)})

    @property
    def n_outputs(self) -> int:
        """How many columns `transform` gives."""
        return len(self.eigenvalues)

    def summary(self) -> dict[str, Any]:
        """What a report says of it."""
        told: dict[str, Any] = {"solver": self.solver, "n_components": self.n_outputs, "stress": self.stress}
        if self.landmark_rows is not None:
            told["n_landmarks"] = len(self.landmark_rows)
        if self.goodness_of_fit is not None:
            told["goodness_of_fit"] = self.goodness_of_fit
        if self.explained_squares is not None:
            told["explained_squares"] = self.explained_squares
        if self.negative_eigenvalues is not None and len(self.negative_eigenvalues):
            lowest = float(self.negative_eigenvalues[0])
            share = -lowest / float(self.eigenvalues[0])
            told["notes"] = [
                f"the distances are not Euclidean: the most negative eigenvalue is {lowest:.4g}, {share:.2g} "
                "of the largest"
            ]
        return told

    def transform(self, values: Array) -> Array:
        """Map points, or rows of distances to the points that it was fitted to, to coordinates."""
        rows = widen(values)
        if self.axes is not None and self.origin is not None:
            near = self.origin.astype(rows.dtype)
            rest = self.axes @ (self.origin - near)  # what single precision cannot take off
            mapped: Array = (rows - near) @ self.axes.T.astype(rows.dtype)
            mapped -= rest.astype(rows.dtype)
            return mapped
        assert self.projection is not None
        mapped = np.empty((len(rows), self.n_outputs), rows.dtype)
        for tile in row_tiles(len(rows), self.projection.shape[1]):
            squares = self._distances(rows[tile])
            np.multiply(squares, squares, out=squares)
            squares -= self.mean_squares
            # What all have in common is nothing to P but rounding: far off, it would be the larger part.
            squares -= squares.mean(axis=1, keepdims=True)
            mapped[tile] = squares @ self.projection.T
        return mapped

    def _distances(self, rows: Array) -> Array:
        if self.landmarks is not None:
            return point_distances(self.metric, self.landmarks).between(rows)
        if self.landmark_rows is not None:
            return rows[:, self.landmark_rows.astype(np.int64)].astype(np.float64)
        return rows.astype(np.float64)

    def scratch_bytes(self, n_rows: int) -> int:
        """What mapping so many rows allocates besides the result."""
        if self.axes is not None:
            return 8 * n_rows * self.n_features
        assert self.projection is not None
        width = int(self.projection.shape[1])
        # Rows of a tile are widened, and scaled to lengths of one, as landmarks are.
        points = 0 if self.landmarks is None else 3 * 8 * tile_rows(width) * self.n_features
        points += 0 if self.landmarks is None else 2 * self.landmarks.nbytes
        return 4 * max(TILE_BYTES, 8 * width) + 16 * width * self.n_outputs + points

    def scores_by_columns(self, n_rows: int) -> Accumulator | None:
        """It needs whole rows."""
        return None
