"""Mixtures of probabilistic PCAs, with or without missing values."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import product
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from scipy.special import logsumexp

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array, MatrixSpec
from streamdr.core.method import Model, Pass, Passes, Route, Tags
from streamdr.core.parameters import require_types
from streamdr.errors import DataError, ParameterError
from streamdr.methods.ppca.em import Principal, column_means, divergence, maximise, sample_start
from streamdr.methods.ppca.latent import Latent, joint_log_likelihood, require_finite
from streamdr.methods.ppca.mixture_model import PPCAMixtureModel, mixture_outline
from streamdr.methods.ppca.routes import mixture_route
from streamdr.statistics.concurrent import with_shared_passes
from streamdr.statistics.kmeans import kmeans
from streamdr.statistics.sample import Sample
from streamdr.statistics.sampling import draw_sample
from streamdr.statistics.validation import no_values, require, require_products, whole_numbers

_SAMPLE_ROWS, _SAMPLE_BYTES = 10_000, 64 << 20
_MOST_RESTARTS = 10


class Mixture(NamedTuple):
    """The parameters of a mixture."""

    parts: tuple[Principal, ...]
    weights: Array


@dataclass(frozen=True, eq=False)
class SampleRows:
    """A sample of rows, and the same with missing values filled by column means."""

    rows: Array
    weights: Array
    filled: Array

    @classmethod
    def of(cls, sample: Sample) -> SampleRows:
        """The rows with any observed value, sorted. Duplicate rows become one row with the sum of weights."""
        observed = np.isfinite(sample.rows).any(axis=1)
        rows, which = np.unique(sample.rows[observed], axis=0, return_inverse=True)
        weights = np.bincount(which.ravel(), sample.weights[observed], minlength=len(rows))
        return cls(rows, weights, np.where(np.isfinite(rows), rows, column_means(rows, weights)))

    @property
    def mean_variance(self) -> float:
        """The mean of the features' variances, over observed values."""
        is_observed = np.isfinite(self.rows)
        centred = np.where(is_observed, self.filled - column_means(self.rows, self.weights), 0.0)
        return float(self.weights @ np.sum(centred**2, axis=1)) / float(
            self.weights @ is_observed.sum(axis=1)
        )

    def where(self, chosen: Array) -> SampleRows:
        """Some of the rows."""
        return SampleRows(self.rows[chosen], self.weights[chosen], self.filled[chosen])


