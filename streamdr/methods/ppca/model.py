"""The fitted probabilistic PCA: latent variables, imputation and likelihoods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from streamdr.core.blocks import AlignedArrays, Array, MatrixSpec, SparseRows, widen
from streamdr.core.facts import Fact, Table, explained_variances, notes
from streamdr.core.outline import unallocated
from streamdr.core.pictures import Picture
from streamdr.core.plain_maps import Multiply, PlainMap, Subtract
from streamdr.core.sparse_maps import SparseAffine
from streamdr.core.work import Work
from streamdr.errors import ParameterError
from streamdr.methods.ppca.em import Principal
from streamdr.methods.ppca.holdout import doubled
from streamdr.methods.ppca.plots import LOG_LIKELIHOOD
from streamdr.methods.ppca.posterior import Factors, Posterior, expect, observe, slabs
from streamdr.methods.ppca.small_matrices import matrices_per_slab, unpacked

_FEATURE = {"dims": ("feature",)}
_COMPONENT = {"dims": ("component",)}


def parameter_count(n_features: int, n_components: int) -> int:
    """The number of free parameters of a model with this many observed features."""
    return n_features * (n_components + 1) - n_components * (n_components - 1) // 2 + 1


@dataclass(frozen=True, eq=False)
class PPCAModel(AlignedArrays):
    """x = W z + mean + noise, with z standard normal: the loadings W in principal axes."""

    pictures: ClassVar[tuple[Picture, ...]] = (LOG_LIKELIHOOD,)
    allow_nan: ClassVar[bool] = True

    mean: Array = field(metadata={**_FEATURE, "data_units": True})
    """The mean of each feature; NaN for features that were never observed."""
    components: Array = field(metadata={"dims": ("component", "feature"), "mapped": True})
    """The principal axes, one per row, by descending variance."""
    explained_variance: Array = field(metadata=_COMPONENT)
    """The variance along each component, noise included."""
    noise_variance: float
    """The variance of the noise of each feature."""
    n_samples: float
    """The number of rows with any observed value, or the sum of their weights."""
    n_observed: float
    """The number of observed values, or the sum of their weights."""
    solver: str
    """The algorithm that computed the components."""
    log_likelihood: float
    """The mean log-likelihood per row of the fitted data, in the last pass."""
    log_likelihoods: Array = field(metadata={"dims": ("iteration",)})
    """The mean log-likelihood per row at the beginning of each iteration of EM."""
    converged: bool = True
    """Whether EM reached its tolerance."""
    change: float = 0.0
    """The size of the last step of EM, taken or not, in nats per value."""
    empty_rows: int = 0
    """The number of rows without any observed value."""
    constant_features: int = 0
    """The number of features with a single distinct value."""
    new_features: int = 0
    """The number of values of features that the initial model had never observed."""
    held_out: Array | None = field(default=None, metadata={"dims": ("measure",)})
    """The number of held-out values, their mean log-density and their root mean square error."""
    candidates: Array | None = field(default=None, metadata={"dims": ("candidate",)})
    """The numbers of components that were tried."""
    criteria: Array | None = field(default=None, metadata={"dims": ("candidate",)})
    """The criterion of each: minus the held-out log-density per value, or BIC. The smallest was chosen."""
    anchor_mean: Array | None = field(default=None, metadata=_FEATURE)
    """The mean of the anchor: the parameters one step before, where EM converged; None if there is none."""
    anchor_components: Array | None = field(default=None, metadata={"dims": ("component", "feature")})
    """The components of the anchor."""
    anchor_variance: Array | None = field(default=None, metadata=_COMPONENT)
    """The explained variances of the anchor."""
    anchor_noise: float = 0.0
    """The noise variance of the anchor."""

    @property
    def n_features(self) -> int:
        """How many columns `transform` takes."""
        return len(self.mean)

    @property
    def n_components(self) -> int:
        """The number of latent variables."""
        return len(self.components)

    @property
    def n_outputs(self) -> int:
        """How many columns `transform` returns."""
        return self.n_components

    @property
    def outputs_are_features(self) -> bool:
        """False: latent variables are not features."""
        return False

    @property
    def n_iter(self) -> int:
        """The number of iterations of EM."""
        return len(self.log_likelihoods)

    @property
    def loadings(self) -> Array:
        """W, features x components: orthogonal columns by descending length."""
        return self.principal.loadings

    @property
    def total_variance(self) -> float:
        """The total variance of the observed features."""
        left = int(np.isfinite(self.mean).sum()) - self.n_components
        return float(self.explained_variance.sum()) + left * self.noise_variance

    @property
    def explained_variance_ratio(self) -> Array:
        """Each component's share of the total variance."""
        return np.clip(self.explained_variance / self.total_variance, 0.0, 1.0)

    @property
    def n_parameters(self) -> int:
        """The number of free parameters."""
        return parameter_count(int(np.isfinite(self.mean).sum()), self.n_components)

    @property
    def bic(self) -> float:
        """The Bayesian information criterion: the smaller, the better."""
        return self.n_parameters * float(np.log(self.n_samples)) - 2 * self.n_samples * self.log_likelihood

    @cached_property
    def principal(self) -> Principal:
        """The parameters."""
        return Principal(self.mean, self.components, self.explained_variance, self.noise_variance)

    @property
    def anchor(self) -> Principal:
        """The parameters from which a fit to appended rows continues: their pass is in the ledger."""
        if self.anchor_mean is None or self.anchor_components is None or self.anchor_variance is None:
            return self.principal
        return Principal(self.anchor_mean, self.anchor_components, self.anchor_variance, self.anchor_noise)

    def anchored_at(self, before: Principal) -> PPCAModel:
        """The same model, marked as one step from the parameters `before`."""
        return replace(
            self,
            anchor_mean=before.mean,
            anchor_components=before.components,
            anchor_variance=before.explained_variance,
            anchor_noise=before.noise,
        )

    @property
    def factors(self) -> Factors:
        """The parameters for the E step."""
        return self.principal.factors

    def summary(self) -> dict[str, Any]:
        """The number of components, the likelihood, and how missing values were treated."""
        return {
            "solver": self.solver,
            "n_components": self.n_components,
            "explained_variance_ratio": [float(ratio) for ratio in self.explained_variance_ratio[:1000]],
            "noise_variance": self.noise_variance,
            "total_variance": self.total_variance,
            "log_likelihood": self.log_likelihood,
            "n_iter": self.n_iter,
            "converged": self.converged,
            "missing": self.missing,
            "notes": self.notes(),
        }

    def facts(self) -> tuple[Fact, ...]:
        """The number of components, the likelihood, and how missing values were treated."""
        return (
            Fact("solver", self.solver),
            Fact("components", self.n_components),
            Fact("explained", float(self.explained_variance_ratio.sum()), "% of the variance"),
            Fact("log-likelihood", self.log_likelihood, "nats per row"),
            Fact("iterations", self.n_iter),
            Fact("converged", self.converged),
            Fact("noise variance", self.noise_variance),
            Fact("total variance", self.total_variance),
            Fact("missing", self.missing, "% of the values"),
            *notes(self.notes()),
        )

    def tables(self) -> tuple[Table, ...]:
        """The variance that each component explains."""
        return explained_variances(self.explained_variance_ratio, self.total_variance)

    @property
    def missing(self) -> float:
        """The fraction of all values that was missing, including rows without any observed value."""
        rows = self.n_samples + self.empty_rows
        held_out = 0.0 if self.held_out is None else float(self.held_out[0])
        return max(0.0, 1.0 - (self.n_observed + held_out) / (rows * self.n_features))

    def notes(self) -> list[str]:
        """Notes on how the data was treated."""
        unobserved = int(np.isnan(self.mean).sum())
        notes = []
        if not self.converged:
            notes.append(
                f"stopped by max_iter, when a step still moved the model by {self.change:.1e} nats per "
                "value: the model is usable, and improves with more iterations"
            )
        if self.empty_rows:
            notes.append(f"{self.empty_rows:,} rows have no value: they were left out, and map to the mean")
        if unobserved:
            notes.append(f"{unobserved:,} features were never observed: they are left out, and stay NaN")
        if self.new_features:
            notes.append(
                f"{self.new_features:,} values are of features that the first rows did not have: they were "
                "left out; a fit to all rows includes them"
            )
        if self.constant_features:
            notes.append(
                f"{self.constant_features:,} features are constant where observed: "
                "the model gives them noise only"
            )
        if self.n_observed < 2 * self.n_components * self.n_samples:
            notes.append(
                f"{self.n_observed / self.n_samples:.1f} values per row are few for {self.n_components} "
                "components; a ridge, or a holdout, guards against overfitting"
            )
        if self.held_out is not None:
            count, density, error = (float(number) for number in self.held_out)
            notes.append(f"{count:,.0f} values were held out: rms error {error:.4g}, {density:.4g} nats each")
        if self.candidates is not None and self.criteria is not None:
            tried = ", ".join(
                f"{k:.0f}: {c:.6g}" for k, c in zip(self.candidates, self.criteria, strict=True)
            )
            criterion = "BIC" if self.held_out is None else "held-out loss"
            notes.append(f"n_components by {criterion}: {tried}")
        return notes

    def transform(self, values: Array) -> Array:
        """The mean of the latent variables of each row, given its observed values."""
        return self._mapped(values, self.n_components, lambda rows, posterior: posterior.latent.T)

    keeps_zeros: ClassVar[bool] = False

    def transform_sparse(self, rows: SparseRows) -> Array:
        """`transform` of sparse rows: one product for all rows without missing values."""
        missing = np.isnan(rows.data)
        if not missing.any():
            return self._sparse_map(rows.dtype)(rows)
        lacking = np.unique(np.searchsorted(rows.indptr, np.flatnonzero(missing), side="right") - 1)
        scores = self._sparse_map(rows.dtype)(rows)
        scores[lacking] = self.transform(rows[lacking].toarray())
        return scores

    def _sparse_map(self, dtype: np.dtype[Any]) -> SparseAffine:
        """The map of complete sparse rows of a type, computed once: (W'W + noise)^-1 W' (x - mean)."""
        cache: dict[Any, SparseAffine] = self._sparse_by_dtype
        if dtype not in cache:
            observed = np.isfinite(self.mean)
            loadings = np.where(observed[:, None], self.factors.loadings, 0.0)
            small = loadings.T @ loadings
            small.flat[:: len(small) + 1] += self.noise_variance
            matrix = np.linalg.solve(small, loadings.T).T
            variance = np.einsum("ij,ij->i", loadings, loadings) + self.noise_variance
            cache[dtype] = SparseAffine.of(np.where(observed, self.mean, 0.0), matrix, variance, dtype)
        return cache[dtype]

    @cached_property
    def _sparse_by_dtype(self) -> dict[Any, SparseAffine]:
        return {}

    def latent(self, values: Array) -> tuple[Array, Array]:
        """The mean (rows x k) and the covariance (rows x k x k) of each row's latent variables."""
        k = self.n_components
        square = self._mapped(
            values,
            k * k,
            lambda rows, posterior: unpacked(posterior.spread, k).reshape(k * k, -1).T,
        )
        return self.transform(values), square.reshape(len(square), k, k)

    def plain_maps(self) -> tuple[PlainMap, ...]:
        """`transform` of rows without missing values as elementary maps."""
        if not np.isfinite(self.mean).all():
            raise ParameterError(
                "onnx",
                "features were never observed in the fit, so no row has all values: fit with min_observed, "
                "which leaves these features out",
            )
        k = self.n_components
        inner = self.loadings.T @ self.loadings + self.noise_variance * np.eye(k)
        return Subtract(self.mean), Multiply(np.linalg.solve(inner, self.loadings.T).T)

    def inverse_transform(self, scores: Array) -> Array:
        """The rows that latent variables map to."""
        latent = widen(scores)
        rows: Array = latent @ self.loadings.T.astype(latent.dtype)
        rows += self.mean.astype(rows.dtype)
        return rows

    def impute(self, values: Array) -> Array:
        """The rows with missing values replaced by their expectation; observed values are unchanged."""

        def filled(rows: Array, posterior: Posterior) -> Array:
            expected = posterior.latent.T @ self.factors.loadings.T
            expected += self.mean
            return np.where(np.isnan(rows), expected, rows)

        return self._mapped(values, self.n_features, filled)

    def impute_variance(self, values: Array) -> Array:
        """The variance of each value that `impute` fills in; 0 for those that were observed."""
        weights = doubled(self.factors.products)

        def variance(rows: Array, posterior: Posterior) -> Array:
            imputed = self.noise_variance * (1.0 + posterior.spread.T @ weights)
            observed = self.factors.observed_features
            if observed is not None:
                imputed[:, ~observed] = np.nan
            return np.where(np.isnan(rows), imputed, 0.0)

        return self._mapped(values, self.n_features, variance)

    def score_samples(self, values: Array) -> Array:
        """The log-likelihood of the observed values of each row, in nats; it is low for outliers."""
        rows = self._mapped(values, 1, lambda rows, posterior: posterior.log_likelihood[:, None], np.float64)
        return rows[:, 0]

    def sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Rows drawn from the model."""
        latent = rng.standard_normal((n_samples, self.n_components))
        noise = rng.standard_normal((n_samples, self.n_features))
        rows: Array = self.inverse_transform(latent) + np.sqrt(self.noise_variance) * noise
        return rows

    def get_covariance(self) -> Array:
        """W W' + noise, the covariance of the features that the model describes."""
        covariance = self.loadings @ self.loadings.T
        covariance.flat[:: self.n_features + 1] += self.noise_variance
        return covariance

    def get_precision(self) -> Array:
        """The inverse of the covariance."""
        shrunk = 1.0 - self.noise_variance / self.explained_variance
        precision = -(self.components.T * shrunk) @ self.components
        precision.flat[:: self.n_features + 1] += 1.0
        precision /= self.noise_variance
        return precision

    def scores_by_columns(self, n_rows: int) -> None:
        """None: the observed values of a row are needed together."""

    def mapping_work(self, data: MatrixSpec, operation: str) -> Work:
        """The work of the E step of all rows, as where values are missing."""
        # Imported here, because that module imports this one.
        from streamdr.methods.ppca.routes import e_step_work

        return e_step_work(data.n_rows, self.n_features, self.n_components)

    def scratch_bytes(self, n_rows: int) -> int:
        """Bytes that mapping rows allocates: the E step of a slab, and a few arrays of its size."""
        # Imported here, because that module imports this one.
        from streamdr.methods.ppca.routes import e_step_bytes, latent_bytes

        d, k = self.n_features, self.n_components
        # The packed w_j w_j' of all features, and a second copy for variances.
        packed = 2 * latent_bytes(d, k)
        return e_step_bytes(d, k, n_rows) + packed + 4 * 8 * min(n_rows, matrices_per_slab(k, d)) * d

    def _mapped(
        self,
        values: Array,
        n_outputs: int,
        function: Callable[[Array, Posterior], Array],
        dtype: Any = None,
    ) -> Array:
        """Apply a function of rows and posteriors, slab by slab, in the floating type of the rows."""
        rows = widen(values)
        mapped = np.empty((len(rows), n_outputs), dtype or rows.dtype)
        for slab in slabs(rows.shape, self.n_components):
            here = rows[slab]
            mapped[slab] = function(here, expect(observe(here, self.factors), self.factors))
        return mapped


def ppca_outline(data: MatrixSpec, k: int) -> PPCAModel:
    """An outline of a model with k latent variables."""
    return PPCAModel(
        mean=unallocated(data.n_cols),
        components=unallocated(k, data.n_cols),
        explained_variance=unallocated(k),
        noise_variance=1.0,
        n_samples=float(data.n_rows),
        n_observed=float(data.n_rows),
        solver="outline",
        log_likelihood=0.0,
        log_likelihoods=unallocated(1),
        anchor_mean=unallocated(data.n_cols),
        anchor_components=unallocated(k, data.n_cols),
        anchor_variance=unallocated(k),
    )
