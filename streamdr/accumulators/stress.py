"""One look at all pairs of a configuration: its stress, and where each point is pulled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from scipy.spatial.distance import cdist

from streamdr.accumulators.tiles import row_tiles
from streamdr.blocks import Array, Block, Settled, settled
from streamdr.distances import Distances
from streamdr.stresses import weights_of


class Target(Protocol):
    """What distances are wanted, given how unlike points are."""

    def wanted(self, dissimilarities: Array) -> Array:
        """A distance for each dissimilarity, NaN where that is missing."""

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart: scalars and arrays."""


class Themselves:
    """Dissimilarities are the distances that are wanted."""

    def wanted(self, dissimilarities: Array) -> Array:
        """As they are."""
        return dissimilarities

    def parameters(self) -> Mapping[str, Any]:
        """Nothing."""
        return {}


class PairWeights(Settled):
    """How much each pair counts: by a stress, by the weights of its points, and by a matrix of its own."""

    def __init__(self, stress: str, points: Array | None = None, pairs: Array | None = None) -> None:
        self.stress = stress
        self.points = None if points is None else settled(points)
        self.pairs = None if pairs is None else settled(pairs)

    @property
    def alike(self) -> bool:
        """Whether all pairs that are known count alike."""
        return self.stress == "normalized" and self.points is None and self.pairs is None

    def of(self, dissimilarities: Array, numbers: Array) -> Array:
        """The weights of pairs of points with these numbers and all others; none of a point and itself."""
        weights = weights_of(self.stress, dissimilarities)
        if self.points is not None:
            weights *= self.points
            weights *= self.points[numbers, None]
        if self.pairs is not None:
            weights *= self.pairs[numbers]
        weights[np.arange(len(numbers)), numbers] = 0.0
        return weights

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart."""
        given = {"point_weights": self.points, "pair_weights": self.pairs}
        return {"stress": self.stress, **{name: array for name, array in given.items() if array is not None}}


class Stress(Settled):
    """Sums over all pairs of a configuration Y, each of which is seen from both its ends.

    `pull` holds for each point i the sum over j of w (1 - a / b) (y_i - y_j), half the gradient of the sum of
    w (a - b)^2, `degree` the sum of its weights; `residual` is sum w (a - b)^2, `wanted` sum w a^2, `reached`
    sum w b^2.
    """

    kind: ClassVar[str] = "stress"

    def __init__(
        self,
        distances: Distances,
        embedding: Array,
        weights: PairWeights,
        target: Target | None = None,
        *,
        holes: bool = False,
    ) -> None:
        self.distances = distances
        self.embedding = settled(embedding)
        self.weights = weights
        self.target = target or Themselves()
        self.holes = holes
        self.pull = np.zeros(embedding.shape)
        self.degree = np.zeros(len(embedding))
        self.sums = np.zeros(3)

    @property
    def residual(self) -> float:
        """The sum of w (a - b)^2 over pairs."""
        return float(self.sums[0]) / 2

    @property
    def wanted(self) -> float:
        """The sum of w a^2 over pairs."""
        return float(self.sums[1]) / 2

    @property
    def reached(self) -> float:
        """The sum of w b^2 over pairs."""
        return float(self.sums[2]) / 2

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        everywhere = self.embedding
        for tile in row_tiles(len(block.values), self.distances.n_points):
            values, numbers = block.values[tile], block.numbers[tile]
            if np.isinf(values).any() or (not self.holes and np.isnan(values).any()):
                block.suspect()
            unlike = self.distances.between(values)
            reached = cdist(everywhere[numbers], everywhere)
            if self.weights.alike and not self.holes:
                self._add_alike(self.target.wanted(unlike), reached, numbers)
            else:
                weights = self.weights.of(unlike, numbers)
                self._add(self.target.wanted(unlike), weights, reached, numbers)

    def _add(self, wanted: Array, weights: Array, reached: Array, numbers: Array) -> None:
        wanted[weights == 0] = 0.0  # what is missing is no number
        products = weights * wanted
        ratio = np.divide(products, reached, out=np.zeros_like(reached), where=reached > 0)
        self.sums[1] += np.einsum("ij,ij->", products, wanted)
        np.multiply(weights, reached, out=products)
        self.sums[2] += np.einsum("ij,ij->", products, reached)
        wanted -= reached
        np.multiply(weights, wanted, out=products)
        self.sums[0] += np.einsum("ij,ij->", products, wanted)
        self.degree[numbers] += weights.sum(axis=1)
        weights -= ratio
        self._add_pull(weights.sum(axis=1), weights @ self.embedding, numbers)

    def _add_alike(self, wanted: Array, reached: Array, numbers: Array) -> None:
        """The same where every pair has the weight one: a third of the work."""
        ratio = np.divide(wanted, reached, out=np.zeros_like(reached), where=reached > 0)
        self.sums[1] += np.einsum("ij,ij->", wanted, wanted)
        self.sums[2] += np.einsum("ij,ij->", reached, reached)
        wanted -= reached
        self.sums[0] += np.einsum("ij,ij->", wanted, wanted)
        self.degree[numbers] += len(self.embedding) - 1
        shares, others = ratio.sum(axis=1), ratio @ self.embedding
        self._add_pull(len(self.embedding) - shares, self.embedding.sum(axis=0) - others, numbers)

    def _add_pull(self, shares: Array, others: Array, numbers: Array) -> None:
        self.pull[numbers] += shares[:, None] * self.embedding[numbers] - others

    def merge(self, later: Self) -> None:
        """Fold in what comes after."""
        self.pull += later.pull
        self.degree += later.degree
        self.sums += later.sums

    def empty_like(self) -> Self:
        """A fresh one for the same configuration."""
        return type(self)(self.distances, self.embedding, self.weights, self.target, holes=self.holes)

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart before any data."""
        parts = [self.distances.parameters(), self.weights.parameters(), self.target.parameters()]
        given = {name: value for part in parts for name, value in part.items()}
        return {**given, "embedding": self.embedding, "holes": self.holes}

    def value(self) -> dict[str, Array]:
        """The sums."""
        return self.arrays()

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"pull": self.pull, "degree": self.degree, "sums": self.sums}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take up a saved state."""
        self.pull, self.degree, self.sums = arrays["pull"], arrays["degree"], arrays["sums"]
