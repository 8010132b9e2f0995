"""Mixtures of probabilistic PCAs: several clouds of rows, each with axes of its own, holes or not."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import product
from typing import ClassVar, NamedTuple, Self, cast

import numpy as np
from scipy.special import logsumexp

from streamdr.accumulators import Accumulator, Latent, Sample
from streamdr.accumulators.latent import joint_log_likelihood
from streamdr.blocks import Array, MatrixSpec
from streamdr.errors import DataError, ParameterError
from streamdr.methods.base import Model, Pass, Passes, Route
from streamdr.methods.checks import no_values, require, require_finite, require_products, whole_numbers
from streamdr.methods.em import Principal, column_means, divergence, maximise, sample_start
from streamdr.methods.kmeans import kmeans
from streamdr.methods.outlines import mixture_outline
from streamdr.methods.parameters import require_types
from streamdr.methods.ppca_mixture_model import PPCAMixtureModel
from streamdr.methods.ppca_routes import mixture_route
from streamdr.methods.sampling import sampled
from streamdr.methods.side_by_side import side_by_side

_SAMPLE_ROWS, _SAMPLE_BYTES = 10_000, 64 << 20
_MOST_RESTARTS = 10


class Mixture(NamedTuple):
    """The parameters of a mixture."""

    parts: tuple[Principal, ...]
    weights: Array


@dataclass(frozen=True, eq=False)
class Some:
    """A few rows of the data, and the same with holes filled by the means of the columns."""

    rows: Array
    weights: Array
    filled: Array

    @classmethod
    def of(cls, sample: Sample) -> Some:
        """Those that have any value. A row that is there twice is one of twice the weight, in any order."""
        known = np.isfinite(sample.rows).any(axis=1)
        rows, which = np.unique(sample.rows[known], axis=0, return_inverse=True)
        weights = np.bincount(which.ravel(), sample.weights[known], minlength=len(rows))
        return cls(rows, weights, np.where(np.isfinite(rows), rows, column_means(rows, weights)))

    @property
    def mean_variance(self) -> float:
        """The mean of the features' variances, over what is there."""
        there = np.isfinite(self.rows)
        centred = np.where(there, self.filled - column_means(self.rows, self.weights), 0.0)
        return float(self.weights @ np.sum(centred**2, axis=1)) / float(self.weights @ there.sum(axis=1))

    def where(self, chosen: Array) -> Some:
        """Some of them."""
        return Some(self.rows[chosen], self.weights[chosen], self.filled[chosen])


@dataclass(eq=False)
class PPCAMixture:
    """A mixture of probabilistic PCAs of data of any length, with or without missing values (NaN).

    Parameters
    ----------
    n_components : int or list of int
        How many latent variables each component has; of a list the best is chosen by BIC.
    n_mixtures : int or list of int
        How many components there are; of a list the best is chosen by BIC. All sizes are fitted with one
        reading of the data.
    tol : float
        EM stops when a step moves the model by less than this, in nats a value (Kullback-Leibler).
    max_iter : int
        The most iterations of EM, each of which reads the data once.
    ridge : float
        Shrinks loadings, as if each had been seen that many times more with nothing to show for it.
    variance_floor : float
        The least noise variance of a component, as a part of the features' mean variance.
    random_state : int
        Seeds the sample of rows, and the k-means on it, that the fit starts from.
    """

    name: ClassVar[str] = "ppca_mixture"
    model: ClassVar[type] = PPCAMixtureModel

    n_components: int | list[int] = 1
    n_mixtures: int | list[int] = 2
    _: KW_ONLY
    tol: float = 1e-6
    max_iter: int = 100
    ridge: float = 0.0
    variance_floor: float = 1e-6
    random_state: int = 0

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
        require(0 < floor < 1, "variance_floor", f"{floor} is not a part of 1, above 0 and below 1")

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """The numbers of mixtures and of components to choose from."""
        mixtures = whole_numbers("n_mixtures", self.n_mixtures)
        return list(product(mixtures, whole_numbers("n_components", self.n_components)))

    def using(self, route: str) -> Self:
        """There is one route only."""
        return self

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """A sample to start from, and a pass an iteration."""
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
                f"ask for {data.n_cols - 1} or fewer",
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
        """A sample, and EM from the k-means of it, for each size side by side."""
        size = None if start is None else (start.n_mixtures, start.n_components)
        if start is not None and size in self.sizes:
            begun = Mixture(start.principals, start.weights)
            gone_on = yield from self._iterations(begun, None, self._floor_of(start))
            if cast(PPCAMixtureModel, gone_on).new_features == 0:
                return gone_on
        some = yield from self._sample(data)
        floor = self.variance_floor * some.mean_variance
        runs = [self._iterations(self._begin(some, c, k, floor), some, floor) for c, k in self.sizes]
        models = cast("list[PPCAMixtureModel]", (yield from side_by_side(runs)))
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
        """One of how many parts of the data is read to sample from."""
        return data.n_rows // (4 * self._sample_rows(data))

    def _sample(self, data: MatrixSpec) -> Generator[Pass, Accumulator, Some]:
        empty = Sample(data.n_cols, self._sample_rows(data), self.random_state)
        some = Some.of((yield from sampled(empty, data, "a sample to start from", self._parts(data))))
        if not len(some.rows):
            raise no_values()
        require_products(some.mean_variance)
        if some.mean_variance <= 0.0:
            raise DataError("every column is constant: there is no variance to explain")
        return some

    def _begin(self, some: Some, n_mixtures: int, n_components: int, floor: float) -> Mixture:
        """The clusters that k-means finds in a sample, holes filled by the means of the columns."""
        rng = np.random.default_rng(self.random_state)
        n_mixtures = min(n_mixtures, len(some.rows))
        labels = kmeans(some.filled, some.weights, n_mixtures, rng)
        overall = sample_start(some.rows, some.weights, n_components)
        clusters = [some.where(labels == number) for number in range(n_mixtures)]
        weights = np.array([cluster.weights.sum() for cluster in clusters]) + 1.0
        parts = tuple(_begin_at(cluster, overall, floor) for cluster in clusters)
        return Mixture(parts, weights / weights.sum())

    def _iterations(self, now: Mixture, sample: Some | None, floor: float) -> Passes:
        """EM until a step hardly moves the model.

        A component that is left with too few rows is begun anew where the others explain least.
        """
        history: list[float] = []
        restarts, label = 0, "EM 1"
        while True:
            empty = Latent([part.factors for part in now.parts], now.weights)
            full = cast(Latent, (yield Pass(empty, label=label)))
            require_finite(full)
            history.append(full.log_likelihood / full.rows)
            after, change = _maximised(full, now, self.ridge, floor), np.inf
            starved = _starved(full)
            if sample is not None and starved and restarts < _MOST_RESTARTS:
                restarts += len(starved)
                after = _restarted(after, starved, sample, floor)
            else:
                change = _change(now, after)
            settled = change <= self.tol
            if settled or len(history) >= self.max_iter or full.unknown:
                return _model(now if settled else after, full, history, change, settled, restarts, floor)
            label = f"EM {len(history) + 1}, {history[-1]:.6g} nats a row, change {change:.1e}"
            now = after

    def _floor_of(self, start: PPCAMixtureModel) -> float:
        """The floor for a fit that goes on from a model, by the variance that the model describes."""
        known = np.isfinite(start.means[0])
        total = float(np.trace(start.get_covariance()[np.ix_(known, known)]))
        return self.variance_floor * total / int(known.sum())


