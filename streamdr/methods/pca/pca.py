"""Principal component analysis by the covariance, the Gram matrix or block Krylov iteration."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array, MatrixSpec
from streamdr.core.linalg import (
    constant_columns,
    eigh_descending,
    fix_signs,
    minka_dimension,
    numerical_rank,
    orthonormal,
    orthonormalise_rows,
    product_rounding,
)
from streamdr.core.method import Model, Pass, Passes, Route, Tags
from streamdr.core.parameters import require_types
from streamdr.errors import DataError, ParameterError
from streamdr.methods.pca.block_krylov import BlockKrylov
from streamdr.methods.pca.bootstrap import (
    MOST_COMPONENTS,
    check_bootstrap,
    require_blocks,
    with_block_bootstrap,
    with_row_bootstrap,
)
from streamdr.methods.pca.model import PCAModel, pca_outline
from streamdr.methods.pca.rotation import check_rotation, require_loadings, require_rotatable, rotate
from streamdr.methods.pca.routes import ROUTES
from streamdr.methods.pca.significance import CRITERIA, Comparison, compare
from streamdr.statistics.gram import Gram, Loadings
from streamdr.statistics.moments import Moments
from streamdr.statistics.products import Products
from streamdr.statistics.validation import require, require_products

_DOUBLE = 1e-12
"""The relative rounding error of sums in double precision."""


@dataclass(frozen=True, eq=False)
class _Rows:
    """Statistics of the rows that every solver returns besides the components."""

    weight: float
    count: int
    """The number of rows of positive weight."""
    mean: Array
    variance: Array
    """The variance of each column: squares about the mean, divided by the weight."""


@dataclass(eq=False)
class PCA:
    """Principal component analysis of data of any length, and of any width.

    Parameters
    ----------
    n_components : int, float, "mle", "parallel", "broken_stick" or None
        How many components to keep: a number, the fraction of variance to explain (more than 0 and less
        than 1), `"mle"` for Minka's evidence, `"parallel"` for those that explain more than noise of the
        same shape does, `"broken_stick"` for those that explain more than the pieces of a stick broken at
        random, or None (or 1.0) for all that have any variance.
    whiten : "pca", "zca", bool or None
        Scale scores to unit variance; `"zca"` also rotates them back to the features, the whitening closest
        to the data. True means `"pca"`, False means None.
    scale : bool
        Divide each column by its standard deviation first: PCA of the correlation matrix. Without centring,
        columns are divided by their root mean squares.
    center : bool
        Subtract the mean of each column first. False gives the singular vectors of the data itself:
        variances are then mean squares about zero.
    solver : "auto", "covariance", "gram" or "krylov"
        `"covariance"` is exact in one pass for up to some ten thousand columns, `"gram"` exact in two for
        few rows, `"krylov"` iterative when both dimensions are large. `"auto"` picks by shape, cost and
        memory limit.
    ddof : int
        The covariance divides by n - ddof.
    random_state : int
        Seeds the start of `"krylov"`.
    precision : "mixed" or "double"
        `"mixed"` computes products of float32 data in float32 and sums them in float64; `"double"` computes
        them in float64.
    n_oversamples : int
        Extra vectors that `"krylov"` iterates, and that a bootstrap follows, in addition to `n_components`.
    max_passes : int
        The largest number of passes of `"krylov"` over the data.
    tol : float
        `"krylov"` stops early when each residual |S u - lambda u| is below tol times its lambda.
    rotation : "varimax", "promax" or None
        Rotate the components towards few large loadings each, by an orthogonal matrix or an oblique one.
        Nothing more is read.
    n_rotated : int or None
        How many of the leading components to rotate; None for all of them.
    rotation_power : float
        The power of `"promax"`, more than 1: components are more correlated the larger it is.
    n_effective : float or None
        The number of independent rows, for the errors of variances and for `"parallel"`, where successive
        rows are similar; None for the number of rows, or the sum of their weights.
    n_bootstrap : int
        How many times blocks of rows are drawn, to estimate the errors of variances and how stable components
        are; 0 for no bootstrap. It takes one more pass, with `"gram"` none.
    bootstrap_rows : int or None
        The number of consecutive rows in a block, longer than rows are similar; None for about 64 blocks.

    See Also
    --------
    PPCA : With missing values.
    KernelPCA : Along curves.

    References
    ----------
    Halko, Martinsson and Tropp, Finding structure with randomness, SIAM Review 53 (2011).
    Minka, Automatic choice of dimensionality for PCA, NIPS 13 (2000).
    Horn, A rationale and test for the number of factors in factor analysis, Psychometrika 30 (1965).

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
    >>> pca = streamdr.PCA(n_components=2).fit(X)
    >>> pca.explained_variance_ratio_.round(3)
    array([0.517, 0.348])
    >>> pca.transform(X).shape
    (6, 2)
    """

    name: ClassVar[str] = "pca"
    model: ClassVar[type] = PCAModel
    tags: ClassVar[Tags] = Tags(
        inexact_on=("rank one", "constant column"), feature_subset=True, weighs_features=True
    )
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = (
        {"n_components": 2},
        {"as": "pca_whitened", "n_components": 2, "whiten": "pca"},
    )
    added_parameters: ClassVar[Mapping[str, Any]] = {
        "center": True,
        "rotation": None,
        "n_rotated": None,
        "rotation_power": 4.0,
        "n_effective": None,
        "n_bootstrap": 0,
        "bootstrap_rows": None,
    }
    """Parameters that earlier versions lacked, with the equivalent values: their outputs stay up to date."""

    n_components: int | float | Literal["mle", "parallel", "broken_stick"] | None = None
    _: KW_ONLY
    whiten: Literal["pca", "zca"] | bool | None = None
    scale: bool = False
    center: bool = True
    solver: Literal["auto", "covariance", "gram", "krylov"] = "auto"
    ddof: int = 1
    random_state: int = 0
    precision: Literal["mixed", "double"] = "mixed"
    n_oversamples: int = 10
    max_passes: int = 5
    tol: float = 1e-4
    rotation: Literal["varimax", "promax"] | None = None
    n_rotated: int | None = None
    rotation_power: float = 4.0
    n_effective: float | None = None
    n_bootstrap: int = 0
    bootstrap_rows: int | None = None

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small examples, for the laws."""
        return [cls(3), cls(0.9), cls("mle"), cls("parallel"), cls("broken_stick"), cls(3, scale=True)]

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)
        wanted: object = self.n_components
        if isinstance(wanted, str):
            known = wanted in ("mle", *CRITERIA)
            require(known, "n_components", f"{wanted!r} is not 'mle', 'parallel' or 'broken_stick'")
        elif self.wanted is not None:
            require(self.wanted >= 1, "n_components", f"{wanted} is not at least 1")
        elif wanted is not None:
            fraction = isinstance(wanted, float | np.floating) and 0 < wanted <= 1
            require(fraction, "n_components", f"{wanted!r} is not a whole number or a fraction of one")
        whitens = isinstance(self.whiten, bool | np.bool_) or self.whiten in (None, "pca", "zca")
        require(whitens, "whiten", f"{self.whiten!r} is not 'pca', 'zca', true or false")
        solvers = ("auto", *ROUTES)
        require(self.solver in solvers, "solver", f"{self.solver!r} is not one of {', '.join(solvers)}")
        require(
            self.solver != "krylov" or self.wanted is not None,
            "n_components",
            f"the krylov solver finds a given number of components, not {wanted!r}: give a whole number, "
            "or choose another solver",
        )
        require(
            self.solver != "gram" or wanted != "mle",
            "n_components",
            "'mle' needs the covariance solver, which computes every eigenvalue",
        )
        require(
            self.precision in ("mixed", "double"),
            "precision",
            f"{self.precision!r} is neither 'mixed' nor 'double'",
        )
        require(self.ddof in (0, 1), "ddof", f"{self.ddof} is not 0 or 1")
        require(self.n_oversamples >= 0, "n_oversamples", f"{self.n_oversamples} is negative")
        require(self.max_passes >= 1, "max_passes", f"{self.max_passes} is not at least 1")
        require(self.tol >= 0, "tol", f"{self.tol} is negative")
        effective = self.n_effective
        require(effective is None or effective > 1, "n_effective", f"{effective} is not more than 1")
        check_rotation(self)
        check_bootstrap(self)

    def using(self, route: str) -> Self:
        """The same PCA with its solver fixed."""
        return replace(self, solver=route)  # type: ignore[arg-type]  # one of ROUTES

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """The possible solvers, with their costs."""
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
                f"{data.n_rows} x {data.n_cols}: set it to {limit} or fewer",
            )
        require_blocks(self, data.n_rows)
        if self.solver != "auto":
            return [ROUTES[self.solver](self, data)]
        if self.n_components == "mle":
            return [ROUTES["covariance"](self, data)]
        if self.wanted is None:
            return [ROUTES["covariance"](self, data), ROUTES["gram"](self, data)]
        return [route(self, data) for route in ROUTES.values()]

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """A model with the largest possible number of components."""
        k = min(self.wanted or data.n_rows, data.n_rows, data.n_cols)
        scaled = self.scale or data.feature_weights is not None
        rotated = 0 if self.rotation is None else min(self.n_rotated or k, k)
        return [pca_outline(data, k, self.whitening, scale=scaled, rotated=rotated)]

    def passes(self, data: MatrixSpec, start: PCAModel | None = None) -> Passes:
        """The passes of the chosen solver, and one of the bootstrap where it needs one."""
        if self.solver == "covariance":
            return self._bootstrapped(data, self._covariance(data))
        if self.solver == "gram":
            return self._gram(data)
        if self.solver == "krylov":
            return self._bootstrapped(data, self._krylov(data))
        raise ParameterError("solver", "'auto' is not a route: choose one with `using` first")

    def _bootstrapped(
        self, data: MatrixSpec, solve: Generator[Pass, Accumulator, tuple[PCAModel, Array | None]]
    ) -> Passes:
        """The passes of a solver, and one of the bootstrap if it is requested."""
        model, axes = yield from solve
        if axes is None:
            return model
        return (yield from with_block_bootstrap(self, data, model, axes))

    def _axes(self, model: PCAModel, further: Array) -> Array | None:
        """The directions of a bootstrap: the components and the vectors after them; None without one."""
        return np.vstack([model.components[:MOST_COMPONENTS], further.T]) if self.n_bootstrap else None

    def _further(self, matrix: Array, values: Array, vectors: Array, k: int) -> tuple[Array, Array]:
        """The eigenpairs after the leading k that a bootstrap follows too.

        They are computed on their own, so that the model is the same bits with a bootstrap and without.
        """
        k = min(k, MOST_COMPONENTS)
        width = min(k + self.n_oversamples, len(matrix)) if self.n_bootstrap else k
        if vectors.shape[1] < width:
            values, vectors = eigh_descending(matrix, width)
        return values[k:width], vectors[:, k:width]

    @property
    def wanted(self) -> int | None:
        """The number of components, if it is given as a number."""
        number: object = self.n_components
        return int(number) if isinstance(number, Integral) and not isinstance(number, bool) else None

    @property
    def whitening(self) -> str | None:
        """How scores are whitened: "pca" or "zca", or not at all."""
        return self.whiten if isinstance(self.whiten, str) else "pca" if self.whiten else None

    @property
    def double(self) -> bool:
        """Whether products are taken in float64 whatever the data's type."""
        return self.precision == "double"

    def product_dtype(self, data: MatrixSpec) -> np.dtype[Any]:
        """The type in which products of blocks are taken."""
        return np.dtype(np.float64) if self.double else data.working

    def krylov_width(self, data: MatrixSpec) -> int:
        """The number of vectors of a block Krylov step."""
        return min(cast(int, self.wanted) + self.n_oversamples, data.n_rows, data.n_cols)

    def _covariance(self, data: MatrixSpec) -> Generator[Pass, Accumulator, tuple[PCAModel, Array | None]]:
        """One pass for the moments, and the eigenvectors of the covariance."""
        moments = cast(Moments, (yield Pass(Moments(data.n_cols, double=self.double), label="moments")))
        freedom = self._freedom(moments.weight, moments.count)
        require_products(moments.scatter)
        covariance = moments.scatter / freedom
        if not self.center:
            covariance += np.outer(moments.mean * (moments.weight / freedom), moments.mean)
        deviation = self._deviations(np.diag(covariance), moments.mean, data)
        if deviation is not None:
            covariance /= deviation
            covariance /= deviation[:, None]
        total = float(np.trace(covariance))
        values, vectors = eigh_descending(covariance, self.wanted)
        variance_of_columns = np.diag(moments.scatter) / moments.weight
        rows = _Rows(moments.weight, moments.count, moments.mean, variance_of_columns)
        k, compared = self._n_kept(values, total, rows, data)
        model = self._model(data, rows, deviation, total, values, vectors[:, :k].T.copy())
        model = _with_comparison(model, self.n_components, compared)
        return model, self._axes(model, self._further(covariance, values, vectors, k)[1])

    def _gram(self, data: MatrixSpec) -> Passes:
        """One pass over columns for the products of rows, and one for the components."""
        # Weights are divided by a power of two, which is exact: products of single precision would overflow.
        weights, level = data.feature_weights, 1.0
        if weights is not None:
            level = 2.0 ** np.floor(np.log2(weights.max()))
            weights = weights / level
        empty = Gram(
            data.n_rows,
            scale=self.scale,
            ddof=self.ddof,
            double=self.double,
            center=self.center,
            feature_weights=weights,
        )
        gram = cast(Gram, (yield Pass(empty, axis="columns", label="A A'")))
        freedom = self._freedom(gram.weight, gram.count)
        require_products(gram.raw)
        if gram.constant >= 0:
            raise self._constant(data.stored_number(gram.constant))
        products = gram.products()
        products /= freedom / level**2
        total = float(np.trace(products))
        if total <= 0.0:
            raise self._no_variance()
        values, vectors = eigh_descending(products, self.wanted)
        rows = _Rows(gram.weight, gram.count, np.zeros(0), np.zeros(0))
        k, compared = self._n_kept(values, total, rows, data)
        # The component of v is A'v, normalised. Directions without variance are completed at random.
        n_varying = min(k, self._rank(values, rows, data))
        top = np.ascontiguousarray(vectors[:, :n_varying])
        thin = Loadings(
            top,
            scale=self.scale,
            ddof=self.ddof,
            double=self.double,
            center=self.center,
            feature_weights=weights,
        )
        full = cast(Loadings, (yield Pass(thin, axis="columns", label="components")))
        (mean, deviation, variance_of_columns), components = full.take()
        orthonormalise_rows(components)
        if n_varying < k:
            fill = np.random.default_rng(self.random_state).standard_normal((data.n_cols, k - n_varying))
            components = np.vstack([components, orthonormal(fill, against=components.T).T])
        rows = replace(rows, mean=mean, variance=variance_of_columns)
        scaled = self.scale or weights is not None
        flipped = np.array([row[np.abs(row).argmax()] < 0 for row in components])  # by `fix_signs`, below
        model = self._model(data, rows, deviation / level if scaled else None, total, values, components)
        model = _with_comparison(model, self.n_components, compared)
        if not self.n_bootstrap:
            return model
        n_first = min(k, MOST_COMPONENTS)
        later_values, later = self._further(products, values, vectors, k)
        first = vectors[:, :n_first] * np.where(flipped[:n_first], -1.0, 1.0)
        spread = np.sqrt(np.append(values[:n_first], later_values) * freedom)
        products *= freedom
        return with_row_bootstrap(self, data, model, gram.roots, products, np.hstack([first, later]) * spread)

    def _krylov(self, data: MatrixSpec) -> Generator[Pass, Accumulator, tuple[PCAModel, Array | None]]:
        """Block Krylov iteration, with one pass per step."""
        rng = np.random.default_rng(self.random_state)
        start = orthonormal(rng.standard_normal((data.n_cols, self.krylov_width(data))))
        weights = None if data.feature_weights is None else data.feature_weights[:, None]
        # Weights are known before the first pass, so it multiplies by them; deviations are not known yet.
        given = start if weights is None else start * weights
        first = cast(Products, (yield Pass(Products(given, double=self.double), label="block Krylov 1")))
        centre = first.centre
        freedom = self._freedom(centre.weight, centre.count)
        require_products(first.products)
        assert first.squares is not None  # requested by squares=True
        mean, variance = centre.mean, first.squares / freedom
        rows = _Rows(centre.weight, centre.count, mean, first.squares / centre.weight)
        share = np.zeros_like(mean) if self.center else mean * (centre.weight / freedom)
        if not self.center:
            variance += share * mean
        deviation = self._deviations(variance, mean, data)
        basis, newest, inverse = start, self._image(first, freedom, share), np.ones(1)
        if deviation is not None:
            inverse = (1 / deviation)[:, None]
            newest = newest * inverse
        if deviation is not None and self.scale:
            # C = D^-1 S D^-1 applied to D G is D^-1 S G. So the first pass, which had no deviations yet,
            # was a product of C with the start D G. It had the weights, which are in D too.
            own = deviation[:, None] if weights is None else deviation[:, None] * weights
            basis, triangle = np.linalg.qr(start * own)
            newest = np.linalg.solve(triangle.T, newest.T).T
        total = self._total(variance, data)
        rounding = product_rounding(data.n_cols, self.product_dtype(data))
        k = cast(int, self.wanted)
        n_further = start.shape[1] - k if self.n_bootstrap else 0
        iteration = BlockKrylov(k, self.max_passes, self.tol, rounding, n_further)

        def product(block: Array, label: str) -> Generator[Pass, Accumulator, Array]:
            request = Products(block * inverse, squares=False, double=self.double)
            full = yield Pass(request, label=label)
            return self._image(cast(Products, full), freedom, share) * inverse

        pairs = yield from iteration.iterate(basis, newest, product)
        model = self._model(
            data, rows, deviation, total, pairs.values, pairs.vectors.T.copy(), pairs.residuals
        )
        return model, self._axes(
            model, np.hstack([pairs.vectors, pairs.further])[:, min(k, MOST_COMPONENTS) :]
        )

    def _image(self, full: Products, freedom: float, share: Array) -> Array:
        """S Q of a pass, plus the contribution of the mean where it is not subtracted."""
        image = full.products / freedom
        if not self.center:
            image += np.outer(share, full.centre.mean @ full.basis)
        return image

    def _model(
        self,
        data: MatrixSpec,
        rows: _Rows,
        scale: Array | None,
        total: float,
        values: Array,
        components: Array,
        residuals: Array | None = None,
    ) -> PCAModel:
        """The model of the components, and of the eigenvalues that the solver computed."""
        k = len(components)
        rank = self._rank(values, rows, data)
        if self.whitening is not None and k > rank:
            raise _rank_deficient(k, rank)
        # Eigenvalues and trace are rounded differently: their sum must not exceed the total.
        parts = float(values[:k].sum())
        total = parts if parts > total * (1 + _DOUBLE) else total
        explained = np.minimum(values[:k], total)
        # The sum of the discarded eigenvalues, if all were computed: the difference would cancel.
        dimensions = min(data.n_rows, data.n_cols)
        all_computed = len(values) >= dimensions
        discarded = float(values[k:].sum()) if all_computed else max(total - float(explained.sum()), 0.0)
        model = PCAModel(
            mean=rows.mean if self.center else np.zeros_like(rows.mean),
            components=fix_signs(components),
            explained_variance=explained,
            total_variance=total,
            reconstruction_error=discarded,
            noise_variance=discarded / (dimensions - k) if dimensions > k else 0.0,
            n_samples=rows.weight,
            ddof=self.ddof,
            rank=rank,
            solver=self.solver,
            whiten=self.whitening,
            scale=scale,
            residuals=residuals,
            center=self.center,
            var=rows.variance,
            n_effective=self.n_effective,
        )
        return self._rotated(model)

    def _rotated(self, model: PCAModel) -> PCAModel:
        """The model with its leading components rotated, unless there is only one."""
        if self.rotation is None:
            return model
        number = model.n_components if self.n_rotated is None else self.n_rotated
        require_rotatable(number, model.n_components)
        if number == 1:
            return model
        require_loadings(number, model.rank)
        axes, variances = model.components[:number], model.explained_variance[:number]
        power = self.rotation_power if self.rotation == "promax" else None
        found = rotate(axes, variances, power)
        return replace(
            model,
            components=np.vstack([found.components, model.components[number:]]),
            explained_variance=np.append(found.variances, model.explained_variance[number:]),
            rotation=self.rotation,
            rotation_matrix=found.matrix,
            principal_components=axes,
            principal_variance=variances,
        )

    def _freedom(self, weight: float, count: int) -> float:
        """The divisor of the covariance. Too little weight is refused."""
        if count == 1:
            raise DataError("PCA needs at least 2 rows to see variance, and only 1 row has a positive weight")
        if weight - self.ddof <= 0:
            raise DataError(f"the sum of weights is {weight:g}, and a variance needs more than {self.ddof}")
        return weight - self.ddof

    def _deviations(self, variance: Array, mean: Array, data: MatrixSpec) -> Array | None:
        """What columns are divided by: deviations if requested, over weights. No variance is refused."""
        constant = constant_columns(variance, mean if self.center else np.zeros_like(mean))
        if len(constant) == len(mean):
            raise self._no_variance()
        weights = data.feature_weights
        if not self.scale:
            return None if weights is None else 1.0 / weights
        if len(constant):
            raise self._constant(data.stored_number(int(constant[0])))
        return np.sqrt(variance) if weights is None else np.sqrt(variance) / weights

    def _total(self, variance: Array, data: MatrixSpec) -> float:
        """The total variance of columns as they are analysed: scaled if requested, times their weights."""
        squares = None if data.feature_weights is None else data.feature_weights**2
        if self.scale:
            return float(data.n_cols) if squares is None else float(squares.sum())
        return float(variance.sum()) if squares is None else float(variance @ squares)

    def _n_kept(
        self, values: Array, total: float, rows: _Rows, data: MatrixSpec
    ) -> tuple[int, Comparison | None]:
        """The number of components to keep, and the comparison with noise that has chosen it."""
        if self.wanted is not None:
            return self.wanted, None
        if self.n_components == "mle":
            return minka_dimension(values, rows.weight), None
        rank = self._rank(values, rows, data)
        if isinstance(self.n_components, str):
            freedom = (self.n_effective or rows.weight) - self.center
            shares = values[: self._most(rows)] / total
            compared = compare(self.n_components, shares, data.n_cols, freedom, self.random_state)
            return min(max(compared.n_above, 1), rank), compared
        if self.n_components is None or self.n_components == 1.0:
            if self.whitening is not None and rank < min(self._most(rows), data.n_cols):
                raise _rank_deficient(min(data.n_rows, data.n_cols), rank)
            return rank, None
        reached = np.cumsum(values / values.sum())
        # More than the fraction, as in scikit-learn: a fraction reached up to rounding is not exceeded.
        share = self.n_components * (1 + 64 * np.finfo(self.product_dtype(data)).eps)
        return min(int(np.searchsorted(reached, share, side="right")) + 1, rank), None

    def _rank(self, values: Array, rows: _Rows, data: MatrixSpec) -> int:
        """The numerical rank of the covariance."""
        return min(numerical_rank(values, data.n_cols, self.product_dtype(data)), self._most(rows))

    def _most(self, rows: _Rows) -> int:
        """The largest possible rank for these rows. Centring takes one degree of freedom."""
        return rows.count - 1 if self.center else rows.count

    def _constant(self, column: int) -> ParameterError:
        kind = "constant" if self.center else "zero"
        return ParameterError(
            "scale",
            f"column {column} is {kind} and has no unit variance to be scaled to: drop it, or do not scale",
        )

    def _no_variance(self) -> DataError:
        kind = "constant" if self.center else "zero"
        return DataError(f"every column is {kind}: there is no variance to explain")


def _with_comparison(model: PCAModel, criterion: object, compared: Comparison | None) -> PCAModel:
    """The model with what was compared to choose its number of components."""
    if compared is None:
        return model
    return replace(
        model,
        criterion=str(criterion),
        candidate_variance_ratio=compared.shares,
        noise_variance_ratio=compared.noise,
    )


def _rank_deficient(k: int, rank: int) -> ParameterError:
    return ParameterError(
        "whiten",
        f"whitening divides by the variance of each of {k} components, but the data has rank {rank}: "
        f"set n_components to {rank} or fewer, or to a fraction of variance such as 0.999",
    )
