"""The solvers of PCA: passes, and the model that their statistics give."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

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
from streamdr.core.method import Pass, Passes
from streamdr.errors import DataError, ParameterError
from streamdr.methods.pca.block_krylov import BlockKrylov
from streamdr.methods.pca.bootstrap import (
    MOST_COMPONENTS,
    with_block_bootstrap,
    with_row_bootstrap,
)
from streamdr.methods.pca.model import PCAModel
from streamdr.methods.pca.rotation import require_loadings, require_rotatable, rotate
from streamdr.methods.pca.routes import iterates_over_columns
from streamdr.methods.pca.significance import Comparison, compare
from streamdr.statistics.column_products import ColumnProducts, TiledLoadings
from streamdr.statistics.gram import Gram, Loadings
from streamdr.statistics.moments import Moments
from streamdr.statistics.products import Products
from streamdr.statistics.validation import require_products

if TYPE_CHECKING:
    from streamdr.methods.pca.pca import PCA

Solve = Generator[Pass, Accumulator, tuple[PCAModel, Array | None]]
"""The passes of a solver: its model, and the directions that a bootstrap follows, if there is one."""
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


def covariance(pca: PCA, data: MatrixSpec) -> Solve:
    """One pass for the moments, and the eigenvectors of the covariance."""
    moments = cast(Moments, (yield Pass(Moments(data.n_cols, double=pca.double), label="moments")))
    freedom = _freedom(pca, moments.weight, moments.count)
    require_products(moments.scatter)
    covariance = moments.scatter / freedom
    if not pca.center:
        covariance += np.outer(moments.mean * (moments.weight / freedom), moments.mean)
    deviation = _deviations(pca, np.diag(covariance), moments.mean, data)
    if deviation is not None:
        covariance /= deviation
        covariance /= deviation[:, None]
    total = float(np.trace(covariance))
    values, vectors = eigh_descending(covariance, pca.wanted)
    variance_of_columns = np.diag(moments.scatter) / moments.weight
    rows = _Rows(moments.weight, moments.count, moments.mean, variance_of_columns)
    k, compared = _n_kept(pca, values, total, rows, data)
    model = _model(pca, data, rows, deviation, total, values, vectors[:, :k].T.copy())
    model = _with_comparison(model, pca.n_components, compared)
    return model, _axes(pca, model, _further(pca, covariance, values, vectors, k)[1])


def _levelled(data: MatrixSpec) -> tuple[Array | None, float]:
    """The weights of columns over a power of two, which is exact, and that power: for products of rows.

    These have the squares of weights, and in single precision they would overflow.
    """
    if data.feature_weights is None:
        return None, 1.0
    level = float(2.0 ** np.floor(np.log2(data.feature_weights.max())))
    return data.feature_weights / level, level


def gram(pca: PCA, data: MatrixSpec) -> Passes:
    """One pass over columns for the products of rows, and one for the components."""
    weights, level = _levelled(data)
    empty = Gram(
        data.n_rows,
        scale=pca.scale,
        ddof=pca.ddof,
        double=pca.double,
        center=pca.center,
        feature_weights=weights,
    )
    gram = cast(Gram, (yield Pass(empty, axis="columns", label="A A'")))
    freedom = _freedom(pca, gram.weight, gram.count)
    require_products(gram.raw)
    if gram.constant >= 0:
        raise _constant(pca, data.stored_number(gram.constant))
    products = gram.products()
    products /= freedom / level**2
    total = float(np.trace(products))
    if total <= 0.0:
        raise _no_variance(pca)
    values, vectors = eigh_descending(products, pca.wanted)
    rows = _Rows(gram.weight, gram.count, np.zeros(0), np.zeros(0))
    k, compared = _n_kept(pca, values, total, rows, data)
    # The component of v is A'v, normalised. Directions without variance are completed at random.
    n_varying = min(k, _rank(pca, values, rows, data))
    top = np.ascontiguousarray(vectors[:, :n_varying])
    thin = Loadings(
        top,
        scale=pca.scale,
        ddof=pca.ddof,
        double=pca.double,
        center=pca.center,
        feature_weights=weights,
    )
    full = cast(Loadings, (yield Pass(thin, axis="columns", label="components")))
    (mean, deviation, variance_of_columns), components = full.take()
    components = _completed(pca, components, k)
    rows = replace(rows, mean=mean, variance=variance_of_columns)
    scaled = pca.scale or weights is not None
    flipped = np.array([row[np.abs(row).argmax()] < 0 for row in components])  # by `fix_signs`, below
    model = _model(pca, data, rows, deviation / level if scaled else None, total, values, components)
    model = _with_comparison(model, pca.n_components, compared)
    if not pca.n_bootstrap:
        return model
    n_first = min(k, MOST_COMPONENTS)
    later_values, later = _further(pca, products, values, vectors, k)
    first = vectors[:, :n_first] * np.where(flipped[:n_first], -1.0, 1.0)
    spread = np.sqrt(np.append(values[:n_first], later_values) * freedom)
    products *= freedom
    return with_row_bootstrap(pca, data, model, gram.roots, products, np.hstack([first, later]) * spread)


def _completed(pca: PCA, components: Array, k: int) -> Array:
    """Orthonormal components from V'A, completed to k of them by random directions, without variance."""
    orthonormalise_rows(components)
    missing, n_cols = k - len(components), components.shape[1]
    if missing:
        fill = np.random.default_rng(pca.random_state).standard_normal((n_cols, missing))
        components = np.vstack([components, orthonormal(fill, against=components.T).T])
    return components


