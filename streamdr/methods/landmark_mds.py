"""Landmark multidimensional scaling: a few points are scaled, and all others placed by their distances."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, Literal, NamedTuple, Self, cast

import numpy as np

from streamdr.accumulators import Accumulator, Sample, Submatrix
from streamdr.blocks import Array, MatrixSpec
from streamdr.distances import pair_distances, point_distances
from streamdr.errors import DataError
from streamdr.linalg import fix_signs
from streamdr.methods.base import Model, Pass, Passes, Phase, Route
from streamdr.methods.checks import require
from streamdr.methods.mds_parameters import (
    Metric,
    check_common,
    kruskal,
    lengths,
    require_enough,
    some_pairs,
)
from streamdr.methods.outlines import scaling_outline
from streamdr.methods.parameters import require_types
from streamdr.methods.sampling import sampled, sampling
from streamdr.methods.scaling import projection_of, require_positive, scaled
from streamdr.methods.scaling_model import ScalingModel
from streamdr.methods.stored_distances import require_symmetric, surveyed, with_survey

_SAMPLE_ROWS = 2_000
_PER_LANDMARK = 4


class Pool(NamedTuple):
    """Rows to choose landmarks from: their numbers, and what they hold or how far apart they are."""

    numbers: Array
    points: Array | None
    distances: Array | None

    def between(self, metric: Metric, landmarks: Array) -> Array:
        """How far every row of the pool is from some of them."""
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
        How many dimensions the coordinates have.
    metric : "euclidean", "cityblock", "cosine" or "precomputed"
        How far apart two rows are; `"precomputed"` if the data is the square matrix of distances itself. In
        Python a function of two rows, or of two blocks of rows, too.
    n_landmarks : int
        How many rows are scaled; all others are placed by their distances to these.
    landmarks : "maxmin" or "random"
        `"maxmin"` takes again and again the row of a sample that is farthest from all taken before;
        `"random"` any.
    random_state : int
        Seeds the sample.
    """

    name: ClassVar[str] = "landmark_mds"
    model: ClassVar[type] = ScalingModel

    n_components: int = 2
    _: KW_ONLY
    metric: Metric = "euclidean"
    n_landmarks: int = 500
    landmarks: Literal["maxmin", "random"] = "maxmin"
    random_state: int = 0

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)
        check_common(self.n_components, self.metric)
        require(
            self.n_landmarks > self.n_components,
            "n_components",
            f"{self.n_components} dimensions are not spanned by {self.n_landmarks} landmarks: ask for fewer, "
            f"or set n_landmarks to at least {self.n_components + 1}",
        )
        known = self.landmarks in ("maxmin", "random")
        require(known, "landmarks", f"{self.landmarks!r} is neither 'maxmin' nor 'random'")

    def using(self, route: str) -> Self:
        """There is one way."""
        return replace(self)

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """What it would take."""
        self.check()
        require_enough(data, self.n_components, self.metric)
        m, rows = min(self.n_landmarks, data.n_rows), self.sample_rows(data)
        width = rows if self.metric == "precomputed" else data.n_cols
        pool = 8 * rows * width
        # Distances to landmarks, those among them; and the pool moved, or scaled, twice.
        solve = 6 * 8 * m * m + 8 * rows * 3 * m + 2 * pool + 4 * 8 * m * width + (8 << 20)
        if self.metric == "precomputed":
            distances = Phase(pool, scratch_per_block=0.5, scratch_bytes=2 * pool, solve_bytes=solve)
            phases: tuple[Phase, ...] = (with_survey(distances, data),)
        else:
            phases = sampling(data, rows, self._parts(data), solve_bytes=solve)
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
        """How many rows landmarks are chosen from."""
        return min(data.n_rows, max(_SAMPLE_ROWS, _PER_LANDMARK * self.n_landmarks))

    def _parts(self, data: MatrixSpec) -> int:
        """One of how many parts of the data is read to sample from."""
        return data.n_rows // (2 * self.sample_rows(data))

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """A model of landmarks, with axes where distances are Euclidean."""
        landmarks, linear = min(self.n_landmarks, data.n_rows), self.metric == "euclidean"
        return [scaling_outline(data, self.n_components, self.metric, landmarks, linear=linear)]

    def passes(self, data: MatrixSpec, start: ScalingModel | None = None) -> Passes:
        """A look at a sample. The landmarks of an earlier model of the first rows are kept."""
        pool = yield from self._pool(data)
        model = self._scaled(data, pool) if start is None else start
        return self._judged(pool, model)

    def _pool(self, data: MatrixSpec) -> Generator[Pass, Accumulator, Pool]:
        rows, seed = self.sample_rows(data), self.random_state
        if self.metric == "precomputed":
            numbers = np.sort(np.random.default_rng(seed).permutation(data.n_rows)[:rows])
            nobody = np.zeros((0, 2), np.int64)
            survey, full = yield from surveyed(data, nobody, seed, Submatrix(numbers, numbers))
            _require_unweighted(survey.weights)
            return Pool(numbers, None, cast(Submatrix, full).found)
        empty = Sample(data.n_cols, rows, seed, holes=False)
        sample = yield from sampled(empty, data, "a sample to choose landmarks from", self._parts(data))
        _require_unweighted(sample.weights)
        return Pool(sample.numbers, sample.rows, None)

    def _chosen(self, pool: Pool) -> Array:
        """Which rows of the pool are landmarks."""
        m, rng = min(self.n_landmarks, len(pool.numbers)), np.random.default_rng([self.random_state, 1])
        if self.landmarks == "random":
            return np.sort(rng.permutation(len(pool.numbers))[:m])
        chosen = np.zeros(m, np.int64)
        nearest = np.full(len(pool.numbers), np.inf)
        for number in range(1, m):
            np.minimum(nearest, pool.between(self.metric, chosen[number - 1 : number])[:, 0], out=nearest)
            farthest = int(np.argmax(nearest))
            if nearest[farthest] == 0.0:  # all others are where a landmark is
                return np.sort(chosen[:number])
            chosen[number] = farthest
        return np.sort(chosen)

    def _scaled(self, data: MatrixSpec, pool: Pool) -> ScalingModel:
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
            # |x - l|^2 less its mean is linear in x, but for what all landmarks share, which P does not see.
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

    def _judged(self, pool: Pool, model: ScalingModel) -> ScalingModel:
        """The model with how well it shows the distances between rows of the pool."""
        pairs = some_pairs(len(pool.numbers), self.random_state)
        left, right = pairs[:, 0], pairs[:, 1]
        if pool.points is None:
            assert pool.distances is not None
            assert model.landmark_rows is not None
            wanted = pool.distances[left, right]
            places = np.searchsorted(pool.numbers, model.landmark_rows)
            columns = replace(model, landmark_rows=places)
            placed = columns.transform(pool.distances)
        else:
            wanted = pair_distances(self.metric, pool.points, pairs)
            placed = model.transform(pool.points)
        reached = lengths(placed[left], placed[right])
        return replace(
            model,
            stress=kruskal(wanted, reached),
            shepard_dissimilarities=wanted,
            shepard_distances=reached,
        )


def _require_unweighted(weights: Array) -> None:
    if (weights != 1).any():
        raise DataError("scaling by landmarks has no use for weights: leave them out")
