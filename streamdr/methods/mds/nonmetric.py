"""Nonmetric multidimensional scaling: distances that preserve the order of the dissimilarities."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from scipy.spatial.distance import pdist, squareform

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array, Block, MatrixSpec
from streamdr.core.method import Model, Pass, Passes, Route, Tags, cost_factor
from streamdr.core.parameters import require_types
from streamdr.errors import DataError
from streamdr.methods.mds.binned_distances import BinnedDistances
from streamdr.methods.mds.disparities import Ranking, StepFunction, rising
from streamdr.methods.mds.distances import StoredDistances
from streamdr.methods.mds.initialisation import Initialisation, initialise
from streamdr.methods.mds.parameters import Metric, check_common, lengths, require_enough
from streamdr.methods.mds.routes import iterative_routes
from streamdr.methods.mds.smacof import Descent, Evaluation, majorized, smacof
from streamdr.methods.mds.stress import PairWeights, Stress
from streamdr.methods.mds.stress_model import StressModel, stress_outline
from streamdr.statistics.concurrent import with_shared_passes
from streamdr.statistics.validation import require

_MAX_STEPS = 10_000
"""The largest number of steps of the disparities in a model."""


@dataclass(eq=False)
class NonmetricMDS:
    """Nonmetric multidimensional scaling (Kruskal's): only the order of the dissimilarities counts.

    Parameters
    ----------
    n_components : int
        The number of dimensions of the configuration.
    metric : "euclidean", "cityblock", "cosine" or "precomputed"
        The dissimilarity of two rows; `"precomputed"` if the data is the square matrix of dissimilarities, in
        which NaN is a missing one. In Python, a function of two rows, or of two blocks of rows, is possible
        too.
    ties : "secondary" or "primary"
        Whether pairs of equal dissimilarity get equal disparities (`"secondary"`), or may differ
        (`"primary"`).
    storage : "auto", "memory" or "stream"
        `"memory"` keeps all pairs in memory, with a disparity for each pair. `"stream"` reads (or computes)
        the pairs twice in every iteration, with a disparity for each of `n_bins` bins of dissimilarities.
    n_bins : int
        The number of bins when pairs are streamed. The pairs of a bin are tied.
    n_init : int
        The number of starts: the first from landmark MDS, the others random. The best result is kept.
    max_iter : int
        The largest number of iterations of a start.
    tol : float
        A start has converged when several consecutive iterations each lower the stress by less than this
        fraction of it.
    random_state : int
        Seeds the starts.

    References
    ----------
    Kruskal, Multidimensional scaling by optimizing goodness of fit to a nonmetric hypothesis, Psychometrika
    29 (1964).

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0], [0.0, 4.0]])
    >>> mds = streamdr.NonmetricMDS(2, n_init=1).fit(X)
    >>> round(mds.stress_, 3), mds.embedding_.shape
    (0.0, (4, 2))
    """

    name: ClassVar[str] = "nonmetric_mds"
    model: ClassVar[type] = StressModel
    tags: ClassVar[Tags] = Tags(incremental=False, sample_weight=False)
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ({"n_components": 2, "n_init": 1, "max_iter": 40},)

    n_components: int = 2
    _: KW_ONLY
    metric: Metric = "euclidean"
    ties: Literal["secondary", "primary"] = "secondary"
    storage: Literal["auto", "memory", "stream"] = "auto"
    n_bins: int = 5_000
    n_init: int = 8
    max_iter: int = 500
    tol: float = 1e-7
    random_state: int = 0

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small examples, for the laws."""
        return [cls(2, max_iter=2, n_init=2), cls(2, ties="primary", max_iter=2)]

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)
        check_common(self.n_components, self.metric)
        valid = self.ties in ("secondary", "primary")
        require(valid, "ties", f"{self.ties!r} is neither 'secondary' nor 'primary'")
        storages = ("auto", "memory", "stream")
        require(self.storage in storages, "storage", f"{self.storage!r} is neither 'memory' nor 'stream'")
        require(
            self.storage != "stream" or self.ties == "secondary",
            "ties",
            "pairs of a bin get the same disparity: 'primary' ties need storage: memory",
        )
        for name, least in (("n_init", 1), ("max_iter", 1), ("n_bins", 2)):
            require(getattr(self, name) >= least, name, f"{getattr(self, name)} is not at least {least}")
        require(self.tol >= 0, "tol", f"{self.tol} is negative")

    @property
    def allows_nan(self) -> bool:
        """Whether NaN is a missing dissimilarity: only in a precomputed matrix."""
        return self.metric == "precomputed"

    def using(self, route: str) -> Self:
        """The same method with its storage fixed."""
        return replace(self, storage=route.partition("/")[2])  # type: ignore[arg-type]

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """The possible routes, with their costs."""
        self.check()
        require_enough(data, self.n_components, self.metric)
        routes = iterative_routes(self, data, "smacof", passes_per_iteration=2, copies=9)
        return [route for route in routes if self.ties == "secondary" or route.name.endswith("memory")]

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """An outline of the model of all points."""
        return [stress_outline(data, self.n_components, self.metric)]

    def passes(self, data: MatrixSpec, start: StressModel | None = None) -> Passes:
        """A pass over the points or their dissimilarities, and two per iteration where pairs are streamed."""
        keep = self.storage == "memory"
        initial = yield from initialise(
            self.metric, data, self.n_components, self.random_state, start, keep=keep
        )
        pairs = _InMemory(self, initial) if keep else _Streamed(self, initial, data)
        starts = initial.starts(self.n_init, self.random_state)
        descents: Any = [smacof(_sized(each), pairs.evaluate, self.max_iter, self.tol) for each in starts]
        runs = cast(list[Descent], (yield from with_shared_passes(descents)))
        best = min(runs, key=lambda run: run.stress)
        embedding = best.embedding - best.embedding.mean(axis=0)
        steps, disparities = yield from pairs.curve(embedding, initial)
        left, right = initial.pairs[:, 0], initial.pairs[:, 1]
        return StressModel(
            embedding=embedding,
            stress=best.stress,
            measure="kruskal",
            stress_history=best.history,
            start_stresses=np.array([run.stress for run in runs]),
            converged=best.converged,
            algorithm="smacof",
            metric=self.metric,
            n_features=data.n_cols,
            shepard_dissimilarities=initial.dissimilarities,
            shepard_distances=lengths(embedding[left], embedding[right]),
            points=initial.points,
            shepard_disparities=disparities,
            disparity_edges=steps.edges,
            disparity_values=steps.values,
        )