@dataclass(eq=False)
class PPCAMixture:
    """A mixture of probabilistic PCAs of data of any length, with or without missing values (NaN).

    Parameters
    ----------
    n_components : int or list of int
        The number of latent variables of each component. Of a list the best is chosen by BIC.
    n_mixtures : int or list of int
        The number of components. Of a list the best is chosen by BIC. All sizes are fitted with shared
        passes.
    tol : float
        EM stops when a step changes the model by less than this: the Kullback-Leibler divergence in nats per
        value.
    max_iter : int
        The most iterations of EM, each of which reads the data once.
    ridge : float
        Shrinks the loadings, like that many additional rows at the mean for each feature.
    variance_floor : float
        The smallest noise variance of a component, as a fraction of the mean variance of the features.
    random_state : int
        Seeds the sample of rows, and the k-means on it, that the fit starts from.

    References
    ----------
    Tipping and Bishop, Mixtures of probabilistic principal component analyzers, Neural Computation 11 (1999).

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.random.default_rng(0).normal(size=(40, 3)) + 20.0 * (np.arange(40) % 2)[:, None]
    >>> streamdr.PPCAMixture(n_components=1, n_mixtures=2).fit(X).weights_.round(3)
    array([0.5, 0.5])
    """

    name: ClassVar[str] = "ppca_mixture"
    model: ClassVar[type] = PPCAMixtureModel
    tags: ClassVar[Tags] = Tags(
        incremental=False, inexact_on=("drifting", "uneven scales", "rank one"), feature_subset=True
    )
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ({"n_components": 2, "n_mixtures": 3},)

    n_components: int | list[int] = 1
    n_mixtures: int | list[int] = 2
    _: KW_ONLY
    tol: float = 1e-6
    max_iter: int = 100
    ridge: float = 0.0
    variance_floor: float = 1e-6
    random_state: int = 0

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small examples, for the laws."""
        return [cls(1, 2, max_iter=3), cls(2, [1, 2], max_iter=3)]

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)
        for parameter, smallest in (("n_components", 1), ("n_mixtures", 1)):
            for number in whole_numbers(parameter, getattr(self, parameter)):
                require(number >= smallest, parameter, f"{number} is not at least {smallest}")
        require(self.tol >= 0, "tol", f"{self.tol} is negative")
        require(self.max_iter >= 1, "max_iter", f"{self.max_iter} is not at least 1")
        require(self.ridge >= 0, "ridge", f"{self.ridge} is negative")
        floor = self.variance_floor
        require(0 < floor < 1, "variance_floor", f"{floor} is not a fraction above 0 and below 1")

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """The numbers of mixtures and of components to choose from."""
        mixtures = whole_numbers("n_mixtures", self.n_mixtures)
        return list(product(mixtures, whole_numbers("n_components", self.n_components)))

    def using(self, route: str) -> Self:
        """The method itself: there is one route only."""
        return self

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """A sample to start from, and one pass per iteration."""
        self.check()
        if data.n_rows < 2:
            raise DataError(
                f"a mixture needs at least 2 rows to see variance, not one sample: n_samples = {data.n_rows}"
            )
        most = max(k for _, k in self.sizes)
        if most >= data.n_cols:
            raise ParameterError(
                "n_components",
                f"{most} components leave no direction for noise in data of n_features = {data.n_cols}: "
                f"set it to {data.n_cols - 1} or fewer",
            )
        largest = max(c for c, _ in self.sizes)
        if largest > data.n_rows:
            raise ParameterError(
                "n_mixtures", f"{largest} components need as many rows, and the data has {data.n_rows}"
            )
        return [mixture_route(self, data, self._sample_rows(data), self._parts(data))]

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """A model of each size."""
        return [mixture_outline(data, c, k) for c, k in self.sizes]

    def passes(self, data: MatrixSpec, start: PPCAMixtureModel | None = None) -> Passes:
        """A sample, and EM from its k-means clusters, for all sizes with shared passes."""
        size = None if start is None else (start.n_mixtures, start.n_components)
        if start is not None and size in self.sizes:
            initial = Mixture(start.principals, start.weights)
            continued = yield from self._iterations(initial, None, self._floor_of(start))
            if cast(PPCAMixtureModel, continued).new_features == 0:
                return continued
        some = yield from self._sample(data)
        floor = self.variance_floor * some.mean_variance
        runs = [self._iterations(self._begin(some, c, k, floor), some, floor) for c, k in self.sizes]
        models = cast("list[PPCAMixtureModel]", (yield from with_shared_passes(runs)))
        best = models[int(np.argmin([model.bic for model in models]))]
        if len(models) == 1:
            return best
        return replace(
            best,
            candidate_components=np.array([model.n_components for model in models], np.float64),
            candidate_mixtures=np.array([model.n_mixtures for model in models], np.float64),
            criteria=np.array([model.bic for model in models]),
        )

    def _sample_rows(self, data: MatrixSpec) -> int:
        return max(2, min(_SAMPLE_ROWS, _SAMPLE_BYTES // (8 * data.n_cols), data.n_rows))

    def _parts(self, data: MatrixSpec) -> int:
        """The number of parts of the data, one of which is read for the sample."""
        return data.n_rows // (4 * self._sample_rows(data))

    def _sample(self, data: MatrixSpec) -> Generator[Pass, Accumulator, SampleRows]:
        empty = Sample(data.n_cols, self._sample_rows(data), self.random_state)
        some = SampleRows.of(
            (yield from draw_sample(empty, data, "a sample to start from", self._parts(data)))
        )
        if not len(some.rows):
            raise no_values()
        require_products(some.mean_variance)
        if some.mean_variance <= 0.0:
            raise DataError("every column is constant: there is no variance to explain")
        return some

    def _begin(self, some: SampleRows, n_mixtures: int, n_components: int, floor: float) -> Mixture:
        """The start from k-means clusters of a sample, missing values filled by column means."""
        rng = np.random.default_rng(self.random_state)
        n_mixtures = min(n_mixtures, len(some.rows))
        labels = kmeans(some.filled, some.weights, n_mixtures, rng)
        overall = sample_start(some.rows, some.weights, n_components)
        clusters = [some.where(labels == number) for number in range(n_mixtures)]
        weights = np.array([cluster.weights.sum() for cluster in clusters]) + 1.0
        parts = tuple(_component_start(cluster, overall, floor) for cluster in clusters)
        return Mixture(parts, weights / weights.sum())

    def _iterations(self, now: Mixture, sample: SampleRows | None, floor: float) -> Passes:
        """EM until a step changes the model by less than `tol`.

        A component with too few rows is restarted at the rows that the others explain least.
        """
        history: list[float] = []
        restarts, label = 0, "EM 1"
        while True:
            empty = Latent([part.factors for part in now.parts], now.weights)
            full = cast(Latent, (yield Pass(empty, label=label)))
            require_finite(full)
            history.append(full.log_likelihood / full.rows)
            after, change = _maximised(full, now, self.ridge, floor), np.inf
            underpopulated = _underpopulated(full)
            if sample is not None and underpopulated and restarts < _MOST_RESTARTS:
                restarts += len(underpopulated)
                after = _restarted(after, underpopulated, sample, floor)
            else:
                change = _change(now, after)
            converged = change <= self.tol
            if converged or len(history) >= self.max_iter or full.n_unmodelled:
                return _model(now if converged else after, full, history, change, converged, restarts, floor)
            label = f"EM {len(history) + 1}, {history[-1]:.6g} nats per row, change {change:.1e}"
            now = after

    def _floor_of(self, start: PPCAMixtureModel) -> float:
        """The variance floor for a fit that continues from a model, from the model's variance."""
        observed = np.isfinite(start.means[0])
        total = float(np.trace(start.get_covariance()[np.ix_(observed, observed)]))
        return self.variance_floor * total / int(observed.sum())


