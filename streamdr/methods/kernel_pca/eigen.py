"""Principal axes in feature space, from a kernel matrix or from moments of features. In memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from streamdr.core.blocks import Array, Block, Span
from streamdr.core.linalg import eigenpairs
from streamdr.errors import DataError
from streamdr.methods.kernel_pca.evaluators import Pool
from streamdr.methods.kernel_pca.features import Features
from streamdr.methods.kernel_pca.moments import FoldMoments, KernelMoments

ZERO_SHARE = 1e-12
"""Eigenvalues below this share of the largest count as zero: they are dropped."""
ZERO_SHARE_IN_SINGLE = 1e-6
_COARSE = 3e-3
"""The largest error of a variance in single precision, relative to the largest variance."""
_DENSE_ROWS = 500
_DENSE_SHARE = 10


class Axes(NamedTuple):
    """Axes as combinations of the landmarks' images, and their variances times the number of rows."""

    eigenvalues: Array
    coefficients: Array
    kernel_means: Array
    mean_coefficients: Array
    n_samples: float
    total_variance: float
    trace: float
    captured: float
    negative: NegativeEigenvalues

    def fields(self) -> dict[str, Any]:
        """The fields of a model."""
        return {
            "eigenvalues": self.eigenvalues,
            "coefficients": self.coefficients,
            "kernel_means": self.kernel_means,
            "mean_coefficients": self.mean_coefficients,
            "n_samples": self.n_samples,
            "total_variance": self.total_variance,
            "captured_trace": min(1.0, self.captured / self.trace) if self.trace > 0 else 1.0,
            "trace_error": max(0.0, self.trace - self.captured),
            "negative_eigenvalues": self.negative.number,
            "negative_share": self.negative.share,
        }


class NegativeEigenvalues(NamedTuple):
    """The negative eigenvalues of a kernel that is not positive semidefinite."""

    number: int = 0
    share: float = 0.0
    positive: float = 0.0
    """The sum of the positive eigenvalues, where any is negative."""

    @classmethod
    def of(cls, eigenvalues: Array) -> NegativeEigenvalues:
        """The negative eigenvalues that exceed rounding."""
        size = np.abs(eigenvalues)
        below = eigenvalues < -1e-10 * size.max(initial=0.0)
        if not below.any():
            return cls()
        above = float(size[eigenvalues > 0].sum())
        return cls(int(below.sum()), float(size[below].sum() / size.sum()), above)


def exact_axes(kernel: Array, weights: Array, n_components: int | None, *, definite: bool) -> Axes:
    """The axes of the kernel between all rows, overwritten: K~ = K - 1K - K1 + 1K1, K~ a = lambda a.

    Weights are multiplicities of rows: the eigenproblem is that of W^1/2 K~ W^1/2. The coefficients of an
    axis sum to zero, so that centring new rows needs the means of the columns only.
    """
    weight = float(weights.sum())
    trace = float(weights @ np.diag(kernel))
    size = float(weights @ np.abs(np.diag(kernel))) / weight
    means = weights @ kernel / weight
    overall = float(weights @ means) / weight
    kernel -= means
    kernel -= means[:, None]
    kernel += overall
    roots = np.sqrt(weights)
    kernel *= roots
    kernel *= roots[:, None]
    total = float(np.trace(kernel)) / weight
    # If all rows are the same, only rounding remains.
    if definite:
        require_variance(total, size)
    values, vectors, negative = _top(kernel, n_components, definite=definite)
    if not definite:
        require_variance(float(values[0]) / weight, size, apart=total)
        total = max(total, negative.positive / weight)
    # The rounding error of a kernel is relative to its size, which may be much larger than its differences.
    kept = values > max(ZERO_SHARE * values[0], np.finfo(np.float64).eps * size * weight)
    values, vectors = values[kept], vectors[:, kept]
    # The trace and the sum of eigenvalues are rounded differently.
    total = max(total, float(values.sum()) / weight)
    # Eigenvectors of tiny eigenvalues are orthogonal to the null vector only up to rounding, and coefficients
    # are divided by the roots of these eigenvalues.
    vectors = vectors - np.outer(roots, roots @ vectors / weight)
    coefficients = roots[:, None] * vectors / np.sqrt(values)
    _fix_signs(coefficients, vectors / roots[:, None])  # by scores, so that weights do not change signs
    return Axes(values, coefficients, means, weights / weight, weight, total, trace, trace, negative)


