"""What iterative scaling begins with: all pairs, at hand or streamed, and a first configuration."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from streamdr.accumulators import Accumulator, Sample, Submatrix
from streamdr.blocks import Array, Block, MatrixSpec, Span
from streamdr.distances import Distances, StoredDistances, pair_distances, point_distances
from streamdr.errors import DataError
from streamdr.methods.base import Pass
from streamdr.methods.mds_parameters import some_pairs
from streamdr.methods.scaling import projection_of, scaled
from streamdr.methods.stored_distances import require_symmetric, surveyed

LANDMARKS = 300
"""How many points the first configuration is made by."""


@dataclass(frozen=True, eq=False)
class Setting:
    """The points of a scaling and the distances between them."""

    distances: Distances
    start: Array
    """A first configuration, by landmarks."""
    pairs: Array
    unlike: Array
    """The dissimilarities of these pairs."""
    points: Array | None = None
    """What the points are, unless their distances are all that is known."""
    weights: Array | None = None
    """Of each point, unless all are one."""
    complete: bool = True
    """Whether no distance is missing."""
    at_hand: Block | None = None
    """All distances, where they are kept in memory."""

    @property
    def n_points(self) -> int:
        """How many points there are."""
        return len(self.start)

    def starts(self, number: int, seed: int) -> list[Array]:
        """The first configuration, and others at random that are as wide."""
        rng = np.random.default_rng([seed, 5])
        width = float(np.sqrt(np.mean(self.start**2))) or 1.0
        others = [width * rng.standard_normal(self.start.shape) for _ in range(number - 1)]
        return [self.start, *others]


def prepared(
    metric: Any, data: MatrixSpec, n_components: int, seed: int, earlier: Any, *, keep: bool
) -> Generator[Pass, Accumulator, Setting]:
    """Read the data once; `keep` all distances in memory, or only what the first configuration needs.

    An `earlier` model of the first points, if there is one, places all of them to begin with.
    """
    stored = metric == "precomputed"
    some = yield from (_stored(data, seed, keep=keep) if stored else _points(metric, data, seed, keep=keep))
    start = by_landmarks(some.rows, some.numbers, n_components, seed)
    if earlier is not None and some.points is not None:
        start = np.asarray(earlier.transform(some.points), np.float64)
    return Setting(
        distances=some.distances,
        start=start,
        pairs=some.pairs,
        unlike=some.unlike,
        points=some.points,
        weights=None if (some.weights == 1).all() else some.weights,
        complete=some.complete,
        at_hand=some.at_hand,
    )


@dataclass(frozen=True, eq=False)
class _Found:
    distances: Distances
    numbers: Array
    """Of the landmarks."""
    rows: Array
    """Distances from landmarks to all points."""
    pairs: Array
    unlike: Array
    weights: Array
    complete: bool = True
    points: Array | None = None
    at_hand: Block | None = None


def _points(metric: Any, data: MatrixSpec, seed: int, *, keep: bool) -> Generator[Pass, Accumulator, _Found]:
    n = data.n_rows
    sample = cast(Sample, (yield Pass(Sample(data.n_cols, n, seed, holes=False), label="points")))
    if len(sample.rows) < n:
        raise DataError(
            f"{n - len(sample.rows)} rows have the weight zero, and nothing then says where they belong: "
            "leave them out, or give them some"
        )
    order = np.argsort(sample.numbers)
    points, weights = sample.rows[order], sample.weights[order]
    pairs, numbers = some_pairs(n, seed), landmark_numbers(n, seed)
    unlike = pair_distances(metric, points, pairs)
    between = point_distances(metric, points)
    if not keep:
        rows = between.between(points[numbers])
        return _Found(between, numbers, rows, pairs, unlike, weights, points=points)
    matrix = between.between(points)
    if callable(metric):
        require_symmetric(matrix)
    block = Block(Span(0, n), matrix)
    return _Found(
        StoredDistances(n), numbers, matrix[numbers], pairs, unlike, weights, points=points, at_hand=block
    )


def _stored(data: MatrixSpec, seed: int, *, keep: bool) -> Generator[Pass, Accumulator, _Found]:
    n = data.n_rows
    pairs, numbers = some_pairs(n, seed), landmark_numbers(n, seed)
    if keep:
        survey, full = yield from surveyed(data, pairs, seed, Sample(n, n, seed, holes=True), holes=True)
    else:
        some = Submatrix(numbers, np.arange(n), holes=True)
        survey, full = yield from surveyed(data, pairs, seed, some, holes=True)
    if not (survey.weights > 0).all():
        row = int(np.argmin(survey.weights))
        told = f"row {row} has the weight zero, and nothing then says where it belongs"
        raise DataError(f"{told}: leave it out, or give it some")
    complete = int(survey.known) == n * n
    between = StoredDistances(n)
    if keep:
        sample = cast(Sample, full)
        matrix = sample.rows[np.argsort(sample.numbers)]
        block = Block(Span(0, n), matrix)
        found, weights = survey.found, survey.weights
        return _Found(between, numbers, matrix[numbers], pairs, found, weights, complete, at_hand=block)
    rows = cast(Submatrix, full).found
    return _Found(between, numbers, rows, pairs, survey.found, survey.weights, complete)


def landmark_numbers(n_points: int, seed: int) -> Array:
    """Some points at random, in order."""
    return np.sort(np.random.default_rng([seed, 3]).permutation(n_points)[:LANDMARKS])


def by_landmarks(rows: Array, numbers: Array, n_components: int, seed: int) -> Array:
    """A configuration of all points by their distances to some: what is missing is taken to be the mean.

    Dimensions that the distances do not have are filled with a little noise, so that points can move there.
    """
    gaps = np.isnan(rows)
    if gaps.any():
        known = np.maximum((~gaps).sum(axis=0), 1)
        rows = np.where(gaps, np.where(gaps, 0.0, rows).sum(axis=0) / known, rows)
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
