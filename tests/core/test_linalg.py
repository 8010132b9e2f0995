"""Eigenpairs of matrices on which the fastest driver fails, and shifts that make constant columns zero."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from streamdr import KernelPCA
from streamdr.core import linalg
from streamdr.core.linalg import eigenpairs, eigh_descending, mean_of_few, shift_near_mean
from streamdr.core.solving import by_slices, solving_with


@pytest.fixture
def failing_driver(monkeypatch):
    """Let divide and conquer fail, as it does on some matrices with entries near the smallest number."""
    eigh = scipy.linalg.eigh

    def failing_eigh(*args, driver="evr", **kwargs):
        if driver == "evd":
            raise np.linalg.LinAlgError("no eigenvalues or eigenvectors were computed")
        return eigh(*args, driver=driver, **kwargs)

    monkeypatch.setattr(scipy.linalg, "eigh", failing_eigh)


@pytest.fixture
def thin_slices(monkeypatch):
    """Multiply the eigenvectors of small matrices slice by slice too."""
    monkeypatch.setattr(linalg, "_SLICED_ORDER", 2)
    monkeypatch.setattr(linalg, "_SLICE", 7)


def clusters(n_rows: int) -> np.ndarray:
    """Rows in clusters so far apart that a narrow kernel between them is nearly zero."""
    rng = np.random.default_rng(0)
    return 0.3 * rng.normal(size=(n_rows, 5)) + 10 * rng.normal(size=(9, 5))[rng.integers(9, size=n_rows)]


def test_another_driver_is_used_where_divide_and_conquer_fails(failing_driver):
    rows = clusters(60)
    matrix = np.exp(-0.6 * np.sum((rows[:, None] - rows) ** 2, axis=2))
    values, vectors = eigenpairs(matrix)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix), atol=1e-13)
    np.testing.assert_allclose((vectors * values) @ vectors.T, matrix, atol=1e-13)
    np.testing.assert_allclose(eigh_descending(matrix)[0], np.maximum(values[::-1], 0.0), atol=1e-13)


def test_a_fit_gives_the_same_result_with_the_other_driver(failing_driver, monkeypatch):
    rows = clusters(300)
    method = KernelPCA(4, gamma=0.6, approximation="nystrom", n_landmarks=40)
    found = method.fit(rows).eigenvalues_
    monkeypatch.undo()
    np.testing.assert_allclose(found, method.fit(rows).eigenvalues_, rtol=1e-10)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("weighted", [True, False])
def test_a_constant_column_is_exactly_zero_once_it_is_shifted(dtype, weighted):
    rng = np.random.default_rng(0)
    for n_rows in (2, 3, 7, 50, 130, 1000):
        row = rng.normal(size=40).astype(dtype)
        rows, weights = np.tile(row, (n_rows, 1)), rng.uniform(0.1, 2.0, n_rows)
        assert np.array_equal(shift_near_mean(rows, weights if weighted else None), row)


SYMMETRIC = {
    "random": lambda rng, n: rng.normal(size=(n, n)),
    "low rank": lambda rng, n: np.outer(rng.normal(size=n), rng.normal(size=n)),
    "repeated eigenvalues": lambda rng, n: np.eye(n) + np.ones((n, n)),
    "diagonal": lambda rng, n: np.diag(rng.normal(size=n)),
    "zero": lambda rng, n: np.zeros((n, n)),
    "graded": lambda rng, n: rng.normal(size=(n, n)) * np.logspace(-8, 8, n),
    "huge": lambda rng, n: 1e150 * rng.normal(size=(n, n)),
    "tiny": lambda rng, n: 1e-150 * rng.normal(size=(n, n)),
    "float32": lambda rng, n: rng.normal(size=(n, n)).astype(np.float32),
}


@pytest.mark.parametrize("order", [2, 3, 14, 61])
@pytest.mark.parametrize("kind", SYMMETRIC)
def test_eigenvectors_by_slices_are_eigenvectors_with_any_number_of_workers(thin_slices, kind, order):
    half = SYMMETRIC[kind](np.random.default_rng(order), order)
    matrix = half + half.T
    before, found = matrix.copy(), []
    for workers in (1, 2, 8):
        with solving_with(workers):
            found.append(eigenpairs(matrix))
    np.testing.assert_array_equal(matrix, before)
    values, vectors = found[0]
    for others in found[1:]:
        np.testing.assert_array_equal(others[0], values)
        np.testing.assert_array_equal(others[1], vectors)
    scale = np.abs(matrix).max() or 1.0
    rounding = order * np.finfo(matrix.dtype).eps
    np.testing.assert_allclose(values / scale, np.linalg.eigvalsh(matrix / scale), rtol=0, atol=64 * rounding)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(order), rtol=0, atol=64 * rounding)
    products = (matrix / scale) @ vectors
    np.testing.assert_allclose(products, vectors * (values / scale), rtol=0, atol=64 * rounding)


def test_eigenvectors_of_a_large_matrix_are_those_of_the_driver():
    half = np.random.default_rng(0).normal(size=(1030, 1030))
    matrix = half @ half.T
    values, vectors = scipy.linalg.eigh(matrix, driver="evd")
    with solving_with(2):
        sliced = eigenpairs(matrix)
    np.testing.assert_array_equal(sliced[0], values)
    np.testing.assert_allclose(sliced[1], vectors, rtol=0, atol=1e-13)


@pytest.mark.parametrize("workers", [1, 3])
def test_every_slice_is_visited_and_an_error_is_raised(workers):
    seen = np.zeros(50, np.int64)

    def visit(span):
        seen[span.slice] += 1
        if span.start == 21:
            raise ValueError("slice 3")

    with solving_with(workers), pytest.raises(ValueError, match="slice 3"):
        by_slices(visit, 50, 7)
    assert (seen[:28] == 1).all()
    assert (seen <= 1).all()


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("n_cols", [1, 2, 200, 1025, 8200])
def test_the_mean_of_a_few_rows_adds_one_row_after_another(dtype, n_cols):
    rng = np.random.default_rng(n_cols)
    for n_rows in (1, 3, 9, 64, 128, 130):
        rows = (rng.normal(size=(n_rows, n_cols)) + rng.choice([0.0, 1e3, -1e7], n_cols)).astype(dtype)
        for layout in (rows, rows[::-1], np.asfortranarray(rows), np.repeat(rows, 3, axis=1)[:, ::3]):
            total = np.zeros(n_cols)
            for row in layout:
                total += row.astype(np.float64) - layout[0].astype(np.float64)
            expected = (layout[0] + total / n_rows).astype(dtype)
            assert np.array_equal(mean_of_few(layout), expected)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_stays_in_its_column(value):
    rows = np.ones((70, 3000), np.float32)
    rows[0, 7] = rows[35, 2999] = value
    with np.errstate(invalid="ignore"):
        found = shift_near_mean(rows)
    assert list(np.flatnonzero(~np.isfinite(found))) == [7, 2999]
