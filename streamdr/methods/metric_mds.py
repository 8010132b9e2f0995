"""Metric multidimensional scaling: the configuration whose distances are nearest to those that are wanted."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from streamdr.accumulators import Accumulator, PickedDistances, Stress
from streamdr.accumulators.stress import PairWeights
from streamdr.blocks import Array, MatrixSpec
from streamdr.distances import pair_distances
from streamdr.errors import DataError, ParameterError
from streamdr.methods.base import Model, Pass, Passes, Route
from streamdr.methods.checks import require
from streamdr.methods.majorization import Descent, Look, gradient_descent, majorized, smacof
from streamdr.methods.mds_parameters import Metric, check_common, lengths, require_enough
from streamdr.methods.mds_routes import iterative_routes, stochastic_route
from streamdr.methods.mds_setting import Setting, prepared
from streamdr.methods.outlines import stress_outline
from streamdr.methods.pair_descent import matching, pair_descent, round_robin, stress_of
from streamdr.methods.parameters import require_types
from streamdr.methods.side_by_side import side_by_side
from streamdr.methods.stress_model import StressModel
from streamdr.stresses import STRESSES, StressName, norm_of, weights_of

MANY = 5_000
"""With more points than these `auto` looks at some pairs at a time."""
ROUNDS = 150
"""Matchings of an epoch."""
STORED_ROUNDS = 200
"""Matchings whose distances are taken from a stored matrix."""
_JUDGED = 10
"""Matchings that an epoch is judged by."""
_ALL_JUDGED = 10_000
"""Up to so many points the last judgement is of all pairs, and of a stored matrix always."""


@dataclass(eq=False)
class MetricMDS:
    """Metric multidimensional scaling by majorization, gradients or stochastic descent, on three stresses.

    Parameters
    ----------
    n_components : int
        How many dimensions the configuration has.
    metric : "euclidean", "cityblock", "cosine" or "precomputed"
        How far apart two rows are; `"precomputed"` if the data is the square matrix of distances itself,
        where NaN stands for a pair that is not known. In Python a function of two rows, or of two blocks of
        rows, too.
    stress : "normalized", "relative" or "sammon"
        What is made small: with a for wanted distances and b for those of the configuration, `"normalized"`
        is sum (a-b)^2 / sum a^2, `"relative"` sum ((a-b)/a)^2, `"sammon"` sum (a-b)^2/a divided by sum a.
    algorithm : "auto", "smacof", "gradient" or "stochastic"
        `"smacof"` is accelerated majorization, `"gradient"` descent along the gradient; both look at all
        pairs in every iteration. `"stochastic"` looks at some at a time, for many points. `"auto"` is smacof
        up to 5,000 points.
    storage : "auto", "memory" or "stream"
        Where smacof and gradient have all distances: in memory, or read (or computed) anew in every
        iteration.
    n_init : int
        How many starts are made: the first by landmarks, the others at random. The best is kept.
    max_iter : int
        The most iterations of a start.
    tol : float
        A start ends when iterations, several in a row, lower the stress by less than this part of it.
    n_epochs : int
        How many rounds through its pairs stochastic descent makes.
    pair_weights : list of lists or None
        How much each pair counts: a symmetric matrix. A weight of a row counts for all its pairs besides.
    random_state : int
        Seeds the starts, and the pairs of stochastic descent.
    """

    name: ClassVar[str] = "metric_mds"
    model: ClassVar[type] = StressModel

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
    pair_weights: list[list[float]] | None = None
    random_state: int = 0

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)
        check_common(self.n_components, self.metric)
        require(self.stress in STRESSES, "stress", f"{self.stress!r} is not one of {', '.join(STRESSES)}")
        algorithms = ("auto", "smacof", "gradient", "stochastic")
        require(self.algorithm in algorithms, "algorithm", f"{self.algorithm!r} is not an algorithm")
        places = ("auto", "memory", "stream")
        require(self.storage in places, "storage", f"{self.storage!r} is neither 'memory' nor 'stream'")
        for name in ("n_init", "max_iter", "n_epochs"):
            require(getattr(self, name) >= 1, name, f"{getattr(self, name)} is not at least 1")
        require(self.tol >= 0, "tol", f"{self.tol} is negative")
        require(
            self.pair_weights is None or self.algorithm != "stochastic",
            "pair_weights",
            "stochastic descent has no use for a matrix of weights: choose smacof",
        )

    @property
    def takes_holes(self) -> bool:
        """Whether NaN stands for a pair that is not known: rows of points have no holes."""
        return self.metric == "precomputed"

    def using(self, route: str) -> Self:
        """The same, with its algorithm and storage fixed."""
        algorithm, _, storage = route.partition("/")
        return replace(self, algorithm=algorithm, storage=storage or "memory")  # type: ignore[arg-type]

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """The ways to do this, with what they would take."""
        self.check()
        require_enough(data, self.n_components, self.metric)
        self._matrix(data.n_rows)
        many = data.n_rows > MANY and self.pair_weights is None
        if self.algorithm == "stochastic":
            return [stochastic_route(self, data, ROUNDS, STORED_ROUNDS)]
        if self.algorithm == "auto" and many:  # all pairs only where there is no room for some
            streamed = iterative_routes(replace(self, storage="stream"), data, "smacof", looks=1)
            return [stochastic_route(self, data, ROUNDS, STORED_ROUNDS), *streamed]
        algorithm = "smacof" if self.algorithm == "auto" else self.algorithm
        return iterative_routes(self, data, algorithm, looks=1)

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """A model of all points."""
        return [stress_outline(data, self.n_components, self.metric)]

    def passes(self, data: MatrixSpec, start: StressModel | None = None) -> Passes:
        """A look at the points or their distances, and as many more as it takes."""
        keep = self.storage == "memory" and self.algorithm != "stochastic"
        setting = yield from prepared(
            self.metric, data, self.n_components, self.random_state, start, keep=keep
        )
        if self.algorithm == "stochastic":
            runs = yield from self._stochastic(setting, data)
        else:
            descend = smacof if self.algorithm == "smacof" else gradient_descent
            look = self._looking(setting, data)
            starts = setting.starts(self.n_init, self.random_state)
            descents: Any = [descend(each, look, self.max_iter, self.tol) for each in starts]
            runs = cast(list[Descent], (yield from side_by_side(descents)))
        return self._model(data, setting, runs)

    def _looking(self, setting: Setting, data: MatrixSpec) -> Any:
        matrix = self._matrix(setting.n_points)
        weights = PairWeights(self.stress, setting.weights, matrix)
        plain = setting.weights is None and matrix is None
        uniform = plain and setting.complete and self.stress == "normalized"
        holes = not setting.complete
        labour = 1 if self.takes_holes else max(1, data.n_rows // (4 * data.n_cols))

        def look(embedding: Array, label: str) -> Generator[Pass, Accumulator, Look]:
            empty = Stress(setting.distances, embedding, weights, holes=holes)
            request = Pass(empty, label=label, labour=labour, at_hand=setting.at_hand)
            full = cast(Stress, (yield request))
            if not full.degree.any():
                raise DataError("no pair has a distance above zero that is known: there is nothing to scale")
            norm = norm_of(self.stress, full.wanted) or 1.0
            return Look(full.residual / norm, majorized(full, uniform=uniform), 2.0 * full.pull / norm)

        return look

    def _stochastic(self, setting: Setting, data: MatrixSpec) -> Generator[Pass, Accumulator, list[Descent]]:
        n, seed = setting.n_points, self.random_state
        weigh = _weigher(self.stress, setting.weights)
        if setting.points is not None:
            points, metric = setting.points, self.metric

            def pairs(epoch: int, number: int) -> tuple[Array, Array, Array, Array]:
                left, right = matching(n, np.random.default_rng([seed, epoch, number]))
                wanted = pair_distances(metric, points, np.stack([left, right], axis=1))
                return left, right, wanted, weigh(wanted, left, right)
        else:
            matchings = round_robin(n, STORED_ROUNDS, np.random.default_rng([seed, 6]))
            partners = np.tile(np.arange(n, dtype=np.int32)[:, None], (1, len(matchings)))
            for number, (left, right) in enumerate(matchings):
                partners[left, number], partners[right, number] = right, left
            request = Pass(PickedDistances(partners, holes=True), label="distances of some pairs")
            found = cast(PickedDistances, (yield request)).found

            def pairs(epoch: int, number: int) -> tuple[Array, Array, Array, Array]:
                rounds = np.random.default_rng([seed, epoch]).permutation(len(matchings))
                chosen = int(rounds[number % len(matchings)])
                left, right = matchings[chosen]
                wanted = found[left, chosen]
                weights = weigh(wanted, left, right)
                return left, right, np.where(weights > 0, wanted, 0.0), weights

        judged = [pairs(self.n_epochs, number) for number in range(min(_JUDGED, ROUNDS))]
        couples = np.concatenate([np.stack(each[:2], axis=1) for each in judged])
        wanted, weights = (np.concatenate([each[part] for each in judged]) for part in (2, 3))
        if not weights.any():
            raise DataError("no pair that was looked at has a distance above zero: there is nothing to scale")
        norm = norm_of(self.stress, float(np.sum(weights * wanted**2))) or 1.0
        if self.stress == "relative":  # as the sum over all pairs would be
            norm = len(couples) / (n * (n - 1) / 2)
        extremes = float(weights[weights > 0].min()), float(weights.max())

        def judge(embedding: Array) -> float:
            return stress_of(embedding, couples, wanted, weights, norm)

        look = self._looking(setting, data)
        runs = []
        for begin in setting.starts(self.n_init, seed):
            embedding, history = pair_descent(begin, pairs, ROUNDS, self.n_epochs, extremes, judge)
            if setting.points is None or n <= _ALL_JUDGED:
                seen = yield from look(embedding, "the stress of all pairs")
                history[-1] = seen.stress
            runs.append(Descent(embedding, history, converged=True))
        return runs

    def _model(self, data: MatrixSpec, setting: Setting, runs: Sequence[Descent]) -> StressModel:
        best = min(runs, key=lambda run: run.stress)
        embedding = best.embedding - best.embedding.mean(axis=0)
        left, right = setting.pairs[:, 0], setting.pairs[:, 1]
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
            shepard_dissimilarities=setting.unlike,
            shepard_distances=lengths(embedding[left], embedding[right]),
            points=setting.points,
        )

    def _matrix(self, n_points: int) -> Array | None:
        """The weights of pairs as a matrix."""
        if self.pair_weights is None:
            return None
        try:
            matrix = np.asarray(self.pair_weights, np.float64)
        except (TypeError, ValueError) as error:
            told = f"weights of pairs are a matrix of numbers ({error})"
            raise ParameterError("pair_weights", told) from error
        square = matrix.shape == (n_points, n_points)
        told = f"weights of shape {matrix.shape} for the pairs of {n_points} points: one for each is needed"
        require(square, "pair_weights", told)
        fine = bool((matrix >= 0).all()) and bool(np.isfinite(matrix).all())
        require(fine, "pair_weights", "weights must be finite and not negative")
        lopsided = np.argwhere(matrix != matrix.T)
        if len(lopsided):
            row, column = lopsided[0]
            one, other = matrix[row, column], matrix[column, row]
            told = f"the pair {row}, {column} has the weights {one:g} and {other:g}"
            raise ParameterError("pair_weights", f"{told}: the matrix must be symmetric")
        groups, members = connected_components(csr_array(matrix > 0), directed=False)
        if groups > 1:
            other = int(np.flatnonzero(members != members[0])[0])
            told = f"no chain of pairs with a weight leads from point 0 to point {other}"
            raise ParameterError("pair_weights", f"{told}: give some pair between them a weight")
        return matrix


def _weigher(stress: str, points: Array | None) -> Any:
    def weigh(wanted: Array, left: Array, right: Array) -> Array:
        weights = weights_of(stress, wanted)
        return weights if points is None else weights * points[left] * points[right]

    return weigh
