"""The fitted PCA: `transform`, its inverse, and likelihoods."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from streamdr.core.blocks import AlignedArrays, Array, MatrixSpec, widen
from streamdr.core.facts import Fact, Table, explained_variances, notes
from streamdr.core.linalg import slabs
from streamdr.core.outline import unallocated
from streamdr.errors import DataError
from streamdr.statistics.gram import Scores

_FEATURE = {"dims": ("feature",)}
_COMPONENT = {"dims": ("component",)}


@dataclass(frozen=True, eq=False)
class PCAModel(AlignedArrays):
    """Principal axes, their variances, and the whitening that `transform` applies."""

    allow_nan: ClassVar[bool] = False

    mean: Array = field(metadata={**_FEATURE, "data_units": True})
    """The mean of each feature."""
    components: Array = field(metadata={"dims": ("component", "feature"), "mapped": True})
    """The principal axes, one per row, by descending variance."""
    explained_variance: Array = field(metadata=_COMPONENT)
    """The variance along each component."""
    total_variance: float
    """The sum of the variances of all features."""
    reconstruction_error: float
    """The mean squared error of a rank-k reconstruction: the sum of the discarded eigenvalues."""
    noise_variance: float
    """The mean of the discarded eigenvalues: the noise of probabilistic PCA (Tipping and Bishop 1999)."""
    n_samples: float
    """The number of rows, or the sum of their weights."""
    ddof: int
    """The covariance was divided by n - ddof."""
    rank: int
    """The number of variances above rounding error."""
    solver: str
    """The solver that computed the components."""
    whiten: str | None = None
    """How `transform` whitens scores; None where it does not."""
    scale: Array | None = field(default=None, metadata=_FEATURE)
    """What each feature is divided by: its standard deviation for PCA of the correlation matrix, over its
    weight if features have weights; None if features are taken as they are."""
    residuals: Array | None = field(default=None, metadata=_COMPONENT)
    """|S u - lambda u| of each component, for the iterative solver."""
    center: bool = True
    """Whether the mean was subtracted. If not, `mean` is zero, and variances are mean squares about zero."""
    var: Array | None = field(default=None, metadata=_FEATURE)
    """The variance of each feature about its mean, over n. Models of earlier versions have none."""

    @property
    def n_features(self) -> int:
        """How many columns `transform` takes."""
        return len(self.mean)

    @property
    def n_components(self) -> int:
        """How many principal axes were kept."""
        return len(self.components)

    @property
    def n_outputs(self) -> int:
        """How many columns `transform` returns."""
        return self.n_features if self.outputs_are_features else self.n_components

    @property
    def outputs_are_features(self) -> bool:
        """Whether whitening is ZCA, which rotates scores back to the features."""
        return self.whiten == "zca"

    @property
    def explained_variance_ratio(self) -> Array:
        """Each component's share of the total variance."""
        return np.clip(self.explained_variance / self.total_variance, 0.0, 1.0)

    @property
    def singular_values(self) -> Array:
        """The singular values of the centred data."""
        return np.sqrt(self.explained_variance * (self.n_samples - self.ddof))

    def summary(self) -> dict[str, Any]:
        """The number of components, the solver, and the explained variance."""
        return {
            "solver": self.solver,
            "n_components": self.n_components,
            "rank": self.rank,
            "explained_variance_ratio": [float(ratio) for ratio in self.explained_variance_ratio[:1000]],
            "reconstruction_error": self.reconstruction_error,
            "total_variance": self.total_variance,
        }

    def facts(self) -> tuple[Fact, ...]:
        """The number of components, the solver, and the explained variance."""
        found = (
            Fact("solver", self.solver),
            Fact("components", self.n_components),
            Fact("explained", float(self.explained_variance_ratio.sum()), "% of the variance"),
            Fact("variance left out", self.reconstruction_error),
            Fact("total variance", self.total_variance),
        )
        if self.rank >= self.n_components:
            return found
        return (*found, Fact("rank", self.rank), *notes(["the data has no variance in the other directions"]))

    def tables(self) -> tuple[Table, ...]:
        """The variance that each component explains."""
        return explained_variances(self.explained_variance_ratio, self.total_variance)

    def get_covariance(self) -> Array:
        """The covariance that the model describes: its components, and its noise in every other direction."""
        excess = np.maximum(self.explained_variance - self.noise_variance, 0.0)
        covariance = (self.components.T * excess) @ self.components
        covariance.flat[:: self.n_features + 1] += self.noise_variance
        if self.scale is not None:
            covariance *= np.outer(self.scale, self.scale)
        return covariance

    def get_precision(self) -> Array:
        """The inverse of the covariance that the model describes."""
        along, noise = self._levels()
        across = 1.0 / noise if noise else 0.0
        precision = (self.components.T * (1.0 / along - across)) @ self.components
        precision.flat[:: self.n_features + 1] += across
        if self.scale is not None:
            precision /= np.outer(self.scale, self.scale)
        return precision

    def score_samples(self, values: Array) -> Array:
        """The log-likelihood of each row, in nats, under a normal distribution with that covariance."""
        along, noise = self._levels()
        spare = self.n_features - self.n_components
        level = self.n_features * np.log(2 * np.pi) + float(np.log(along).sum())
        if noise:
            level += spare * float(np.log(noise))
        if self.scale is not None:
            level += 2 * float(np.log(self.scale).sum())
        found = np.empty(len(values))
        for slab in slabs(values):  # a slab at a time: copies in double precision stay small
            rows = values[slab] - self.mean
            if self.scale is not None:
                rows /= self.scale
            scores = rows @ self.components.T
            found[slab] = scores**2 @ (1.0 / along)
            if noise:
                rows -= scores @ self.components
                found[slab] += np.einsum("ij,ij->i", rows, rows) / noise
        found += level
        found *= -0.5
        return found

    def _levels(self) -> tuple[Array, float]:
        """The model's variances along its components and, where there are more directions, across them."""
        along: Array = np.maximum(self.explained_variance, self.noise_variance)
        noise = self.noise_variance if self.n_components < self.n_features else 0.0
        rounding = self.n_features * float(np.finfo(np.float64).eps) * float(along[0])
        if self.n_components > self.rank or (noise <= rounding and self.n_components < self.n_features):
            raise DataError(
                f"{self.n_components} components leave no variance for noise, so the covariance of the model "
                f"has no inverse and rows have no likelihood: set n_components below the rank, {self.rank}"
            )
        return along, noise

    @cached_property
    def projection(self) -> Array:
        """The features x components matrix that takes centred rows to (whitened) scores."""
        matrix = self.components.T
        if self.scale is not None:
            matrix = matrix / self.scale[:, None]
        if self.whiten is not None:
            matrix = matrix / np.sqrt(self.explained_variance)
        return matrix

    def transform(self, values: Array) -> Array:
        """Map rows to their scores, in the floating type of the rows."""
        rows = widen(values)
        shift, offset, projection = self._prepared(rows.dtype)
        scores: Array = (rows - shift) @ projection
        scores += offset
        return scores @ self._components_as(rows.dtype) if self.outputs_are_features else scores

    def inverse_transform(self, scores: Array) -> Array:
        """Map scores back to rows, in the units of the features."""
        coordinates = widen(scores)
        if self.outputs_are_features:
            coordinates = coordinates @ self.components.T.astype(coordinates.dtype)
        if self.whiten is not None:
            coordinates = coordinates * np.sqrt(self.explained_variance).astype(coordinates.dtype)
        rows: Array = coordinates @ self._components_as(coordinates.dtype)
        if self.scale is not None:
            rows *= self.scale.astype(rows.dtype)
        rows += self.mean.astype(rows.dtype)
        return rows

    def denoise(self, values: Array) -> Array:
        """The reconstruction of rows from their components, in the units and floating type of the rows."""
        plain = self._unwhitened
        return plain.inverse_transform(plain.transform(values))

    def squared_errors(self, values: Array) -> Array:
        """The squared distance of each row from its reconstruction; the error of the model is their mean."""
        rows = values - self.mean
        if self.scale is not None:
            rows /= self.scale
        rows -= (rows @ self.components.T) @ self.components
        errors: Array = np.einsum("ij,ij->i", rows, rows)
        return errors

    @property
    def maps_by_columns(self) -> bool:
        """Whether `scores_by_columns` returns an accumulator: not for ZCA."""
        return not self.outputs_are_features

    def scores_by_columns(self, n_rows: int) -> Scores | None:
        """`transform` as a pass over columns, for rows too wide for memory; None for ZCA."""
        return None if self.outputs_are_features else Scores(n_rows, self.mean, self.projection)

    def _prepared(self, dtype: np.dtype[Any]) -> tuple[Array, Array, Array]:
        """The mean, an offset and the projection in a floating type, computed once per type."""
        # The mean is subtracted before the product, never after: with a mean of 1e4 deviations, float32
        # would keep three digits. The offset corrects for the rounding of the mean to `dtype`.
        cache: dict[Any, tuple[Array, Array, Array]] = self._by_dtype
        if dtype not in cache:
            shift = self.mean.astype(dtype)
            offset = ((shift - self.mean) @ self.projection).astype(dtype)
            cache[dtype] = shift, offset, self.projection.astype(dtype, copy=False)
        return cache[dtype]

    @cached_property
    def _unwhitened(self) -> PCAModel:
        return self if self.whiten is None else replace(self, whiten=None)

    def _components_as(self, dtype: np.dtype[Any]) -> Array:
        return self.components.astype(dtype, copy=False)

    @cached_property
    def _by_dtype(self) -> dict[Any, tuple[Array, Array, Array]]:
        return {}


def pca_outline(data: MatrixSpec, k: int, whiten: str | None, *, scale: bool) -> PCAModel:
    """An outline of a model with k principal axes."""
    return PCAModel(
        mean=unallocated(data.n_cols),
        components=unallocated(k, data.n_cols),
        explained_variance=unallocated(k),
        total_variance=1.0,
        reconstruction_error=0.0,
        noise_variance=0.0,
        n_samples=float(data.n_rows),
        ddof=1,
        rank=k,
        solver="outline",
        whiten=whiten,
        scale=unallocated(data.n_cols) if scale else None,
        residuals=unallocated(k),
        var=unallocated(data.n_cols),
    )
