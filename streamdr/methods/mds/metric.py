"""Metric multidimensional scaling: the configuration of least stress."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array, MatrixSpec
from streamdr.core.method import Model, Pass, Passes, Route, Tags, cost_factor
from streamdr.core.parameters import require_types
from streamdr.errors import DataError, ParameterError
from streamdr.methods.mds.initialisation import Initialisation, initialise
from streamdr.methods.mds.matchings import Matchings, Pairs, PointMatchings, StoredMatchings, round_robin
from streamdr.methods.mds.parameters import Metric, check_common, lengths, require_enough
from streamdr.methods.mds.picked_distances import PickedDistances
from streamdr.methods.mds.routes import iterative_routes, stochastic_route
from streamdr.methods.mds.sgd import pair_descent, stress_of
from streamdr.methods.mds.smacof import Descent, Evaluation, gradient_descent, majorized, smacof
from streamdr.methods.mds.stress import PairWeights, Stress
from streamdr.methods.mds.stress_model import StressModel, stress_outline
from streamdr.methods.mds.stresses import STRESSES, StressName, norm_of
from streamdr.statistics.concurrent import with_shared_passes
from streamdr.statistics.validation import require

MAX_SMACOF_POINTS = 5_000
"""The largest number of points for which `auto` chooses SMACOF."""
ROUNDS = 150
"""The number of matchings in an epoch."""
STORED_ROUNDS = 200
"""The number of matchings whose distances are read from a stored matrix."""
_STRESS_MATCHINGS = 10
"""The number of matchings from which the stress after an epoch is estimated."""
_ALL_PAIRS_POINTS = 10_000
"""Up to this many points, and for a stored matrix, the final stress is that of all pairs."""

if TYPE_CHECKING:
    PairWeightMatrix = list[list[float]] | Array
else:
    PairWeightMatrix = list[list[float]]


@dataclass(eq=False)
class MetricMDS:
    """Metric multidimensional scaling by majorization, gradients or stochastic descent, on three stresses.

    Parameters
    ----------
    n_components : int
        The number of dimensions of the configuration.
    metric : "euclidean", "cityblock", "cosine" or "precomputed"
        The distance between two rows; `"precomputed"` if the data is the square matrix of distances, in which
        NaN is a missing distance. In Python, a function of two rows, or of two blocks of rows, is possible
        too.
    stress : "normalized", "relative" or "sammon"
        The stress that is minimised. With a the given distances and b those of the configuration,
        `"normalized"` is sum (a-b)^2 / sum a^2, `"relative"` is sum ((a-b)/a)^2, and `"sammon"` is
        sum (a-b)^2/a divided by sum a.
    algorithm : "auto", "smacof", "gradient" or "stochastic"
        `"smacof"` is accelerated majorization, and `"gradient"` is gradient descent; both use all pairs in
        every iteration. `"stochastic"` is stochastic gradient descent on random pairs, for many points.
        `"auto"` is smacof up to 5,000 points, and stochastic beyond.
    storage : "auto", "memory" or "stream"
        Whether smacof and gradient keep all distances in memory, or read (or compute) them again in every
        iteration.
    n_init : int
        The number of starts: the first from landmark MDS, the others random. The best result is kept.
    max_iter : int
        The largest number of iterations of a start.
    tol : float
        A start has converged when several consecutive iterations each lower the stress by less than this
        fraction of it.
    n_epochs : int
        The number of epochs of stochastic descent.
    pair_weights : list of lists or None
        The weights of the pairs: a symmetric matrix. The weight of a row multiplies those of all its pairs.
    random_state : int
        Seeds the starts, and the pairs of stochastic descent.

    References
    ----------
    de Leeuw, Convergence of the majorization method for multidimensional scaling, Journal of Classification 5
    (1988).
    Sammon, A nonlinear mapping for data structure analysis, IEEE Transactions on Computers 18 (1969).

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0], [0.0, 4.0]])
    >>> mds = streamdr.MetricMDS(2).fit(X)
    >>> round(mds.stress_, 4), mds.embedding_.shape
    (0.0, (4, 2))
    """

    name: ClassVar[str] = "metric_mds"
    model: ClassVar[type] = StressModel
    tags: ClassVar[Tags] = Tags(incremental=False, sample_weight=False)
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ({"n_components": 2, "max_iter": 50},)

    n_components: int = 2
    _: KW_ONLY
    metric: Metric = "euclidean"
    stress: StressName = "normalized"
    algorithm: Literal["auto", "smacof", "gradient", "stochastic"] = "auto"
    storage: Literal["auto", "memory", "stream"] = "auto"
    n_init: int = 1
    max_iter: int = 300
    tol: float = 1e-6
    n_epochs: int = 30
    pair_weights: PairWeightMatrix | None = None
    random_state: int = 0

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small examples, for the laws."""
        return [
            cls(2, max_iter=3, n_init=2),
            cls(2, metric="cityblock", algorithm="gradient", stress="sammon", max_iter=3),
            cls(2, algorithm="stochastic", stress="relative", n_epochs=2),
        ]

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)
        check_common(self.n_components, self.metric)
        require(self.stress in STRESSES, "stress", f"{self.stress!r} is not one of {', '.join(STRESSES)}")
        algorithms = ("auto", "smacof", "gradient", "stochastic")
        require(
            self.algorithm in algorithms,
            "algorithm",
            f"{self.algorithm!r} is not one of {', '.join(algorithms)}",
        )
        storages = ("auto", "memory", "stream")
        require(self.storage in storages, "storage", f"{self.storage!r} is neither 'memory' nor 'stream'")
        for name in ("n_init", "max_iter", "n_epochs"):
            require(getattr(self, name) >= 1, name, f"{getattr(self, name)} is not at least 1")
        require(self.tol >= 0, "tol", f"{self.tol} is negative")
        require(
            self.pair_weights is None or self.algorithm != "stochastic",
            "pair_weights",
            "stochastic descent does not support pair_weights: choose smacof",
        )

    @property
    def allows_nan(self) -> bool:
        """Whether NaN is a missing distance: only in a precomputed matrix."""
        return self.metric == "precomputed"

    def using(self, route: str) -> Self:
        """The same method with its algorithm and storage fixed."""
        algorithm, _, storage = route.partition("/")
        return replace(self, algorithm=algorithm, storage=storage or "memory")  # type: ignore[arg-type]

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """The possible routes, with their costs."""
        self.check()
        require_enough(data, self.n_components, self.metric)
        self._matrix(data.n_rows)
        many = data.n_rows > MAX_SMACOF_POINTS and self.pair_weights is None
        if self.algorithm == "stochastic":
            return [stochastic_route(self, data, ROUNDS, STORED_ROUNDS)]
        if self.algorithm == "auto" and many:
            # All pairs are streamed only if the stochastic route does not fit into memory.
            streamed = iterative_routes(
                replace(self, storage="stream"), data, "smacof", passes_per_iteration=1
            )
            return [stochastic_route(self, data, ROUNDS, STORED_ROUNDS), *streamed]
        algorithm = "smacof" if self.algorithm == "auto" else self.algorithm
        return iterative_routes(self, data, algorithm, passes_per_iteration=1)

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """An outline of the model of all points."""
        return [stress_outline(data, self.n_components, self.metric)]

    def passes(self, data: MatrixSpec, start: StressModel | None = None) -> Passes:
        """A pass over the points or their distances, and one per evaluation where pairs are streamed."""
        keep = self.storage == "memory" and self.algorithm != "stochastic"
        initial = yield from initialise(
            self.metric, data, self.n_components, self.random_state, start, keep=keep
        )
        if self.algorithm == "stochastic":
            runs = yield from self._stochastic(initial, data)
        else:
            descend = smacof if self.algorithm == "smacof" else gradient_descent
            evaluate = self._evaluator(initial, data)
            starts = initial.starts(self.n_init, self.random_state)
            descents: Any = [descend(each, evaluate, self.max_iter, self.tol) for each in starts]
            runs = cast(list[Descent], (yield from with_shared_passes(descents)))
        return self._model(data, initial, runs)

    def _evaluator(self, initial: Initialisation, data: MatrixSpec) -> Any:
        """The function that evaluates a configuration over all pairs."""
        matrix = self._matrix(initial.n_points)
        weights = PairWeights(self.stress, initial.weights, matrix)
        plain = initial.weights is None and matrix is None
        uniform = plain and initial.complete and self.stress == "normalized"
        allow_nan = not initial.complete
        stored = self.allows_nan or initial.in_memory is not None
        work = 1 if stored else cost_factor(data.n_rows, data.n_cols)

        def evaluate(embedding: Array, label: str) -> Generator[Pass, Accumulator, Evaluation]:
            empty = Stress(initial.distances, embedding, weights, allow_nan=allow_nan)
            request = Pass(empty, label=label, cost_factor=work, in_memory=initial.in_memory)
            full = cast(Stress, (yield request))
            if not full.degree.any():
                raise DataError("no pair has an observed distance above zero: there is nothing to scale")
            norm = norm_of(self.stress, full.target_squares) or 1.0
            return Evaluation(full.residual / norm, majorized(full, uniform=uniform), 2.0 * full.pull / norm)

        return evaluate

    def _stochastic(
        self, initial: Initialisation, data: MatrixSpec
    ) -> Generator[Pass, Accumulator, list[Descent]]:
        """The results of stochastic descent from each start."""
        n, seed = initial.n_points, self.random_state
        matchings = yield from self._matchings(initial)
        samples = [matchings.pairs(self.n_epochs, number) for number in range(min(_STRESS_MATCHINGS, ROUNDS))]
        sampled = Pairs(*(np.concatenate(parts) for parts in zip(*samples, strict=True)))
        weights = sampled.weights
        if not weights.any():
            raise DataError("no sampled pair has a distance above zero: there is nothing to scale")
        norm = norm_of(self.stress, float(np.sum(weights * sampled.targets**2))) or 1.0
        if self.stress == "relative":  # scaled to the sum over all pairs
            norm = len(weights) / (n * (n - 1) / 2)
        extremes = float(weights[weights > 0].min()), float(weights.max())

        def sampled_stress(embedding: Array) -> float:
            return stress_of(embedding, sampled, norm)

        evaluate = self._evaluator(initial, data)
        runs = []
        for start in initial.starts(self.n_init, seed):
            embedding, history = yield from pair_descent(
                start, matchings, ROUNDS, self.n_epochs, extremes, sampled_stress
            )
            if initial.points is None or n <= _ALL_PAIRS_POINTS:
                final = yield from evaluate(embedding, "the stress of all pairs")
                history[-1] = final.stress
            runs.append(Descent(embedding, history, converged=True))
        return runs

    def _matchings(self, initial: Initialisation) -> Generator[Pass, Accumulator, Matchings]:
        """The matchings of points in memory, or of some stored distances, which are read."""
        n, seed = initial.n_points, self.random_state
        if initial.points is not None:
            return PointMatchings(self.metric, initial.points, self.stress, initial.weights, seed)
        matchings = round_robin(n, STORED_ROUNDS, np.random.default_rng([seed, 6]))
        partners = np.tile(np.arange(n, dtype=np.int32)[:, None], (1, len(matchings)))
        for number, (left, right) in enumerate(matchings):
            partners[left, number], partners[right, number] = right, left
        request = Pass(PickedDistances(partners, allow_nan=True), label="distances of some pairs")
        found = cast(PickedDistances, (yield request)).found
        return StoredMatchings(matchings, found, self.stress, initial.weights, seed)

    def _model(self, data: MatrixSpec, initial: Initialisation, runs: Sequence[Descent]) -> StressModel:
        """The model of the best start."""
        best = min(runs, key=lambda run: run.stress)
        embedding = best.embedding - best.embedding.mean(axis=0)
        left, right = initial.pairs[:, 0], initial.pairs[:, 1]
        return StressModel(
            embedding=embedding,
            stress=best.stress,
            measure=self.stress,
            stress_history=best.history,
            start_stresses=np.array([run.stress for run in runs]),
            converged=best.converged,
            algorithm=self.algorithm,
            metric=self.metric,
            n_features=data.n_cols,
            shepard_dissimilarities=initial.dissimilarities,
            shepard_distances=lengths(embedding[left], embedding[right]),
            points=initial.points,
        )

    def _matrix(self, n_points: int) -> Array | None:
        """The weights of pairs as a checked matrix; None if there are none."""
        if self.pair_weights is None:
            return None
        try:
            matrix = np.asarray(self.pair_weights, np.float64)
        except (TypeError, ValueError) as error:
            message = f"weights of pairs must be a matrix of numbers ({error})"
            raise ParameterError("pair_weights", message) from error
        square = matrix.shape == (n_points, n_points)
        message = f"weights of shape {matrix.shape} for {n_points} points: a weight for each pair is needed"
        require(square, "pair_weights", message)
        valid = bool((matrix >= 0).all()) and bool(np.isfinite(matrix).all())
        require(valid, "pair_weights", "weights must be finite and not negative")
        asymmetric = np.argwhere(matrix != matrix.T)
        if len(asymmetric):
            row, column = asymmetric[0]
            one, other = matrix[row, column], matrix[column, row]
            message = f"the pair {row}, {column} has the weights {one:g} and {other:g}"
            raise ParameterError("pair_weights", f"{message}: the matrix must be symmetric")
        groups, members = connected_components(csr_array(matrix > 0), directed=False)
        if groups > 1:
            other = int(np.flatnonzero(members != members[0])[0])
            message = f"no chain of pairs of positive weight connects point 0 with point {other}"
            raise ParameterError("pair_weights", f"{message}: give a pair between them a positive weight")
        return matrix
