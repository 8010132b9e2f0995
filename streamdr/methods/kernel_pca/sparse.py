"""Sparse kernel PCA: each component is one row of the data, and a new row needs one kernel value for each."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
import scipy.linalg

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array, MatrixSpec
from streamdr.core.method import Model, Pass, Passes, Route, Tags, cost_factor
from streamdr.core.parameters import require_types
from streamdr.methods.kernel_pca.eigen import (
    ZERO_SHARE_IN_SINGLE,
    EigenvalueFloor,
    Whitening,
    loses_precision,
    moments_in_both_precisions,
    require_sound,
    require_variance,
)
from streamdr.methods.kernel_pca.evaluators import (
    KernelEvaluator,
    NamedKernel,
    Pool,
    column_origin,
    is_narrow,
    symmetric,
)
from streamdr.methods.kernel_pca.model import KernelPCAModel, kernel_outline
from streamdr.methods.kernel_pca.moments import FoldMoments, KernelMoments
from streamdr.methods.kernel_pca.parameters import RowKernel, check_kernel, kernel_evaluator, require_rows
from streamdr.methods.kernel_pca.routes import is_single, sparse
from streamdr.statistics.sample import Sample
from streamdr.statistics.sampling import draw_sample
from streamdr.statistics.validation import require

_MOST_CANDIDATES = 4000
_ZERO_SHARE = 1e-9
"""Rows whose images have a smaller share left are not chosen: variances along them would be rounding."""
_ROUNDED, _ROUNDED_IN_SINGLE = 1e-6, 1e-2
"""The largest rounding error of a variance, relative to the largest variance."""


@dataclass(eq=False)
class SparseKernelPCA:
    """Kernel PCA whose components are each one row of the data.

    Of all sums of rows' images with coefficients of a bounded sum, the one with most variance lies at a
    vertex: a single row. Rows are taken one after the other, each the one with most variance left.

    Parameters
    ----------
    n_components : int
        The number of components, each of which is one row. A new row needs one kernel value per component.
    kernel : "linear", "poly", "rbf", "sigmoid", "laplacian", "cosine" or function
        The kernel, with the parameters of scikit-learn; in Python also a function of two arrays of rows, or
        of two rows.
    gamma : float, "median" or None
        The coefficient of rbf, laplacian, poly and sigmoid; None for 1 / n_features, `"median"` for
        1 / (2 median distance^2).
    sigma : float or None
        The width of the rbf instead: gamma = 1 / (2 sigma^2).
    degree : int
        The power of poly.
    coef0 : float
        The constant that poly and sigmoid add to products; with 0 poly is homogeneous.
    n_candidates : int
        The number of candidate rows for each component. The best of 59 is among the best 5% of all rows with
        a probability of 0.95.
    precision : "mixed" or "double"
        `"mixed"` computes products of float32 data in float32 and sums them in float64, unless that would
        change variances by more than a few thousandths of the largest; `"double"` computes them in float64.
    random_state : int
        Seeds the draw of the candidates.

    See Also
    --------
    KernelPCA : With components that are sums over many rows.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
    >>> sparse = streamdr.SparseKernelPCA(2, kernel="rbf", gamma=0.1).fit(X)
    >>> sparse.transform(X).shape
    (6, 2)
    """

    name: ClassVar[str] = "sparse_kernel_pca"
    model: ClassVar[type] = KernelPCAModel
    tags: ClassVar[Tags] = Tags(incremental=False, feature_subset=True)
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ({"n_components": 2, "gamma": "median"},)

    n_components: int = 1
    _: KW_ONLY
    kernel: RowKernel = "rbf"
    gamma: float | Literal["median"] | None = None
    sigma: float | None = None
    degree: int = 3
    coef0: float = 1.0
    n_candidates: int = 59
    precision: Literal["mixed", "double"] = "mixed"
    random_state: int = 0

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small examples, for the laws."""
        return [cls(3, gamma="median"), cls(2, gamma="median", n_candidates=5)]

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
        require(
            self.precision in ("mixed", "double"),
            "precision",
            f"{self.precision!r} is neither 'mixed' nor 'double'",
        )

    def lacks(self, what: str) -> str | None:
        """Why models of these parameters do not denoise."""
        if what != "denoise" or self.kernel in ("rbf", "linear"):
            return None
        return (
            "only rbf and linear have an inverse transform: use kernel_pca with fit_inverse_transform: true"
        )

    def using(self, route: str) -> Self:
        """The method itself: there is one route only."""
        return self

    def pool_rows(self, data: MatrixSpec) -> int:
        """The number of candidate rows."""
        wanted = self.n_candidates * self.n_components
        return min(data.n_rows, max(min(wanted, _MOST_CANDIDATES), self.n_candidates, self.n_components))

    def candidate_parts(self, data: MatrixSpec) -> int:
        """The number of parts of the data, one of which is read to draw candidates."""
        return data.n_rows // (8 * self.pool_rows(data))

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """A sample, and one pass."""
        self.check()
        require_rows(self.n_components, data)
        return [sparse(self, data)]

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """A model with the requested number of components."""
        k = self.n_components
        return [kernel_outline(data, "sparse", k, k, pool=self.pool_rows(data))]

    def passes(self, data: MatrixSpec, start: KernelPCAModel | None = None) -> Passes:
        """Candidates, the moments of their kernels over all rows, and the greedy choice in memory."""
        if start is not None and start.pool is not None and start.pool_origin is not None:
            pool, origin = Pool.from_rows(start.pool), start.pool_origin
            kind: KernelEvaluator = NamedKernel(start.named, start.origin)
        else:
            pool = yield from self._candidates(data)
            kind = kernel_evaluator(self, data, pool)
            origin = column_origin(kind, pool, pool)
        kernel = symmetric(kind, pool)
        single = is_single(self, data)
        coarse = single and _needs_double(kind, kernel, pool, origin, self.n_components)
        double = coarse or self.precision == "double"
        empty = KernelMoments(kind.columns(pool), [origin], double=double)
        label, work = f"kernels with {len(pool):,} candidates", cost_factor(len(pool), data.n_cols)
        full = cast(KernelMoments, (yield Pass(empty, label=label, cost_factor=work)))
        moments, single = full.moments(), single and not coarse
        require_sound(moments)
        chosen, coefficients = _axes(kernel, moments, self.n_components, single=single)
        mean = coefficients.T @ moments.mean[chosen]
        covariance = (
            coefficients.T @ (moments.scatter[np.ix_(chosen, chosen)] / moments.weight) @ coefficients
        )
        captured = float(np.trace(covariance) + mean @ mean) * moments.weight
        # The mean of all rows' images lies nearly in the span of all candidates.
        whitening = Whitening.of(kernel, EigenvalueFloor.of(single=single, whitened=False))
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
        """Draw the candidate rows."""
        empty = Sample(data.n_cols, self.pool_rows(data), self.random_state, allow_nan=False)
        return Pool.from_sample(
            (yield from draw_sample(empty, data, "candidates", self.candidate_parts(data)))
        )


