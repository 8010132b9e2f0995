"""Numerics in memory: formulas that several statistics and methods share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg import lapack
from scipy.special import gammaln

from streamdr.core.blocks import Array, Span, SparseRows
from streamdr.core.solving import by_slices

_TILE_BYTES = 1 << 19  # a tile of this size stays in cache while it is added to
_SLAB_ROWS = 256
_SHIFT_ROWS = 64
_SQUARES_OVERFLOW = 1e140
_SLICED_ORDER = 1024
"""The order from which eigenvectors are multiplied slice by slice: below, threads gain too little."""
_SLICE = 512
"""The number of eigenvectors in a slice. Every slice prepares the reflectors anew, so it must not be thin."""
_SMALL = 1e-140
"""Matrices with all entries below this, or any entry above its reciprocal, are scaled by LAPACK's driver."""
_REFLECTOR_BLOCK = 64
"""The number of reflectors that LAPACK applies at a time."""


def ignore_overflow() -> np.errstate:
    """Silence numpy's warnings on overflow where results are checked, and refused with a better message."""
    return np.errstate(over="ignore", invalid="ignore")


def shift_near_mean(values: Array, weights: Array | None = None) -> Array:
    """A row close to the mean of the block's rows, exact in the block's own type.

    Any shift near the mean avoids cancellation (Chan, Golub and LeVeque 1983): the sums of the shifted
    values correct for the difference to the mean. A few dozen rows are enough to find one. With weights, rows
    are taken at equal steps of the cumulative weight: a heavy row several times, a row of weight zero never.
    A constant column must be exactly zero once it is shifted, or its rounding would count as variance. So the
    mean is that of differences from one of the rows.
    """
    if weights is None:  # a view: rows may be wide
        return mean_of_few(values[:: shift_step(len(values))])
    return mean_of_few(values[shift_rows(len(values), weights)])


