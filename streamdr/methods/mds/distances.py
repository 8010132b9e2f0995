"""Distances from rows to points: by a metric, by a user's function, or stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from scipy.spatial.distance import cdist

from streamdr.core.blocks import IN_MEMORY_BYTES, AlignedArrays, Array, Span, aligned
from streamdr.core.buffers import scratch
from streamdr.core.row_functions import RowFunction, function_matrix
from streamdr.core.solving import by_slices
from streamdr.core.work import Work, products
from streamdr.errors import DataError

METRICS = ("euclidean", "cityblock", "cosine")
PAIR_BYTES = 1 << 20
"""Bytes of the points of pairs that are processed together."""
_MAX_DISTANCE = 1e150
"""The largest distance whose squares can be summed without overflow."""
ROUNDING = 1e-12
"""Distances below this share of the largest are rounding, and count as zero."""


class Distances(Protocol):
    """Distances from rows to points."""

    @property
    def n_points(self) -> int:
        """The number of points."""

    def between(self, rows: Array) -> Array:
        """The distance of each row to each point, in double precision; the caller may overwrite the array."""

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, for the ledger's key: scalars, arrays and functions."""


class StoredDistances:
    """Distances that are stored: each row holds the distances of a point to all points."""

    def __init__(self, n_points: int) -> None:
        self.n_points = n_points

    def between(self, rows: Array) -> Array:
        """The rows themselves, with negative rounding errors set to zero."""
        distances: Array = np.maximum(rows, 0.0, dtype=np.float64)
        return distances

    def parameters(self) -> Mapping[str, Any]:
        """The number of points."""
        return {"n_points": self.n_points}


class PointDistances(AlignedArrays):
    """Distances by one of the metrics. Differences are squared, so that equal rows have the distance zero.

    The cosine distance of unit rows is half the square of their Euclidean distance. A row of zeros has the
    cosine distance one to all others.
    """

    def __init__(self, metric: str, points: Array) -> None:
        self.metric = metric
        self.points = aligned(points)

    @property
    def n_points(self) -> int:
        """The number of points."""
        return len(self.points)

    def between(self, rows: Array) -> Array:
        """The distance of each row to each point, computed by scipy."""
        rows = rows.astype(np.float64, copy=False)
        found: Array
        if self.metric != "cosine":
            found = cdist(rows, self.points, self.metric)
            _require_squares(found, rows)
            return found
        left, right = _unit_rows(rows), _unit_rows(self.points)
        found = cdist(left, right, "sqeuclidean")
        found /= 2.0
        found += 0.5 * (_is_zero(left)[:, None] != _is_zero(right))
        return found

    def parameters(self) -> Mapping[str, Any]:
        """The metric and the points."""
        return {"metric": self.metric, "points": self.points}


class FunctionDistances(AlignedArrays):
    """Distances by a user's function of two rows, or of two blocks of rows."""

    def __init__(self, function: RowFunction, points: Array) -> None:
        self.function = function
        self.points = aligned(points)

    @property
    def n_points(self) -> int:
        """The number of points."""
        return len(self.points)

    def between(self, rows: Array) -> Array:
        """The distance of each row to each point, computed by the function."""
        found = function_matrix(self.function, rows.astype(np.float64, copy=False), self.points, "metric")
        if not (found >= 0).all():  # not a number, or negative
            raise DataError(
                f"the metric function returns the distance {found[~(found >= 0)][0]}: distances must be "
                "numbers of at least 0"
            )
        return found.copy()

    def parameters(self) -> Mapping[str, Any]:
        """The function itself, and the points."""
        return {"function": self.function, "points": self.points}


def point_distances(metric: str | RowFunction, points: Array) -> Distances:
    """Distances to points, by a metric's name or a function."""
    if callable(metric):
        return FunctionDistances(metric, points)
    return PointDistances(metric, points)


