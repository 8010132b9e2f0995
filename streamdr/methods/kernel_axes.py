"""Principal axes in a kernel's space, from a whole kernel matrix or from moments of features. In memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from streamdr.accumulators.kernel import FoldMoments, KernelMoments
from streamdr.blocks import Array, Block, Span
from streamdr.errors import DataError
from streamdr.features import Features
from streamdr.linalg import eigenpairs
from streamdr.methods.kernel_kinds import Pool

NOTHING = 1e-12
"""An eigenvalue below this part of the largest is zero: it is dropped, never divided by."""
NOTHING_IN_SINGLE = 1e-6
_COARSE = 3e-3
"""What single precision may make of a variance, as a part of the largest, before double is taken instead."""
_DENSE_ROWS = 500
_DENSE_SHARE = 10


class Axes(NamedTuple):
    """Axes as sums of landmarks' images, and their variances times the number of rows."""

    eigenvalues: Array
    coefficients: Array
    kernel_means: Array
    mean_coefficients: Array
    n_samples: float
    total_variance: float
    trace: float
    captured: float
    negative: Negative

    def fields(self) -> dict[str, Any]:
        """What a model keeps."""
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


class Negative(NamedTuple):
    """Eigenvalues below zero, which a kernel that is positive semidefinite does not have."""

    number: int = 0
    share: float = 0.0
    positive: float = 0.0
    """The sum of those above zero, where any is below."""

    @classmethod
    def of(cls, eigenvalues: Array) -> Negative:
        """Those that are no rounding."""
        size = np.abs(eigenvalues)
        below = eigenvalues < -1e-10 * size.max(initial=0.0)
        if not below.any():
            return cls()
        above = float(size[eigenvalues > 0].sum())
        return cls(int(below.sum()), float(size[below].sum() / size.sum()), above)


def exact_axes(kernel: Array, weights: Array, n_components: int | None, *, definite: bool) -> Axes:
    """From the kernel between all rows, which is overwritten: K~ = K - 1K - K1 + 1K1, K~ a = lambda a.

    Weights count rows as if they were there that many times: the eigenproblem is that of W^1/2 K~ W^1/2. The
    coefficients of an axis sum to zero, so that centring new rows takes the columns' means only.
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
    # What is left of rows that are alike is the rounding of what was taken off.
    if definite:
        require_variance(total, size)
    values, vectors, negative = _top(kernel, n_components, definite=definite)
    if not definite:
        require_variance(float(values[0]) / weight, size, apart=total)
        total = max(total, negative.positive / weight)
    # A kernel far larger than what its rows differ by leaves its own rounding, too.
    kept = values > max(NOTHING * values[0], np.finfo(np.float64).eps * size * weight)
    values, vectors = values[kept], vectors[:, kept]
    total = max(total, float(values.sum()) / weight)  # a trace is rounded otherwise than what adds up to it
    # Eigenvectors of tiny eigenvalues are orthogonal to the null vector only as far as these stand above
    # rounding, and the coefficients divide by their roots.
    vectors = vectors - np.outer(roots, roots @ vectors / weight)
    coefficients = roots[:, None] * vectors / np.sqrt(values)
    _fix_signs(coefficients, vectors / roots[:, None])  # by scores: a weight turns none around
    return Axes(values, coefficients, means, weights / weight, weight, total, trace, trace, negative)


def _top(matrix: Array, k: int | None, *, definite: bool) -> tuple[Array, Array, Negative]:
    """The largest eigenvalues with their vectors, and what there is below zero."""
    order = len(matrix)
    if definite and k is not None and order > _DENSE_ROWS and _DENSE_SHARE * k < order:
        start = np.random.default_rng(0).standard_normal(order)  # the same every time
        try:
            values, vectors = eigsh(matrix, k, which="LA", v0=start)
            return values[::-1], vectors[:, ::-1], Negative()
        except ArpackNoConvergence:
            pass  # a crowd of nearly equal eigenvalues: the long way
    values, vectors = eigenpairs(matrix)
    negative = Negative() if definite else Negative.of(values)
    return values[::-1][:k], vectors[:, ::-1][:, :k], negative


class Floor(NamedTuple):
    """Directions in which landmarks have too little are left out: T would blow up the rounding in them.

    Sums are taken about the kernel's means, and lose a part of the kernel less its means. But values are
    rounded before means are taken off. With m landmarks, a largest eigenvalue s of their kernel and c of the
    same less its means, values of size s/m carry noise of eps s/m, which T makes a variance of
    (eps s/m)^2 / t in a direction of eigenvalue t: below a millionth of the largest variance, c/m, where
    t > 1e6 eps^2 s^2 / (m c).
    """

    overall: float
    centred: float
    rounded: float

    @classmethod
    def of(cls, *, single: bool, whitened: bool) -> Floor:
        """What is safe. Features that are whitened as they come lose nothing in sums."""
        if whitened:
            return cls(1e-13, 0.0, 0.0)
        eps = 2 * float(np.finfo(np.float32 if single else np.float64).eps)
        return cls(1e-13, 1e-6 if single else 1e-8, 1e6 * eps**2)

    def least(self, kernel: Array, largest: float) -> float:
        """The least eigenvalue that is kept."""
        centred = _centred_norm(kernel) if self.centred else 0.0
        rounded = self.rounded * largest**2 / (len(kernel) * centred) if centred > 0 else 0.0
        return max(self.overall * largest, self.centred * centred, rounded)


def _centred_norm(kernel: Array) -> float:
    """The largest eigenvalue of the kernel between landmarks, less its means."""
    means = kernel.mean(axis=0)
    centred = kernel - means - means[:, None] + means.mean()
    return float(np.abs(_top(centred, 1, definite=True)[0][0]))


def in_both(features: Features, origin: Array, pool: Pool) -> tuple[FoldMoments, FoldMoments]:
    """The moments of some rows' features in single and in double precision."""
    rows = pool.rows.astype(np.float32)
    block = Block(Span(0, len(pool)), rows, weights=pool.weights, rows=pool.numbers)
    both = [KernelMoments(features, [origin], double=double) for double in (False, True)]
    for moments in both:
        moments.update(block)
    single, exact = (moments.moments() for moments in both)
    return single, exact


