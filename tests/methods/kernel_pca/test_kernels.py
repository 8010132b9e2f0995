"""Kernels on blocks against scikit-learn and against differences of rows, also on difficult data."""

from __future__ import annotations

import numpy as np
import pytest
from plain_kernel_pca import kernel_matrix as plain
from sklearn.metrics.pairwise import chi2_kernel, cosine_similarity, pairwise_kernels

from streamdr.core.blocks import widen
from streamdr.core.row_functions import function_diagonal, function_matrix
from streamdr.methods.kernel_pca.kernels import KERNELS, Kernel, ShiftedRows, fill, kernel_matrix

D = 6
PARAMETERS = [
    Kernel("linear"),
    Kernel("poly", gamma=0.3, degree=1, coef0=0.5),
    Kernel("poly", gamma=0.3, degree=2, coef0=0.0),
    Kernel("poly", gamma=0.3, degree=3, coef0=1.0),
    Kernel("poly", gamma=0.1, degree=4, coef0=-1.0),
    Kernel("poly", gamma=0.001, degree=7, coef0=1.0),
    Kernel("sigmoid", gamma=0.2, coef0=-0.5),
    Kernel("rbf", gamma=0.1),
    Kernel("rbf", gamma=50.0),
    Kernel("laplacian", gamma=0.4),
    Kernel("cosine"),
]
HOSTILE = {
    "ordinary": lambda rng: rng.normal(size=(25, D)),
    "big offset": lambda rng: rng.normal(size=(25, D)) + 1e6,
    "float32": lambda rng: rng.normal(size=(25, D)).astype("f4"),
    "float32 offset": lambda rng: (rng.normal(size=(25, D)) + 1e3).astype("f4"),
    "float16": lambda rng: rng.normal(size=(25, D)).astype("f2"),
    "bytes": lambda rng: rng.integers(180, 256, size=(25, D), dtype=np.uint8),
    "one row": lambda rng: rng.normal(size=(1, D)),
    "one feature": lambda rng: rng.normal(size=(25, 1)),
    "duplicates": lambda rng: np.repeat(rng.normal(size=(5, D)) + 100.0, 5, axis=0),
    "a row of zeros": lambda rng: np.vstack([np.zeros(D), rng.normal(size=(24, D))]),
    "lengths of many sizes": lambda rng: rng.normal(size=(25, D)) * np.geomspace(1e-6, 1, 25)[:, None],
    "tiny": lambda rng: 1e-150 * rng.normal(size=(25, D)),
}


def data(kind):
    return HOSTILE[kind](np.random.default_rng(0))


def sides(x, y):
    """Both sets of rows as in a block, shifted by the mean of the first."""
    origin = np.asarray(x, np.float64).mean(axis=0)
    return ShiftedRows(widen(x), origin), ShiftedRows(widen(y), origin)


def values(kernel, x, y=None):
    return kernel_matrix(kernel, *sides(x, x if y is None else y))


def expected(kernel, x, y=None):
    """The expected kernel; a linear kernel is that of the shifted rows."""
    if kernel.name == "linear":
        origin = np.asarray(x, np.float64).mean(axis=0).astype(widen(x).dtype).astype(np.float64)
        x, y = x - origin, None if y is None else y - origin
    return plain(x, y, kernel.name, kernel.gamma, kernel.degree, kernel.coef0)


def test_all_kernels_are_tested():
    assert {kernel.name for kernel in PARAMETERS} == set(KERNELS)


