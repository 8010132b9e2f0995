"""Sparse kernel PCA: every component is one row of the data, and a new row takes one kernel a component."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
import scipy.linalg

from streamdr.accumulators import Accumulator, KernelMoments, Sample
from streamdr.accumulators.kernel import FoldMoments
from streamdr.blocks import Array, MatrixSpec
from streamdr.kernels import KernelName
from streamdr.methods.base import Model, Pass, Passes, Route
from streamdr.methods.checks import require
from streamdr.methods.kernel_axes import (
    NOTHING_IN_SINGLE,
    Floor,
    Whitening,
    in_both,
    require_sound,
    require_variance,
    too_coarse,
)
from streamdr.methods.kernel_kinds import KernelKind, Named, Pool, column_origin, is_narrow, symmetric
from streamdr.methods.kernel_parameters import check_kernel, kind_of, require_rows
from streamdr.methods.kernel_pca_model import KernelPCAModel
from streamdr.methods.kernel_routes import is_single, labour, sparse
from streamdr.methods.outlines import kernel_outline
from streamdr.methods.parameters import require_types
from streamdr.methods.sampling import sampled

_MOST_CANDIDATES = 4000
_NOTHING = 1e-9
"""A row of whose image less than this part is left tells nothing: variances along it would be rounding."""
_ROUNDED, _ROUNDED_IN_SINGLE = 1e-6, 1e-2
"""What sums may lose of a variance to rounding, as a part of the largest."""


@dataclass(eq=False)
class SparseKernelPCA:
    """Kernel PCA whose components are each one row of the data.

    Of all sums of rows' images with coefficients of a bounded sum, the one with most variance lies at a
    vertex: a single row. Rows are taken one after the other, each the one with most variance left.

    Parameters
    ----------
    n_components : int
        How many components to keep: so many rows, and so many kernels for a new row.
    kernel : "linear", "poly", "rbf", "sigmoid", "laplacian" or "cosine"
        The kernel, with the parameters of scikit-learn.
    gamma : float, "median" or None
        The coefficient of rbf, laplacian, poly and sigmoid; None for 1 / n_features, `"median"` for
        1 / (2 median distance^2).
    sigma : float or None
        The width of the rbf instead: gamma = 1 / (2 sigma^2).
    degree : int
        The power of poly.
    coef0 : float
        What poly and sigmoid add to products: 0 makes poly homogeneous.
    n_candidates : int
        How many rows are drawn for each component to choose from. The best of 59 is one of the best 5% of
        all rows with a probability of 0.95.
    precision : "mixed" or "double"
        `"mixed"` takes products of float32 data in float32 and sums them in float64, unless that would cost
        variances more than a few thousandths of the largest; `"double"` takes them in float64.
    random_state : int
        Seeds the draw of the candidates.
    """

    name: ClassVar[str] = "sparse_kernel_pca"
    model: ClassVar[type] = KernelPCAModel

    n_components: int = 1
    _: KW_ONLY
    kernel: KernelName = "rbf"
    gamma: float | Literal["median"] | None = None
    sigma: float | None = None
    degree: int = 3
    coef0: float = 1.0
    n_candidates: int = 59
    precision: Literal["mixed", "double"] = "mixed"
    random_state: int = 0

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)
        check_kernel(self)
        kernel: Any = self.kernel
        by_rows = kernel != "precomputed"
        require(by_rows, "kernel", "a component is a row of the data, and a precomputed kernel has none")
        for parameter in ("n_components", "n_candidates"):
            number: Any = getattr(self, parameter)
            whole = isinstance(number, Integral) and not isinstance(number, bool)
            require(whole and number >= 1, parameter, f"{number!r} is not a whole number of at least 1")
        require(self.precision in ("mixed", "double"), "precision", f"{self.precision!r} is no precision")

    def lacks(self, what: str) -> str | None:
        """Why models of these parameters do not denoise."""
        if what != "denoise" or self.kernel in ("rbf", "linear"):
            return None
        return "only rbf and linear have a way back: use kernel_pca with fit_inverse_transform: true"

    def using(self, route: str) -> Self:
        """There is one route only."""
        return self

    def pool_rows(self, data: MatrixSpec) -> int:
        """How many rows there are to choose from in all."""
        wanted = self.n_candidates * self.n_components
        return min(data.n_rows, max(min(wanted, _MOST_CANDIDATES), self.n_candidates, self.n_components))

    def candidate_parts(self, data: MatrixSpec) -> int:
        """One of how many parts of the data is read to draw candidates from."""
        return data.n_rows // (8 * self.pool_rows(data))

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """A sample, and one pass."""
        self.check()
        require_rows(self.n_components, data)
        return [sparse(self, data)]

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """A model of as many components as were asked for."""
        k = self.n_components
        return [kernel_outline(data, "sparse", k, k, pool=self.pool_rows(data))]

    def passes(self, data: MatrixSpec, start: KernelPCAModel | None = None) -> Passes:
        """Candidates, the moments of their kernels over all rows, and the greedy choice in memory."""
        if start is not None and start.pool is not None and start.pool_origin is not None:
            pool, origin = Pool.made(start.pool), start.pool_origin
            kind: KernelKind = Named(start.named, start.origin)
        else:
            pool = yield from self._candidates(data)
            kind = kind_of(self, data, pool)
            origin = column_origin(kind, pool, pool)
        kernel = symmetric(kind, pool)
        single = is_single(self, data)
        coarse = single and _is_coarse(kind, kernel, pool, origin, self.n_components)
        double = coarse or self.precision == "double"
        empty = KernelMoments(kind.columns(pool), [origin], double=double)
        label, work = f"kernels with {len(pool):,} candidates", labour(len(pool), data.n_cols)
        full = cast(KernelMoments, (yield Pass(empty, label=label, labour=work)))
        moments, single = full.moments(), single and not coarse
        require_sound(moments)
        chosen, coefficients = _axes(kernel, moments, self.n_components, single=single)
        mean = coefficients.T @ moments.mean[chosen]
        covariance = (
            coefficients.T @ (moments.scatter[np.ix_(chosen, chosen)] / moments.weight) @ coefficients
        )
        captured = float(np.trace(covariance) + mean @ mean) * moments.weight
        # The mean of all rows' images lies nearly in the span of all candidates.
        whitening = Whitening.of(kernel, Floor.of(single=single, whitened=False))
        within = whitening.matrix.T @ moments.mean
        variances = np.maximum(np.diag(covariance), 0.0)
        total = max(moments.trace / moments.weight - float(within @ within), float(variances.sum()))
        require_variance(total, abs(moments.trace) / moments.weight, single=single)
        return KernelPCAModel(
            approximation="sparse",
            **kind.fields(),
            coefficients=coefficients,
            kernel_means=moments.mean[chosen],
            mean_coefficients=coefficients @ mean,
            eigenvalues=variances * moments.weight,
            n_samples=moments.weight,
            total_variance=total,
            captured_trace=min(1.0, captured / moments.trace) if moments.trace > 0 else 1.0,
            trace_error=max(0.0, moments.trace - captured),
            negative_eigenvalues=whitening.negative.number,
            negative_share=whitening.negative.share,
            wanted=self.n_components,
            double=double,
            landmarks=pool.rows[chosen],
            landmark_rows=pool.numbers[chosen].astype(np.float64),
            pool=pool.rows,
            pool_origin=origin,
        )

    def _candidates(self, data: MatrixSpec) -> Generator[Pass, Accumulator, Pool]:
        empty = Sample(data.n_cols, self.pool_rows(data), self.random_state, holes=False)
        return Pool.of((yield from sampled(empty, data, "candidates", self.candidate_parts(data))))


def _axes(kernel: Array, moments: FoldMoments, n_components: int, *, single: bool) -> tuple[Array, Array]:
    """The chosen rows, and what makes axes of their images: each made orthogonal to those before."""
    nothing = NOTHING_IN_SINGLE if single else _NOTHING
    chosen, lower = _independent(kernel, _greedy(kernel, moments, n_components, nothing), nothing)
    identity = np.eye(len(chosen))
    coefficients = scipy.linalg.solve_triangular(lower, identity, lower=True, check_finite=False).T
    n_sound = _n_sound(moments.scatter[np.ix_(chosen, chosen)], coefficients, single=single)
    return chosen[:n_sound], coefficients[:n_sound, :n_sound]


def _n_sound(scatter: Array, coefficients: Array, *, single: bool) -> int:
    """How many axes come before one whose variance may be the rounding of what cancels in it."""
    eps = float(np.finfo(np.float32 if single else np.float64).eps)
    rounding = eps * (np.sqrt(np.diag(scatter)) @ np.abs(coefficients)) ** 2
    largest = float(np.einsum("ij,ij->j", coefficients, scatter @ coefficients).max())
    most = _ROUNDED_IN_SINGLE if single else _ROUNDED
    lost = np.flatnonzero(~(rounding <= most * largest))
    return int(lost[0]) if len(lost) else len(coefficients)


def _is_coarse(kind: KernelKind, kernel: Array, pool: Pool, origin: Array, n_components: int) -> bool:
    """Whether single precision loses too much along the axes that it would choose by the candidates alone."""
    if is_narrow(kind, pool):
        return True
    single, exact = in_both(kind.columns(pool), origin, pool)
    chosen, coefficients = _axes(kernel, single, n_components, single=True)
    axes = np.zeros((len(pool), len(chosen)))
    axes[chosen] = coefficients
    fewer = len(chosen) < len(_axes(kernel, exact, n_components, single=False)[0])
    return fewer or too_coarse(single, exact, axes)


def _independent(kernel: Array, chosen: Array, nothing: float) -> tuple[Array, Array]:
    """The chosen rows up to one that lies in the span of those before, and their Cholesky factor.

    What is left of a row after others are taken out one by one is rounded otherwise than what a factorisation
    leaves of it: where it is next to nothing, the latter decides.
    """
    least = nothing * np.diag(kernel)[chosen]
    lower, stopped = scipy.linalg.lapack.dpotrf(kernel[np.ix_(chosen, chosen)], lower=1, clean=1)
    n_sound = len(chosen) if stopped == 0 else stopped - 1
    lost = np.flatnonzero(~(np.diag(lower)[:n_sound] ** 2 > least[:n_sound]))
    n_sound = int(lost[0]) if len(lost) else n_sound
    return chosen[:n_sound], lower[:n_sound, :n_sound]


def _greedy(kernel: Array, moments: FoldMoments, n_components: int, nothing: float) -> Array:
    """Rows by the variance over all rows of their kernel's columns, each after the others are taken out.

    Taking out p changes columns k_c to k_c - k_p K_pc / K_pp: what is left of the kernel between candidates,
    and the covariance of what is left of their columns, follow without a look at the rows.
    """
    left, spread = kernel.copy(), moments.scatter / moments.weight
    first = np.diag(kernel).copy()
    # The root of what rounding may have made of each length. Taking out a row of which little is left adds
    # its own error, as often as the others hold of it.
    error = np.full(len(first), np.sqrt(4 * np.finfo(np.float64).eps * np.abs(first).max(initial=0.0)))
    chosen: list[int] = []
    while len(chosen) < n_components:
        length = np.diag(left)
        able = length > np.maximum(nothing * first, error**2)
        gains = np.where(able, np.diag(spread) / np.where(able, length, 1.0), -np.inf)
        gains[chosen] = -np.inf
        pick = int(np.argmax(gains))
        if not gains[pick] > nothing * np.abs(first).max():
            break
        chosen.append(pick)
        share, along = left[pick] / left[pick, pick], spread[pick].copy()
        error += np.abs(share) * error[pick]
        left -= np.outer(share, left[pick])
        spread -= np.outer(share, along) + np.outer(along, share) - along[pick] * np.outer(share, share)
    if not chosen:
        require_variance(0.0, 1.0, apart=moments.trace / moments.weight)
    return np.array(chosen, np.int64)
