"""The stress of a configuration over all pairs, and its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from scipy.spatial.distance import cdist

from streamdr.core.blocks import AlignedArrays, Array, Block, aligned
from streamdr.core.buffers import scratch
from streamdr.methods.mds.distances import Distances
from streamdr.methods.mds.stresses import weights_of
from streamdr.methods.mds.tiles import row_tiles


class Target(Protocol):
    """The map from dissimilarities to target distances."""

    def distances(self, dissimilarities: Array) -> Array:
        """The target distance for each dissimilarity; NaN where it is missing."""

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, for the ledger's key: scalars and arrays."""


class IdentityTarget:
    """Dissimilarities are the target distances."""

    def distances(self, dissimilarities: Array) -> Array:
        """The dissimilarities themselves."""
        return dissimilarities

    def parameters(self) -> Mapping[str, Any]:
        """No parameters."""
        return {}


class PairWeights(AlignedArrays):
    """The weight of each pair: by the stress, by the weights of its points, and by a matrix of weights."""

    def __init__(self, stress: str, points: Array | None = None, pairs: Array | None = None) -> None:
        self.stress = stress
        self.points = None if points is None else aligned(points)
        self.pairs = None if pairs is None else aligned(pairs)

    @property
    def uniform(self) -> bool:
        """Whether all observed pairs have the weight one."""
        return self.stress == "normalized" and self.points is None and self.pairs is None

    def of(self, dissimilarities: Array, numbers: Array) -> Array:
        """The weights of pairs of the points `numbers` with all points; zero for a point and itself."""
        weights = weights_of(self.stress, dissimilarities)
        if self.points is not None:
            weights *= self.points
            weights *= self.points[numbers, None]
        if self.pairs is not None:
            weights *= self.pairs[numbers]
        weights[np.arange(len(numbers)), numbers] = 0.0
        return weights

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, for the ledger's key."""
        given = {"point_weights": self.points, "pair_weights": self.pairs}
        return {"stress": self.stress, **{name: array for name, array in given.items() if array is not None}}


class Stress(AlignedArrays):
    """Sums over all pairs of a configuration Y. Each pair is visited from both ends.

    Let a be the target distance of a pair, b its distance in Y, and w its weight. For each point i, `pull`
    holds the sum over j of w (1 - a / b) (y_i - y_j), half the gradient of the sum of w (a - b)^2, and
    `degree` the sum of w. `residual` is sum w (a - b)^2, `target_squares` sum w a^2, and `fitted_squares`
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
        allow_nan: bool = False,
    ) -> None:
        self.distances = distances
        self.embedding = aligned(embedding)
        self.weights = weights
        self.target = target or IdentityTarget()
        self.allow_nan = allow_nan
        self.pull = np.zeros(embedding.shape)
        self.degree = np.zeros(len(embedding))
        self.sums = np.zeros(3)

    @property
    def residual(self) -> float:
        """The sum of w (a - b)^2 over pairs."""
        return float(self.sums[0]) / 2

    @property
    def target_squares(self) -> float:
        """The sum of w a^2 over pairs."""
        return float(self.sums[1]) / 2

    @property
    def fitted_squares(self) -> float:
        """The sum of w b^2 over pairs."""
        return float(self.sums[2]) / 2

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        embedding = self.embedding
        for tile in row_tiles(len(block.values), self.distances.n_points):
            values, numbers = block.values[tile], block.numbers[tile]
            if np.isinf(values).any() if self.allow_nan else not np.isfinite(values).all():
                block.locate_nonfinite()
            dissimilarities = self.distances.between(values)
            shape = (len(numbers), len(embedding))
            fitted = cdist(embedding[numbers], embedding, out=scratch("fitted", shape, embedding.dtype))
            if self.weights.uniform and not self.allow_nan:
                self._add_uniform(self.target.distances(dissimilarities), fitted, numbers)
            else:
                weights = self.weights.of(dissimilarities, numbers)
                self._add(self.target.distances(dissimilarities), weights, fitted, numbers)

    def _add(self, targets: Array, weights: Array, fitted: Array, numbers: Array) -> None:
        """Add the pairs of some points with all points."""
        targets[weights == 0] = 0.0  # missing values are NaN
        products = weights * targets
        ratio = _quotients(products, fitted, numbers)
        self.sums[1] += np.einsum("ij,ij->", products, targets)
        np.multiply(weights, fitted, out=products)
        self.sums[2] += np.einsum("ij,ij->", products, fitted)
        targets -= fitted
        np.multiply(weights, targets, out=products)
        self.sums[0] += np.einsum("ij,ij->", products, targets)
        self.degree[numbers] += weights.sum(axis=1)
        weights -= ratio
        self._add_pull(weights.sum(axis=1), weights @ self.embedding, numbers)

    def _add_uniform(self, targets: Array, fitted: Array, numbers: Array) -> None:
        """`_add` for weights of one, with a third of the work."""
        ratio = _quotients(targets, fitted, numbers)
        self.sums[1] += np.einsum("ij,ij->", targets, targets)
        self.sums[2] += np.einsum("ij,ij->", fitted, fitted)
        targets -= fitted
        self.sums[0] += np.einsum("ij,ij->", targets, targets)
        self.degree[numbers] += len(self.embedding) - 1
        shares, others = ratio.sum(axis=1), ratio @ self.embedding
        self._add_pull(len(self.embedding) - shares, self.embedding.sum(axis=0) - others, numbers)

    def _add_pull(self, shares: Array, others: Array, numbers: Array) -> None:
        """Add to the pull of some points."""
        self.pull[numbers] += shares[:, None] * self.embedding[numbers] - others

    def merge(self, later: Self) -> None:
        """Fold in the statistics of the rows that follow."""
        self.pull += later.pull
        self.degree += later.degree
        self.sums += later.sums

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.distances, self.embedding, self.weights, self.target, allow_nan=self.allow_nan)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        parts = [self.distances.parameters(), self.weights.parameters(), self.target.parameters()]
        given = {name: value for part in parts for name, value in part.items()}
        return {**given, "embedding": self.embedding, "holes": self.allow_nan}

    def value(self) -> dict[str, Array]:
        """The sums."""
        return self.arrays()

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"pull": self.pull, "degree": self.degree, "sums": self.sums}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.pull, self.degree, self.sums = arrays["pull"], arrays["degree"], arrays["sums"]


def _quotients(values: Array, fitted: Array, numbers: Array) -> Array:
    """The quotients of values and fitted distances of some points to all; zero where that distance is zero.

    A division without a condition is twice as fast, and nearly always the only zeros are the distances of the
    points to themselves.
    """
    quotients = scratch("quotients", fitted.shape, fitted.dtype)
    themselves = np.arange(len(numbers)), numbers
    fitted[themselves] = 1.0
    if fitted.min(initial=1.0) > 0.0:
        np.divide(values, fitted, out=quotients)
    else:
        quotients.fill(0.0)
        np.divide(values, fitted, out=quotients, where=fitted > 0.0)
    fitted[themselves] = quotients[themselves] = 0.0
    return quotients