def shift_step(n_rows: int) -> int:
    """The distance between the few rows of a block whose mean is the shift, if rows have no weights."""
    return max(1, n_rows // _SHIFT_ROWS)


def shift_rows(n_rows: int, weights: Array | None = None) -> Array:
    """The numbers of the few rows of a block whose mean is the shift."""
    if weights is None or not n_rows:
        return np.arange(0, n_rows, shift_step(n_rows))
    total = np.cumsum(weights)
    steps = (np.arange(_SHIFT_ROWS) + 0.5) / _SHIFT_ROWS * total[-1]
    numbers: Array = np.minimum(np.searchsorted(total, steps, side="right"), n_rows - 1)
    return numbers


def mean_of_few(rows: Array) -> Array:
    """The mean of a few rows in their own type; exact in columns that are constant."""
    mean = np.empty(rows.shape[1], rows.dtype)
    # Some columns at a time, which stay in cache: rows may be as wide as memory allows.
    some = max(1, _TILE_BYTES // (len(rows) * np.dtype(np.float64).itemsize))
    for start in range(0, len(mean), some):
        columns = slice(start, start + some)
        differences = rows[:, columns].astype(np.float64, order="C")
        differences -= rows[0, columns].astype(np.float64)
        # numpy adds row after row, but would add a single column in pairs.
        alone = differences.shape[1] == 1
        sums = np.cumsum(differences, axis=0)[-1] if alone else differences.sum(axis=0)
        mean[columns] = rows[0, columns] + sums / len(rows)
    return mean


def slabs(values: Array) -> Iterator[slice]:
    """Runs of rows that stay in cache, and are few enough to be summed in the values' own precision."""
    rows = max(1, min(_SLAB_ROWS, _TILE_BYTES // max(1, values[:1].nbytes)))
    for start in range(0, len(values), rows):
        yield slice(start, start + rows)


def column_squares(values: Array) -> Array:
    """The sum of squares of each column, in double precision over slabs summed in the values' own."""
    total = np.zeros(values.shape[1])
    for slab in slabs(values):
        total += np.einsum("ij,ij->j", values[slab], values[slab])
    return total


def add_symmetric(total: Array, product: Array | SparseRows, vectors: Array, coefficients: Array) -> None:
    """`total += product + sum_i coefficients[i] * outer(vectors[i], vectors[i])`, in place, tile by tile."""
    weighted = vectors * coefficients[:, None]
    rows = max(1, _TILE_BYTES // (total.itemsize * total.shape[1]))
    for start in range(0, len(total), rows):
        tile = slice(start, start + rows)
        total[tile] += product[tile] if isinstance(product, np.ndarray) else product[tile].toarray()
        total[tile] += weighted[:, tile].T @ vectors


def fix_signs(components: Array) -> Array:
    """Flip rows, in place, so that the entry of largest magnitude in each is positive (ties: the first)."""
    for row in components:
        if row[np.argmax(np.abs(row))] < 0:
            np.negative(row, out=row)
    return components


def eigenpairs(matrix: Array) -> tuple[Array, Array]:
    """All eigenvalues of a symmetric matrix, in ascending order, and their vectors as columns.

    Divide and conquer is the fastest driver. It fails on a few matrices with entries near the smallest
    representable numbers, where the QR iteration does not.
    """
    try:
        if _is_sliced(matrix):
            return _by_slices_of_vectors(matrix)
        values, vectors = scipy.linalg.eigh(matrix, driver="evd", check_finite=False)
    except np.linalg.LinAlgError:
        values, vectors = scipy.linalg.eigh(matrix, driver="ev", check_finite=False)
    return values, vectors


def _is_sliced(matrix: Array) -> bool:
    """Whether the eigenvectors of a matrix are worth several threads, and the matrix needs no scaling."""
    if len(matrix) < _SLICED_ORDER or matrix.dtype != np.float64:
        return False
    return _SMALL < float(max(matrix.max(), -matrix.min())) < 1.0 / _SMALL


def _by_slices_of_vectors(matrix: Array) -> tuple[Array, Array]:
    """Divide and conquer in its three steps, the last one on several threads.

    The matrix is reduced to a tridiagonal one, whose eigenvectors are found by divide and conquer. They are
    multiplied by the reflectors of the reduction, which is up to two fifths of the work. Slices have a fixed
    width, so the bits do not depend on the number of threads.
    """
    order = len(matrix)
    lwork, info = lapack.dsytrd_lwork(order, lower=1)
    reduced, diagonal, off_diagonal, factors, info = lapack.dsytrd(matrix, lower=1, lwork=int(lwork))
    values, vectors, info = lapack.dstevd(diagonal, off_diagonal, compute_v=1)
    if info:
        raise np.linalg.LinAlgError("divide and conquer did not converge")
    reflectors = np.asfortranarray(reduced[1:, :-1])
    del reduced

    def turn(span: Span) -> None:
        some = np.asfortranarray(vectors[1:, span.slice])
        work = _REFLECTOR_BLOCK * (len(span) + _REFLECTOR_BLOCK + 1)
        vectors[1:, span.slice] = lapack.dormqr("L", "N", reflectors, factors, some, work, overwrite_c=1)[0]

    by_slices(turn, order, _SLICE)
    return values, vectors


def eigh_descending(matrix: Array, k: int | None = None) -> tuple[Array, Array]:
    """Eigenvalues in descending order, none below zero, and their vectors as columns.

    With `k` well below the order, only the top k are computed: a third of the work.
    """
    order = len(matrix)
    if k is not None and 2 * k < order:
        values, vectors = scipy.linalg.eigh(
            matrix, subset_by_index=[order - k, order - 1], check_finite=False
        )
    else:
        values, vectors = eigenpairs(matrix)
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1]


def orthonormal(columns: Array, against: Array | None = None) -> Array:
    """An orthonormal basis of the columns, orthogonal also to the orthonormal columns of `against`.

    Projecting twice is enough to be orthogonal to rounding (Giraud, Langou and Rozloznik 2005).
    """
    if against is not None:
        for _ in range(2):
            columns = columns - against @ (against.T @ columns)
    basis: Array = scipy.linalg.qr(columns, mode="economic", check_finite=False)[0]
    if against is not None:  # columns nearly in the span of `against` are noise now: project once more
        basis = basis - against @ (against.T @ basis)
        basis = scipy.linalg.qr(basis, mode="economic", check_finite=False)[0]
    return basis


def nystrom_eigh(subspace: list[Array], k: int, rounding: float) -> tuple[Array, Array]:
    """The top k eigenpairs of a positive semidefinite S from an orthonormal basis Q and S Q.

    `subspace` is [Q, S Q]. The list is emptied, and S Q overwritten, so that their memory is free for what is
    made of them.

    The single-pass Nystrom approximation with the stabilising shift of Tropp, Yurtsever, Udell and
    Cevher (2017, algorithm 3). It uses S Q itself, not only its projection on Q, and so is worth one
    more step of the Krylov sequence than Rayleigh-Ritz.

    It divides by the Ritz values of Q, and so by the errors of S Q where a Ritz value is no larger than
    these. The errors are `rounding` times the largest eigenvalue. So the approximation is made from the
    Ritz vectors whose values are above the root of that only. Where these are fewer than k, the Ritz pairs
    are the answer: their error is that of S Q, never more.
    """
    products, basis = subspace.pop(), subspace.pop()
    values, rotation = _ritz(basis, products)
    sound = int(np.count_nonzero(values > np.sqrt(rounding) * values[0]))
    if sound < k:
        return values[:k], basis @ rotation[:, :k]
    if sound < len(values):
        rotation = np.ascontiguousarray(rotation[:, :sound])
        basis = basis @ rotation
        products = products @ rotation
    shift = np.sqrt(len(basis)) * np.finfo(np.float64).eps * float(_norm(products))
    products += shift * basis
    core = basis.T @ products
    del basis
    lower = scipy.linalg.cholesky((core + core.T) / 2, lower=True, check_finite=False)
    factor = scipy.linalg.solve_triangular(
        lower, products.T, lower=True, overwrite_b=True, check_finite=False
    )
    del products
    # The left factor is short and wide: its small Gram matrix would square the condition, so the SVD.
    vectors, singular, _ = scipy.linalg.svd(
        factor.T, full_matrices=False, overwrite_a=True, check_finite=False
    )
    return np.maximum(singular[:k] ** 2 - shift, 0.0), vectors[:, :k]


def ritz_residuals(basis: Array, products: Array, k: int) -> tuple[Array, Array]:
    """The top k Ritz values of S on an orthonormal basis Q, and the norms of S u - theta u.

    An eigenvalue of S lies within each residual of its Ritz value, and, once the residual is below the
    gap to the others, within residual^2 / gap (Parlett 1998, theorem 11.7.1).
    """
    values, rotation = _ritz(basis, products)
    values, rotation = values[:k], rotation[:, :k]
    residual = products @ rotation - (basis @ rotation) * values
    return values, _norm(residual, axis=0)


def _norm(values: Array, axis: int | None = None) -> Array:
    """The root of the sum of squares, of values whose squares overflow too."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest < _SQUARES_OVERFLOW:
        return np.asarray(np.linalg.norm(values, axis=axis))
    return np.asarray(largest * np.linalg.norm(values / largest, axis=axis))


def _ritz(basis: Array, products: Array) -> tuple[Array, Array]:
    """The Ritz values in descending order, none below zero, and the vectors in terms of the basis."""
    core = basis.T @ products
    return eigh_descending((core + core.T) / 2)


def double_centred(gram: Array, direction: Array) -> Array:
    """(I - uu') G (I - uu') for u the unit vector along `direction`, as a new matrix, tile by tile."""
    unit = direction / (np.linalg.norm(direction) or 1.0)
    image = gram @ unit
    half = image - (unit @ image / 2) * unit
    centred = gram.copy()
    rows = max(1, _TILE_BYTES // (gram.itemsize * gram.shape[1]))
    for start in range(0, len(gram), rows):
        tile = slice(start, start + rows)
        centred[tile] -= np.outer(unit[tile], half)
        centred[tile] -= np.outer(half[tile], unit)
    return centred


def orthonormalise_rows(rows: Array) -> None:
    """Orthonormalise few, long, nearly orthogonal rows in place by repeated Cholesky QR.

    Twice is as good as Householder while the condition number is below 1e8 (Yamamoto et al. 2015), and
    scaling the Gram matrix first takes the rows' lengths out of that number.
    """
    columns = max(1, 8 * _TILE_BYTES // (rows.itemsize * max(1, len(rows))))
    identity = np.eye(len(rows))
    for _ in range(3):
        gram = rows @ rows.T
        if np.abs(gram - identity).max(initial=0.0) < 1e-14 * len(rows):
            return
        lengths = np.sqrt(np.diag(gram))
        lower = scipy.linalg.cholesky(gram / np.outer(lengths, lengths), lower=True, check_finite=False)
        inverse = scipy.linalg.solve_triangular(lower, identity, lower=True, check_finite=False) / lengths
        for start in range(0, rows.shape[1], columns):
            tile = slice(start, start + columns)
            rows[:, tile] = inverse @ rows[:, tile]


def product_rounding(order: int, product_dtype: np.dtype[Any]) -> float:
    """The error of a covariance of that order, relative to its largest eigenvalue, by its products' type.

    Products in single precision leave errors of a few of its epsilons, however many rows are summed (the
    sums are double); double precision leaves the classic order x epsilon.
    """
    if product_dtype == np.float32:
        return 8 * float(np.finfo(np.float32).eps)
    return max(order, 8) * float(np.finfo(np.float64).eps)


def numerical_rank(eigenvalues: Array, order: int, product_dtype: np.dtype[Any]) -> int:
    """The number of eigenvalues of a covariance above the rounding error of its products."""
    tolerance = product_rounding(order, product_dtype)
    return int(np.count_nonzero(eigenvalues > tolerance * eigenvalues[0]))


def constant_columns(variance: Array, mean: Array) -> Array:
    """The indices of columns whose variance is no more than the rounding of their mean."""
    rounding = 4 * np.finfo(np.float64).eps * np.abs(mean)
    # For a very large mean, the square of the rounding overflows. The column then counts as constant.
    with np.errstate(over="ignore"):
        return np.flatnonzero(variance <= rounding**2)


def minka_dimension(spectrum: Array, n_samples: float) -> int:
    """The number of components with the largest evidence (Minka 2000, equation 77).

    `spectrum` holds all eigenvalues, descending. Candidates are 1 to len - 1 and stop at the rank. The unit
    of the eigenvalues adds the same to all evidence: the largest is 1 here, so that nothing overflows.
    """
    spectrum = spectrum / spectrum[0]
    positive = spectrum[spectrum > spectrum[0] * len(spectrum) * np.finfo(np.float64).eps]
    candidates = range(1, min(len(positive), len(spectrum) - 1) + 1)
    evidence = [_minka_evidence(spectrum, k, n_samples) for k in candidates]
    return 1 + int(np.argmax(evidence)) if evidence else 1


def _minka_evidence(spectrum: Array, k: int, n_samples: float) -> float:
    d = len(spectrum)
    noise = max(float(spectrum[k:].mean()), float(np.finfo(np.float64).tiny))
    dimensions = d - np.arange(k)
    log_prior = float(np.sum(gammaln(dimensions / 2) - np.log(np.pi) * dimensions / 2)) - k * np.log(2)
    log_signal = -n_samples / 2 * float(np.log(spectrum[:k]).sum())
    log_noise = -n_samples * (d - k) / 2 * np.log(noise)
    free = d * k - k * (k + 1) / 2
    log_volume = np.log(2 * np.pi) * (free + k) / 2
    smoothed = np.where(np.arange(d) < k, spectrum, noise)
    log_hessian = 0.0
    with np.errstate(divide="ignore"):  # equal eigenvalues
        for i in range(k):
            rest = slice(i + 1, d)
            log_hessian += float(
                np.sum(
                    np.log(spectrum[i] - spectrum[rest])
                    + np.log(1 / smoothed[rest] - 1 / smoothed[i])
                    + np.log(n_samples)
                )
            )
    evidence = log_prior + log_signal + log_noise + log_volume - log_hessian / 2
    return float(evidence - k / 2 * np.log(n_samples))
