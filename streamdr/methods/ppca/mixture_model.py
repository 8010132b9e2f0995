"""The fitted mixture of probabilistic PCAs: responsibilities, latent variables and imputation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp

from streamdr.core.blocks import AlignedArrays, Array, MatrixSpec, widen
from streamdr.core.facts import MOST_ROWS, Column, Fact, Table, notes
from streamdr.core.outline import unallocated
from streamdr.core.pictures import Picture
from streamdr.core.work import Work
from streamdr.methods.ppca.em import Principal
from streamdr.methods.ppca.holdout import doubled
from streamdr.methods.ppca.latent import joint_log_likelihood
from streamdr.methods.ppca.plots import LOG_LIKELIHOOD
from streamdr.methods.ppca.posterior import Factors, expect, observe, slabs
from streamdr.methods.ppca.small_matrices import matrices_per_slab

_MIXTURE = {"dims": ("mixture",)}
_CANDIDATE = {"dims": ("candidate",)}


@dataclass(frozen=True, eq=False)
class PPCAMixtureModel(AlignedArrays):
    """Several probabilistic PCAs, each with the prior probability of a row."""

    pictures: ClassVar[tuple[Picture, ...]] = (LOG_LIKELIHOOD,)
    allow_nan: ClassVar[bool] = True

    weights: Array = field(metadata=_MIXTURE)
    """The prior probability of each component."""
    means: Array = field(metadata={"dims": ("mixture", "feature"), "data_units": True})
    """The mean of each component; NaN for features that were never observed."""
    components: Array = field(metadata={"dims": ("mixture", "component", "feature"), "mapped": True})
    """The principal axes of each component of the mixture."""
    explained_variance: Array = field(metadata={"dims": ("mixture", "component")})
    """The variance along each axis, noise included."""
    noise_variance: Array = field(metadata=_MIXTURE)
    """The variance of the noise of each component of the mixture."""
    n_samples: float
    """The number of rows with any observed value, or the sum of their weights."""
    n_observed: float
    """The number of observed values, or the sum of their weights."""
    log_likelihood: float
    """The mean log-likelihood per row of the fitted data, in the last pass."""
    log_likelihoods: Array = field(metadata={"dims": ("iteration",)})
    """The mean log-likelihood per row at the beginning of each iteration of EM."""
    converged: bool = True
    """Whether EM reached its tolerance."""
    change: float = 0.0
    """An upper bound of the size of the last step of EM, taken or not, in nats per value."""
    empty_rows: int = 0
    """The number of rows without any observed value."""
    new_features: int = 0
    """The number of values of features that the initial model had never observed."""
    restarts: int = 0
    """The number of restarts of components with too few rows."""
    floored: int = 0
    """The number of components whose noise variance is at the floor."""
    candidate_components: Array | None = field(default=None, metadata=_CANDIDATE)
    """The numbers of latent variables that were tried."""
    candidate_mixtures: Array | None = field(default=None, metadata=_CANDIDATE)
    """The numbers of components of the mixture that were tried."""
    criteria: Array | None = field(default=None, metadata=_CANDIDATE)
    """The BIC of each size that was tried. The smallest was chosen."""

    @property
    def n_features(self) -> int:
        """How many columns `transform` takes."""
        return int(self.means.shape[1])

    @property
    def n_mixtures(self) -> int:
        """The number of components of the mixture."""
        return len(self.weights)

    @property
    def n_components(self) -> int:
        """The number of latent variables of each component."""
        return int(self.components.shape[1])

    @property
    def n_outputs(self) -> int:
        """How many columns `transform` returns: the latent variables of every component."""
        return self.n_mixtures * self.n_components

    @property
    def outputs_are_features(self) -> bool:
        """False: latent variables are not features."""
        return False

    @property
    def n_iter(self) -> int:
        """The number of iterations of EM."""
        return len(self.log_likelihoods)

    @property
    def n_parameters(self) -> int:
        """The number of free parameters."""
        d, k, c = int(np.isfinite(self.means[0]).sum()), self.n_components, self.n_mixtures
        return c * (d + d * k - k * (k - 1) // 2 + 1) + c - 1

    @property
    def bic(self) -> float:
        """The Bayesian information criterion: the smaller, the better."""
        return self.n_parameters * float(np.log(self.n_samples)) - 2 * self.n_samples * self.log_likelihood

    @property
    def missing(self) -> float:
        """The fraction of all values that was missing, including rows without any observed value."""
        return max(0.0, 1.0 - self.n_observed / ((self.n_samples + self.empty_rows) * self.n_features))

    @cached_property
    def principals(self) -> tuple[Principal, ...]:
        """The parameters of each component."""
        parts = zip(self.means, self.components, self.explained_variance, self.noise_variance, strict=True)
        return tuple(Principal(mean, axes, values, float(noise)) for mean, axes, values, noise in parts)

    @property
    def factors(self) -> tuple[Factors, ...]:
        """The parameters for the E step."""
        return tuple(principal.factors for principal in self.principals)

    def summary(self) -> dict[str, Any]:
        """The components and their weights, the likelihood, and how missing values were treated."""
        return {
            "solver": "em",
            "mixtures": self.n_mixtures,
            "components of each": self.n_components,
            "weights": ", ".join(f"{weight:.3g}" for weight in self.weights),
            "noise_variance": ", ".join(f"{noise:.4g}" for noise in self.noise_variance),
            "log_likelihood": self.log_likelihood,
            "n_iter": self.n_iter,
            "converged": self.converged,
            "missing": self.missing,
            "bic": self.bic,
            "notes": self.notes(),
        }

    def facts(self) -> tuple[Fact, ...]:
        """The number of components, the likelihood, and how missing values were treated."""
        return (
            Fact("solver", "em"),
            Fact("mixtures", self.n_mixtures),
            Fact("components of each", self.n_components),
            Fact("log-likelihood", self.log_likelihood, "nats per row"),
            Fact("iterations", self.n_iter),
            Fact("converged", self.converged),
            Fact("missing", self.missing, "% of the values"),
            Fact("BIC", self.bic),
            *notes(self.notes()),
        )

    def tables(self) -> tuple[Table, ...]:
        """The weight and the noise of each component of the mixture."""
        return (
            Table(
                "mixture",
                (Column("mixture"), Column("weight", "%", bars=True), Column("noise variance")),
                tuple(
                    (number, float(weight), float(noise))
                    for number, (weight, noise) in enumerate(
                        zip(self.weights[:MOST_ROWS], self.noise_variance[:MOST_ROWS], strict=True), 1
                    )
                ),
                about="The weight of each component of the mixture.",
                left_out=max(0, self.n_mixtures - MOST_ROWS),
            ),
        )

    def notes(self) -> list[str]:
        """Notes on how the data was treated."""
        notes = []
        if not self.converged:
            notes.append(
                f"stopped at max_iter={self.n_iter}, when a step still moved the model by {self.change:.1e} "
                "nats per value: the model is usable, and improves with more iterations; or set a larger tol"
            )
        if self.empty_rows:
            notes.append(f"{self.empty_rows:,} rows have no value: they were left out of the fit")
        if unobserved := int(np.isnan(self.means[0]).sum()):
            notes.append(f"{unobserved:,} features were never observed: they are left out, and stay NaN")
        if self.restarts:
            notes.append(f"components with too few rows were restarted {self.restarts} times")
        if self.floored:
            notes.append(f"{self.floored} components have the least noise that variance_floor allows")
        if self.criteria is not None:
            assert self.candidate_components is not None  # the three are set together
            assert self.candidate_mixtures is not None
            sizes = zip(self.candidate_mixtures, self.candidate_components, self.criteria, strict=True)
            tried = ", ".join(f"{c:.0f} x {k:.0f}: {bic:.6g}" for c, k, bic in sizes)
            notes.append(f"n_mixtures x n_components by BIC: {tried}")
        return notes

    def transform(self, values: Array) -> Array:
        """The mean of each row's latent variables under every component, side by side."""
        k = self.n_components

        def projected(rows: Array) -> Array:
            found = np.empty((len(rows), self.n_outputs))
            for number, one in enumerate(self.factors):
                found[:, number * k : (number + 1) * k] = expect(observe(rows, one), one).latent.T
            return found

        return self._mapped(values, self.n_outputs, projected)

    def predict_proba(self, values: Array) -> Array:
        """The responsibility of each component for each row."""
        return self._mapped(values, self.n_mixtures, lambda rows: self._responsibilities(rows).T)

    def predict(self, values: Array) -> Array:
        """The number of the component that is most responsible for each row."""
        labels: Array = np.argmax(self.predict_proba(values), axis=1)
        return labels

    def score_samples(self, values: Array) -> Array:
        """The log-likelihood of the observed values of each row, in nats; it is low for outliers."""
        found = self._mapped(
            values, 1, lambda rows: logsumexp(self._joint(rows), axis=0)[:, None], np.float64
        )
        return found[:, 0]

    def impute(self, values: Array) -> Array:
        """The rows with missing values replaced by their expectation; observed values are unchanged."""

        def filled(rows: Array) -> Array:
            share = self._responsibilities(rows)
            expected = sum(
                share[number][:, None] * mean for number, (mean, _) in enumerate(self._fillings(rows))
            )
            return np.where(np.isnan(rows), expected, rows)

        return self._mapped(values, self.n_features, filled)

    def impute_variance(self, values: Array) -> Array:
        """The variance of each value that `impute` fills in; 0 for those that were observed.

        The variance within each component plus the variance between their expectations.
        """

        def variance(rows: Array) -> Array:
            share = self._responsibilities(rows)
            mean, square = np.zeros(rows.shape), np.zeros(rows.shape)
            for number, (expected, within) in enumerate(self._fillings(rows)):
                part = share[number][:, None]
                old = mean
                total = share[: number + 1].sum(axis=0)[:, None]
                step = np.divide(part, total, out=np.zeros_like(part), where=total > 0)
                mean = old + step * (expected - old)
                square += part * within + part * (expected - old) * (expected - mean)
            return np.where(np.isnan(rows), square, 0.0)

        return self._mapped(values, self.n_features, variance)

    def sample(self, n_samples: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Rows drawn from the model, and the component of each row."""
        labels = rng.choice(self.n_mixtures, size=n_samples, p=self.weights / self.weights.sum())
        latent = rng.standard_normal((n_samples, self.n_components))
        rows = rng.standard_normal((n_samples, self.n_features)) * np.sqrt(self.noise_variance)[labels, None]
        for number, one in enumerate(self.principals):
            here = labels == number
            rows[here] += latent[here] @ one.loadings.T + one.mean
        return rows, labels

    def get_covariance(self) -> Array:
        """The covariance of the features that the whole mixture describes."""
        centre = self.weights @ self.means
        covariance = np.zeros((self.n_features, self.n_features))
        for weight, one in zip(self.weights, self.principals, strict=True):
            shift = one.mean - centre
            within = one.loadings @ one.loadings.T + one.noise * np.eye(self.n_features)
            covariance += weight * (within + np.outer(shift, shift))
        return covariance

    def scores_by_columns(self, n_rows: int) -> None:
        """None: the observed values of a row are needed together."""

    def mapping_work(self, data: MatrixSpec, operation: str) -> Work:
        """The work of the E step of all rows, as where values are missing."""
        # Imported here, because that module imports this one.
        from streamdr.methods.ppca.routes import e_step_work

        return e_step_work(data.n_rows, self.n_features, self.n_components) * self.n_mixtures

    def scratch_bytes(self, n_rows: int) -> int:
        """Bytes that mapping rows allocates: the E step of a slab, and the parameters of all components."""
        # Imported here, because that module imports this one.
        from streamdr.methods.ppca.routes import e_step_bytes, latent_bytes

        d, k, c = self.n_features, self.n_components, self.n_mixtures
        slab = min(n_rows, matrices_per_slab(k, d))
        return e_step_bytes(d, k, n_rows) + (c + 1) * latent_bytes(d, k) + 8 * slab * (12 * d + 6 * c)

    def _joint(self, rows: Array) -> Array:
        return joint_log_likelihood(rows, self.factors, self.weights)

    def _responsibilities(self, rows: Array) -> Array:
        joint = self._joint(rows)
        share: Array = np.exp(joint - logsumexp(joint, axis=0))
        return share

    def _fillings(self, rows: Array) -> Iterator[tuple[Array, Array]]:
        """The expectation and variance of every value under each component."""
        for one in self.factors:
            posterior = expect(observe(rows, one), one)
            latent_variance = posterior.spread.T @ doubled(one.products)
            yield posterior.latent.T @ one.loadings.T + one.mean, one.noise * (1.0 + latent_variance)

    def _mapped(
        self, values: Array, n_outputs: int, function: Callable[[Array], Array], dtype: Any = None
    ) -> Array:
        rows = widen(values)
        mapped = np.empty((len(rows), n_outputs), dtype or rows.dtype)
        for slab in slabs(rows.shape, self.n_components):
            mapped[slab] = function(rows[slab])
        return mapped


def mixture_outline(data: MatrixSpec, n_mixtures: int, k: int) -> PPCAMixtureModel:
    """An outline of a model with this many components and latent variables."""
    return PPCAMixtureModel(
        weights=unallocated(n_mixtures),
        means=unallocated(n_mixtures, data.n_cols),
        components=unallocated(n_mixtures, k, data.n_cols),
        explained_variance=unallocated(n_mixtures, k),
        noise_variance=unallocated(n_mixtures),
        n_samples=float(data.n_rows),
        n_observed=float(data.n_rows),
        log_likelihood=0.0,
        log_likelihoods=unallocated(1),
    )