def krylov(pca: PCA, data: MatrixSpec) -> Passes:
    """Block Krylov iteration, with one pass per step: over rows, or over columns where chunks are tall."""
    if iterates_over_columns(pca, data):
        return _krylov_columns(pca, data)
    return with_bootstrap(pca, data, _krylov_rows(pca, data))


def _krylov_columns(pca: PCA, data: MatrixSpec) -> Passes:
    """Iteration of A A' in passes over columns, and a last one for the components A'v."""
    weights, level = _levelled(data)
    options: dict[str, Any] = {
        "scale": pca.scale,
        "ddof": pca.ddof,
        "double": pca.double,
        "center": pca.center,
        "feature_weights": weights,
    }
    k = cast(int, pca.wanted)
    rng = np.random.default_rng(pca.random_state)
    start = orthonormal(rng.standard_normal((data.n_rows, pca.krylov_width(data))))
    request = Pass(ColumnProducts(start, **options), axis="columns", label="block Krylov 1")
    first = cast(ColumnProducts, (yield request))
    freedom = _freedom(pca, first.weight, first.count)
    require_products(first.images)
    if first.constant >= 0:
        raise _constant(pca, data.stored_number(first.constant))
    newest = first.products() / (freedom / level**2)
    if not newest.any():
        raise _no_variance(pca)
    rounding = product_rounding(data.n_rows, pca.product_dtype(data))
    iteration = BlockKrylov(k, max(pca.max_passes - 1, 1), pca.tol, rounding)

    def product(block: Array, label: str) -> Generator[Pass, Accumulator, Array]:
        full = yield Pass(ColumnProducts(block, **options), axis="columns", label=label)
        return cast(ColumnProducts, full).products() / (freedom / level**2)

    weight, count = first.weight, first.count
    del first, request
    pairs = yield from iteration.iterate(start, newest, product)
    rows = _Rows(weight, count, np.zeros(0), np.zeros(0))
    n_varying = min(k, _rank(pca, pairs.values, rows, data))
    top = np.ascontiguousarray(pairs.vectors[:, :n_varying])
    full = yield Pass(TiledLoadings(top, **options), axis="columns", label="components")
    (mean, deviation, variance), components = cast(TiledLoadings, full).take()
    components = _completed(pca, components, k)
    rows = replace(rows, mean=mean, variance=variance)
    about = variance if pca.center else variance + mean**2
    total = _total(pca, about * (weight / freedom), data)
    scaled = pca.scale or weights is not None
    divisors = deviation / level if scaled else None
    return _model(pca, data, rows, divisors, total, pairs.values, components, pairs.residuals)