def _top(matrix: Array, k: int | None, *, definite: bool) -> tuple[Array, Array, NegativeEigenvalues]:
    """The k largest eigenvalues with their vectors, and the negative eigenvalues."""
    order = len(matrix)
    if definite and k is not None and order > _DENSE_ROWS and _DENSE_SHARE * k < order:
        start = np.random.default_rng(0).standard_normal(order)  # the same in every fit
        try:
            values, vectors = eigsh(matrix, k, which="LA", v0=start)
            return values[::-1], vectors[:, ::-1], NegativeEigenvalues()
        except ArpackNoConvergence:
            pass  # a cluster of nearly equal eigenvalues: solve densely
    values, vectors = eigenpairs(matrix)
    negative = NegativeEigenvalues() if definite else NegativeEigenvalues.of(values)
    return values[::-1][:k], vectors[:, ::-1][:, :k], negative


class EigenvalueFloor(NamedTuple):
    """The smallest eigenvalue of the landmarks' kernel that is kept: T amplifies rounding below it.

    Sums are taken about the kernel's means, so that their error is relative to the centred kernel. But values
    are rounded before the means are subtracted. With m landmarks, s the largest eigenvalue of their kernel
    and c that of the centred kernel, values of size s/m carry noise of eps s/m, which T makes a variance of
    (eps s/m)^2 / t in a direction of eigenvalue t: below a millionth of the largest variance, c/m, where
    t > 1e6 eps^2 s^2 / (m c).
    """

    overall: float
    centred: float
    rounded: float

    @classmethod
    def of(cls, *, single: bool, whitened: bool) -> EigenvalueFloor:
        """The floor for a precision. Features that are whitened before summing lose nothing in sums."""
        if whitened:
            return cls(1e-13, 0.0, 0.0)
        eps = 2 * float(np.finfo(np.float32 if single else np.float64).eps)
        return cls(1e-13, 1e-6 if single else 1e-8, 1e6 * eps**2)

    def least(self, kernel: Array, largest: float) -> float:
        """The smallest eigenvalue that is kept."""
        centred = _centred_norm(kernel) if self.centred else 0.0
        rounded = self.rounded * (largest * largest) / (len(kernel) * centred) if centred > 0 else 0.0
        return max(self.overall * largest, self.centred * centred, rounded)


def _centred_norm(kernel: Array) -> float:
    """The largest eigenvalue of the centred kernel between landmarks."""
    means = kernel.mean(axis=0)
    centred = kernel - means - means[:, None] + means.mean()
    return float(np.abs(_top(centred, 1, definite=True)[0][0]))


def moments_in_both_precisions(
    features: Features, origin: Array, pool: Pool
) -> tuple[FoldMoments, FoldMoments]:
    """The moments of some rows' features in single and in double precision."""
    rows = pool.rows.astype(np.float32)
    block = Block(Span(0, len(pool)), rows, weights=pool.weights, rows=pool.numbers)
    both = [KernelMoments(features, [origin], double=double) for double in (False, True)]
    for moments in both:
        moments.update(block)
    single, exact = (moments.moments() for moments in both)
    return single, exact


def loses_precision(single: FoldMoments, exact: FoldMoments, axes: Array) -> bool:
    """Whether variances along axes differ too much between single and double precision.

    The loss depends on rows, kernel and axes: distances of many times the width of an rbf, small angles
    between rows far from zero, landmarks that are nearly dependent.
    """
    approximate, true = (np.einsum("ij,ij->j", axes, moments.scatter @ axes) for moments in (single, exact))
    return not np.abs(approximate - true).max() <= _COARSE * np.abs(true).max()


@dataclass(frozen=True, eq=False)
class Whitening:
    """T with T'K T = I for the kernel K between landmarks, without the directions of small eigenvalues."""

    matrix: Array
    back: Array
    """K T, so that back @ (T' k) is the projection of k on the span of the landmarks."""
    negative: NegativeEigenvalues

    @classmethod
    def of(cls, kernel: Array, floor: EigenvalueFloor) -> Whitening:
        """The whitening of the kernel between landmarks."""
        values, vectors = eigenpairs((kernel + kernel.T) / 2)
        if not np.any(values):
            raise indistinguishable_rows()
        if not (values[-1] > 0 and np.isfinite(values[-1])):
            raise DataError("the kernel has no positive value between the landmarks: choose another kernel")
        kept = values > min(floor.least(kernel, float(values[-1])), 0.5 * float(values[-1]))
        root = np.sqrt(values[kept])
        return cls(vectors[:, kept] / root, vectors[:, kept] * root, NegativeEigenvalues.of(values))