@pytest.mark.parametrize("kernel", PARAMETERS, ids=str)
def test_values_are_those_of_scikit_learn(kernel):
    x = np.random.default_rng(0).normal(size=(30, D))
    y = np.random.default_rng(1).normal(size=(20, D))
    given = {"gamma": kernel.gamma, "degree": kernel.degree, "coef0": kernel.coef0}
    if kernel.name == "linear":
        np.testing.assert_allclose(values(kernel, x, y), expected(kernel, x, y), rtol=1e-11, atol=1e-12)
        return
    theirs = pairwise_kernels(x, y, metric=kernel.name, filter_params=True, **given)
    np.testing.assert_allclose(values(kernel, x, y), theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("kernel", PARAMETERS, ids=str)
def test_values_on_difficult_data_are_those_of_differences(kernel, kind):
    """As accurate as the type of the rows, for any offset: distances do not cancel."""
    x = data(kind)
    got, want = values(kernel, x), expected(kernel, x)
    eps = np.finfo(widen(x).dtype).eps
    if kernel.name in ("rbf", "laplacian"):
        # An error in the distance is multiplied by gamma; distances beyond a few 1/gamma are all zero.
        rows = np.asarray(x, np.float64)
        farthest = np.abs(rows - rows.mean(axis=0)).max() ** (2 if kernel.name == "rbf" else 1) * x.shape[1]
        tolerance = 16 * eps * (1 + kernel.gamma * farthest)
    elif kernel.name == "sigmoid":
        tolerance = 32 * eps * (1 + kernel.gamma * np.abs(plain(x, kernel="linear")).max())
    else:
        tolerance = 64 * eps * np.abs(want).max()
    assert got.dtype == widen(x).dtype
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("name", ["rbf", "laplacian"])
@pytest.mark.parametrize("gamma", [1e-3, 1.0, 1e4])
def test_no_squared_distance_is_negative(kind, name, gamma):
    got = values(Kernel(name, gamma=gamma), data(kind))
    assert (got <= 1).all()
    assert (got >= 0).all()


@pytest.mark.parametrize("gamma", [1e-3, 1.0, 100.0])
def test_duplicate_rows_have_a_distance_of_zero(gamma):
    x = data("duplicates")
    got = values(Kernel("rbf", gamma=gamma), x)
    same = np.repeat(np.repeat(np.eye(5, dtype=bool), 5, axis=0), 5, axis=1)
    np.testing.assert_allclose(got[same], 1.0, atol=1e-14 * (1 + gamma * D * 10))


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("kernel", PARAMETERS, ids=str)
def test_the_diagonal_is_that_of_the_matrix(kernel, kind):
    x = data(kind)
    left, _ = sides(x, x)
    want = np.diag(expected(kernel, x))
    eps = np.finfo(widen(x).dtype).eps
    scale = np.abs(want).max()
    if kernel.name == "sigmoid":
        scale = 1 + kernel.gamma * np.abs(plain(x, kernel="linear")).max()
    np.testing.assert_allclose(kernel.diagonal(left), want, rtol=0, atol=64 * eps * scale)


def test_cosine_of_a_row_of_zeros_is_zero_for_any_offset_of_the_others():
    x = np.vstack([np.zeros(D), np.random.default_rng(0).normal(size=(24, D)) + 1e3])
    for rows in (x, x.astype("f4")):
        got = values(Kernel("cosine"), rows)
        np.testing.assert_allclose(got, cosine_similarity(x), atol=1e-12 if rows is x else 1e-5)
        assert (got[0] == 0).all()


@pytest.mark.parametrize("kind", ["ordinary", "float32", "bytes"])
def test_kernels_that_share_products_equal_those_computed_alone(kind):
    """Up to rounding: a single kernel adds its terms within the product."""
    x = data(kind)
    left, right = sides(x, x[:7])
    together = [np.empty((len(x), 7), left.moved.dtype) for _ in PARAMETERS]
    fill(PARAMETERS, left, right, together)
    for kernel, out in zip(PARAMETERS, together, strict=True):
        alone = kernel_matrix(kernel, left, right)
        scale = max(1.0, np.abs(alone).max()) * (1 + kernel.gamma * left.squares.max())
        eps = np.finfo(alone.dtype).eps
        np.testing.assert_allclose(out, alone, rtol=0, atol=64 * eps * scale, err_msg=str(kernel))


def test_rows_are_not_modified():
    x = data("ordinary")
    before = x.copy()
    for kernel in PARAMETERS:
        values(kernel, x)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("n_right", [1, 4, D, 9])
def test_a_users_function_may_take_blocks_or_pairs(n_right):
    """For any shapes: with as many rows as features, the two must not be confused."""
    rng = np.random.default_rng(0)
    x, y = rng.random((9, D)), rng.random((n_right, D))
    inner = x @ y.T
    functions = {
        "blocks of scikit-learn": (chi2_kernel, chi2_kernel(x, y)),
        "blocks": (lambda a, b: (a @ b.T + 1) ** 2, (inner + 1) ** 2),
        "pairs": (lambda a, b: (a @ b + 1) ** 2, (inner + 1) ** 2),
        "pairs by dot": (lambda a, b: np.dot(a, b) ** 2, inner**2),
        "pairs by sum": (lambda a, b: np.minimum(a, b).sum(), np.minimum(x[:, None], y).sum(axis=2)),
        "pairs by norm": (
            lambda a, b: np.exp(-np.linalg.norm(a - b)),
            np.exp(-np.linalg.norm(x[:, None] - y, axis=2)),
        ),
    }
    for name, (function, want) in functions.items():
        np.testing.assert_allclose(function_matrix(function, x, y), want, rtol=1e-12, err_msg=name)


def test_a_users_function_of_each_row_and_itself():
    x = np.random.default_rng(0).random((150, D))
    np.testing.assert_allclose(function_diagonal(chi2_kernel, x), 1.0, rtol=1e-15)
    np.testing.assert_allclose(function_diagonal(lambda a, b: a @ b, x), np.sum(x**2, axis=1), rtol=1e-13)