class _InMemory:
    """All pairs in memory, each with its own disparity."""

    def __init__(self, method: NonmetricMDS, initial: Initialisation) -> None:
        assert initial.in_memory is not None
        matrix = initial.in_memory.values
        self._n = initial.n_points
        dissimilarities = squareform(matrix, checks=False)
        self._observed = ~np.isnan(dissimilarities)
        self._dissimilarities = dissimilarities[self._observed]
        points = np.ones(self._n) if initial.weights is None else initial.weights
        left, right = np.triu_indices(self._n, 1)
        self._weights = (points[left] * points[right])[self._observed]
        if not self._weights.any() or not np.ptp(self._dissimilarities) > 0:
            raise DataError("all dissimilarities are equal: there is no order to preserve")
        self._ranking = Ranking.of(self._dissimilarities, self._weights, primary=method.ties == "primary")
        self._pairs = PairWeights("normalized", initial.weights)
        self._uniform = initial.weights is None and initial.complete
        self._complete = initial.complete
        self._block = initial.in_memory

    def evaluate(self, embedding: Array, label: str) -> Generator[Pass, Accumulator, Evaluation]:
        """The stress of a configuration, and a step of majorization towards its disparities."""
        fitted = pdist(embedding)[self._observed]
        disparities = self._ranking.disparities(fitted)
        stress = _kruskal(fitted, disparities, self._weights)
        targets = np.full(len(self._observed), np.nan)
        targets[self._observed] = disparities * _scale(disparities, self._weights)
        empty = Stress(StoredDistances(self._n), embedding, self._pairs, allow_nan=not self._complete)
        matrix = Block(self._block.span, squareform(targets, checks=False))
        full = cast(Stress, (yield Pass(empty, label=label, in_memory=matrix)))
        return Evaluation(stress, majorized(full, uniform=self._uniform), full.pull)

    def curve(
        self, embedding: Array, initial: Initialisation
    ) -> Generator[Pass, Accumulator, tuple[StepFunction, Array]]:
        """The disparities of a configuration as a step function, and those of the sampled pairs."""
        yield from ()
        fitted = pdist(embedding)[self._observed]
        every = np.full(len(self._observed), np.nan)
        every[self._observed] = self._ranking.disparities(fitted)
        sampled = squareform(every, checks=False)[initial.pairs[:, 0], initial.pairs[:, 1]]
        # A function has one value for tied pairs, even in the primary approach.
        order = self._ranking.order
        dissimilarities, disparities = (
            self._dissimilarities[order],
            self._ranking._replace(primary=False).disparities(fitted)[order],
        )
        ends = np.flatnonzero(np.append(np.diff(disparities) > 0, True))
        if len(ends) > _MAX_STEPS:
            ends = np.append(ends[:-1][np.linspace(0, len(ends) - 2, _MAX_STEPS - 1).astype(int)], ends[-1])
        return StepFunction(dissimilarities[ends[:-1]], disparities[ends]), sampled