def nystrom_axes(
    moments: FoldMoments,
    whitening: Whitening,
    n_components: int | None,
    *,
    whitened: bool,
    single: bool,
    definite: bool = True,
    centred: bool = True,
) -> Axes:
    """The axes from the moments of the kernel's columns over all rows, or of whitened features.

    The covariance of the features k(x, L) T is T' C T for C that of the columns: T is applied once, at the
    end.
    """
    weight = moments.weight
    require_sound(moments)
    if whitened:
        covariance, mean = moments.scatter / weight, moments.mean
    else:
        covariance = whitening.matrix.T @ (moments.scatter / weight) @ whitening.matrix
        mean = whitening.matrix.T @ moments.mean
    covariance = (covariance + covariance.T) / 2
    captured = float(np.trace(covariance)) + float(mean @ mean)
    total = max(moments.trace / weight - float(mean @ mean), float(np.trace(covariance)))
    apart = 0.0 if definite else moments.trace / weight - float(mean @ mean)
    require_variance(total, abs(moments.trace) / weight, single=single, apart=apart)
    values, vectors, _ = _top(covariance, n_components, definite=True)
    # The trace is exact: rows may differ in it although landmarks, or random features, do not separate them.
    eps = float(np.finfo(np.float32 if single else np.float64).eps)
    rounding = 16 * (eps**2 if centred else eps)  # sums about a point far from the mean cancel
    require_variance(float(values[0]), rounding * captured, single=None, apart=apart)
    kept = values > (ZERO_SHARE_IN_SINGLE if single else ZERO_SHARE) * values[0]
    values, coefficients = values[kept], whitening.matrix @ vectors[:, kept]
    # The trace and the sum of eigenvalues are rounded differently.
    total = max(total, float(values.sum()))
    # The scores of the landmarks: their images are back'.
    _fix_signs(coefficients, (whitening.back - mean) @ vectors[:, kept])
    return Axes(
        values * weight,
        coefficients,
        whitening.back @ mean,
        whitening.matrix @ mean,
        weight,
        total,
        moments.trace,
        captured * weight,
        whitening.negative,
    )


def held_out_error(test: FoldMoments, train: FoldMoments, whitening: Whitening, k: int | None) -> float:
    """The share of the test rows' variance about the training mean that the axes do not explain."""
    try:
        axes = nystrom_axes(train, whitening, k, whitened=False, single=False)
    except DataError:  # a kernel that does not separate the rows explains nothing
        return 1.0
    image = whitening.matrix.T @ test.mean
    middle = whitening.matrix.T @ train.mean
    squares = test.trace / test.weight - 2 * float(image @ middle) + float(middle @ middle)
    about = test.scatter / test.weight + np.outer(test.mean - train.mean, test.mean - train.mean)
    explained, within = (
        float(np.sum(axis * (about @ axis))) for axis in (axes.coefficients, whitening.matrix)
    )
    # The positive part of an indefinite kernel has a larger trace than the kernel.
    total = max(squares, within)
    return float(np.clip(1.0 - explained / total, 0.0, 1.0)) if total > 0 else 1.0


def require_sound(moments: FoldMoments) -> None:
    """Refuse sums that overflowed."""
    if not (np.isfinite(moments.scatter).all() and np.isfinite(moments.trace)):
        raise DataError(
            "values of the kernel overflow: rescale the data, or choose a smaller gamma or degree"
        )


def require_variance(
    variance: float, size: float, *, single: bool | None = False, apart: float = 0.0
) -> None:
    """Refuse rows that the kernel does not separate: a variance within the rounding of `size`.

    `apart` is the trace of the centred kernel, if that may be indefinite. Where it is negative, the kernel
    separates the rows, and there is no positive variance.
    """
    if not np.isfinite(variance):
        raise DataError(
            "values of the kernel overflow: rescale the data, or choose a smaller gamma or degree"
        )
    rounding = 1.0 if single is None else 1e-6 if single else 1e-14
    if not variance > rounding * size:
        raise no_positive_eigenvalue() if apart < -rounding * size else indistinguishable_rows()


def indistinguishable_rows() -> DataError:
    """The error for rows that a kernel does not separate."""
    return DataError(
        "every row is the same to the kernel: there is no variance to explain; is the data constant, gamma "
        "far too small, or float32 too coarse (precision: double)?"
    )


def no_positive_eigenvalue() -> DataError:
    """The error for a kernel without a positive eigenvalue."""
    return DataError(
        "the centred kernel has no positive eigenvalue on these rows: there is no component to find. It is "
        "not positive semidefinite; change its parameters, or choose another kernel"
    )


def _fix_signs(coefficients: Array, scores: Array) -> None:
    """Flip axes, in place, so that the largest score of a landmark is positive (ties: the first)."""
    largest = scores[np.argmax(np.abs(scores), axis=0), np.arange(scores.shape[1])]
    coefficients *= np.where(largest < 0, -1.0, 1.0)
