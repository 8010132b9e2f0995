"""Nonmetric multidimensional scaling: distances that follow the order of the dissimilarities."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from scipy.spatial.distance import pdist, squareform

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array, Block, MatrixSpec
from streamdr.core.method import Model, Pass, Passes, Route, Tags
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

_FEW_STEPS = 10_000


@dataclass(eq=False)
class NonmetricMDS:
    """Nonmetric multidimensional scaling (Kruskal's): only the order of the dissimilarities counts.

    Parameters
    ----------
    n_components : int
        How many dimensions the configuration has.
    metric : "euclidean", "cityblock", "cosine" or "precomputed"
        How unlike two rows are; `"precomputed"` if the data is the square matrix of dissimilarities itself,
        where NaN stands for a pair that is not known. In Python a function of two rows, or of two blocks of
        rows, too.
    ties : "secondary" or "primary"
        Whether pairs that are equally unlike should be equally far apart, or may be in any order.
    storage : "auto", "memory" or "stream"
        Where all pairs are: in memory, each with a disparity of its own, or read (or computed) again twice in
        every iteration, with a disparity for each of `n_bins` bins of dissimilarities.
    n_bins : int
        How many bins there are when pairs are streamed; those of a bin count as equally unlike.
    n_init : int
        How many starts are made: the first by landmarks, the others at random. The best is kept.
    max_iter : int
        The most iterations of a start.
    tol : float
        A start ends when iterations, several in a row, lower the stress by less than this part of it.
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
        known = self.ties in ("secondary", "primary")
        require(known, "ties", f"{self.ties!r} is neither 'secondary' nor 'primary'")
        places = ("auto", "memory", "stream")
        require(self.storage in places, "storage", f"{self.storage!r} is neither 'memory' nor 'stream'")
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
        """A model of all points."""
        return [stress_outline(data, self.n_components, self.metric)]

    def passes(self, data: MatrixSpec, start: StressModel | None = None) -> Passes:
        """A pass over the points or their dissimilarities, and two an iteration where pairs are streamed."""
        keep = self.storage == "memory"
        setting = yield from initialise(
            self.metric, data, self.n_components, self.random_state, start, keep=keep
        )
        pairs = _InMemory(self, setting) if keep else _Streamed(self, setting, data)
        starts = setting.starts(self.n_init, self.random_state)
        descents: Any = [smacof(_sized(each), pairs.evaluate, self.max_iter, self.tol) for each in starts]
        runs = cast(list[Descent], (yield from with_shared_passes(descents)))
        best = min(runs, key=lambda run: run.stress)
        embedding = best.embedding - best.embedding.mean(axis=0)
        steps, disparities = yield from pairs.curve(embedding, setting)
        left, right = setting.pairs[:, 0], setting.pairs[:, 1]
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
            shepard_dissimilarities=setting.unlike,
            shepard_distances=lengths(embedding[left], embedding[right]),
            points=setting.points,
            shepard_disparities=disparities,
            disparity_edges=steps.edges,
            disparity_values=steps.values,
        )


class _InMemory:
    """All pairs in memory, each with its own disparity."""

    def __init__(self, method: NonmetricMDS, setting: Initialisation) -> None:
        assert setting.in_memory is not None
        matrix = setting.in_memory.values
        self._n = setting.n_points
        unlike = squareform(matrix, checks=False)
        self._there = ~np.isnan(unlike)
        self._unlike = unlike[self._there]
        points = np.ones(self._n) if setting.weights is None else setting.weights
        left, right = np.triu_indices(self._n, 1)
        self._weights = (points[left] * points[right])[self._there]
        if not self._weights.any() or not np.ptp(self._unlike) > 0:
            raise DataError("all dissimilarities are equal: there is no order to preserve")
        self._ranking = Ranking.of(self._unlike, self._weights, primary=method.ties == "primary")
        self._pairs = PairWeights("normalized", setting.weights)
        self._uniform = setting.weights is None and setting.complete
        self._complete = setting.complete
        self._block = setting.in_memory

    def evaluate(self, embedding: Array, label: str) -> Generator[Pass, Accumulator, Evaluation]:
        """The stress of a configuration, and a step of majorization towards its disparities."""
        reached = pdist(embedding)[self._there]
        hats = self._ranking.disparities(reached)
        stress = _kruskal(reached, hats, self._weights)
        wanted = np.full(len(self._there), np.nan)
        wanted[self._there] = hats * _scale(hats, self._weights)
        empty = Stress(StoredDistances(self._n), embedding, self._pairs, allow_nan=not self._complete)
        matrix = Block(self._block.span, squareform(wanted, checks=False))
        full = cast(Stress, (yield Pass(empty, label=label, in_memory=matrix)))
        return Evaluation(stress, majorized(full, uniform=self._uniform), full.pull)

    def curve(
        self, embedding: Array, setting: Initialisation
    ) -> Generator[Pass, Accumulator, tuple[StepFunction, Array]]:
        """The disparities of a configuration as a step function of few steps, and those of some pairs."""
        yield from ()
        reached = pdist(embedding)[self._there]
        every = np.full(len(self._there), np.nan)
        every[self._there] = self._ranking.disparities(reached)
        shown = squareform(every, checks=False)[setting.pairs[:, 0], setting.pairs[:, 1]]
        # A function has one value for tied pairs, even in the primary approach.
        order = self._ranking.order
        unlike, hats = self._unlike[order], self._ranking._replace(primary=False).disparities(reached)[order]
        ends = np.flatnonzero(np.append(np.diff(hats) > 0, True))
        if len(ends) > _FEW_STEPS:
            ends = np.append(ends[:-1][np.linspace(0, len(ends) - 2, _FEW_STEPS - 1).astype(int)], ends[-1])
        return StepFunction(unlike[ends[:-1]], hats[ends]), shown