def _maximised(full: Latent, now: Mixture, ridge: float, floor: float) -> Mixture:
    """The mixture after the M step. A component with too few rows is left unchanged."""
    parts = []
    for statistics, part in zip(full.statistics, now.parts, strict=True):
        enough = statistics.latent[-1] > part.factors.order
        step = maximise(statistics, part.factors, ridge=ridge, floor=floor) if enough else None
        parts.append(part if step is None else step.after)
    weights = np.array([statistics.latent[-1] for statistics in full.statistics])
    weights = np.maximum(weights / weights.sum(), np.finfo(np.float64).tiny)
    return Mixture(tuple(parts), weights / weights.sum())


def _underpopulated(full: Latent) -> list[int]:
    """The components with too few rows to estimate their axes."""
    return [
        number
        for number, (one, statistics) in enumerate(zip(full.factors, full.statistics, strict=True))
        if statistics.latent[-1] < one.order + 2
    ]


def _restarted(now: Mixture, underpopulated: Sequence[int], sample: SampleRows, floor: float) -> Mixture:
    """Restart components at the least likely rows of a sample."""
    factors = [part.factors for part in now.parts]
    nats = logsumexp(joint_log_likelihood(sample.rows, factors, now.weights), axis=0)
    nats = nats / np.isfinite(sample.rows).sum(axis=1)
    parts, weights, order = list(now.parts), now.weights.copy(), now.parts[0].factors.order
    overall = sample_start(sample.rows, sample.weights, order)
    for number in underpopulated:
        distances = np.sum((sample.filled - sample.filled[int(np.argmin(nats))]) ** 2, axis=1)
        near = np.argsort(distances, kind="stable")[: max(4 * (order + 1), 10)]
        nats[near] = np.inf
        parts[number] = _component_start(sample.where(near), overall, floor)
        weights[number] = 1.0 / len(weights)
    return Mixture(tuple(parts), weights / weights.sum())


def _component_start(some: SampleRows, overall: Principal, floor: float) -> Principal:
    """A component for some rows; with the axes of all rows where there are too few."""
    order = overall.factors.order
    if len(some.rows) <= 2 * (order + 1):
        few = len(some.rows) > 0
        return replace(overall, mean=column_means(some.filled, some.weights) if few else overall.mean)
    own = sample_start(some.rows, some.weights, order)
    mean = np.where(np.isfinite(some.rows).any(axis=0), own.mean, overall.mean)
    noise = max(own.noise, floor)
    return Principal(mean, own.components, np.maximum(own.explained_variance, noise), noise)


def _change(old: Mixture, new: Mixture) -> float:
    """An upper bound of the divergence of the new mixture from the old, in nats per value."""
    d = int(np.isfinite(old.parts[0].mean).sum())
    between = float(old.weights @ np.log(old.weights / new.weights)) / d
    within = [divergence(a.factors, b.factors) for a, b in zip(old.parts, new.parts, strict=True)]
    return max(0.0, between) + float(old.weights @ np.array(within))


def _model(
    now: Mixture,
    full: Latent,
    history: Sequence[float],
    change: float,
    converged: bool,
    restarts: int,
    floor: float,
) -> Model:
    """The model of parameters, and of the statistics of the last pass."""
    counts = sum(statistics.masked[-1] for statistics in full.statistics)
    means = np.stack([np.where(counts > 0, part.mean, np.nan) for part in now.parts])
    noise = np.array([part.noise for part in now.parts])
    return PPCAMixtureModel(
        weights=now.weights,
        means=means,
        components=np.stack([part.components for part in now.parts]),
        explained_variance=np.stack([part.explained_variance for part in now.parts]),
        noise_variance=noise,
        n_samples=full.rows,
        n_observed=full.observed,
        log_likelihood=history[-1],
        log_likelihoods=np.array(history),
        converged=converged,
        change=min(change, float(np.finfo(np.float64).max)),
        empty_rows=full.empty_rows,
        new_features=full.n_unmodelled,
        restarts=restarts,
        floored=int(np.count_nonzero(noise <= floor)),
    )
