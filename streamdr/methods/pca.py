"""Principal component analysis: the covariance, the Gram matrix or block Krylov, as the shape asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from streamdr.accumulators import Gram, Loadings, Moments, Products
from streamdr.blocks import Array, MatrixSpec
from streamdr.errors import DataError, ParameterError
from streamdr.linalg import (
    constant_columns,
    eigh_descending,
    fix_signs,
    minka_dimension,
    numerical_rank,
    nystrom_eigh,
    orthonormal,
    orthonormalise_rows,
    ritz_residuals,
)
from streamdr.methods.base import Pass, Passes, Route
from streamdr.methods.pca_model import PCAModel
from streamdr.methods.pca_routes import ROUTES


@dataclass(eq=False)
class PCA:
    """Principal component analysis of data of any length, and of any width.

    Parameters
    ----------
    n_components : int, float, "mle" or None
        How many components to keep: a number, the fraction of variance to explain (between 0 and 1),
        `"mle"` for Minka's evidence, or None for all that have any variance.
    whiten : "pca", "zca" or None
        Scale scores to unit variance; `"zca"` also rotates them back to the features, the whitening
        closest to the data.
    scale : bool
        Divide each column by its standard deviation first: PCA of the correlations.
    solver : "auto", "covariance", "gram" or "krylov"
        `"covariance"` is exact in one pass for up to some ten thousand columns, `"gram"` exact in two for
        few rows, `"krylov"` iterative when both dimensions are large. `"auto"` picks by shape, cost and
        memory limit.
    ddof : int
        The covariance divides by n - ddof.
    random_state : int
        Seeds the start of `"krylov"`.
    precision : "mixed" or "double"
        `"mixed"` takes products of float32 data in float32 and sums them in float64; `"double"` takes
        them in float64.
    n_oversamples : int
        Extra vectors that `"krylov"` iterates beside the wanted ones.
    max_passes : int
        How often `"krylov"` reads the data at most.
    tol : float
        `"krylov"` stops early when each residual |S u - lambda u| is below tol times its lambda.
    """

    name: ClassVar[str] = "pca"
    model: ClassVar[type] = PCAModel

    n_components: int | float | Literal["mle"] | None = None
    _: KW_ONLY
    whiten: Literal["pca", "zca"] | None = None
    scale: bool = False
    solver: Literal["auto", "covariance", "gram", "krylov"] = "auto"
    ddof: int = 1
    random_state: int = 0
    precision: Literal["mixed", "double"] = "mixed"
    n_oversamples: int = 10
    max_passes: int = 5
    tol: float = 1e-4

    def check(self) -> None:
        """Refuse impossible parameter values."""
        wanted: object = self.n_components
        if isinstance(wanted, str):
            _require(wanted == "mle", "n_components", f"{wanted!r} is not 'mle', the only word it takes")
        elif self.wanted is not None:
            _require(self.wanted >= 1, "n_components", f"{wanted} is not at least 1")
        elif wanted is not None:
            fraction = isinstance(wanted, float | np.floating) and 0 < wanted < 1
            _require(fraction, "n_components", f"{wanted!r} is not a whole number or a fraction of one")
        _require(self.whiten in (None, "pca", "zca"), "whiten", f"{self.whiten!r} is not 'pca' or 'zca'")
        _require(self.solver in ("auto", *ROUTES), "solver", f"{self.solver!r} is not a solver")
        _require(
            self.solver != "krylov" or self.wanted is not None,
            "n_components",
            f"the krylov solver finds a given number of components, not {wanted!r}: give a whole number, "
            "or choose another solver",
        )
        _require(
            self.solver != "gram" or wanted != "mle",
            "n_components",
            "'mle' needs the covariance solver: it weighs every eigenvalue",
        )
        _require(self.precision in ("mixed", "double"), "precision", f"{self.precision!r} is no precision")
        _require(self.ddof in (0, 1), "ddof", f"{self.ddof} is not 0 or 1")
        _require(self.n_oversamples >= 0, "n_oversamples", f"{self.n_oversamples} is negative")
        _require(self.max_passes >= 1, "max_passes", f"{self.max_passes} is not at least 1")
        _require(self.tol >= 0, "tol", f"{self.tol} is negative")

    def using(self, route: str) -> Self:
        """The same PCA with its solver fixed."""
        return replace(self, solver=route)  # type: ignore[arg-type]  # one of ROUTES

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """The solvers that can do this, with what they would take."""
        self.check()
        if data.n_rows < 2:
            raise DataError(
                f"PCA needs at least 2 rows to see variance, not one sample: n_samples = {data.n_rows}"
            )
        limit = min(data.n_rows, data.n_cols)
        if self.wanted is not None and self.wanted > limit:
            raise ParameterError(
                "n_components",
                f"{self.wanted} components need at least as many rows and columns, and the data is "
                f"{data.n_rows} x {data.n_cols}: ask for {limit} or fewer",
            )
        if self.solver != "auto":
            return [ROUTES[self.solver](self, data)]
        if self.n_components == "mle":
            return [ROUTES["covariance"](self, data)]
        if self.wanted is None:
            return [ROUTES["covariance"](self, data), ROUTES["gram"](self, data)]
        return [route(self, data) for route in ROUTES.values()]

    def passes(self, data: MatrixSpec, start: PCAModel | None = None) -> Passes:
        """The passes of the chosen solver."""
        if self.solver == "covariance":
            return self._covariance(data)
        if self.solver == "gram":
            return self._gram(data)
        if self.solver == "krylov":
            return self._krylov(data)
        raise ParameterError("solver", "'auto' stands for one of the routes: choose one of them first")

    @property
    def wanted(self) -> int | None:
        """The number of components, when it was given as one."""
        number: object = self.n_components
        return int(number) if isinstance(number, Integral) and not isinstance(number, bool) else None

    @property
    def double(self) -> bool:
        """Whether products are taken in float64 whatever the data's type."""
        return self.precision == "double"

    def product_dtype(self, data: MatrixSpec) -> np.dtype[Any]:
        """The type in which products of blocks are taken."""
        return np.dtype(np.float64) if self.double else data.working

    def krylov_width(self, data: MatrixSpec) -> int:
        """How many vectors the block Krylov sequence carries."""
        return min(cast(int, self.wanted) + self.n_oversamples, data.n_rows, data.n_cols)

    def _covariance(self, data: MatrixSpec) -> Passes:
        moments = cast(Moments, (yield Pass(Moments(data.n_cols, double=self.double), label="moments")))
        freedom = self._freedom(moments.weight)
        _require_finite(moments.scatter)
        covariance = moments.scatter / freedom
        deviation = self._deviations(np.diag(covariance), moments.mean)
        if deviation is not None:
            covariance /= deviation
            covariance /= deviation[:, None]
        total = float(np.trace(covariance))
        values, vectors = eigh_descending(covariance, self.wanted)
        k = self._how_many(values, moments.weight, data)
        return self._model(
            data, moments.weight, moments.mean, deviation, total, values, vectors[:, :k].T.copy()
        )

    def _gram(self, data: MatrixSpec) -> Passes:
        empty = Gram(data.n_rows, scale=self.scale, ddof=self.ddof, double=self.double)
        gram = cast(Gram, (yield Pass(empty, axis="columns", label="A A'")))
        freedom = self._freedom(gram.weight)
        _require_finite(gram.raw)
        if gram.constant >= 0:
            raise _constant(gram.constant)
        products = gram.centred()
        products /= freedom
        total = float(np.trace(products))
        if total <= 0.0:
            raise _no_variance()
        values, vectors = eigh_descending(products, self.wanted)
        k = self._how_many(values, gram.weight, data)
        # The component of v is A'v, normalised. Directions without variance have none: they are completed.
        seen = min(k, self._rank(values, data))
        top = np.ascontiguousarray(vectors[:, :seen])
        thin = Loadings(top, scale=self.scale, ddof=self.ddof, double=self.double)
        full = cast(Loadings, (yield Pass(thin, axis="columns", label="components")))
        mean, deviation, components = full.take()
        orthonormalise_rows(components)
        if seen < k:
            fill = np.random.default_rng(self.random_state).standard_normal((data.n_cols, k - seen))
            components = np.vstack([components, orthonormal(fill, against=components.T).T])
        scale = deviation if self.scale else None
        return self._model(data, gram.weight, mean, scale, total, values, components)

    def _krylov(self, data: MatrixSpec) -> Passes:
        k = cast(int, self.wanted)
        rng = np.random.default_rng(self.random_state)
        start = orthonormal(rng.standard_normal((data.n_cols, self.krylov_width(data))))
        request = Pass(Products(start, double=self.double), label="block Krylov 1")
        first = cast(Products, (yield request))
        freedom = self._freedom(first.centre.weight)
        _require_finite(first.products)
        assert first.squares is not None  # as the pass was asked to
        mean, variance = first.centre.mean, first.squares / freedom
        deviation = self._deviations(variance, mean)
        basis, newest, inverse = start, first.products / freedom, np.ones(1)
        if deviation is not None:
            # C = D^-1 S D^-1 applied to D G is D^-1 S G: the first pass, made before the deviations were
            # known, was one of C all the same, from the start D G.
            inverse = (1 / deviation)[:, None]
            basis, triangle = np.linalg.qr(start * deviation[:, None])
            newest = np.linalg.solve(triangle.T, (newest * inverse).T).T
        total = float(variance.sum()) if deviation is None else float(data.n_cols)
        products = newest
        ritz, residuals = ritz_residuals(basis, products, k)
        for number in range(2, self.max_passes + 1):
            worst = float(np.max(residuals / np.maximum(ritz, np.finfo(np.float64).tiny)))
            room = data.n_cols - basis.shape[1]
            if worst <= self.tol or room == 0:
                break
            block = orthonormal(newest[:, :room], against=basis)
            label = f"block Krylov {number}, residual {worst:.1e}"
            request = Pass(Products(block * inverse, squares=False, double=self.double), label=label)
            newest = cast(Products, (yield request)).products / freedom * inverse
            basis, products = np.hstack([basis, block]), np.hstack([products, newest])
            ritz, residuals = ritz_residuals(basis, products, k)
        values, vectors = nystrom_eigh(basis, products, k)
        return self._model(
            data, first.centre.weight, mean, deviation, total, values, vectors.T.copy(), residuals
        )

    def _model(
        self,
        data: MatrixSpec,
        weight: float,
        mean: Array,
        scale: Array | None,
        total: float,
        values: Array,
        components: Array,
        residuals: Array | None = None,
    ) -> PCAModel:
        k = len(components)
        rank = self._rank(values, data)
        if self.whiten is not None and k > rank:
            raise _rank_deficient(k, rank)
        explained = np.minimum(values[:k], total)
        # The discarded eigenvalues themselves where all are known: their sum does not cancel.
        dimensions = min(data.n_rows, data.n_cols)
        all_known = len(values) >= dimensions
        discarded = float(values[k:].sum()) if all_known else max(total - float(explained.sum()), 0.0)
        return PCAModel(
            mean=mean,
            components=fix_signs(components),
            explained_variance=explained,
            total_variance=total,
            reconstruction_error=discarded,
            noise_variance=discarded / (dimensions - k) if dimensions > k else 0.0,
            n_samples=weight,
            ddof=self.ddof,
            rank=rank,
            solver=self.solver,
            whiten=self.whiten,
            scale=scale,
            residuals=residuals,
        )

    def _freedom(self, weight: float) -> float:
        if weight - self.ddof <= 0:
            raise DataError(f"the rows weigh {weight:g} in all, and a variance needs more than {self.ddof}")
        return weight - self.ddof

    def _deviations(self, variance: Array, mean: Array) -> Array | None:
        constant = constant_columns(variance, mean)
        if len(constant) == len(mean):
            raise _no_variance()
        if not self.scale:
            return None
        if len(constant):
            raise _constant(int(constant[0]))
        return np.sqrt(variance)

    def _how_many(self, values: Array, weight: float, data: MatrixSpec) -> int:
        if self.wanted is not None:
            return self.wanted
        if self.n_components == "mle":
            return minka_dimension(values, weight)
        rank = self._rank(values, data)
        if self.n_components is None:
            if self.whiten is not None and rank < min(data.n_rows - 1, data.n_cols):
                raise _rank_deficient(min(data.n_rows, data.n_cols), rank)
            return rank
        reached = np.cumsum(values) / values.sum()
        return min(int(np.searchsorted(reached, self.n_components)) + 1, rank)

    def _rank(self, values: Array, data: MatrixSpec) -> int:
        # Centring takes one degree of freedom, whatever the covariance is divided by.
        return min(numerical_rank(values, data.n_cols, self.product_dtype(data)), data.n_rows - 1)


def _rank_deficient(k: int, rank: int) -> ParameterError:
    return ParameterError(
        "whiten",
        f"whitening divides by the variance of each of {k} components, but the data has rank {rank}: "
        f"set n_components to {rank} or fewer, or to a fraction of variance such as 0.999",
    )


def _require(condition: object, parameter: str, message: str) -> None:
    if not condition:
        raise ParameterError(parameter, message)


def _require_finite(products: Array) -> None:
    if not np.isfinite(products).all():
        raise DataError(
            "the products of the data's values overflow: rescale the data, or set precision: double "
            "for float32 data"
        )


def _constant(column: int) -> ParameterError:
    return ParameterError(
        "scale",
        f"column {column} is constant and has no unit variance to be scaled to: drop it, or do not scale",
    )


def _no_variance() -> DataError:
    return DataError("every column is constant: there is no variance to explain")
