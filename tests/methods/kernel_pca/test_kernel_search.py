"""The choice of a kernel by the held-out variance that its components explain, in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fits import stored
from narrowing import checked, present
from plain_kernel_pca import held_out_errors, inverse_root, kernel_matrix

import streamdr
from streamdr import KernelPCA
from streamdr.core.execution import Execution
from streamdr.data import open_source
from streamdr.engine import fitting
from streamdr.methods import kernel_pca
from streamdr.methods.kernel_pca.model import KernelPCAModel
from streamdr.statistics.splits import fold_of

N, D, K, FOLDS = 150, 4, 3, 4
GRID = {
    "rbf": {"gamma": [0.02, 0.2, 2.0]},
    "poly": {"degree": [2, 3], "coef0": [0.0, 1.0]},
    "laplacian": {"gamma": [0.1, 0.5]},
    "linear": {},
    "cosine": {},
}
CANDIDATES: dict[str, dict[str, Any]] = {
    "rbf gamma=0.02": {"kernel": "rbf", "gamma": 0.02},
    "rbf gamma=0.2": {"kernel": "rbf", "gamma": 0.2},
    "rbf gamma=2": {"kernel": "rbf", "gamma": 2.0},
    "poly gamma=0.25 degree=2 coef0=0": {"kernel": "poly", "degree": 2, "coef0": 0.0},
    "poly gamma=0.25 degree=2 coef0=1": {"kernel": "poly", "degree": 2, "coef0": 1.0},
    "poly gamma=0.25 degree=3 coef0=0": {"kernel": "poly", "degree": 3, "coef0": 0.0},
    "poly gamma=0.25 degree=3 coef0=1": {"kernel": "poly", "degree": 3, "coef0": 1.0},
    "laplacian gamma=0.1": {"kernel": "laplacian", "gamma": 0.1},
    "laplacian gamma=0.5": {"kernel": "laplacian", "gamma": 0.5},
    "linear": {"kernel": "linear"},
    "cosine": {"kernel": "cosine"},
}
TWENTY = {
    "rbf": {"gamma": [float(gamma) for gamma in np.geomspace(0.01, 10, 10)]},
    "laplacian": {"gamma": [0.01, 0.1, 1.0, 10.0]},
    "poly": {"degree": [2, 3], "coef0": [0.0, 1.0]},
    "linear": {},
    "cosine": {},
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, D)) * [3.0, 2.0, 1.4, 1.0] + 0.5


def searched(rows, grid=GRID, **parameters):
    given: dict[str, Any] = {"kernel": {"search": grid, "folds": FOLDS}, **parameters}
    return KernelPCA(K, **given).fit(rows)


def plain_errors(rows, landmarks, folds, kernel):
    features = kernel_matrix(rows, landmarks, **kernel) @ inverse_root(kernel_matrix(landmarks, **kernel))
    diagonal = np.array([kernel_matrix(row[None], **kernel)[0, 0] for row in rows])
    return held_out_errors(features, diagonal - np.sum(features**2, axis=1), folds, K)


def test_candidates_are_all_combinations_of_the_grid(rows):
    found = searched(rows)
    assert sorted(found.candidate_kernels_) == sorted(CANDIDATES)
    assert found.candidate_errors_.shape == (len(CANDIDATES), FOLDS)


@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("seed", [0, 3])
def test_errors_are_those_of_the_plain_computation(rows, every, seed):
    landmarks = rows[::every]
    found = searched(rows, landmarks=landmarks, random_state=seed)
    folds = fold_of(np.arange(N), FOLDS, seed)
    assert len(np.unique(folds)) == FOLDS
    for name, errors in zip(found.candidate_kernels_, found.candidate_errors_, strict=True):
        want = plain_errors(rows, landmarks, folds, CANDIDATES[name])
        np.testing.assert_allclose(errors, want, rtol=1e-7, atol=1e-9, err_msg=name)


def test_errors_with_chosen_landmarks(rows):
    """All candidates share the landmarks, and so the distances."""
    found = searched(rows, n_landmarks=40, random_state=1)
    folds = fold_of(np.arange(N), FOLDS, 1)
    assert found.landmarks_.shape == (40, D)
    for name, errors in zip(found.candidate_kernels_, found.candidate_errors_, strict=True):
        want = plain_errors(rows, found.landmarks_, folds, CANDIDATES[name])
        np.testing.assert_allclose(errors, want, rtol=1e-7, atol=1e-9, err_msg=name)


def test_the_best_kernel_has_the_smallest_mean_error_and_is_fitted(rows):
    found = searched(rows, n_landmarks=40)
    best = found.candidate_kernels_[int(np.argmin(found.candidate_errors_.mean(axis=1)))]
    winner = CANDIDATES[best]
    assert found.model_.kernel == winner["kernel"]
    again = KernelPCA(K, approximation="nystrom", landmarks=found.landmarks_, **winner).fit(rows)
    np.testing.assert_allclose(found.eigenvalues_, again.eigenvalues_, rtol=1e-9)
    scale = again.transform(rows).std()
    np.testing.assert_allclose(found.transform(rows), again.transform(rows), atol=1e-9 * scale)
    assert found.captured_trace_ == pytest.approx(again.captured_trace_, rel=1e-9)


def test_a_parameter_outside_of_the_grid_is_that_of_the_method(rows):
    found = searched(rows, {"poly": {"coef0": [0.0, 1.0]}, "rbf": {}}, gamma=0.3, degree=2)
    names = ["poly gamma=0.3 degree=2 coef0=0", "poly gamma=0.3 degree=2 coef0=1", "rbf gamma=0.3"]
    assert sorted(found.candidate_kernels_) == names


def test_nearly_equal_values_are_separate_candidates(rows):
    found = searched(rows, {"rbf": {"gamma": [0.12345678, 0.12345679]}}, n_landmarks=20)
    assert found.candidate_errors_.shape == (2, FOLDS)
    assert len(set(found.candidate_errors_[:, 0])) == 2


def test_a_kernel_that_is_not_positive_semidefinite_does_not_explain_too_much(rows):
    found = searched(rows, {"sigmoid": {"gamma": [0.2]}, "rbf": {"gamma": [0.02]}}, n_landmarks=40)
    errors = dict(zip(found.candidate_kernels_, found.candidate_errors_, strict=True))
    assert (errors["sigmoid gamma=0.2 coef0=1"] > 0.05).all()
    assert (found.candidate_errors_ < 1).all()


def test_a_narrow_kernel_fails_on_held_out_rows_and_a_wide_one_is_linear():
    """Two concentric circles, and one component."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 300)
    radius = np.where(np.arange(300) % 2, 1.0, 3.0) + 0.02 * rng.normal(size=300)
    ring = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    grid = {"linear": {}, "rbf": {"gamma": [1e-4, 50.0]}}
    found = KernelPCA(1, kernel={"search": grid, "folds": 5}, n_landmarks=60).fit(ring)
    kernels, means = present(found.candidate_kernels_), present(found.candidate_errors_).mean(axis=1)
    errors = dict(zip(kernels, means, strict=True))
    # A narrow kernel is nearly zero between rows: one component explains almost nothing of others.
    assert errors["rbf gamma=50"] > 0.9
    # A wide kernel is nearly linear.
    assert errors["rbf gamma=0.0001"] == pytest.approx(errors["linear"], abs=0.01)


