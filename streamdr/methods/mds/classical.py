"""Classical multidimensional scaling: coordinates that approximate the given distances."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array, MatrixSpec
from streamdr.core.linalg import constant_columns, eigh_descending, fix_signs, orthonormal, product_rounding
from streamdr.core.method import Model, Pass, Passes, Phase, Route, Tags, cost_factor
from streamdr.core.parameters import require_types
from streamdr.core.work import Work, iterations, products
from streamdr.errors import DataError
from streamdr.methods.mds.distance_products import DistanceProducts
from streamdr.methods.mds.distances import (
    StoredDistances,
    all_distances,
    distance_work,
    pair_distances,
    point_distances,
)
from streamdr.methods.mds.parameters import (
    Metric,
    check_common,
    kruskal,
    lengths,
    random_basis,
    require_enough,
    some_pairs,
)
from streamdr.methods.mds.scaling_model import ScalingModel, scaling_outline
from streamdr.methods.mds.tiles import TILE_BYTES, tile_rows
from streamdr.methods.mds.torgerson import ClassicalSolution, projection_of, require_positive, scaled
from streamdr.methods.mds.validation import (
    check_distances,
    gathered_phase,
    require_symmetric,
    with_distance_check,
)
from streamdr.statistics.composite import Composite
from streamdr.statistics.moments import Moments
from streamdr.statistics.sample import Sample
from streamdr.statistics.sparse_products import product_scratch, square_work
from streamdr.statistics.validation import require, require_products

_SHEPARD_ROWS = 120
"""The number of rows whose pairs are in the Shepard diagram of the covariance solver."""
_MAX_NEGATIVE = 10
"""The largest number of negative eigenvalues that a model keeps."""


@dataclass(eq=False)
class ClassicalMDS:
    """Classical multidimensional scaling of points or distances (Torgerson; principal coordinates).

    Parameters
    ----------
    n_components : int
        The number of dimensions of the coordinates.
    metric : "euclidean", "cityblock", "cosine" or "precomputed"
        The distance between two rows; `"precomputed"` if the data is the square matrix of distances. In
        Python, a function of two rows, or of two blocks of rows, is possible too.
    solver : "auto", "covariance", "exact" or "krylov"
        `"covariance"` is for Euclidean distances of points: it computes the coordinates from the covariance
        of the features, in one pass over any number of rows. `"exact"` keeps all distances in memory, and
        computes all eigenvalues. `"krylov"` reads or computes the distances a few times, and keeps none.
        `"auto"` chooses by shape, cost and memory limit.
    n_oversamples : int
        The number of vectors that `"krylov"` iterates in addition to `n_components`.
    max_passes : int
        The largest number of passes of `"krylov"` over all distances.
    tol : float
        `"krylov"` stops when each residual |B v - lambda v| is below tol times the largest eigenvalue.
    random_state : int
        Seeds the start of `"krylov"`, and the pairs of the Shepard diagram.

    References
    ----------
    Torgerson, Multidimensional scaling: I. Theory and method, Psychometrika 17 (1952).

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0], [0.0, 4.0]])
    >>> streamdr.ClassicalMDS(2).fit(X).eigenvalues_.round(6)
    array([16.,  9.])
    """

    name: ClassVar[str] = "classical_mds"
    model: ClassVar[type] = ScalingModel
    tags: ClassVar[Tags] = Tags(incremental=False, inexact_on=("drifting", "rank one"))
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ({"n_components": 2, "metric": "cityblock"},)

    n_components: int = 2
    _: KW_ONLY
    metric: Metric = "euclidean"
    solver: Literal["auto", "covariance", "exact", "krylov"] = "auto"
    n_oversamples: int = 10
    max_passes: int = 10
    tol: float = 1e-6
    random_state: int = 0

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small examples, for the laws."""
        return [cls(2), cls(2, metric="cityblock"), cls(2, solver="krylov", max_passes=3)]

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)
        check_common(self.n_components, self.metric)
        solvers = ("auto", "covariance", "exact", "krylov")
        require(self.solver in solvers, "solver", f"{self.solver!r} is not one of {', '.join(solvers)}")
        euclidean = self.metric == "euclidean"
        require(
            self.solver != "covariance" or euclidean,
            "solver",
            "the covariance solver is for Euclidean distances only: set metric to 'euclidean', or choose "
            "another solver",
        )
        require(self.n_oversamples >= 0, "n_oversamples", f"{self.n_oversamples} is negative")
        require(self.max_passes >= 1, "max_passes", f"{self.max_passes} is not at least 1")
        require(self.tol >= 0, "tol", f"{self.tol} is negative")

    def using(self, route: str) -> Self:
        """The same method with its solver fixed."""
        return replace(self, solver=route)  # type: ignore[arg-type]  # one of the solvers

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """The possible solvers, with their costs."""
        self.check()
        require_enough(data, self.n_components, self.metric)
        if self.metric == "euclidean" and self.solver in ("auto", "covariance"):
            require(
                self.n_components <= data.n_cols,
                "n_components",
                f"points of {data.n_cols} features have no more than {data.n_cols} dimensions, not "
                f"{self.n_components}",
            )
            return [self._by_covariance(data)]
        every = {"exact": self._by_all_pairs, "krylov": self._by_products}
        return [route(data) for name, route in every.items() if self.solver in ("auto", name)]

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """An outline of the model: with axes, or with all points as landmarks."""
        linear = self.solver == "covariance"
        landmarks = None if linear else data.n_rows
        return [scaling_outline(data, self.n_components, self.metric, landmarks, linear=linear)]

    def passes(self, data: MatrixSpec, start: ScalingModel | None = None) -> Passes:
        """The passes of the chosen solver."""
        if self.solver == "covariance":
            return self._covariance(data)
        return self._exact(data) if self.solver == "exact" else self._krylov(data)

    @property
    def stored(self) -> bool:
        """Whether the data is a precomputed matrix of distances."""
        return self.metric == "precomputed"

    def _covariance(self, data: MatrixSpec) -> Passes:
        """The solution by the covariance of the features."""
        shepard_rows = Sample(data.n_cols, _SHEPARD_ROWS, self.random_state, allow_nan=False)
        both = Composite([shepard_rows, Moments(data.n_cols)])
        full = cast(Composite, (yield Pass(both, label="moments")))
        sample, moments = cast(Sample, full.parts[0]), cast(Moments, full.parts[1])
        require_products(moments.scatter)
        values, vectors = eigh_descending(moments.scatter, None)
        variance = np.diag(moments.scatter) / max(moments.weight, 1.0)
        if len(constant_columns(variance, moments.mean)) == data.n_cols:
            values = np.zeros_like(values)
        require_positive(values, self.n_components, product_rounding(data.n_cols, data.working))
        k = self.n_components
        axes = fix_signs(vectors[:, :k].T.copy())
        pairs = np.stack(np.triu_indices(len(sample.rows), 1), axis=1)
        rows = sample.rows - moments.mean
        return self._model(
            data,
            ClassicalSolution(values, axes),
            targets=pair_distances("euclidean", rows, pairs),
            fitted=_pair_lengths(rows @ axes.T, pairs),
            origin=moments.mean,
            axes=axes,
        )

    def _exact(self, data: MatrixSpec) -> Passes:
        """The solution by all distances in memory."""
        n = data.n_rows
        gather = Sample(data.n_cols, n, self.random_state, allow_nan=False)
        pairs = some_pairs(n, self.random_state)
        if self.stored:
            _, full = yield from check_distances(data, pairs, self.random_state, gather)
            points, distances = None, in_order(cast(Sample, full))
        else:
            points = in_order(cast(Sample, (yield Pass(gather, label="points"))))
            distances = all_distances(self.metric, points)
            require_symmetric(distances)
        targets = distances[pairs[:, 0], pairs[:, 1]]
        np.multiply(distances, distances, out=distances)
        means = distances.mean(axis=0)
        found = scaled(distances, self.n_components)
        require_positive(found.values, self.n_components)
        return self._all_pairs_model(data, found, points, means, pairs, targets)

    def _krylov(self, data: MatrixSpec) -> Passes:
        """The solution by block Krylov iterations."""
        n, k = data.n_rows, self.n_components
        pairs = some_pairs(n, self.random_state)
        basis = random_basis(n, min(k + self.n_oversamples, n - 1), self.random_state)
        vectors = np.hstack([np.ones((n, 1)), basis])
        points: Array | None = None
        if self.stored:
            first = DistanceProducts(StoredDistances(n), vectors)
            check, full = yield from check_distances(data, pairs, self.random_state, first)
            targets = check.found
        else:
            gather = Sample(data.n_cols, n, self.random_state, allow_nan=False)
            points = in_order(cast(Sample, (yield Pass(gather, label="points"))))
            targets = pair_distances(self.metric, points, pairs)
            first = DistanceProducts(point_distances(self.metric, points), vectors)
            full = yield Pass(first, label="block Krylov 1", cost_factor=self._cost_factor(data))
        products = cast(DistanceProducts, full)
        means = products.products[:, 0] / n
        # |J A J|^2 = |A|^2 - 2 n |means|^2 + n^2 mean^2 for a symmetric A.
        squares = float(products.squares) - 2 * n * float(means @ means) + (n * float(means.mean())) ** 2
        found, residuals = yield from self._iterated(data, first, basis, products.products[:, 1:])
        require_positive(found.values, k)
        model = self._all_pairs_model(data, found, points, means, pairs, targets)
        explained = min(float(np.sum(found.values[:k] ** 2)) / (squares / 4), 1.0) if squares > 0 else 1.0
        return replace(model, explained_squares=explained, goodness_of_fit=None, residuals=residuals)

    def _iterated(
        self, data: MatrixSpec, first: DistanceProducts, basis: Array, squares: Array
    ) -> Generator[Pass, Accumulator, tuple[ClassicalSolution, Array]]:
        """Block Krylov: each pass multiplies B by the last images, orthogonalised against the basis."""
        k, n = self.n_components, data.n_rows
        newest = _centred(squares)
        images = newest
        for number in range(2, self.max_passes + 2):
            values, inner = np.linalg.eigh(_symmetric(basis.T @ images))
            values, inner = values[::-1], inner[:, ::-1]
            top = inner[:, :k]
            residuals = np.linalg.norm(images @ top - (basis @ top) * values[:k], axis=0)
            worst = float(residuals.max()) / max(float(np.abs(values).max()), np.finfo(np.float64).tiny)
            room = n - 1 - basis.shape[1]
            if worst <= self.tol or room <= 0 or number > self.max_passes:
                break
            ones = np.full((n, 1), n**-0.5)
            block = orthonormal(newest[:, :room], against=np.hstack([ones, basis]))
            request = DistanceProducts(first.distances, block)
            label = f"block Krylov {number}, residual {worst:.1e}"
            full = yield Pass(request, label=label, cost_factor=self._cost_factor(data))
            newest = _centred(cast(DistanceProducts, full).products)
            basis, images = np.hstack([basis, block]), np.hstack([images, newest])
        vectors = fix_signs((basis @ inner[:, :k]).T.copy())
        return ClassicalSolution(values, vectors), residuals

    def _all_pairs_model(
        self,
        data: MatrixSpec,
        found: ClassicalSolution,
        points: Array | None,
        means: Array,
        pairs: Array,
        targets: Array,
    ) -> ScalingModel:
        """The model of the solvers that use all pairs: every point is a landmark."""
        k = self.n_components
        values, vectors = found.values[:k], found.vectors
        embedding = (vectors * np.sqrt(values)[:, None]).T
        return self._model(
            data,
            found,
            targets=targets,
            fitted=_pair_lengths(embedding, pairs),
            embedding=np.ascontiguousarray(embedding),
            projection=projection_of(values, vectors),
            mean_squares=means,
            landmarks=points,
        )

    def _model(
        self, data: MatrixSpec, found: ClassicalSolution, *, targets: Array, fitted: Array, **fields: Any
    ) -> ScalingModel:
        """The model of a solution, with its stress on the sampled pairs."""
        k, values = self.n_components, found.values
        rounding = len(values) * float(np.finfo(np.float64).eps) * float(np.abs(values).max())
        negative = np.sort(values[values < -8 * rounding])[:_MAX_NEGATIVE]
        return ScalingModel(
            eigenvalues=values[:k].copy(),
            metric=self.metric,
            n_features=data.n_cols,
            solver=self.solver,
            stress=kruskal(targets, fitted),
            shepard_dissimilarities=targets,
            shepard_distances=fitted,
            negative_eigenvalues=negative,
            goodness_of_fit=float(values[:k].sum() / np.abs(values).sum()),
            explained_squares=float(np.sum(values[:k] ** 2) / np.sum(values**2)),
            **fields,
        )

    def _cost_factor(self, data: MatrixSpec) -> int:
        """The cost of a block, relative to reading it: distances have to be computed from points."""
        return 1 if self.stored else cost_factor(data.n_rows, data.n_cols)

    def _by_covariance(self, data: MatrixSpec) -> Route:
        """The route of the covariance solver."""
        square, sample_bytes = 8 * data.n_cols**2, 8 * _SHEPARD_ROWS * data.n_cols
        return Route(
            method=self.using("covariance"),
            name="covariance",
            exact=True,
            passes=1,
            flops=float(data.n_rows) * data.n_cols**2 + 9.0 * float(data.n_cols) ** 3,
            phases=(
                Phase(
                    square + sample_bytes,
                    scratch_bytes=square + 2 * sample_bytes + (4 << 20),
                    # Of two accumulators only the last may overwrite the block.
                    solve_bytes=5 * square + 2 * sample_bytes + (8 << 20),
                    takes_sparse=True,
                    sparse_scratch_bytes=product_scratch(data.n_cols, np.dtype(np.float64))
                    + 2 * sample_bytes
                    + (4 << 20),
                    work=square_work(data, np.dtype(np.float64)),
                    solve_work=Work(eigen=float(data.n_cols) ** 3),
                ),
            ),
        )

    def _by_all_pairs(self, data: MatrixSpec) -> Route:
        """The route of the exact solver."""
        n = data.n_rows
        rows, square = 8 * n * data.n_cols, 8 * n * n
        return Route(
            method=self.using("exact"),
            name="exact",
            exact=True,
            passes=1,
            flops=9.0 * float(n) ** 3 + float(n) * n * data.n_cols,
            phases=(
                replace(
                    gathered_phase(data, 6 * square + 2 * rows + (8 << 20), self.stored),
                    solve_work=distance_work(n, n, data.n_cols)
                    + Work(eigen=float(n) ** 3, moved=6.0 * square),
                ),
            ),
            advice="or set solver: krylov, which keeps no distances",
        )

    def _by_products(self, data: MatrixSpec) -> Route:
        """The route of the Krylov solver."""
        n, width = data.n_rows, self.n_components + self.n_oversamples + 1
        points = 0 if self.stored else 8 * n * data.n_cols
        thin = 8 * n * width
        # Rows of a tile are widened, and scaled to length one.
        tile = max(TILE_BYTES, 8 * n)
        widened = 0 if self.stored else 2 * 8 * data.n_cols * tile_rows(n)
        multiplying = Phase(
            thin + (1 << 16),
            scratch_bytes=4 * tile + thin + widened + (points if self.metric == "cosine" else 0),
            scratch_per_block=0.3,
            held_bytes=points + thin * (2 * self.max_passes + 2),
            solve_bytes=thin * (2 * self.max_passes + 6) + (8 << 20),
            cost_factor=self._cost_factor(data),
            work=products(float(n) * n * width, np.dtype(np.float64), "thin")
            + (Work() if self.stored else distance_work(n, n, data.n_cols)),
            solve_work=Work(product64=4.0 * n * width**2 * self.max_passes),
            count=iterations(self.max_passes, self.max_passes),
        )
        each = 2.0 * width + (0 if self.stored else 8 * data.n_cols)
        return Route(
            method=self.using("krylov"),
            name="krylov",
            exact=False,
            passes=self.max_passes + (0 if self.stored else 1),  # a separate pass gathers points
            flops=float(n) * n * each * self.max_passes,
            phases=(with_distance_check(multiplying, data),)
            if self.stored
            else (gathered_phase(data, 3 * points + (8 << 20), self.stored), multiplying),
        )


def in_order(sample: Sample) -> Array:
    """All gathered rows, sorted by row number."""
    if (sample.weights != 1).any() or len(sample.rows) < sample.size:
        raise DataError("classical MDS does not support weights: leave them out")
    return sample.rows[np.argsort(sample.numbers)]


def _centred(products: Array) -> Array:
    """B V from D2 V, for vectors V that sum to zero."""
    return np.asarray(-0.5 * (products - products.mean(axis=0)))


def _symmetric(matrix: Array) -> Array:
    """The symmetric part of a matrix."""
    return np.asarray((matrix + matrix.T) / 2)


def _pair_lengths(embedding: Array, pairs: Array) -> Array:
    """The distance of each pair in a configuration."""
    return lengths(embedding[pairs[:, 0]], embedding[pairs[:, 1]])