def _maximised(full: Latent, now: Mixture, ridge: float, floor: float) -> Mixture:
    parts = []
    for statistics, part in zip(full.statistics, now.parts, strict=True):
        enough = statistics.latent[-1] > part.factors.order
        step = maximise(statistics, part.factors, ridge=ridge, floor=floor) if enough else None
        parts.append(part if step is None else step.after)
    weights = np.array([statistics.latent[-1] for statistics in full.statistics])
    weights = np.maximum(weights / weights.sum(), np.finfo(np.float64).tiny)
    return Mixture(tuple(parts), weights / weights.sum())


def _starved(full: Latent) -> list[int]:
    """The components with too few rows to tell their axes from."""
    return [
        number
        for number, (one, statistics) in enumerate(zip(full.factors, full.statistics, strict=True))
        if statistics.latent[-1] < one.order + 2
    ]


def _restarted(now: Mixture, starved: Sequence[int], sample: Some, floor: float) -> Mixture:
    """Begin components anew where the others explain least: about the least likely rows of a sample."""
    factors = [part.factors for part in now.parts]
    nats = logsumexp(joint_log_likelihood(sample.rows, factors, now.weights), axis=0)
    nats = nats / np.isfinite(sample.rows).sum(axis=1)
    parts, weights, order = list(now.parts), now.weights.copy(), now.parts[0].factors.order
    overall = sample_start(sample.rows, sample.weights, order)
    for number in starved:
        distances = np.sum((sample.filled - sample.filled[int(np.argmin(nats))]) ** 2, axis=1)
        near = np.argsort(distances, kind="stable")[: max(4 * (order + 1), 10)]
        nats[near] = np.inf
        parts[number] = _begin_at(sample.where(near), overall, floor)
        weights[number] = 1.0 / len(weights)
    return Mixture(tuple(parts), weights / weights.sum())


def _begin_at(some: Some, overall: Principal, floor: float) -> Principal:
    """A component for some rows, with the axes of all where these are too few."""
    order = overall.factors.order
    if len(some.rows) <= 2 * (order + 1):
        few = len(some.rows) > 0
        return replace(overall, mean=column_means(some.filled, some.weights) if few else overall.mean)
    own = sample_start(some.rows, some.weights, order)
    mean = np.where(np.isfinite(some.rows).any(axis=0), own.mean, overall.mean)
    noise = max(own.noise, floor)
    return Principal(mean, own.components, np.maximum(own.explained_variance, noise), noise)


def _change(old: Mixture, new: Mixture) -> float:
    """No less than the divergence of the new mixture from the old, in nats a value."""
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
        new_features=full.unknown,
        restarts=restarts,
        floored=int(np.count_nonzero(noise <= floor)),
    )
