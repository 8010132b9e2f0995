"""Pre-images by fixed points and by kernel ridge regression against plain loops and scikit-learn."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import sklearn.decomposition
from narrowing import present
from plain_kernel_pca import fixed_point, kernel_matrix, ridge
from sklearn.datasets import load_digits

from streamdr import KernelPCA

GAMMA = 0.3
N = 90


@pytest.fixture(scope="module")
def rows():
    """Rows about a curved line in three dimensions."""
    rng = np.random.default_rng(0)
    t = rng.uniform(-2, 2, N)
    return np.column_stack([t, t**2 - 1, np.sin(2 * t)]) + 0.1 * rng.normal(size=(N, 3))


@pytest.fixture(scope="module")
def noisy(rows):
    return rows[:25] + 0.3 * np.random.default_rng(1).normal(size=(25, 3))


def feature_weights(model, scores):
    """The coefficients, over the landmarks, of mean + sum_k score_k V_k.

    The mean image is projected on the span of the landmarks: its kernels with them are `kernel_means`.
    """
    among = kernel_matrix(model.landmarks, gamma=GAMMA)
    mean = np.linalg.lstsq(among, model.kernel_means, rcond=1e-12)[0]
    return scores @ model.coefficients.T + mean


@pytest.mark.parametrize("approximation", ["exact", "nystrom"])
@pytest.mark.parametrize("k", [3, 8])
def test_denoising_is_mikas_fixed_point_from_the_row(approximation, k, rows, noisy):
    given: dict[str, Any] = {"gamma": GAMMA, "approximation": approximation, "n_landmarks": 30}
    ours = KernelPCA(k, **given).fit(rows)
    weights, landmarks = feature_weights(ours.model_, ours.transform(noisy)), present(ours.landmarks_)
    want = np.array(
        [fixed_point(weight, landmarks, GAMMA, start) for weight, start in zip(weights, noisy, strict=True)]
    )
    np.testing.assert_allclose(ours.model_.denoise(noisy), want, atol=1e-4)


def test_denoising_does_not_copy_the_landmarks_again():
    rows = np.random.default_rng(0).normal(size=(40, 40_000))
    model = KernelPCA(3, gamma=1e-5, approximation="exact").fit(rows).model_
    model.transform(rows[:1])
    tracemalloc.start()
    model.denoise(rows[:1])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < model.landmarks.nbytes


def distance(weights, points, found):
    """|phi(z) - sum_j w_j phi(p_j)|^2, without the terms that do not depend on z."""
    between = np.exp(-GAMMA * np.sum((found[:, None] - points) ** 2, axis=2))
    return 1.0 - 2.0 * np.sum(weights * between, axis=1)


@pytest.mark.parametrize("approximation", ["exact", "nystrom"])
def test_inverse_transform_finds_fixed_points_as_near_as_from_the_rows(approximation, rows):
    ours = KernelPCA(6, gamma=GAMMA, approximation=approximation, n_landmarks=40).fit(rows)
    scores = ours.transform(rows)
    found = ours.inverse_transform(scores)
    weights, landmarks = feature_weights(ours.model_, scores), present(ours.landmarks_)
    again = np.array(
        [fixed_point(weight, landmarks, GAMMA, z, steps=1) for weight, z in zip(weights, found, strict=True)]
    )
    np.testing.assert_allclose(found, again, atol=1e-4)
    from_rows = np.array(
        [fixed_point(weight, landmarks, GAMMA, x) for weight, x in zip(weights, rows, strict=True)]
    )
    gap = distance(weights, landmarks, found) - distance(weights, landmarks, from_rows)
    assert (gap < 1e-5).mean() > 0.9
    assert np.linalg.norm(found - rows, axis=1).mean() < 0.3


def test_all_components_reconstruct_every_row(rows):
    ours = KernelPCA(gamma=GAMMA, approximation="exact").fit(rows)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(rows)), rows, atol=1e-3)
    np.testing.assert_allclose(ours.model_.denoise(rows), rows, atol=1e-3)


@pytest.mark.parametrize("alpha", [1.0, 1e-3])
@pytest.mark.parametrize(
    "case",
    [
        {"kernel": "rbf", "gamma": GAMMA},
        {"kernel": "poly", "degree": 2, "coef0": 1.0},
        {"kernel": "linear"},
        {"kernel": "cosine"},
        {"kernel": "sigmoid", "gamma": 0.02, "coef0": 0.0},
    ],
    ids=str,
)
def test_ridge_equals_scikit_learns(case, alpha, rows, noisy):
    given = {**case, "fit_inverse_transform": True, "alpha": alpha}
    k = 2  # some of these kernels have few components
    theirs = sklearn.decomposition.KernelPCA(k, eigen_solver="dense", **given).fit(rows)
    ours = KernelPCA(k, approximation="exact", **given).fit(rows)
    for scores in (theirs.transform(rows), theirs.transform(noisy)):
        want = theirs.inverse_transform(scores)
        np.testing.assert_allclose(ours.inverse_transform(scores), want, atol=1e-8 * np.abs(rows).max())
    np.testing.assert_allclose(
        ours.model_.denoise(noisy), theirs.inverse_transform(theirs.transform(noisy)), atol=1e-7
    )


def test_ridge_equals_the_plain_one(rows, noisy):
    case: dict[str, Any] = {"kernel": "laplacian", "gamma": 0.4}
    ours = KernelPCA(4, approximation="exact", fit_inverse_transform=True, alpha=0.1, **case).fit(rows)
    want = ridge(ours.transform(rows), rows, ours.transform(noisy), 0.1, **case)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(noisy)), want, atol=1e-8)


def test_ridge_with_landmarks_is_fitted_to_the_landmarks(rows, noisy):
    case: dict[str, Any] = {"kernel": "poly", "degree": 2}
    given: dict[str, Any] = {
        "approximation": "nystrom",
        "n_landmarks": 40,
        "fit_inverse_transform": True,
        "alpha": 0.1,
    }
    ours = KernelPCA(4, **given, **case).fit(rows)
    landmarks = present(ours.landmarks_)
    # The kernel of scores has the gamma of the kernel of rows, as in scikit-learn.
    want = ridge(ours.transform(landmarks), landmarks, ours.transform(noisy), 0.1, gamma=1 / 3, **case)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(noisy)), want, atol=1e-8)


def test_a_kernel_without_fixed_points_needs_fit_inverse_transform(rows):
    ours = KernelPCA(3, kernel="poly", approximation="exact").fit(rows)
    with pytest.raises((ValueError, AttributeError), match="fit_inverse_transform"):
        ours.inverse_transform(ours.transform(rows))


def test_single_precision_stays_single(rows):
    single = rows.astype("f4")
    ours = KernelPCA(4, gamma=GAMMA, approximation="nystrom", n_landmarks=40).fit(single)
    back = ours.inverse_transform(ours.transform(single))
    assert back.dtype == np.float32
    double = KernelPCA(4, gamma=GAMMA, approximation="nystrom", landmarks=present(ours.landmarks_)).fit(rows)
    error = np.linalg.norm(back - double.inverse_transform(double.transform(rows)), axis=1)
    assert np.median(error) < 1e-3


# Denoising digits

MARGIN = 0.65
"""The largest ratio of the squared errors of kernel PCA and linear PCA, both at their best (0.52 to 0.56)."""


def digits(seed):
    """Clean rows to fit, other rows with noise, and the same without: pixels from 0 to 1."""
    rng = np.random.default_rng(seed)
    values = load_digits().data / 16
    values = values[rng.permutation(len(values))]
    clean = values[600:800]
    return values[:600], clean + 0.25 * rng.normal(size=clean.shape), clean


@pytest.mark.parametrize("approximation", ["exact", "nystrom"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_digits_are_denoised_better_than_by_linear_pca(seed, approximation):
    train, noisy, clean = digits(seed)
    pca = sklearn.decomposition.PCA().fit(train)
    scores = pca.transform(noisy)
    linear = min(
        np.mean((scores[:, :k] @ pca.components_[:k] + pca.mean_ - clean) ** 2) for k in range(1, 64)
    )
    errors = []
    for gamma in (0.1, 0.2):
        for k in (64, 200):
            ours = KernelPCA(k, gamma=gamma, approximation=approximation, n_landmarks=400).fit(train)
            errors.append(np.mean((ours.model_.denoise(noisy) - clean) ** 2))
    assert min(errors) < MARGIN * linear
    assert linear < 0.6 * np.mean((noisy - clean) ** 2), "linear PCA must denoise, too"