def too_coarse(single: FoldMoments, exact: FoldMoments, axes: Array) -> bool:
    """Whether single precision gives rows other variances along axes than double precision does.

    How much is lost depends on rows, kernel and axes: distances of many times the width of an rbf, small
    angles between rows far from zero, landmarks that are nearly dependent.
    """
    found, true = (np.einsum("ij,ij->j", axes, moments.scatter @ axes) for moments in (single, exact))
    return not np.abs(found - true).max() <= _COARSE * np.abs(true).max()


@dataclass(frozen=True, eq=False)
class Whitening:
    """T with T'K T = I for the kernel K between landmarks, less the directions that they hardly have."""

    matrix: Array
    back: Array
    """K T, so that back @ (T' k) is what of k lies in the landmarks' span."""
    negative: Negative

    @classmethod
    def of(cls, kernel: Array, floor: Floor) -> Whitening:
        """Of the kernel between landmarks."""
        values, vectors = eigenpairs((kernel + kernel.T) / 2)
        if not np.any(values):
            raise same_rows()
        if not (values[-1] > 0 and np.isfinite(values[-1])):
            raise DataError("the kernel has no positive value between the landmarks: choose another kernel")
        kept = values > min(floor.least(kernel, float(values[-1])), 0.5 * float(values[-1]))
        root = np.sqrt(values[kept])
        return cls(vectors[:, kept] / root, vectors[:, kept] * root, Negative.of(values))


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
    """From the moments of the kernel's columns over all rows, or of features that are whitened already.

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
    # The trace is the kernel's own: it may tell rows apart that landmarks, or random features, do not.
    eps = float(np.finfo(np.float32 if single else np.float64).eps)
    rounding = 16 * (eps**2 if centred else eps)  # sums that are not about a point near the mean cancel
    require_variance(float(values[0]), rounding * captured, single=None, apart=apart)
    kept = values > (NOTHING_IN_SINGLE if single else NOTHING) * values[0]
    values, coefficients = values[kept], whitening.matrix @ vectors[:, kept]
    total = max(total, float(values.sum()))  # a trace is rounded otherwise than what adds up to it
    # The landmarks' own scores: the images of landmarks are back'.
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
    """The share of some rows' variance, about the mean of others, that the others' axes do not explain."""
    try:
        axes = nystrom_axes(train, whitening, k, whitened=False, single=False)
    except DataError:  # a kernel that does not tell the rows apart explains nothing of them
        return 1.0
    image = whitening.matrix.T @ test.mean
    middle = whitening.matrix.T @ train.mean
    squares = test.trace / test.weight - 2 * float(image @ middle) + float(middle @ middle)
    about = test.scatter / test.weight + np.outer(test.mean - train.mean, test.mean - train.mean)
    explained, within = (
        float(np.sum(axis * (about @ axis))) for axis in (axes.coefficients, whitening.matrix)
    )
    # A kernel that is not positive semidefinite has more squares in its positive part than in all of it.
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
    """Refuse rows that the kernel does not tell apart: a variance that is no more than rounding of its size.

    `apart` is the trace of a kernel that need not be positive semidefinite, less its means. Where that is
    below zero, rows are told apart, and have no variance all the same.
    """
    if not np.isfinite(variance):
        raise DataError(
            "values of the kernel overflow: rescale the data, or choose a smaller gamma or degree"
        )
    rounding = 1.0 if single is None else 1e-6 if single else 1e-14
    if not variance > rounding * size:
        raise nothing_positive() if apart < -rounding * size else same_rows()


def same_rows() -> DataError:
    """For rows that a kernel does not tell apart."""
    return DataError(
        "every row is the same to the kernel: there is no variance to explain; is the data constant, gamma "
        "far too small, or float32 too coarse (precision: double)?"
    )


def nothing_positive() -> DataError:
    """For a kernel that is not positive semidefinite, and has nothing to show for it."""
    return DataError(
        "the kernel has no positive eigenvalue on these rows, less their means: there is no component to "
        "find. It is not positive semidefinite; change its parameters, or choose another kernel"
    )


def _fix_signs(coefficients: Array, scores: Array) -> None:
    """Flip axes, in place, so that the largest score of a landmark is positive (ties: the first)."""
    largest = scores[np.argmax(np.abs(scores), axis=0), np.arange(scores.shape[1])]
    coefficients *= np.where(largest < 0, -1.0, 1.0)
