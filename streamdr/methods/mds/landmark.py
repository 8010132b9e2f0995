"""Landmark MDS: classical scaling of landmarks, and placement of all other rows."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array, MatrixSpec
from streamdr.core.linalg import fix_signs
from streamdr.core.method import Model, Pass, Passes, Phase, Route, Tags
from streamdr.core.parameters import require_types
from streamdr.core.work import Work
from streamdr.errors import DataError
from streamdr.methods.mds.distances import distance_work, pair_distances, point_distances
from streamdr.methods.mds.parameters import Metric, check_common, kruskal, lengths, require_enough, some_pairs
from streamdr.methods.mds.scaling_model import ScalingModel, scaling_outline
from streamdr.methods.mds.submatrix import Submatrix
from streamdr.methods.mds.torgerson import projection_of, require_positive, scaled
from streamdr.methods.mds.validation import check_distances, require_symmetric, with_distance_check
from streamdr.statistics.sample import Sample
from streamdr.statistics.sampling import draw_sample, sample_phases
from streamdr.statistics.validation import require

_SAMPLE_ROWS = 2_000
"""The smallest number of rows that landmarks are chosen from."""
_PER_LANDMARK = 4
"""The smallest number of these rows for each landmark."""


class CandidatePool(NamedTuple):
    """Rows to choose landmarks from: their numbers, and their points or their distances."""

    numbers: Array
    points: Array | None
    distances: Array | None

    def between(self, metric: Metric, landmarks: Array) -> Array:
        """The distances of all rows of the pool to some of them."""
        if self.points is None:
            assert self.distances is not None
            return self.distances[:, landmarks]
        return point_distances(metric, self.points[landmarks]).between(self.points)


@dataclass(eq=False)
class LandmarkMDS:
    """Landmark multidimensional scaling of any number of rows (de Silva and Tenenbaum 2004).

    Parameters
    ----------
    n_components : int
        The number of dimensions of the coordinates.
    metric : "euclidean", "cityblock", "cosine" or "precomputed"
        The distance between two rows; `"precomputed"` if the data is the square matrix of distances. In
        Python, a function of two rows, or of two blocks of rows, is possible too.
    n_landmarks : int
        The number of landmarks: rows that are scaled. Other rows are placed by their distances to them.
    landmarks : "maxmin" or "random"
        How landmarks are chosen from a sample of the rows: `"maxmin"` takes the row that is farthest from all
        landmarks so far, one after the other; `"random"` takes random rows.
    random_state : int
        Seeds the sample.

    References
    ----------
    de Silva and Tenenbaum, Sparse multidimensional scaling using landmark points, Stanford (2004).

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0], [0.0, 4.0]])
    >>> mds = streamdr.LandmarkMDS(2, n_landmarks=4).fit(X)
    >>> round(mds.stress_, 6), mds.transform(X).shape
    (0.0, (4, 2))
    """

    name: ClassVar[str] = "landmark_mds"
    model: ClassVar[type] = ScalingModel
    tags: ClassVar[Tags] = Tags(incremental=False, sample_weight=False, inexact_on=("drifting", "rank one"))
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ({"n_components": 2, "n_landmarks": 200},)

    n_components: int = 2
    _: KW_ONLY
    metric: Metric = "euclidean"
    n_landmarks: int = 500
    landmarks: Literal["maxmin", "random"] = "maxmin"
    random_state: int = 0

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small examples, for the laws."""
        return [
            cls(2, n_landmarks=20),
            cls(2, metric="cityblock", n_landmarks=20, landmarks="random"),
        ]

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)
        check_common(self.n_components, self.metric)
        require(
            self.n_landmarks > self.n_components,
            "n_components",
            f"{self.n_components} dimensions need more than {self.n_landmarks} landmarks: set n_components "
            f"to less, or n_landmarks to at least {self.n_components + 1}",
        )
        valid = self.landmarks in ("maxmin", "random")
        require(valid, "landmarks", f"{self.landmarks!r} is neither 'maxmin' nor 'random'")

    def using(self, route: str) -> Self:
        """The method itself: there is one route only."""
        return replace(self)

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """The one route, with its costs."""
        self.check()
        require_enough(data, self.n_components, self.metric)
        m, rows = min(self.n_landmarks, data.n_rows), self.sample_rows(data)
        width = rows if self.metric == "precomputed" else data.n_cols
        pool = 8 * rows * width
        # Distances to landmarks and among them; two shifted or scaled copies of the pool.
        solve = 6 * 8 * m * m + 8 * rows * 3 * m + 2 * pool + 4 * 8 * m * width + (8 << 20)
        if self.metric == "precomputed":
            distances = Phase(pool, scratch_per_block=0.5, scratch_bytes=2 * pool, solve_bytes=solve)
            phases: tuple[Phase, ...] = (with_distance_check(distances, data),)
        else:
            phases = sample_phases(data, rows, self._parts(data), solve_bytes=solve)
        scaling = distance_work(rows, m, width) + Work(eigen=float(m) ** 3, calls=600.0 * m)
        phases = tuple(replace(phase, solve_work=phase.solve_work + scaling) for phase in phases)
        return [
            Route(
                method=self.using("landmarks"),
                name="landmarks",
                exact=True,
                passes=1,
                sampling_passes=0 if self.metric == "precomputed" else 1,
                flops=float(rows) * m * data.n_cols + 9.0 * float(m) ** 3,
                phases=phases,
            )
        ]

    def sample_rows(self, data: MatrixSpec) -> int:
        """The number of rows that landmarks are chosen from."""
        return min(data.n_rows, max(_SAMPLE_ROWS, _PER_LANDMARK * self.n_landmarks))

    def _parts(self, data: MatrixSpec) -> int:
        """The number of parts of the data, one of which is read for the sample."""
        return data.n_rows // (2 * self.sample_rows(data))

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """An outline of the model: landmarks, and axes where distances are Euclidean."""
        landmarks, linear = min(self.n_landmarks, data.n_rows), self.metric == "euclidean"
        return [scaling_outline(data, self.n_components, self.metric, landmarks, linear=linear)]

    def passes(self, data: MatrixSpec, start: ScalingModel | None = None) -> Passes:
        """One pass for a sample. The landmarks of an earlier model of the first rows are kept."""
        pool = yield from self._pool(data)
        model = self._scaled(data, pool) if start is None else start
        return self._with_stress(pool, model)

    def _pool(self, data: MatrixSpec) -> Generator[Pass, Accumulator, CandidatePool]:
        """Read the rows from which landmarks are chosen."""
        rows, seed = self.sample_rows(data), self.random_state
        if self.metric == "precomputed":
            numbers = np.sort(np.random.default_rng(seed).permutation(data.n_rows)[:rows])
            no_pairs = np.zeros((0, 2), np.int64)
            check, full = yield from check_distances(data, no_pairs, seed, Submatrix(numbers, numbers))
            _require_unweighted(check.weights)
            return CandidatePool(numbers, None, cast(Submatrix, full).found)
        empty = Sample(data.n_cols, rows, seed, allow_nan=False)
        sample = yield from draw_sample(empty, data, "a sample to choose landmarks from", self._parts(data))
        _require_unweighted(sample.weights)
        return CandidatePool(sample.numbers, sample.rows, None)

    def _chosen(self, pool: CandidatePool) -> Array:
        """The indices of the landmarks in the pool."""
        m, rng = min(self.n_landmarks, len(pool.numbers)), np.random.default_rng([self.random_state, 1])
        if self.landmarks == "random":
            return np.sort(rng.permutation(len(pool.numbers))[:m])
        chosen = np.zeros(m, np.int64)
        nearest = np.full(len(pool.numbers), np.inf)
        for number in range(1, m):
            np.minimum(nearest, pool.between(self.metric, chosen[number - 1 : number])[:, 0], out=nearest)
            farthest = int(np.argmax(nearest))
            if nearest[farthest] == 0.0:  # all others coincide with a landmark
                return np.sort(chosen[:number])
            chosen[number] = farthest
        return np.sort(chosen)

    def _scaled(self, data: MatrixSpec, pool: CandidatePool) -> ScalingModel:
        """The model by classical scaling of the landmarks, without its stress."""
        chosen, k = self._chosen(pool), self.n_components
        distances = pool.between(self.metric, chosen)[chosen]
        if callable(self.metric):
            require_symmetric(distances)
        np.multiply(distances, distances, out=distances)
        means = distances.mean(axis=0)
        found = scaled(distances, k)
        require_positive(found.values, k)
        values, projection = found.values[:k], projection_of(found.values[:k], found.vectors)
        points = None if pool.points is None else pool.points[chosen]
        origin = axes = None
        if self.metric == "euclidean" and points is not None:
            # |x - l|^2 minus its mean is linear in x, up to a term common to all landmarks, which P ignores.
            origin = points.mean(axis=0)
            axes = -2.0 * projection @ (points - origin)
            signs = np.sign(np.sum(axes * fix_signs(axes.copy()), axis=1))[:, None]
            axes, projection = axes * signs, projection * signs
        rounding = 8 * len(found.values) * float(np.finfo(np.float64).eps) * float(found.values[0])
        nothing = np.zeros(0)
        return ScalingModel(
            eigenvalues=values.copy(),
            metric=self.metric,
            n_features=data.n_cols,
            solver="landmarks",
            stress=0.0,
            shepard_dissimilarities=nothing,
            shepard_distances=nothing,
            origin=origin,
            axes=axes,
            projection=projection,
            mean_squares=means,
            landmarks=points,
            landmark_rows=pool.numbers[chosen],
            negative_eigenvalues=np.sort(found.values[found.values < -rounding])[:10],
            goodness_of_fit=float(values.sum() / np.abs(found.values).sum()),
        )

    def _with_stress(self, pool: CandidatePool, model: ScalingModel) -> ScalingModel:
        """The model with its stress on pairs of rows of the pool."""
        pairs = some_pairs(len(pool.numbers), self.random_state)
        left, right = pairs[:, 0], pairs[:, 1]
        if pool.points is None:
            assert pool.distances is not None
            assert model.landmark_rows is not None
            targets = pool.distances[left, right]
            landmark_columns = np.searchsorted(pool.numbers, model.landmark_rows)
            columns = replace(model, landmark_rows=landmark_columns)
            placed = columns.transform(pool.distances)
        else:
            targets = pair_distances(self.metric, pool.points, pairs)
            placed = model.transform(pool.points)
        fitted = lengths(placed[left], placed[right])
        return replace(
            model,
            stress=kruskal(targets, fitted),
            shepard_dissimilarities=targets,
            shepard_distances=fitted,
        )


def _require_unweighted(weights: Array) -> None:
    """Refuse weights."""
    if (weights != 1).any():
        raise DataError("landmark MDS does not support weights: leave them out")
