"""Eigenpairs of matrices on which the fastest driver fails, and shifts that make constant columns zero."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from streamdr import KernelPCA
from streamdr.core.linalg import eigenpairs, eigh_descending, mean_of_few, shift_near_mean


@pytest.fixture
def failing_driver(monkeypatch):
    """Let divide and conquer fail, as it does on some matrices with entries near the smallest number."""
    eigh = scipy.linalg.eigh

    def failing_eigh(*args, driver="evr", **kwargs):
        if driver == "evd":
            raise np.linalg.LinAlgError("no eigenvalues or eigenvectors were computed")
        return eigh(*args, driver=driver, **kwargs)

    monkeypatch.setattr(scipy.linalg, "eigh", failing_eigh)


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
