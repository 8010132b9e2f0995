"""The start of iterative MDS: all pairs, in memory or streamed, and an initial configuration."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array, Block, MatrixSpec, Span
from streamdr.core.method import Pass
from streamdr.errors import DataError
from streamdr.methods.mds.distances import (
    Distances,
    StoredDistances,
    all_distances,
    pair_distances,
    point_distances,
)
from streamdr.methods.mds.parameters import some_pairs
from streamdr.methods.mds.submatrix import Submatrix
from streamdr.methods.mds.torgerson import projection_of, scaled
from streamdr.methods.mds.validation import check_distances, require_symmetric
from streamdr.statistics.sample import Sample

LANDMARKS = 300
"""The number of landmarks of the initial configuration."""


@dataclass(frozen=True, eq=False)
class Initialisation:
    """Points, the distances between them, and an initial configuration."""

    distances: Distances
    start: Array
    """The initial configuration, by landmark MDS."""
    pairs: Array
    dissimilarities: Array
    """The dissimilarities of these pairs."""
    points: Array | None = None
    """The points; None where only distances are given."""
    weights: Array | None = None
    """The weight of each point; None where all are one."""
    complete: bool = True
    """Whether no distance is missing."""
    in_memory: Block | None = None
    """All distances, where they fit into memory."""

    @property
    def n_points(self) -> int:
        """The number of points."""
        return len(self.start)

    def starts(self, number: int, seed: int) -> list[Array]:
        """The initial configuration, and random ones of the same scale."""
        rng = np.random.default_rng([seed, 5])
        width = float(np.sqrt(np.mean(self.start**2))) or 1.0
        others = [width * rng.standard_normal(self.start.shape) for _ in range(number - 1)]
        return [self.start, *others]


def initialise(
    metric: Any, data: MatrixSpec, n_components: int, seed: int, earlier: Any, *, keep: bool
) -> Generator[Pass, Accumulator, Initialisation]:
    """Read the data once; `keep` all distances in memory, or only those of the initial configuration.

    An `earlier` model of the first points, if given, provides the initial configuration.
    """
    stored = metric == "precomputed"
    some = yield from (_stored(data, seed, keep=keep) if stored else _points(metric, data, seed, keep=keep))
    start = by_landmarks(some.rows, some.numbers, n_components, seed)
    if earlier is not None and some.points is not None:
        start = np.asarray(earlier.transform(some.points), np.float64)
    return Initialisation(
        distances=some.distances,
        start=start,
        pairs=some.pairs,
        dissimilarities=some.dissimilarities,
        points=some.points,
        weights=None if (some.weights == 1).all() else some.weights,
        complete=some.complete,
        in_memory=some.in_memory,
    )


@dataclass(frozen=True, eq=False)
class _InitialData:
    """What the first pass reads: distances from landmarks, sampled pairs, and all points or distances."""

    distances: Distances
    numbers: Array
    """The row numbers of the landmarks."""
    rows: Array
    """Distances from landmarks to all points."""
    pairs: Array
    dissimilarities: Array
    weights: Array
    complete: bool = True
    points: Array | None = None
    in_memory: Block | None = None


def _points(
    metric: Any, data: MatrixSpec, seed: int, *, keep: bool
) -> Generator[Pass, Accumulator, _InitialData]:
    """The initial data of points."""
    n = data.n_rows
    sample = cast(Sample, (yield Pass(Sample(data.n_cols, n, seed, allow_nan=False), label="points")))
    if len(sample.rows) < n:
        raise DataError(
            f"{n - len(sample.rows)} rows have the weight zero, and cannot be placed: leave them "
            "out, or give them a positive weight"
        )
    order = np.argsort(sample.numbers)
    points, weights = sample.rows[order], sample.weights[order]
    pairs, numbers = some_pairs(n, seed), landmark_numbers(n, seed)
    dissimilarities = pair_distances(metric, points, pairs)
    if not keep:
        between = point_distances(metric, points)
        rows = between.between(points[numbers])
        return _InitialData(between, numbers, rows, pairs, dissimilarities, weights, points=points)
    matrix = all_distances(metric, points)
    if callable(metric):
        require_symmetric(matrix)
    block = Block(Span(0, n), matrix)
    return _InitialData(
        StoredDistances(n),
        numbers,
        matrix[numbers],
        pairs,
        dissimilarities,
        weights,
        points=points,
        in_memory=block,
    )


def _stored(data: MatrixSpec, seed: int, *, keep: bool) -> Generator[Pass, Accumulator, _InitialData]:
    """The initial data of a stored distance matrix."""
    n = data.n_rows
    pairs, numbers = some_pairs(n, seed), landmark_numbers(n, seed)
    if keep:
        check, full = yield from check_distances(
            data, pairs, seed, Sample(n, n, seed, allow_nan=True), allow_nan=True
        )
    else:
        some = Submatrix(numbers, np.arange(n), allow_nan=True)
        check, full = yield from check_distances(data, pairs, seed, some, allow_nan=True)
    if not (check.weights > 0).all():
        row = int(np.argmin(check.weights))
        message = f"row {row} has the weight zero, and cannot be placed"
        raise DataError(f"{message}: leave it out, or give it a positive weight")
    complete = int(check.known) == n * n
    between = StoredDistances(n)
    if keep:
        sample = cast(Sample, full)
        matrix = sample.rows[np.argsort(sample.numbers)]
        block = Block(Span(0, n), matrix)
        found, weights = check.found, check.weights
        return _InitialData(
            between, numbers, matrix[numbers], pairs, found, weights, complete, in_memory=block
        )
    rows = cast(Submatrix, full).found
    return _InitialData(between, numbers, rows, pairs, check.found, check.weights, complete)


def landmark_numbers(n_points: int, seed: int) -> Array:
    """The numbers of random landmarks, ascending."""
    return np.sort(np.random.default_rng([seed, 3]).permutation(n_points)[:LANDMARKS])


def by_landmarks(rows: Array, numbers: Array, n_components: int, seed: int) -> Array:
    """A configuration of all points from their distances to landmarks; means replace missing distances.

    Dimensions without variance are filled with a little noise, so that points can move there.
    """
    missing = np.isnan(rows)
    if missing.any():
        n_observed = np.maximum((~missing).sum(axis=0), 1)
        rows = np.where(missing, np.where(missing, 0.0, rows).sum(axis=0) / n_observed, rows)
    squares = rows * rows
    inner = squares[:, numbers]
    inner = (inner + inner.T) / 2
    means = inner.mean(axis=0)
    values, vectors = scaled(inner, min(n_components, len(numbers)))
    k = int(np.count_nonzero(values[: len(vectors)] > 1e-9 * max(float(values[0]), 0.0)))
    placed = (squares.T - means) @ projection_of(values[:k], vectors[:k]).T
    width = float(np.sqrt(np.mean(placed**2))) if k else float(np.sqrt(squares.mean())) or 1.0
    noise = np.random.default_rng([seed, 4]).standard_normal((rows.shape[1], n_components - k))
    return np.hstack([placed, 0.01 * width * noise])
