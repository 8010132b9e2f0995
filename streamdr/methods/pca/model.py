"""The fitted PCA: `transform`, its inverse, and likelihoods."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from streamdr.core.annotations import Annotations
from streamdr.core.blocks import AlignedArrays, Array, MatrixSpec, SparseRows, widen
from streamdr.core.facts import Column, Fact, Table, explained_variances, notes
from streamdr.core.linalg import slabs
from streamdr.core.outline import unallocated
from streamdr.core.plain_maps import Multiply, PlainMap, Subtract
from streamdr.core.sparse_maps import SparseAffine
from streamdr.errors import DataError
from streamdr.methods.pca.rotation import Rotation, score_rotation
from streamdr.methods.pca.significance import (
    CRITERIA,
    Comparison,
    comparison_table,
    errors_table,
    multiplets,
    sampling_errors,
)
from streamdr.statistics.gram import Scores

if TYPE_CHECKING:
    from streamdr.core.scikit_learn import Step

_FEATURE = {"dims": ("feature",)}
_COMPONENT = {"dims": ("component",)}
_BOOTSTRAPPED = {"dims": ("bootstrapped",)}


@dataclass(frozen=True, eq=False)
class PCAModel(AlignedArrays):
    """Principal axes, their variances, and the whitening that `transform` applies."""

    allow_nan: ClassVar[bool] = False
    annotated: ClassVar[tuple[str, ...]] = ("uns/pca", "varm/PCs")

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
    rotation: str | None = None
    """How the leading components are rotated: by varimax or promax; None where they are principal axes."""
    rotation_matrix: Array | None = field(default=None, metadata={"dims": ("principal", "rotated")})
    """R of the rotated loadings, A R. Loadings are components times the roots of their variances."""
    principal_components: Array | None = field(default=None, metadata={"dims": ("principal", "feature")})
    """The principal axes that were rotated, one per row."""
    principal_variance: Array | None = field(default=None, metadata={"dims": ("principal",)})
    """The variance along each of these axes."""
    n_effective: float | None = None
    """The number of independent rows, where it is not the number of rows."""
    criterion: str | None = None
    """How the number of components was chosen: by comparison with noise, or None."""
    candidate_variance_ratio: Array | None = field(default=None, metadata={"dims": ("candidate",)})
    """The share of the total variance of each component that was compared, kept or not."""
    noise_variance_ratio: Array | None = field(default=None, metadata={"dims": ("candidate",)})
    """The shares that noise reaches. The leading components with more than this are kept."""
    n_bootstrap: int | None = None
    """How many times blocks of rows were drawn; None without a bootstrap."""
    n_bootstrap_blocks: int | None = None
    """The number of blocks."""
    bootstrap_error: Array | None = field(default=None, metadata=_BOOTSTRAPPED)
    """The standard deviation of the variance of each component over the draws."""
    bootstrap_interval: Array | None = field(default=None, metadata={"dims": ("bound", "bootstrapped")})
    """The percentiles 2.5 and 97.5 of the variance of each component over the draws."""
    bootstrap_congruence: Array | None = field(default=None, metadata=_BOOTSTRAPPED)
    """The mean absolute cosine of each component with that of the same number in a draw."""
    bootstrap_sign: Array | None = field(default=None, metadata=_BOOTSTRAPPED)
    """The share of draws in which the largest entry of each component has the same sign."""

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
        rotated = {} if self.rotation is None else {"rotation": self.rotation}
        return {
            "solver": self.solver,
            "n_components": self.n_components,
            **rotated,
            "rank": self.rank,
            "explained_variance_ratio": [float(ratio) for ratio in self.explained_variance_ratio[:1000]],
            "reconstruction_error": self.reconstruction_error,
            "total_variance": self.total_variance,
        }

    def facts(self) -> tuple[Fact, ...]:
        """The number of components, the solver, and the explained variance."""
        found: tuple[Fact, ...] = (Fact("solver", self.solver), Fact("components", self.n_components))
        if self.rotation_matrix is not None:
            found += (Fact("rotation", f"{self.rotation} of {len(self.rotation_matrix)} components"),)
        share = 1.0 - self.reconstruction_error / self.total_variance
        together = Fact("explained together", share, "% of the variance")
        alone = Fact("explained", float(self.explained_variance_ratio.sum()), "% of the variance")
        found += (
            together if self._shares_overlap else alone,
            Fact("variance left out", self.reconstruction_error),
            Fact("total variance", self.total_variance),
        )
        if self.multiplets:
            mixed = ", ".join(f"{run.start + 1}-{run.stop}" for run in self.multiplets)
            found += (Fact("not separated", mixed),)
        if self.n_bootstrap is not None:
            found += (Fact("bootstrap", f"{self.n_bootstrap} draws of {self.n_bootstrap_blocks} blocks"),)
        if self._comparison is not None:
            found += (Fact("chosen by", CRITERIA[str(self.criterion)]),)
            if self._comparison.n_above == 0:
                found += notes(["no component explains more than noise; the first one is kept"])
        if self.rank < self.n_components:
            found += (Fact("rank", self.rank), *notes(["the data has no variance in the other directions"]))
        return found

    def tables(self) -> tuple[Table, ...]:
        """The variance that each component explains, its error, and what noise would explain."""
        ratios, compared, errors = (
            self.explained_variance_ratio,
            self._comparison,
            self.explained_variance_error,
        )
        found = explained_variances(ratios, self.total_variance, overlapping=self._shares_overlap)
        if errors is not None:
            found += (errors_table(self.explained_variance, errors),)
        if compared is not None:
            found += (comparison_table(str(self.criterion), compared, self.n_components),)
        if (table := self._bootstrap_table()) is not None:
            found += (table,)
        return found

    def _bootstrap_table(self) -> Table | None:
        """What the bootstrap says of each component; None without one."""
        interval, draws = self.bootstrap_interval, self.n_bootstrap
        error, congruence, sign = self.bootstrap_error, self.bootstrap_congruence, self.bootstrap_sign
        if interval is None or error is None or congruence is None or sign is None:
            return None
        columns = (
            Column("component"),
            *(Column(name) for name in ("variance", "error", "from", "to")),
            *(Column(name, "%") for name in ("congruence", "same sign")),
        )
        values = (self.explained_variance, error, *interval, congruence, sign)
        return Table(
            "bootstrap",
            columns,
            tuple((n, *map(float, row)) for n, row in enumerate(zip(*values, strict=False), 1)),
            about=f"Errors and 95 % intervals of {draws} draws of {self.n_bootstrap_blocks} blocks of rows, "
            "the mean cosine of a component with that of a draw, and how often its largest entry keeps its "
            "sign.",
        )

    @property
    def explained_variance_error(self) -> Array | None:
        """The standard error of each variance by North's rule; None for rotated components."""
        if self.rotation is not None:
            return None
        return sampling_errors(self.explained_variance, self.n_effective or self.n_samples)

    @property
    def multiplets(self) -> list[range]:
        """Runs of neighbouring components whose error bars overlap: their directions are arbitrary."""
        errors = self.explained_variance_error
        return [] if errors is None else multiplets(self.explained_variance, errors)

    @property
    def _comparison(self) -> Comparison | None:
        """The comparison with noise, if it has chosen the number of components."""
        shares, noise = self.candidate_variance_ratio, self.noise_variance_ratio
        if self.criterion not in CRITERIA or shares is None or noise is None:
            return None
        return Comparison(shares, noise)

    @property
    def score_correlation(self) -> Array | None:
        """The correlation of the scores of rotated components; None where there is no rotation."""
        if self.rotation_matrix is None:
            return None
        inverse: Array = np.linalg.inv(self.rotation_matrix)
        return inverse @ inverse.T

    @property
    def _before_rotation(self) -> Rotation | None:
        """The principal axes that were rotated, their variances, and the matrix; None without rotation."""
        axes, variances, matrix = self.principal_components, self.principal_variance, self.rotation_matrix
        if axes is None or variances is None or matrix is None:
            return None
        return Rotation(axes, variances, matrix)

    @property
    def _shares_overlap(self) -> bool:
        """Whether scores are correlated, so that the shares of components do not add up."""
        return self.rotation == "promax"

    def get_covariance(self) -> Array:
        """The covariance that the model describes: its components, and its noise in every other direction."""
        axes, variances = self.principal.components, self.principal.explained_variance
        excess = np.maximum(variances - self.noise_variance, 0.0)
        covariance = (axes.T * excess) @ axes
        covariance.flat[:: self.n_features + 1] += self.noise_variance
        if self.scale is not None:
            covariance *= np.outer(self.scale, self.scale)
        return covariance

    def get_precision(self) -> Array:
        """The inverse of the covariance that the model describes."""
        along, noise = self._levels()
        across = 1.0 / noise if noise else 0.0
        axes = self.principal.components
        precision = (axes.T * (1.0 / along - across)) @ axes
        precision.flat[:: self.n_features + 1] += across
        if self.scale is not None:
            precision /= np.outer(self.scale, self.scale)
        return precision

    def score_samples(self, values: Array) -> Array:
        """The log-likelihood of each row, in nats, under a normal distribution with that covariance."""
        (along, noise), axes = self._levels(), self.principal.components
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
            scores = rows @ axes.T
            found[slab] = scores**2 @ (1.0 / along)
            if noise:
                rows -= scores @ axes
                found[slab] += np.einsum("ij,ij->i", rows, rows) / noise
        found += level
        found *= -0.5
        return found

    def _levels(self) -> tuple[Array, float]:
        """The model's variances along its components and, where there are more directions, across them."""
        along: Array = np.maximum(self.principal.explained_variance, self.noise_variance)
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
        if (before := self._before_rotation) is not None:
            rotated = len(before.variances)
            weights = score_rotation(before.matrix, before.variances, self.explained_variance[:rotated])
            matrix = np.hstack([before.components.T @ weights, matrix[:, rotated:]])
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

    keeps_zeros: ClassVar[bool] = False

    def transform_sparse(self, rows: SparseRows) -> Array:
        """Map sparse rows to their scores."""
        scores = self._sparse_map(rows.dtype)(rows)
        return scores @ self._components_as(rows.dtype) if self.outputs_are_features else scores

    def _sparse_map(self, dtype: np.dtype[Any]) -> SparseAffine:
        """The map of sparse rows of a type, computed once."""
        cache: dict[Any, SparseAffine] = self._sparse_by_dtype
        if dtype not in cache:
            cache[dtype] = SparseAffine.of(self.mean, self.projection, self.var, dtype)
        return cache[dtype]

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
        plain = self.principal
        return plain.inverse_transform(plain.transform(values))

    def squared_errors(self, values: Array) -> Array:
        """The squared distance of each row from its reconstruction; the error of the model is their mean."""
        rows = values - self.mean
        if self.scale is not None:
            rows /= self.scale
        axes = self.principal.components
        rows -= (rows @ axes.T) @ axes
        errors: Array = np.einsum("ij,ij->i", rows, rows)
        return errors

    @property
    def maps_by_columns(self) -> bool:
        """Whether `scores_by_columns` returns an accumulator: not for ZCA."""
        return not self.outputs_are_features

    def scores_by_columns(self, n_rows: int) -> Scores | None:
        """`transform` as a pass over columns, for rows too wide for memory; None for ZCA."""
        return None if self.outputs_are_features else Scores(n_rows, self.mean, self.projection)

    def plain_maps(self) -> tuple[PlainMap, ...]:
        """`transform` as elementary maps."""
        scores = (Subtract(self.mean), Multiply(self.projection))
        return (*scores, Multiply(self.components)) if self.outputs_are_features else scores

    def annotations(self) -> Annotations:
        """Loadings and variances, as `scanpy.pp.pca` arranges them."""
        found = {
            "variance": self.explained_variance,
            "variance_ratio": self.explained_variance_ratio,
            "params": {"zero_center": self.center, "use_highly_variable": False},
        }
        return Annotations(varm={"PCs": np.ascontiguousarray(self.components.T)}, uns={"pca": found})

    def sklearn_steps(self) -> list[Step]:
        """The model as estimators of scikit-learn."""
        from streamdr.methods.pca.scikit_learn import pca_steps

        return pca_steps(self)

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
    def principal(self) -> PCAModel:
        """The same model without rotation and whitening. Its reconstructions and likelihoods are the same."""
        before = self._before_rotation
        if before is None:
            return self if self.whiten is None else replace(self, whiten=None)
        rotated = len(before.variances)
        return replace(
            self,
            components=np.vstack([before.components, self.components[rotated:]]),
            explained_variance=np.append(before.variances, self.explained_variance[rotated:]),
            whiten=None,
            rotation=None,
            rotation_matrix=None,
            principal_components=None,
            principal_variance=None,
        )

    def _components_as(self, dtype: np.dtype[Any]) -> Array:
        return self.components.astype(dtype, copy=False)

    @cached_property
    def _by_dtype(self) -> dict[Any, tuple[Array, Array, Array]]:
        return {}

    @cached_property
    def _sparse_by_dtype(self) -> dict[Any, SparseAffine]:
        return {}


def pca_outline(data: MatrixSpec, k: int, whiten: str | None, *, scale: bool, rotated: int = 0) -> PCAModel:
    """An outline of a model with k components, of which some are rotated."""
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
        rotation_matrix=unallocated(rotated, rotated) if rotated else None,
        principal_components=unallocated(rotated, data.n_cols) if rotated else None,
        principal_variance=unallocated(rotated) if rotated else None,
    )