def all_distances(metric: str | RowFunction, points: Array) -> Array:
    """The matrix of the distances between all points, some rows at a time."""
    between, n_points = point_distances(metric, points), len(points)
    matrix = np.empty((n_points, n_points))

    def fill(rows: Span) -> None:
        matrix[rows.slice] = between.between(points[rows.slice])

    by_slices(fill, n_points, max(1, IN_MEMORY_BYTES // matrix[:1].nbytes))
    return matrix


def pair_distances(metric: str | RowFunction, points: Array, pairs: Array) -> Array:
    """The distance of the two points of each pair, a few pairs at a time."""
    found = np.empty(len(pairs))
    step = max(1, PAIR_BYTES // max(1, points[:1].nbytes))
    for start in range(0, len(pairs), step):
        some = slice(start, start + step)
        if callable(metric):  # it may keep the rows
            left, right = points[pairs[some, 0]], points[pairs[some, 1]]
        else:
            left, right = (_taken(points, pairs[some, side], f"side {side}") for side in (0, 1))
        found[some] = _row_distances(metric, left, right)
    return found


def _taken(points: Array, numbers: Array, purpose: str) -> Array:
    """Some rows, in a scratch buffer."""
    into = scratch(purpose, (len(numbers), points.shape[1]), points.dtype)
    # The default mode would copy the buffer, in case that a number is out of range.
    return points.take(numbers, axis=0, out=into, mode="clip")


def _row_distances(metric: str | RowFunction, left: Array, right: Array) -> Array:
    """The distance of each row of `left` to the same row of `right`."""
    if callable(metric):
        pairs = zip(left, right, strict=True)
        return np.array([function_matrix(metric, a[None], b[None], "metric")[0, 0] for a, b in pairs])
    if metric in ("cityblock", "euclidean"):
        difference = np.subtract(left, right, out=scratch("difference", left.shape, left.dtype))
        if metric == "cityblock":
            found = np.asarray(np.abs(difference, out=difference).sum(axis=1))
        else:
            found = np.asarray(np.sqrt(np.einsum("ij,ij->i", difference, difference)))
        _require_squares(found, left, right)
        return found
    left, right = _unit_rows(left), _unit_rows(right)
    difference = left - right
    halves = np.einsum("ij,ij->i", difference, difference) / 2.0
    return np.asarray(halves + 0.5 * (_is_zero(left) != _is_zero(right)))


def _require_squares(found: Array, *points: Array) -> None:
    """Refuse distances whose squares overflow. Points that are not finite are located elsewhere."""
    if not found.max(initial=0.0) < _MAX_DISTANCE and all(np.isfinite(each).all() for each in points):
        raise DataError("the squares of distances between points overflow: rescale the data")


def require_distances(values: Array, rows: Array, columns: Array) -> None:
    """Refuse negative distances, and diagonals that are not zero, beyond rounding."""
    rounding = ROUNDING * float(np.nanmax(np.abs(values), initial=0.0))
    negative = np.argwhere(values < -rounding)
    if len(negative):
        row, column = negative[0]
        raise DataError(
            f"the distance between points {rows[row]} and {columns[column]} is {values[row, column]:g}: "
            "distances must not be negative; convert similarities to distances"
        )
    nonzero = np.argwhere((rows[:, None] == columns) & (values > rounding))
    if len(nonzero):
        row, column = nonzero[0]
        raise DataError(
            f"point {rows[row]} is at distance {values[row, column]:g} from itself: the diagonal of a "
            "distance matrix must be zero"
        )


def _unit_rows(rows: Array) -> Array:
    """Rows scaled to length one; rows of zeros are kept."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0)[:, None])


def _is_zero(units: Array) -> Array:
    """The mask of rows of zeros."""
    return np.asarray(~units.any(axis=1))


_PER_PAIR = 26.0
"""The operations on a pair besides its product: squared lengths are added, and roots are taken."""


def distance_work(n_rows: int, n_others: int, n_cols: int) -> Work:
    """The work of computing distances of rows and others from their products."""
    pairs = float(n_rows) * n_others
    return products(pairs * n_cols, np.dtype(np.float64), "product") + Work(cached=_PER_PAIR * pairs)
