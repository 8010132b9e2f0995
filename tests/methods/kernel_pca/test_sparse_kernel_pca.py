"""Sparse kernel PCA against a greedy loop over whole kernel matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from narrowing import present
from plain_kernel_pca import centred, exact, kernel_matrix, sparse

import streamdr
from streamdr import SparseKernelPCA
from streamdr.errors import ParameterError

N, D = 70, 4
CASES: list[dict[str, Any]] = [
    {"kernel": "rbf", "gamma": 0.1},
    {"kernel": "rbf", "gamma": 2.0},
    {"kernel": "poly", "degree": 2, "coef0": 0.0},
    {"kernel": "poly", "degree": 3, "coef0": 1.0},
    {"kernel": "laplacian", "gamma": 0.3},
    {"kernel": "linear"},
    {"kernel": "cosine"},
]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, D)) * [3.0, 2.0, 1.4, 1.0] + 0.3


def kernel_of(model, x, **case):
    """The kernel matrix of rows; a linear kernel is about the origin of the model."""
    return kernel_matrix(x - model.origin if case["kernel"] == "linear" else x, **case)


def numbers_of(rows, landmarks):
    return [int(np.argmin(np.abs(rows - row).sum(axis=1))) for row in landmarks]


@pytest.mark.parametrize("n_candidates", [N, 10 * N])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_with_all_rows_as_candidates_it_equals_the_greedy_loop(case, n_candidates, rows):
    k = 3  # in four dimensions, the fourth axis is the same for any row
    ours = SparseKernelPCA(k, n_candidates=n_candidates, **case).fit(rows)
    picked, scores = sparse(kernel_of(ours.model_, rows, **case), k)
    assert numbers_of(rows, ours.landmarks_) == picked
    got = ours.transform(rows)
    same = np.sign(np.sum(got * scores, axis=0))
    np.testing.assert_allclose(got, scores * same, atol=1e-8 * scores.std(axis=0).max())
    np.testing.assert_allclose(ours.eigenvalues_, np.sum(scores**2, axis=0), rtol=1e-8)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_components_are_orthonormal_in_feature_space(case, rows):
    model = SparseKernelPCA(4, n_candidates=N, **case).fit(rows).model_
    among = kernel_of(model, model.landmarks, **case)
    products = model.coefficients.T @ among @ model.coefficients
    np.testing.assert_allclose(products, np.eye(4), atol=1e-9)


def test_the_first_component_is_the_feature_vector_of_one_row(rows):
    model = SparseKernelPCA(3, n_candidates=N, gamma=0.1).fit(rows).model_
    # Each component uses the rows chosen before it, to be orthogonal to them, and none after it.
    assert np.count_nonzero(model.coefficients[:, 0]) == 1
    np.testing.assert_array_equal(np.tril(model.coefficients, -1), 0.0)


def test_mapping_evaluates_no_more_kernels_than_components(rows):
    calls = []

    def counted(x, y):
        found = np.exp(-0.1 * ((x[:, None] - y) ** 2).sum(axis=2))
        calls.append(found.shape)
        return found

    ours = SparseKernelPCA(3, n_candidates=20, kernel=counted).fit(rows)
    assert present(ours.landmarks_).shape == (3, D)
    calls.clear()
    scores = ours.transform(rows)
    assert scores.shape == (N, 3)
    assert sum(a * b for a, b in calls if a > 1) == N * 3
    between = kernel_matrix(rows, ours.landmarks_, gamma=0.1)
    want = (between - ours.kernel_means_) @ ours.model_.coefficients
    np.testing.assert_allclose(scores, want, atol=1e-12)
    np.testing.assert_allclose(scores.mean(axis=0), 0.0, atol=1e-10)


def test_few_candidates_explain_nearly_as_much_as_all(rows):
    """59 candidates contain one of the best 5% with probability 0.95."""
    rng = np.random.default_rng(0)
    many = rng.normal(size=(600, D)) * [3.0, 2.0, 1.4, 1.0]
    best = SparseKernelPCA(1, n_candidates=600, gamma=0.1).fit(many).eigenvalues_[0]
    all_gains = kernel_matrix(many, gamma=0.1).var(axis=0)
    worst_of_best = np.quantile(all_gains, 0.95) * 600
    found = [SparseKernelPCA(1, gamma=0.1, random_state=seed).fit(many).eigenvalues_[0] for seed in range(30)]
    assert max(found) <= best * (1 + 1e-12)
    assert np.mean(np.array(found) >= worst_of_best) >= 0.8


def test_no_component_explains_more_than_the_dense_one(rows):
    for case in CASES:
        among = kernel_matrix(rows, **case)
        dense = exact(among)[0]
        ours = SparseKernelPCA(4, n_candidates=N, **case).fit(rows)
        assert ours.eigenvalues_[0] <= dense[0] * (1 + 1e-9)
        assert ours.eigenvalues_.sum() <= dense[:4].sum() * (1 + 1e-9)
        ratio = ours.eigenvalues_ / np.trace(centred(among))
        np.testing.assert_allclose(ours.explained_variance_ratio_, ratio, rtol=1e-8)


def test_captured_trace_is_that_of_the_span_of_the_chosen_rows(rows):
    from plain_kernel_pca import captured_by

    ours = SparseKernelPCA(5, n_candidates=N, gamma=0.1).fit(rows)
    among = kernel_matrix(rows, gamma=0.1)
    want = captured_by(among, numbers_of(rows, ours.landmarks_))
    assert ours.captured_trace_ == pytest.approx(want, rel=1e-8)
    assert ours.trace_error_ == pytest.approx(N * (1 - want), rel=1e-8)


def test_duplicates_are_picked_once(rows):
    doubled = np.repeat(rows[:6], 10, axis=0)
    ours = SparseKernelPCA(20, n_candidates=60, gamma=1.0).fit(doubled)
    landmarks = present(ours.landmarks_)
    assert 5 <= len(landmarks) <= 6, "the residual after them explains nothing"
    assert len(np.unique(landmarks, axis=0)) == len(landmarks)
    assert np.isfinite(ours.transform(rows)).all()


def test_a_weight_is_a_number_of_repetitions(rows):
    weights = np.arange(N) % 3
    weighted = SparseKernelPCA(3, n_candidates=N, gamma=0.1).fit(rows, sample_weight=weights)
    repeated = SparseKernelPCA(3, n_candidates=2 * N, gamma=0.1).fit(np.repeat(rows, weights, axis=0))
    np.testing.assert_array_equal(weighted.landmarks_, repeated.landmarks_)
    np.testing.assert_allclose(weighted.eigenvalues_, repeated.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(weighted.transform(rows), repeated.transform(rows), atol=1e-9)


def test_single_precision_chooses_rows_as_good_as_double(rows):
    single = rows.astype("f4")
    mixed = SparseKernelPCA(4, n_candidates=N, gamma=0.1).fit(single)
    double = SparseKernelPCA(4, n_candidates=N, gamma=0.1, precision="double").fit(single)
    np.testing.assert_allclose(mixed.eigenvalues_, double.eigenvalues_, rtol=1e-4)
    assert mixed.transform(single).dtype == np.float32


def rounding_of_variances(model, among, dtype):
    """How far the variances c'Sc of a model may be off, and those of its scores.

    An entry of the scatter S is a sum of N products, so it is off by N u s_i s_j at most, where s are the
    standard deviations of the kernel's columns, and u is half an eps of the type of the products. So c'Sc is
    off by N u (s'|c|)^2 at most, which is much more than c'Sc where columns cancel. Single precision is used
    only while that costs no variance more than 3/1000 of the largest. A score has fewer than 64 roundings.
    """
    single = dtype == "f4" and not model.double
    sums, values = np.finfo("f4" if single else "f8").eps, np.finfo(dtype).eps
    variances, absolute = model.eigenvalues / N, np.abs(model.coefficients)
    of_sums = N / 2 * sums * (among.std(axis=0) @ absolute) ** 2
    of_scores = 64 * values * np.sqrt(variances * np.mean((np.abs(among) @ absolute) ** 2, axis=0))
    return np.minimum(of_sums, 3e-3 * variances.max()) + of_scores


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("n_candidates", [2, N], ids=["many rows", "few rows"])
@pytest.mark.parametrize("kernel", ["linear", "cosine", "poly"])
def test_variances_along_nearly_dependent_rows_are_not_rounding_errors(kernel, n_candidates, dtype):
    rng = np.random.default_rng(4)
    rows = ((rng.normal(size=(N, 8)) * 10.0 ** -np.arange(8)) @ rng.normal(size=(8, 8))).astype(dtype)
    ours = SparseKernelPCA(6, kernel=kernel, n_candidates=n_candidates).fit(rows)
    told = ours.eigenvalues_ / N
    scores = ours.transform(rows).astype("f8")
    among = kernel_of(ours.model_, rows.astype("f8"), kernel=kernel)
    among = among[:, ours.model_.landmark_rows.astype(int)]
    allowed = rounding_of_variances(ours.model_, among, dtype)
    np.testing.assert_array_less(np.abs(np.mean(scores**2, axis=0) - told), allowed)
    np.testing.assert_array_less(np.abs(np.var(among @ ours.model_.coefficients, axis=0) - told), allowed)
    assert told.sum() <= ours.model_.total_variance * (1 + 1e-9)
    within = exact(kernel_of(ours.model_, rows.astype("f8"), kernel=kernel))[0] / N
    assert ours.model_.total_variance == pytest.approx(within.sum(), rel=1e-2)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"gamma": 0.0}, "gamma"),
        ({"n_candidates": 0}, "n_candidates"),
        ({"n_components": 0}, "n_components"),
        ({"kernel": "gaussian"}, "kernel"),
    ],
    ids=str,
)
def test_impossible_parameters_are_refused_by_name(parameters, words, rows):
    with pytest.raises(ParameterError) as refused:
        SparseKernelPCA(**{"n_components": 2, **parameters}).fit(rows)
    assert words in f"{refused.value.parameter}: {refused.value}"


def test_constant_data_is_refused():
    with pytest.raises(ValueError, match="every row is the same"):
        SparseKernelPCA(2).fit(np.full((30, 4), 3.3))


def test_a_saved_model_comes_back_to_the_bit(rows, tmp_path):
    ours = SparseKernelPCA(3, gamma=0.1).fit(rows)
    ours.save(tmp_path / "m.zarr")
    loaded = streamdr.load_model(tmp_path / "m.zarr")
    np.testing.assert_array_equal(loaded.transform(rows), ours.transform(rows))
    assert loaded.model_.approximation == "sparse"