def _axes(kernel: Array, moments: FoldMoments, n_components: int, *, single: bool) -> tuple[Array, Array]:
    """The chosen rows, and the coefficients that orthonormalise their images."""
    nothing = ZERO_SHARE_IN_SINGLE if single else _ZERO_SHARE
    chosen, lower = _independent(kernel, _greedy(kernel, moments, n_components, nothing), nothing)
    identity = np.eye(len(chosen))
    coefficients = scipy.linalg.solve_triangular(lower, identity, lower=True, check_finite=False).T
    n_sound = _n_sound(moments.scatter[np.ix_(chosen, chosen)], coefficients, single=single)
    return chosen[:n_sound], coefficients[:n_sound, :n_sound]


def _n_sound(scatter: Array, coefficients: Array, *, single: bool) -> int:
    """The number of axes before the first one whose variance may be a rounding error of cancelling terms."""
    eps = float(np.finfo(np.float32 if single else np.float64).eps)
    rounding = eps * (np.sqrt(np.diag(scatter)) @ np.abs(coefficients)) ** 2
    largest = float(np.einsum("ij,ij->j", coefficients, scatter @ coefficients).max())
    most = _ROUNDED_IN_SINGLE if single else _ROUNDED
    lost = np.flatnonzero(~(rounding <= most * largest))
    return int(lost[0]) if len(lost) else len(coefficients)


def _needs_double(kind: KernelEvaluator, kernel: Array, pool: Pool, origin: Array, n_components: int) -> bool:
    """Whether variances along the axes chosen from the candidates are too inaccurate in single precision."""
    if is_narrow(kind, pool):
        return True
    single, exact = moments_in_both_precisions(kind.columns(pool), origin, pool)
    chosen, coefficients = _axes(kernel, single, n_components, single=True)
    axes = np.zeros((len(pool), len(chosen)))
    axes[chosen] = coefficients
    fewer = len(chosen) < len(_axes(kernel, exact, n_components, single=False)[0])
    return fewer or loses_precision(single, exact, axes)


def _independent(kernel: Array, chosen: Array, nothing: float) -> tuple[Array, Array]:
    """The chosen rows up to one that lies in the span of those before, and their Cholesky factor.

    The residual of a row in the greedy search is rounded differently than in a factorisation. Where it is
    near zero, the factorisation decides.
    """
    least = nothing * np.diag(kernel)[chosen]
    lower, stopped = scipy.linalg.lapack.dpotrf(kernel[np.ix_(chosen, chosen)], lower=1, clean=1)
    n_sound = len(chosen) if stopped == 0 else stopped - 1
    lost = np.flatnonzero(~(np.diag(lower)[:n_sound] ** 2 > least[:n_sound]))
    n_sound = int(lost[0]) if len(lost) else n_sound
    return chosen[:n_sound], lower[:n_sound, :n_sound]


def _greedy(kernel: Array, moments: FoldMoments, n_components: int, nothing: float) -> Array:
    """Choose rows greedily by the variance along their images, each after projecting out those before.

    Projecting out p changes columns k_c to k_c - k_p K_pc / K_pp. The residual kernel between candidates, and
    the covariance of the residual columns, follow without another pass over the rows.
    """
    left, covariance = kernel.copy(), moments.scatter / moments.weight
    first = np.diag(kernel).copy()
    # The root of the rounding error of each residual. Projecting out a row with a small residual adds its own
    # error to the others, in proportion to their share.
    error = np.full(len(first), np.sqrt(4 * np.finfo(np.float64).eps * np.abs(first).max(initial=0.0)))
    chosen: list[int] = []
    while len(chosen) < n_components:
        length = np.diag(left)
        able = length > np.maximum(nothing * first, error**2)
        gains = np.where(able, np.diag(covariance) / np.where(able, length, 1.0), -np.inf)
        gains[chosen] = -np.inf
        pick = int(np.argmax(gains))
        if not gains[pick] > nothing * np.abs(first).max():
            break
        chosen.append(pick)
        share, along = left[pick] / left[pick, pick], covariance[pick].copy()
        error += np.abs(share) * error[pick]
        left -= np.outer(share, left[pick])
        covariance -= np.outer(share, along) + np.outer(along, share) - along[pick] * np.outer(share, share)
    if not chosen:
        require_variance(0.0, 1.0, apart=moments.trace / moments.weight)
    return np.array(chosen, np.int64)