class _Streamed:
    """Pairs that are read twice an iteration, with a disparity for each bin."""

    def __init__(self, method: NonmetricMDS, setting: Initialisation, data: MatrixSpec) -> None:
        self._setting = setting
        self._allow_nan = not setting.complete
        self._cost_factor = 1 if method.allows_nan else max(1, data.n_rows // (4 * data.n_cols))
        self._weights = PairWeights("normalized", setting.weights)
        self._uniform = setting.weights is None and setting.complete
        observed = np.sort(setting.unlike[~np.isnan(setting.unlike)])
        if not len(observed) or not np.ptp(observed) > 0:
            raise DataError("all sampled dissimilarities are equal: there is no order to preserve")
        quantiles = np.quantile(observed, np.linspace(0, 1, method.n_bins + 1)[1:-1])
        self._edges = np.unique(quantiles)

    def evaluate(self, embedding: Array, label: str) -> Generator[Pass, Accumulator, Evaluation]:
        """The stress of a configuration, and a step of majorization towards its disparities."""
        hats, binned = yield from self._regressed(embedding, f"{label}, disparities")
        target = StepFunction(self._edges, hats * _scale(hats, binned.counts))
        empty = Stress(self._setting.distances, embedding, self._weights, target, allow_nan=self._allow_nan)
        full = cast(Stress, (yield Pass(empty, label=label, cost_factor=self._cost_factor)))
        # The sum of (d - dhat)^2: of squares of distances, of products by bins, of squares of disparities.
        squares = 2 * full.reached - 2 * float(hats @ binned.totals) + float(binned.counts @ hats**2)
        stress = float(np.sqrt(max(squares, 0.0) / (2 * full.reached)))
        return Evaluation(stress, majorized(full, uniform=self._uniform), full.pull)

    def _regressed(
        self, embedding: Array, label: str
    ) -> Generator[Pass, Accumulator, tuple[Array, BinnedDistances]]:
        empty = BinnedDistances(
            self._setting.distances, embedding, self._weights, self._edges, allow_nan=self._allow_nan
        )
        full = cast(BinnedDistances, (yield Pass(empty, label=label, cost_factor=self._cost_factor)))
        means = np.divide(full.totals, full.counts, out=np.zeros(len(full.counts)), where=full.counts > 0)
        return rising(means, full.counts), full

    def curve(
        self, embedding: Array, setting: Initialisation
    ) -> Generator[Pass, Accumulator, tuple[StepFunction, Array]]:
        """The disparities of a configuration as a step function, and those of some pairs."""
        hats, _ = yield from self._regressed(embedding, "disparities")
        steps = StepFunction(self._edges, hats)
        return steps, steps.wanted(setting.unlike)


def _sized(embedding: Array) -> Array:
    """A configuration scaled to a mean squared distance of one, as that of disparities."""
    centred = embedding - embedding.mean(axis=0)
    size = float(np.sqrt(2.0 * np.sum(centred**2) / max(len(centred) - 1, 1)))
    return np.asarray(centred / size) if size else centred


def _kruskal(reached: Array, hats: Array, weights: Array) -> float:
    """sqrt(sum (d - dhat)^2 / sum d^2)."""
    size = float(weights @ reached**2)
    return float(np.sqrt(weights @ (reached - hats) ** 2 / size)) if size else 1.0


def _scale(hats: Array, weights: Array) -> float:
    """The factor that gives disparities a mean square of one, so that configurations do not collapse."""
    size = float(weights @ hats**2)
    return float(np.sqrt(weights.sum() / size)) if size else 1.0
