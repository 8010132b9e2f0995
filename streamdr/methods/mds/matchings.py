"""Random matchings: pairs of points in which no point is in two pairs, with their target distances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from streamdr.core.blocks import Array
from streamdr.methods.mds.distances import pair_distances
from streamdr.methods.mds.stresses import weights_of


class Pairs(NamedTuple):
    """The pairs of a matching."""

    left: Array
    """One point of each pair."""
    right: Array
    """The other point."""
    targets: Array
    """The target distance of each pair: a finite number, also where the weight is zero."""
    weights: Array


class Matchings(Protocol):
    """The matchings of a stochastic descent."""

    @property
    def work(self) -> int:
        """The number of operations that it takes to find the distances of a round."""

    def pairs(self, epoch: int, number: int) -> Pairs:
        """The pairs of a round of an epoch, which depend on these two numbers only."""

    def parameters(self) -> Mapping[str, Any]:
        """The parameters: scalars, arrays and functions."""


class PointMatchings:
    """Random matchings of points, whose distances are computed when they are needed."""

    def __init__(self, metric: Any, points: Array, stress: str, weights: Array | None, seed: int) -> None:
        self.metric = metric
        self.points = points
        self.stress = stress
        self.weights = weights
        self.seed = seed

    @property
    def work(self) -> int:
        """The number of features of all pairs."""
        n_points, n_features = self.points.shape
        return int(n_features * (n_points // 2))

    def pairs(self, epoch: int, number: int) -> Pairs:
        """A new random matching for each round."""
        left, right = matching(len(self.points), np.random.default_rng([self.seed, epoch, number]))
        targets = pair_distances(self.metric, self.points, np.stack([left, right]).T)
        return Pairs(left, right, targets, _weights(self.stress, self.weights, left, right, targets))

    def parameters(self) -> Mapping[str, Any]:
        """The metric, the points, their weights, the stress and the seed."""
        given = {"metric": self.metric, "points": self.points, "stress": self.stress, "seed": self.seed}
        return given if self.weights is None else given | {"point_weights": self.weights}


class StoredMatchings:
    """Matchings whose distances were read from a stored matrix. Every epoch takes them in another order."""

    def __init__(
        self,
        matchings: list[tuple[Array, Array]],
        found: Array,
        stress: str,
        weights: Array | None,
        seed: int,
    ) -> None:
        self.matchings = matchings
        self.found = found
        """The distance of each point (a row) to its partner in each matching (a column); NaN if missing."""
        self.stress = stress
        self.weights = weights
        self.seed = seed

    @property
    def work(self) -> int:
        """The number of pairs."""
        return len(self.found) // 2

    def pairs(self, epoch: int, number: int) -> Pairs:
        """One of the matchings. Where there are fewer of them than rounds, they are used again."""
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.matchings))
        chosen = int(order[number % len(self.matchings)])
        left, right = self.matchings[chosen]
        targets = self.found[left, chosen]
        weights = _weights(self.stress, self.weights, left, right, targets)
        return Pairs(left, right, np.where(weights > 0, targets, 0.0), weights)

    def parameters(self) -> Mapping[str, Any]:
        """The distances, the weights of the points, the stress and the seed, which gives the matchings."""
        given = {"found": self.found, "stress": self.stress, "seed": self.seed}
        return given if self.weights is None else given | {"point_weights": self.weights}


def _weights(stress: str, points: Array | None, left: Array, right: Array, targets: Array) -> Array:
    """The weights of pairs by their target distances and the weights of their points."""
    weights = weights_of(stress, targets)
    return weights if points is None else weights * points[left] * points[right]


def matching(n_points: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """A random matching: each point is in at most one pair."""
    order = rng.permutation(n_points)
    half = n_points // 2
    return order[:half], order[half : 2 * half]


def round_robin(n_points: int, rounds: int, rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """Disjoint matchings: the rounds of a round-robin tournament of all points.

    In round r of n - 1 (n even), the points whose positions sum to r modulo n - 1 are paired. The point that
    would be paired with itself is paired with the last one.
    """
    n_even = n_points + n_points % 2
    order = rng.permutation(n_points)
    chosen = rng.permutation(n_even - 1)[:rounds]
    positions = np.arange(n_even - 1)
    matchings = []
    for number in chosen:
        others = (number - positions) % (n_even - 1)
        others[others == positions] = n_even - 1
        once = (positions < others) & (others < n_points)
        matchings.append((order[positions[once]], order[others[once]]))
    return matchings