def test_twenty_kernels_read_the_data_once(rows, tmp_path, monkeypatch):
    monkeypatch.setattr("streamdr.core.blocks.BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr("streamdr.core.blocks.LARGEST_BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr("streamdr.core.blocks.SEGMENT_BYTES", 1 << 11)
    path = stored(tmp_path / "x.zarr", rows, (16, 3))
    method = kernel_pca.KernelPCA(K, kernel={"search": TWENTY, "folds": FOLDS}, n_landmarks=30)
    done = fitting.fit(method, open_source(path), Execution(workers=2))
    kernels = checked(KernelPCAModel, done.model).candidate_kernels
    assert len(present(kernels)) == 20
    assert done.bytes_read == rows.nbytes


@pytest.mark.parametrize("chunks", [(20, 4), (7, 3)])
def test_a_sample_that_is_a_part_of_the_rows_is_not_read_twice(tmp_path, monkeypatch, chunks):
    """The rows of the sample count in the moments like all others, each in its fold."""
    monkeypatch.setattr("streamdr.methods.kernel_pca.kernel_pca._SAMPLE_ROWS", 40)
    many = np.random.default_rng(3).normal(size=(2000, D)) * [3.0, 2.0, 1.4, 1.0]
    path = stored(tmp_path / "x.zarr", many, chunks)
    method = kernel_pca.KernelPCA(K, kernel={"search": GRID, "folds": FOLDS}, n_landmarks=15, random_state=2)
    done = fitting.fit(method, open_source(path), Execution(workers=2))
    assert done.bytes_read == many.nbytes
    model, folds = checked(KernelPCAModel, done.model), fold_of(np.arange(2000), FOLDS, 2)
    kernels, every_error = present(model.candidate_kernels), present(model.candidate_errors)
    landmarks = present(model.landmarks)
    assert model.n_samples == 2000
    for name, errors in zip(kernels, every_error, strict=True):
        want = plain_errors(many, landmarks, folds, CANDIDATES[name])
        np.testing.assert_allclose(errors, want, rtol=1e-7, atol=1e-9, err_msg=name)
    best = kernels[int(np.argmin(every_error.mean(axis=1)))]
    again = KernelPCA(K, approximation="nystrom", landmarks=landmarks, **CANDIDATES[best]).fit(many)
    np.testing.assert_allclose(model.eigenvalues, again.eigenvalues_, rtol=1e-8)


def test_folds_do_not_depend_on_how_rows_are_stored(rows, tmp_path, monkeypatch):
    monkeypatch.setattr("streamdr.core.blocks.BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr("streamdr.core.blocks.LARGEST_BLOCK_BYTES", 1 << 10)
    here = searched(rows, landmarks=rows[::4])
    for number, chunks in enumerate([(16, 4), (7, 3), (150, 1)]):
        there = searched(stored(tmp_path / f"{number}.zarr", rows, chunks), landmarks=rows[::4])
        np.testing.assert_allclose(there.candidate_errors_, here.candidate_errors_, rtol=1e-9, atol=1e-12)


def test_the_errors_are_in_the_summary_and_in_a_saved_model(rows, tmp_path):
    found = searched(rows, n_landmarks=40)
    text = str(found.model_.summary())
    assert found.model_.kernel in text
    found.save(tmp_path / "m.zarr")
    loaded = streamdr.load_model(tmp_path / "m.zarr")
    assert list(loaded.candidate_kernels_) == list(found.candidate_kernels_)
    np.testing.assert_array_equal(loaded.candidate_errors_, found.candidate_errors_)


def test_single_precision_chooses_as_double_does(rows):
    single = searched(rows.astype("f4"), landmarks=rows[::5])
    double = searched(rows, landmarks=rows[::5])
    assert single.model_.kernel == double.model_.kernel
    np.testing.assert_allclose(single.candidate_errors_, double.candidate_errors_, rtol=1e-3, atol=1e-4)