def _krylov_rows(pca: PCA, data: MatrixSpec) -> Solve:
    """Iteration of the covariance in passes over rows."""
    rng = np.random.default_rng(pca.random_state)
    start = orthonormal(rng.standard_normal((data.n_cols, pca.krylov_width(data))))
    weights = None if data.feature_weights is None else data.feature_weights[:, None]
    # Weights are known before the first pass, so it multiplies by them; deviations are not known yet.
    given = start if weights is None else start * weights
    first = cast(Products, (yield Pass(Products(given, double=pca.double), label="block Krylov 1")))
    centre = first.centre
    freedom = _freedom(pca, centre.weight, centre.count)
    require_products(first.products)
    assert first.squares is not None  # requested by squares=True
    mean, variance = centre.mean, first.squares / freedom
    rows = _Rows(centre.weight, centre.count, mean, first.squares / centre.weight)
    share = np.zeros_like(mean) if pca.center else mean * (centre.weight / freedom)
    if not pca.center:
        variance += share * mean
    deviation = _deviations(pca, variance, mean, data)
    basis, newest, inverse = start, _image(pca, first, freedom, share), np.ones(1)
    if deviation is not None:
        inverse = (1 / deviation)[:, None]
        newest = newest * inverse
    if deviation is not None and pca.scale:
        # C = D^-1 S D^-1 applied to D G is D^-1 S G. So the first pass, which had no deviations yet,
        # was a product of C with the start D G. It had the weights, which are in D too.
        own = deviation[:, None] if weights is None else deviation[:, None] * weights
        basis, triangle = np.linalg.qr(start * own)
        newest = np.linalg.solve(triangle.T, newest.T).T
    total = _total(pca, variance, data)
    rounding = product_rounding(data.n_cols, pca.product_dtype(data))
    k = cast(int, pca.wanted)
    n_further = start.shape[1] - k if pca.n_bootstrap else 0
    iteration = BlockKrylov(k, pca.max_passes, pca.tol, rounding, n_further)

    def product(block: Array, label: str) -> Generator[Pass, Accumulator, Array]:
        request = Products(block * inverse, squares=False, double=pca.double)
        full = yield Pass(request, label=label)
        return _image(pca, cast(Products, full), freedom, share) * inverse

    pairs = yield from iteration.iterate(basis, newest, product)
    model = _model(pca, data, rows, deviation, total, pairs.values, pairs.vectors.T.copy(), pairs.residuals)
    return model, _axes(pca, model, np.hstack([pairs.vectors, pairs.further])[:, min(k, MOST_COMPONENTS) :])


def _image(pca: PCA, full: Products, freedom: float, share: Array) -> Array:
    """S Q of a pass, plus the contribution of the mean where it is not subtracted."""
    image = full.products / freedom
    if not pca.center:
        image += np.outer(share, full.centre.mean @ full.basis)
    return image


def _model(
    pca: PCA,
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
    rank = _rank(pca, values, rows, data)
    if pca.whitening is not None and k > rank:
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
        mean=rows.mean if pca.center else np.zeros_like(rows.mean),
        components=fix_signs(components),
        explained_variance=explained,
        total_variance=total,
        reconstruction_error=discarded,
        noise_variance=discarded / (dimensions - k) if dimensions > k else 0.0,
        n_samples=rows.weight,
        ddof=pca.ddof,
        rank=rank,
        solver=pca.solver,
        whiten=pca.whitening,
        scale=scale,
        residuals=residuals,
        center=pca.center,
        var=rows.variance,
        n_effective=pca.n_effective,
    )
    return _rotated(pca, model)


def _rotated(pca: PCA, model: PCAModel) -> PCAModel:
    """The model with its leading components rotated, unless there is only one."""
    if pca.rotation is None:
        return model
    number = model.n_components if pca.n_rotated is None else pca.n_rotated
    require_rotatable(number, model.n_components)
    if number == 1:
        return model
    require_loadings(number, model.rank)
    axes, variances = model.components[:number], model.explained_variance[:number]
    power = pca.rotation_power if pca.rotation == "promax" else None
    found = rotate(axes, variances, power)
    return replace(
        model,
        components=np.vstack([found.components, model.components[number:]]),
        explained_variance=np.append(found.variances, model.explained_variance[number:]),
        rotation=pca.rotation,
        rotation_matrix=found.matrix,
        principal_components=axes,
        principal_variance=variances,
    )


def _freedom(pca: PCA, weight: float, count: int) -> float:
    """The divisor of the covariance. Too little weight is refused."""
    if count == 1:
        raise DataError("PCA needs at least 2 rows to see variance, and only 1 row has a positive weight")
    if weight - pca.ddof <= 0:
        raise DataError(f"the sum of weights is {weight:g}, and a variance needs more than {pca.ddof}")
    return weight - pca.ddof


