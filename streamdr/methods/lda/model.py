"""The fitted model of LDA: scores of rows along the discriminants, and their most likely class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import logsumexp, softmax

from streamdr.core.blocks import AlignedArrays, Array, MatrixSpec, Span, SparseRows, widen
from streamdr.core.facts import Fact, Table, explained_variances, notes
from streamdr.core.outline import unallocated
from streamdr.core.plain_maps import Multiply, PlainMap, Subtract
from streamdr.core.sparse_maps import SparseAffine
from streamdr.statistics.gram import Scores

if TYPE_CHECKING:
    from streamdr.core.scikit_learn import Step

_CLASS = {"dims": ("class",)}
_FEATURE = {"dims": ("feature",)}
_COMPONENT = {"dims": ("component",)}

_TILE_BYTES = 16 << 20
"""Bytes of class scores that are computed at a time."""


def rank_deficiency_note(rank: int, n_features: int) -> str:
    """The note on a rank-deficient covariance within classes."""
    return (
        f"within classes {n_features} features vary in {rank} directions only; the other directions are not "
        "used, even if classes differ there: set shrinkage to 'auto' or to a number such as 0.1 to use them"
    )


@dataclass(frozen=True, eq=False)
class LDAModel(AlignedArrays):
    """Discriminants, and a normal distribution for each class: its own mean, and a common covariance."""

    allow_nan: ClassVar[bool] = False

    classes: Array | list[str] = field(metadata=_CLASS)
    """The labels, sorted: numbers in their own type, or text."""
    priors: Array = field(metadata=_CLASS)
    """The prior probability of each class."""
    class_weight: Array = field(metadata=_CLASS)
    """The number of rows of each class, or the sum of their weights."""
    means: Array = field(metadata={"dims": ("class", "feature"), "data_units": True})
    """The mean of each class."""
    xbar: Array = field(metadata={**_FEATURE, "data_units": True})
    """The mean of the class means, weighted by the priors."""
    covariance: Array = field(metadata={"dims": ("feature", "feature_too")})
    """The covariance within classes, common to all classes, after shrinkage if that was set."""
    scalings: Array = field(metadata={"dims": ("feature", "component"), "mapped": True})
    """The discriminants as columns. Within classes, scores have unit variance and no correlation."""
    eigenvalues: Array = field(metadata=_COMPONENT)
    """The ratio of the variance between classes to that within classes, along each discriminant."""
    explained_variance_ratio: Array = field(metadata=_COMPONENT)
    """The share of each discriminant in `separation`."""
    separation: float
    """The sum of the ratios of variances over all directions."""
    axes: Array = field(metadata={"dims": ("feature", "axis")})
    """A basis of all directions in which class means differ, scaled like the discriminants."""
    centroids: Array = field(metadata={"dims": ("class", "axis")})
    """The class means along `axes`, relative to `xbar`."""
    rank: int
    """The number of directions in which rows vary within classes. Other directions are not used."""
    shrinkage: Array | None = field(default=None, metadata=_CLASS)
    """The shrinkage of the covariance of each class."""

    @property
    def n_features(self) -> int:
        """The number of columns that `transform` takes."""
        return len(self.xbar)

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return len(self.classes)

    @property
    def n_components(self) -> int:
        """The number of discriminants."""
        return int(self.scalings.shape[1])

    @property
    def n_outputs(self) -> int:
        """The number of columns that `transform` returns."""
        return self.n_components

    @property
    def outputs_are_features(self) -> bool:
        """False: discriminants are not features."""
        return False

    @property
    def n_samples(self) -> float:
        """The number of rows, or the sum of their weights."""
        return float(self.class_weight.sum())

    @property
    def within_scatter(self) -> Array:
        """S_w, the scatter of the rows about the means of their classes, from the model's covariance."""
        scatter: Array = self.covariance * self.n_samples
        return scatter

    @property
    def between_scatter(self) -> Array:
        """S_b, the scatter of the class means about the mean of all rows."""
        shares = self.class_weight / self.n_samples
        apart = self.means - self.means[0]  # first: a large common offset would cancel
        apart -= shares @ apart
        scatter: Array = (apart.T * self.class_weight) @ apart
        return scatter

    @property
    def coef(self) -> Array:
        """The coefficients of the decision function: one row per class, or one row for two classes."""
        coefficients: Array = self.centroids @ self.axes.T
        return coefficients[1:] - coefficients[:1] if self.n_classes == 2 else coefficients

    @property
    def intercept(self) -> Array:
        """The constants of the decision function: one for each row of `coef`."""
        levels = self._levels
        levels = levels[1:] - levels[:1] if self.n_classes == 2 else levels
        constants: Array = levels - self.coef @ self.xbar
        return constants

    def summary(self) -> dict[str, Any]:
        """The numbers of classes and discriminants, and the separation of the classes, for reports."""
        facts = {
            "solver": "class moments",
            "n_components": self.n_components,
            "explained_variance_ratio": [float(ratio) for ratio in self.explained_variance_ratio],
            "n_classes": self.n_classes,
            "total_variance": self.separation,
        }
        if self.shrinkage is not None:
            facts["shrinkage"] = float(self.priors @ self.shrinkage)
        return facts | {"notes": self._notes()}

    def _notes(self) -> list[str]:
        """A note if the covariance within classes is rank-deficient."""
        return [rank_deficiency_note(self.rank, self.n_features)] if self.rank < self.n_features else []

    def facts(self) -> tuple[Fact, ...]:
        """The numbers of classes and discriminants, and the separation of the classes."""
        found = [
            Fact("solver", "class moments"),
            Fact("components", self.n_components),
            Fact(
                "explained", float(self.explained_variance_ratio.sum()), "% of the variance between classes"
            ),
            Fact("classes", self.n_classes),
            Fact("separation", self.separation, "times the variance within classes"),
        ]
        if self.shrinkage is not None:
            found.append(Fact("shrinkage", float(self.priors @ self.shrinkage)))
        return (*found, *notes(self._notes()))

    def tables(self) -> tuple[Table, ...]:
        """The explained variance of each discriminant."""
        return explained_variances(self.explained_variance_ratio, self.separation)

    keeps_zeros: ClassVar[bool] = False
    sparse_outputs: ClassVar[frozenset[str]] = frozenset({"predict", "likeliest", "predict_proba"})

    def transform(self, values: Array) -> Array:
        """Map rows to their scores along the discriminants, in the floating type of the rows."""
        return self._scores(values, "scalings")

    def transform_sparse(self, rows: SparseRows) -> Array:
        """Map sparse rows to their scores along the discriminants."""
        return self._scores(rows, "scalings")

    def predict(self, values: Array | SparseRows) -> Array:
        """The most likely class of each row, in the type of the labels: numbers, or text."""
        predicted: Array = np.asarray(self.classes)[self.likeliest(values)]
        return predicted

    def likeliest(self, values: Array | SparseRows) -> Array:
        """The index of the most likely class of each row."""
        numbers = np.empty(values.shape[0], np.intp)
        for tile in self._tiles(values.shape[0]):
            numbers[tile] = np.argmax(self._log_joint(values[tile]), axis=1)
        return numbers

    def predict_proba(self, values: Array | SparseRows) -> Array:
        """The probability of each class for each row, in double precision."""
        probabilities = np.empty((values.shape[0], self.n_classes))
        for tile in self._tiles(values.shape[0]):
            probabilities[tile] = softmax(self._log_joint(values[tile]), axis=1)
        return probabilities

    def predict_log_proba(self, values: Array) -> Array:
        """The logarithm of the probability of each class for each row."""
        joint = self._log_joint(values)
        joint -= logsumexp(joint, axis=1, keepdims=True)
        return joint

    def decision_function(self, values: Array) -> Array:
        """Linear functions of the rows: one column per class, and the largest for the most likely class.

        For two classes there is one number per row, which is positive where the second class is more likely.
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

    def plain_maps(self) -> tuple[PlainMap, ...]:
        """`transform` as elementary maps."""
        return Subtract(self.xbar), Multiply(self.scalings)

    def sklearn_steps(self) -> list[Step]:
        """The model as estimators of scikit-learn."""
        from streamdr.methods.lda.scikit_learn import lda_steps

        return lda_steps(self, self._levels)

    def scratch_bytes(self, n_rows: int) -> int:
        """Bytes that mapping `n_rows` rows allocates besides the result."""
        directions = max(self.n_components, int(self.axes.shape[1]))
        table = self.n_classes * directions + self.n_features * directions
        tile = min(n_rows, self._tile_rows)
        joint = 3 * tile * directions + 5 * tile * (self.n_classes + 2)
        # For each row, where classes are predicted, the index and the label.
        return 8 * (n_rows * (self.n_features + 2) + joint + 4 * table)

    @property
    def _tile_rows(self) -> int:
        """The number of rows of a tile."""
        return max(1, _TILE_BYTES // (8 * self.n_classes))

    def _tiles(self, n_rows: int) -> Iterator[slice]:
        """Runs of rows whose class scores fill a tile."""
        return (span.slice for span in Span(0, n_rows).split(self._tile_rows))

    @cached_property
    def _levels(self) -> Array:
        """The constant of each class in its linear function of the scores."""
        with np.errstate(divide="ignore"):  # a prior may be zero
            levels: Array = np.log(self.priors) - 0.5 * np.einsum("ij,ij->i", self.centroids, self.centroids)
        return levels

    def _log_joint(self, values: Array | SparseRows) -> Array:
        """log(prior) + log(density) of each row and class, up to a constant for each row.

        Distances are relative to the centroid of the nearest class. Far from the origin, squared distances
        would cancel in the differences between classes that are close together.
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

    def _scores(self, values: Array | SparseRows, directions: str) -> Array:
        """The scores of rows along the discriminants ("scalings") or the axes ("axes")."""
        if not isinstance(values, np.ndarray):
            return self._sparse_map(values.dtype, directions)(values)
        rows = widen(values)
        shift, offset, matrix = self._prepared(rows.dtype, directions)
        scores: Array = (rows - shift) @ matrix
        scores += offset
        return scores

    def _prepared(self, dtype: np.dtype[Any], directions: str) -> tuple[Array, Array, Array]:
        """The mean, the correction of its rounding, and the directions, in a data type."""
        # The mean is subtracted before the product, never after. What it lost in rounding is added back.
        cache: dict[Any, tuple[Array, Array, Array]] = self._by_dtype
        if (dtype, directions) not in cache:
            matrix, shift = getattr(self, directions), self.xbar.astype(dtype)
            offset = ((shift - self.xbar) @ matrix).astype(dtype)
            cache[dtype, directions] = shift, offset, matrix.astype(dtype, copy=False)
        return cache[dtype, directions]

    def _sparse_map(self, dtype: np.dtype[Any], directions: str) -> SparseAffine:
        """The map of sparse rows of a type along some directions, computed once."""
        cache: dict[Any, SparseAffine] = self._sparse_by_dtype
        if (dtype, directions) not in cache:
            variance = np.diag(self.covariance) + self.priors @ (self.means - self.xbar) ** 2
            cache[dtype, directions] = SparseAffine.of(self.xbar, getattr(self, directions), variance, dtype)
        return cache[dtype, directions]

    @cached_property
    def _by_dtype(self) -> dict[Any, tuple[Array, Array, Array]]:
        """The cache of `_prepared`."""
        return {}

    @cached_property
    def _sparse_by_dtype(self) -> dict[Any, SparseAffine]:
        """The cache of `_sparse_map`."""
        return {}


def lda_outline(data: MatrixSpec, n_classes: int, k: int) -> LDAModel:
    """An outline of a model with this many classes and discriminants."""
    d, axes = data.n_cols, min(n_classes - 1, data.n_cols)
    return LDAModel(
        classes=unallocated(n_classes),
        priors=unallocated(n_classes),
        class_weight=unallocated(n_classes),
        means=unallocated(n_classes, d),
        xbar=unallocated(d),
        covariance=unallocated(d, d),
        scalings=unallocated(d, k),
        eigenvalues=unallocated(k),
        explained_variance_ratio=unallocated(k),
        separation=1.0,
        axes=unallocated(d, axes),
        centroids=unallocated(n_classes, axes),
        rank=d,
    )
