"""The fitted discriminants: where they map rows to, and which class a row is most likely of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp, softmax

from streamdr.accumulators import Scores
from streamdr.accumulators.kernel import TILE_BYTES
from streamdr.blocks import Array, Settled, Span, widen

_CLASS = {"dims": ("class",)}
_FEATURE = {"dims": ("feature",)}
_COMPONENT = {"dims": ("component",)}


def singular(rank: int, n_features: int) -> str:
    """What is to be said of a covariance that has not all directions."""
    return (
        f"within classes {n_features} features vary in {rank} directions only, and nothing is told apart by "
        "others, even if classes differ there: set shrinkage to 'auto' or to a number such as 0.1 to use them"
    )


@dataclass(frozen=True, eq=False)
class LDAModel(Settled):
    """Discriminants, and normal distributions of one covariance, one a class, about the means of classes."""

    holes: ClassVar[bool] = False

    classes: Array | list[str] = field(metadata=_CLASS)
    """The labels, sorted: numbers in their own type, or text."""
    priors: Array = field(metadata=_CLASS)
    """How probable each class is before a row is seen."""
    class_weight: Array = field(metadata=_CLASS)
    """How many rows each class has, or the sum of their weights."""
    means: Array = field(metadata={"dims": ("class", "feature")})
    xbar: Array = field(metadata=_FEATURE)
    """The mean of the classes' means, by their priors."""
    covariance: Array = field(metadata={"dims": ("feature", "feature_too")})
    """That within classes, shrunk when asked, which all classes share."""
    scalings: Array = field(metadata={"dims": ("feature", "component")})
    """The discriminants, one a column: within classes, scores have unit variance and no correlation."""
    eigenvalues: Array = field(metadata=_COMPONENT)
    """How many times as large the variance between classes is as that within, along each discriminant."""
    explained_variance_ratio: Array = field(metadata=_COMPONENT)
    """Each discriminant's share of that ratio's sum over all directions."""
    separation: float
    """That sum."""
    axes: Array = field(metadata={"dims": ("feature", "axis")})
    """As many directions as it takes to tell all classes apart, scaled as discriminants are."""
    centroids: Array = field(metadata={"dims": ("class", "axis")})
    """Where the classes' means are along these, from `xbar`."""
    rank: int
    """In how many directions rows vary within classes. In others nothing is told apart."""
    shrinkage: Array | None = field(default=None, metadata=_CLASS)
    """How far each class's covariance was shrunk."""

    @property
    def n_features(self) -> int:
        """How many columns `transform` takes."""
        return len(self.xbar)

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    @property
    def n_components(self) -> int:
        """How many discriminants were kept."""
        return int(self.scalings.shape[1])

    @property
    def n_outputs(self) -> int:
        """How many columns `transform` gives."""
        return self.n_components

    @property
    def outputs_are_features(self) -> bool:
        """Discriminants are no features."""
        return False

    @property
    def n_samples(self) -> float:
        """Rows, or the sum of their weights."""
        return float(self.class_weight.sum())

    @property
    def within_scatter(self) -> Array:
        """S_w, the sum of squares and products about the means of classes: that of the model's covariance."""
        scatter: Array = self.covariance * self.n_samples
        return scatter

    @property
    def between_scatter(self) -> Array:
        """S_b, that of the means of classes about the mean of all rows."""
        shares = self.class_weight / self.n_samples
        apart = self.means - self.means[0]  # before the mean is taken: what is common may be large
        apart -= shares @ apart
        scatter: Array = (apart.T * self.class_weight) @ apart
        return scatter

    @property
    def coef(self) -> Array:
        """The coefficients of the decision function: a row a class; of two classes, the one of the second."""
        coefficients: Array = self.centroids @ self.axes.T
        return coefficients[1:] - coefficients[:1] if self.n_classes == 2 else coefficients

    @property
    def intercept(self) -> Array:
        """The constants of the decision function, as many as `coef` has rows."""
        levels = self._levels
        levels = levels[1:] - levels[:1] if self.n_classes == 2 else levels
        constants: Array = levels - self.coef @ self.xbar
        return constants

    def summary(self) -> dict[str, Any]:
        """How many classes and discriminants, and what these tell apart."""
        facts = {
            "solver": "class moments",
            "n_components": self.n_components,
            "explained_variance_ratio": [float(ratio) for ratio in self.explained_variance_ratio],
            "n_classes": self.n_classes,
            "total_variance": self.separation,
        }
        if self.shrinkage is not None:
            facts["shrinkage"] = float(self.priors @ self.shrinkage)
        notes = [singular(self.rank, self.n_features)] if self.rank < self.n_features else []
        return facts | {"notes": notes}

    def transform(self, values: Array) -> Array:
        """Map rows to their scores along the discriminants, in the floating type of the rows."""
        return self._scores(values, "scalings")

    def predict(self, values: Array) -> Array:
        """The class that each row is most likely of, as labels were given: numbers, or text."""
        predicted: Array = np.asarray(self.classes)[self.likeliest(values)]
        return predicted

    def likeliest(self, values: Array) -> Array:
        """The number of the class that each row is most likely of."""
        numbers = np.empty(len(values), np.intp)
        for tile in self._tiles(len(values)):
            numbers[tile] = np.argmax(self._log_joint(values[tile]), axis=1)
        return numbers

    def predict_proba(self, values: Array) -> Array:
        """The probability of each class for each row, in double precision."""
        probabilities = np.empty((len(values), self.n_classes))
        for tile in self._tiles(len(values)):
            probabilities[tile] = softmax(self._log_joint(values[tile]), axis=1)
        return probabilities

    def predict_log_proba(self, values: Array) -> Array:
        """Its logarithm."""
        joint = self._log_joint(values)
        joint -= logsumexp(joint, axis=1, keepdims=True)
        return joint

    def decision_function(self, values: Array) -> Array:
        """Linear functions of rows, a column a class, the largest being that of the most likely one.

        Of two classes there is one number a row: it is positive where the second is the more likely one.
        """
        scores = self._scores(values, "axes")
        levels, centroids = self._levels.astype(scores.dtype), self.centroids.astype(scores.dtype)
        if self.n_classes == 2:
            decisions: Array = scores @ (centroids[1] - centroids[0]) + (levels[1] - levels[0])
            return decisions
        decisions = scores @ centroids.T
        decisions += levels
        return decisions

    maps_by_columns: ClassVar[bool] = True

    def scores_by_columns(self, n_rows: int) -> Scores:
        """`transform` as a pass over columns, for rows too wide to hold."""
        return Scores(n_rows, self.xbar, self.scalings)

    def scratch_bytes(self, n_rows: int) -> int:
        """What mapping so many rows allocates besides the result, in any of its ways."""
        directions = max(self.n_components, int(self.axes.shape[1]))
        table = self.n_classes * directions + self.n_features * directions
        tile = min(n_rows, self._tile_rows)
        joint = 3 * tile * directions + 5 * tile * (self.n_classes + 2)
        # Of each row, where classes are predicted, the number and the label.
        return 8 * (n_rows * (self.n_features + 2) + joint + 4 * table)

    @property
    def _tile_rows(self) -> int:
        return max(1, TILE_BYTES // (8 * self.n_classes))

    def _tiles(self, n_rows: int) -> Iterator[slice]:
        """Rows whose classes fill a tile: of many classes, each row takes as many numbers."""
        return (span.slice for span in Span(0, n_rows).split(self._tile_rows))

    @cached_property
    def _levels(self) -> Array:
        with np.errstate(divide="ignore"):  # a class may have no probability
            levels: Array = np.log(self.priors) - 0.5 * np.einsum("ij,ij->i", self.centroids, self.centroids)
        return levels

    def _log_joint(self, values: Array) -> Array:
        """The logarithm of a prior times a density, less what is the same for all classes, for each row.

        Each row is looked at from the class that it is nearest to. From afar, where distances are many
        deviations, their squares would have no digits left for how classes that are close together differ.
        """
        scores = self._scores(values, "axes").astype(np.float64, copy=False)
        nearest = np.argmax(scores @ self.centroids.T + self._levels, axis=1)
        joint = np.empty((len(scores), self.n_classes))
        with np.errstate(divide="ignore"):
            priors = np.log(self.priors)
        for number in np.unique(nearest):
            rows = nearest == number
            apart = self.centroids - self.centroids[number]
            levels = priors - 0.5 * np.einsum("ij,ij->i", apart, apart)
            joint[rows] = (scores[rows] - self.centroids[number]) @ apart.T + levels
        return joint

    def _scores(self, values: Array, directions: str) -> Array:
        rows = widen(values)
        shift, offset, matrix = self._prepared(rows.dtype, directions)
        scores: Array = (rows - shift) @ matrix
        scores += offset
        return scores

    def _prepared(self, dtype: np.dtype[Any], directions: str) -> tuple[Array, Array, Array]:
        # The mean is subtracted before the product, never after. What it lost in rounding is added back.
        cache: dict[Any, tuple[Array, Array, Array]] = self._by_dtype
        if (dtype, directions) not in cache:
            matrix, shift = getattr(self, directions), self.xbar.astype(dtype)
            offset = ((shift - self.xbar) @ matrix).astype(dtype)
            cache[dtype, directions] = shift, offset, matrix.astype(dtype, copy=False)
        return cache[dtype, directions]

    @cached_property
    def _by_dtype(self) -> dict[Any, tuple[Array, Array, Array]]:
        return {}