def _deviations(pca: PCA, variance: Array, mean: Array, data: MatrixSpec) -> Array | None:
    """What columns are divided by: deviations if requested, over weights. No variance is refused."""
    constant = constant_columns(variance, mean if pca.center else np.zeros_like(mean))
    if len(constant) == len(mean):
        raise _no_variance(pca)
    weights = data.feature_weights
    if not pca.scale:
        return None if weights is None else 1.0 / weights
    if len(constant):
        raise _constant(pca, data.stored_number(int(constant[0])))
    return np.sqrt(variance) if weights is None else np.sqrt(variance) / weights


def _total(pca: PCA, variance: Array, data: MatrixSpec) -> float:
    """The total variance of columns as they are analysed: scaled if requested, times their weights."""
    squares = None if data.feature_weights is None else data.feature_weights**2
    if pca.scale:
        return float(data.n_cols) if squares is None else float(squares.sum())
    return float(variance.sum()) if squares is None else float(variance @ squares)


def _n_kept(
    pca: PCA, values: Array, total: float, rows: _Rows, data: MatrixSpec
) -> tuple[int, Comparison | None]:
    """The number of components to keep, and the comparison with noise that has chosen it."""
    if pca.wanted is not None:
        return pca.wanted, None
    if pca.n_components == "mle":
        return minka_dimension(values, rows.weight), None
    rank = _rank(pca, values, rows, data)
    if isinstance(pca.n_components, str):
        freedom = (pca.n_effective or rows.weight) - pca.center
        shares = values[: _most(pca, rows)] / total
        compared = compare(pca.n_components, shares, data.n_cols, freedom, pca.random_state)
        return min(max(compared.n_above, 1), rank), compared
    if pca.n_components is None or pca.n_components == 1.0:
        if pca.whitening is not None and rank < min(_most(pca, rows), data.n_cols):
            raise _rank_deficient(min(data.n_rows, data.n_cols), rank)
        return rank, None
    reached = np.cumsum(values / values.sum())
    # More than the fraction, as in scikit-learn: a fraction reached up to rounding is not exceeded.
    share = pca.n_components * (1 + 64 * np.finfo(pca.product_dtype(data)).eps)
    return min(int(np.searchsorted(reached, share, side="right")) + 1, rank), None


def _rank(pca: PCA, values: Array, rows: _Rows, data: MatrixSpec) -> int:
    """The numerical rank of the covariance."""
    return min(numerical_rank(values, data.n_cols, pca.product_dtype(data)), _most(pca, rows))


def _most(pca: PCA, rows: _Rows) -> int:
    """The largest possible rank for these rows. Centring takes one degree of freedom."""
    return rows.count - 1 if pca.center else rows.count


def _constant(pca: PCA, column: int) -> ParameterError:
    kind = "constant" if pca.center else "zero"
    return ParameterError(
        "scale",
        f"column {column} is {kind} and has no unit variance to be scaled to: drop it, or do not scale",
    )


def _no_variance(pca: PCA) -> DataError:
    kind = "constant" if pca.center else "zero"
    return DataError(f"every column is {kind}: there is no variance to explain")


def with_bootstrap(pca: PCA, data: MatrixSpec, solve: Solve) -> Passes:
    """The passes of a solver, and one of the bootstrap if it is requested."""
    model, axes = yield from solve
    if axes is None:
        return model
    return (yield from with_block_bootstrap(pca, data, model, axes))


def _axes(pca: PCA, model: PCAModel, further: Array) -> Array | None:
    """The directions of a bootstrap: the components and the vectors after them; None without one."""
    return np.vstack([model.components[:MOST_COMPONENTS], further.T]) if pca.n_bootstrap else None


def _further(pca: PCA, matrix: Array, values: Array, vectors: Array, k: int) -> tuple[Array, Array]:
    """The eigenpairs after the leading k that a bootstrap follows too.

    They are computed on their own, so that the model is the same bits with a bootstrap and without.
    """
    k = min(k, MOST_COMPONENTS)
    width = min(k + pca.n_oversamples, len(matrix)) if pca.n_bootstrap else k
    if vectors.shape[1] < width:
        values, vectors = eigh_descending(matrix, width)
    return values[k:width], vectors[:, k:width]


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