class _Streamed:
    """Pairs that are read twice in every iteration, with a disparity for each bin."""

    def __init__(self, method: NonmetricMDS, initial: Initialisation, data: MatrixSpec) -> None:
        self._initial = initial
        self._allow_nan = not initial.complete
        self._cost_factor = 1 if method.allows_nan else cost_factor(data.n_rows, data.n_cols)
        self._weights = PairWeights("normalized", initial.weights)
        self._uniform = initial.weights is None and initial.complete
        observed = np.sort(initial.dissimilarities[~np.isnan(initial.dissimilarities)])
        if not len(observed) or not np.ptp(observed) > 0:
            raise DataError("all sampled dissimilarities are equal: there is no order to preserve")
        quantiles = np.quantile(observed, np.linspace(0, 1, method.n_bins + 1)[1:-1])
        self._edges = np.unique(quantiles)

    def evaluate(self, embedding: Array, label: str) -> Generator[Pass, Accumulator, Evaluation]:
        """The stress of a configuration, and a step of majorization towards its disparities."""
        disparities, binned = yield from self._regressed(embedding, f"{label}, disparities")
        target = StepFunction(self._edges, disparities * _scale(disparities, binned.counts))
        empty = Stress(self._initial.distances, embedding, self._weights, target, allow_nan=self._allow_nan)
        full = cast(Stress, (yield Pass(empty, label=label, cost_factor=self._cost_factor)))
        # The sum of (d - dhat)^2 from squared distances, products by bins, and squared disparities.
        squares = (
            2 * full.fitted_squares
            - 2 * float(disparities @ binned.totals)
            + float(binned.counts @ disparities**2)
        )
        stress = float(np.sqrt(max(squares, 0.0) / (2 * full.fitted_squares)))
        return Evaluation(stress, majorized(full, uniform=self._uniform), full.pull)

    def _regressed(
        self, embedding: Array, label: str
    ) -> Generator[Pass, Accumulator, tuple[Array, BinnedDistances]]:
        """The disparity of each bin, and the sums that it was computed from."""
        empty = BinnedDistances(
            self._initial.distances, embedding, self._weights, self._edges, allow_nan=self._allow_nan
        )
        full = cast(BinnedDistances, (yield Pass(empty, label=label, cost_factor=self._cost_factor)))
        means = np.divide(full.totals, full.counts, out=np.zeros(len(full.counts)), where=full.counts > 0)
        return rising(means, full.counts), full

    def curve(
        self, embedding: Array, initial: Initialisation
    ) -> Generator[Pass, Accumulator, tuple[StepFunction, Array]]:
        """The disparities of a configuration as a step function, and those of the sampled pairs."""
        disparities, _ = yield from self._regressed(embedding, "disparities")
        steps = StepFunction(self._edges, disparities)
        return steps, steps.distances(initial.dissimilarities)


def _sized(embedding: Array) -> Array:
    """A configuration scaled to a mean squared distance of one, like the disparities."""
    centred = embedding - embedding.mean(axis=0)
    size = float(np.sqrt(2.0 * np.sum(centred**2) / max(len(centred) - 1, 1)))
    return np.asarray(centred / size) if size else centred


def _kruskal(fitted: Array, disparities: Array, weights: Array) -> float:
    """sqrt(sum (d - dhat)^2 / sum d^2)."""
    size = float(weights @ fitted**2)
    return float(np.sqrt(weights @ (fitted - disparities) ** 2 / size)) if size else 1.0


def _scale(disparities: Array, weights: Array) -> float:
    """The factor that gives disparities a mean square of one, so that configurations do not collapse."""
    size = float(weights @ disparities**2)
    return float(np.sqrt(weights.sum() / size)) if size else 1.0
