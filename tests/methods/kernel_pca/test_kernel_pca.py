"""Kernel PCA against scikit-learn, and against plain formulas over whole kernel matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn.decomposition
from narrowing import present
from plain_kernel_pca import (
    Nystrom,
    captured_by,
    centred,
    descending,
    exact,
    exact_scores,
    kernel_matrix,
    rp_cholesky,
)
from scipy.linalg import subspace_angles
from sklearn.metrics.pairwise import chi2_kernel, pairwise_kernels

import streamdr
from streamdr import KernelPCA
from streamdr.errors import ParameterError
from streamdr.methods.kernel_pca.kernels import KernelName

N, D = 80, 5
CASES: dict[str, dict[str, Any]] = {
    "linear": {"kernel": "linear"},
    "rbf": {"kernel": "rbf"},
    "rbf wide": {"kernel": "rbf", "gamma": 0.01},
    "rbf narrow": {"kernel": "rbf", "gamma": 2.0},
    "homogeneous": {"kernel": "poly", "degree": 2, "coef0": 0.0},
    "inhomogeneous": {"kernel": "poly", "degree": 3, "coef0": 1.0},
    "poly": {"kernel": "poly", "degree": 4, "coef0": 0.5, "gamma": 0.3},
    "sigmoid": {"kernel": "sigmoid", "gamma": 0.001, "coef0": 0.0},
    "laplacian": {"kernel": "laplacian", "gamma": 0.3},
    "cosine": {"kernel": "cosine"},
}


@pytest.fixture(scope="module")
def rows():
    """Rows with axes of unequal lengths, so that eigenvalues are well separated."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, D)) * [3.0, 2.0, 1.4, 1.0, 0.7] + 0.5


@pytest.fixture(scope="module")
def new():
    rng = np.random.default_rng(1)
    return rng.normal(size=(30, D)) * [3.0, 2.0, 1.4, 1.0, 0.7] + 0.5


def theirs(case, rows, k):
    """The eigenvalues and the transform of scikit-learn, which has no name for a laplacian kernel."""
    parameters = dict(CASES[case])
    if parameters["kernel"] != "laplacian":
        given = sklearn.decomposition.KernelPCA(k, **parameters, eigen_solver="dense").fit(rows)
        return given.eigenvalues_, given.transform
    gamma = parameters["gamma"]
    among = pairwise_kernels(rows, metric="laplacian", gamma=gamma)
    given = sklearn.decomposition.KernelPCA(k, kernel="precomputed", eigen_solver="dense").fit(among)
    return given.eigenvalues_, lambda new: given.transform(
        pairwise_kernels(new, rows, metric="laplacian", gamma=gamma)
    )


def spread(scores):
    """The largest standard deviation of a column, relative to which differences are compared."""
    return np.sqrt((scores**2).mean(axis=0)).max()


def same_scores(got, want, tolerance):
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * spread(want))


# Exact


@pytest.mark.parametrize("case", CASES)
def test_exact_equals_scikit_learns(case, rows, new):
    k = 4
    ours = KernelPCA(k, approximation="exact", **CASES[case]).fit(rows)
    eigenvalues, transform = theirs(case, rows, k)
    np.testing.assert_allclose(ours.eigenvalues_, eigenvalues, rtol=1e-8)
    for given in (rows, new):
        want = transform(given)
        got = ours.transform(given)
        same_scores(np.abs(got), np.abs(want), 1e-8)
        same_scores(got, want, 1e-8)  # with the same signs
    assert ours.captured_trace_ == 1.0
    assert ours.model_.approximation == "exact"


@pytest.mark.parametrize("case", CASES)
def test_exact_equals_the_plain_one_in_all_components(case, rows, new):
    among = kernel_matrix(rows, **CASES[case])
    values, coefficients = exact(among)
    ours = KernelPCA(approximation="exact", **CASES[case]).fit(rows)
    sure = values > 1e-9 * values[0]  # smaller eigenvalues may be rounding errors
    np.testing.assert_allclose(ours.eigenvalues_[: sure.sum()], values[sure], atol=1e-12 * values[0])
    want = exact_scores(among, kernel_matrix(new, rows, **CASES[case]), 4)
    same_scores(ours.transform(new)[:, :4], want, 1e-8)
    vectors = ours.eigenvectors_[:, :4]
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(4), atol=1e-9)
    normalised = ours.model_.coefficients[:, :4]  # (n lambda) a.a = 1
    np.testing.assert_allclose(ours.eigenvalues_[:4] * np.sum(normalised**2, axis=0), 1.0, rtol=1e-9)
    np.testing.assert_allclose(
        np.abs(normalised), np.abs(coefficients[:, :4]), atol=1e-8 * np.abs(coefficients).max()
    )


def test_attributes_are_named_as_scikit_learns(rows):
    ours = KernelPCA(3, approximation="exact", gamma=0.1).fit(rows)
    given = sklearn.decomposition.KernelPCA(3, kernel="rbf", gamma=0.1).fit(rows)
    assert ours.gamma_ == given.gamma_
    np.testing.assert_allclose(ours.eigenvectors_, given.eigenvectors_, atol=1e-8)
    assert ours.n_features_in_ == D
    assert list(ours.get_feature_names_out()) == ["kernelpca0", "kernelpca1", "kernelpca2"]


def test_explained_variance_is_that_of_the_scores(rows):
    for approximation in ("exact", "nystrom"):
        ours = KernelPCA(3, gamma=0.1, approximation=approximation, n_landmarks=40).fit(rows)
        variance = ours.transform(rows).var(axis=0)
        np.testing.assert_allclose(ours.explained_variance_, variance, rtol=1e-9)
        total = np.trace(centred(kernel_matrix(rows, gamma=0.1))) / N
        if approximation == "exact":
            np.testing.assert_allclose(ours.explained_variance_ratio_, variance / total, rtol=1e-9)


def test_linear_kernel_gives_the_scores_of_pca(rows, new):
    pca = sklearn.decomposition.PCA().fit(rows)
    for approximation in ("exact", "nystrom"):
        ours = KernelPCA(kernel="linear", approximation=approximation).fit(rows)
        assert ours.eigenvalues_.shape == (D,)
        np.testing.assert_allclose(ours.explained_variance_, pca.explained_variance_ * (N - 1) / N, rtol=1e-9)
        same_scores(np.abs(ours.transform(new)), np.abs(pca.transform(new)), 1e-9)


@pytest.mark.parametrize("case", ["rbf", "inhomogeneous", "sigmoid"])
def test_a_precomputed_matrix_gives_the_result_of_the_rows(case, rows, new):
    among, between = kernel_matrix(rows, **CASES[case]), kernel_matrix(new, rows, **CASES[case])
    given = sklearn.decomposition.KernelPCA(4, kernel="precomputed", eigen_solver="dense").fit(among)
    ours = KernelPCA(4, kernel="precomputed", approximation="exact").fit(among)
    np.testing.assert_allclose(ours.eigenvalues_, given.eigenvalues_, rtol=1e-8)
    same_scores(ours.transform(between), given.transform(between), 1e-8)
    same_scores(ours.transform(among), given.transform(among), 1e-8)


def test_cross_validation_splits_a_precomputed_matrix_both_ways():
    assert KernelPCA(kernel="precomputed").__sklearn_tags__().input_tags.pairwise
    assert not KernelPCA(kernel="rbf").__sklearn_tags__().input_tags.pairwise


def intersection(x, y):
    """A kernel of two rows, as scikit-learn's estimators accept them."""
    return np.minimum(x, y).sum()


@pytest.mark.parametrize("approximation", ["exact", "nystrom"])
def test_a_users_function_of_blocks_or_of_pairs(approximation):
    rng = np.random.default_rng(0)
    rows, new = rng.random((60, D)) ** [1, 2, 3, 4, 5], rng.random((20, D))
    for function in (chi2_kernel, intersection):
        metric = (
            (lambda x, y, f=function: float(np.squeeze(f([x], [y])))) if function is chi2_kernel else function
        )
        given = sklearn.decomposition.KernelPCA(3, kernel="precomputed", eigen_solver="dense")
        given.fit(pairwise_kernels(rows, metric=metric))
        want = given.transform(pairwise_kernels(new, rows, metric=metric))
        ours = KernelPCA(3, kernel=function, approximation=approximation, n_landmarks=60).fit(rows)
        np.testing.assert_allclose(ours.eigenvalues_, given.eigenvalues_, rtol=1e-8)
        same_scores(np.abs(ours.transform(new)), np.abs(want), 1e-8)


# Nystrom


@pytest.mark.parametrize("landmarks", ["rpcholesky", "uniform"])
@pytest.mark.parametrize(
    "case",
    [
        {"kernel": "rbf", "gamma": 1e-3},
        {"kernel": "rbf", "gamma": 0.1},
        {"kernel": "rbf", "gamma": 1.0},
        {"kernel": "poly", "degree": 2, "coef0": 0.0},
        {"kernel": "poly", "degree": 3, "coef0": 1.0},
        {"kernel": "laplacian", "gamma": 1e-3},
        {"kernel": "laplacian", "gamma": 1.0},
        {"kernel": "linear"},
    ],
    ids=str,
)
def test_as_many_landmarks_as_rows_are_exact(case, landmarks, rows, new):
    k = 4
    ours = KernelPCA(k, approximation="nystrom", n_landmarks=N, landmarks=landmarks, **case).fit(rows)
    whole = KernelPCA(k, approximation="exact", **case).fit(rows)
    np.testing.assert_allclose(ours.eigenvalues_, whole.eigenvalues_, rtol=1e-10)
    for given in (rows, new):
        want = whole.transform(given)
        got = ours.transform(given)
        # Where rows are dependent, landmarks are fewer than rows, and signs may differ.
        got = got * np.sign(np.sum(got * want, axis=0))
        same_scores(got, want, 1e-10)
    assert ours.captured_trace_ == pytest.approx(1.0, abs=1e-10)
    assert ours.trace_error_ == pytest.approx(0.0, abs=1e-9 * N)


@pytest.mark.parametrize("gamma", [1e-3, 10.0, 1e3])
def test_products_of_all_scores_are_the_centred_kernel(gamma, rows):
    """Where eigenvalues are nearly equal, single scores are not determined, but their products are."""
    want = centred(kernel_matrix(rows, gamma=gamma))
    for approximation in ("exact", "nystrom"):
        ours = KernelPCA(gamma=gamma, approximation=approximation, n_landmarks=N).fit(rows)
        scores = ours.transform(rows)
        np.testing.assert_allclose(scores @ scores.T, want, atol=1e-10)
        np.testing.assert_allclose(ours.eigenvalues_, exact(want)[0][: len(ours.eigenvalues_)], atol=1e-10)


@pytest.mark.parametrize("approximation", ["exact", "nystrom"])
@pytest.mark.parametrize("case", [case for case in CASES if case != "sigmoid"])
def test_products_of_scores_of_new_rows_are_centred_kernels(case, approximation, rows, new):
    """In all components, including the smallest, where large terms must not cancel."""
    among, between = kernel_matrix(rows, **CASES[case]), kernel_matrix(new, rows, **CASES[case])
    want = between - among.mean(axis=0) - between.mean(axis=1)[:, None] + among.mean()
    ours = KernelPCA(approximation=approximation, n_landmarks=N, **CASES[case]).fit(rows)
    got = ours.transform(new) @ ours.transform(rows).T
    np.testing.assert_allclose(got, want, atol=1e-8 * np.abs(want).max())


@pytest.mark.parametrize("case", [case for case in CASES if case != "sigmoid"])
def test_given_landmarks_give_the_plain_nystrom_result(case, rows, new):
    chosen = rows[::4]
    plain = Nystrom(kernel_matrix(rows, chosen, **CASES[case]), kernel_matrix(chosen, **CASES[case]))
    ours = KernelPCA(3, approximation="nystrom", landmarks=chosen, **CASES[case]).fit(rows)
    np.testing.assert_allclose(ours.eigenvalues_, plain.eigenvalues[:3], rtol=1e-9)
    for given in (rows, new):
        want = plain.scores(kernel_matrix(given, chosen, **CASES[case]), 3)
        same_scores(ours.transform(given), want, 1e-8)
    diagonal = np.diag(kernel_matrix(rows, **CASES[case]))
    assert ours.captured_trace_ == pytest.approx(plain.captured(diagonal), rel=1e-8)
    error = diagonal.sum() - np.sum(plain.features**2)
    assert ours.trace_error_ == pytest.approx(error, rel=1e-8, abs=1e-8 * diagonal.sum())


@pytest.mark.parametrize("precision", ["mixed", "double"])
@pytest.mark.parametrize(
    "case",
    [
        {"kernel": "rbf", "gamma": 0.01},
        {"kernel": "rbf", "gamma": 0.1},
        {"kernel": "rbf", "gamma": 1.0},
        {"kernel": "laplacian", "gamma": 0.02},
        {"kernel": "poly", "degree": 3},
        {"kernel": "poly", "degree": 2, "coef0": 0.0},
        {"kernel": "linear"},
        {"kernel": "cosine"},
    ],
    ids=str,
)
def test_many_rows_and_few_landmarks_give_the_plain_nystrom_result(case, precision, new):
    """With many rows, columns are summed first and whitened at the end."""
    rows = np.random.default_rng(5).normal(size=(700, D)) * [3.0, 2.0, 1.4, 1.0, 0.7] + 0.5
    chosen = rows[:700:20]
    plain = Nystrom(kernel_matrix(rows, chosen, **case), kernel_matrix(chosen, **case))
    ours = KernelPCA(3, approximation="nystrom", landmarks=chosen, precision=precision, **case).fit(rows)
    np.testing.assert_allclose(ours.eigenvalues_, plain.eigenvalues[:3], rtol=1e-9)
    same_scores(ours.transform(new), plain.scores(kernel_matrix(new, chosen, **case), 3), 1e-8)
    diagonal = np.array([kernel_matrix(row[None], **case)[0, 0] for row in rows])
    assert ours.captured_trace_ == pytest.approx(plain.captured(diagonal), rel=1e-8)
    error = diagonal.sum() - np.sum(plain.features**2)
    assert ours.trace_error_ == pytest.approx(error, rel=1e-8, abs=1e-8 * diagonal.sum())


def test_landmarks_need_not_be_rows(rows):
    chosen = np.random.default_rng(3).normal(size=(25, D)) * 2
    plain = Nystrom(kernel_matrix(rows, chosen, gamma=0.1), kernel_matrix(chosen, gamma=0.1))
    ours = KernelPCA(3, approximation="nystrom", gamma=0.1, landmarks=chosen).fit(rows)
    np.testing.assert_allclose(ours.eigenvalues_, plain.eigenvalues[:3], rtol=1e-9)
    np.testing.assert_allclose(present(ours.landmarks_), chosen, rtol=1e-15)
    assert ours.n_landmarks_ == 25


@pytest.mark.parametrize("landmarks", ["rpcholesky", "uniform", "kmeans"])
def test_the_model_is_that_of_its_landmarks(landmarks, rows, new):
    ours = KernelPCA(3, approximation="nystrom", gamma=0.1, n_landmarks=20, landmarks=landmarks).fit(rows)
    chosen = present(ours.landmarks_)
    assert chosen.shape == (20, D)
    plain = Nystrom(kernel_matrix(rows, chosen, gamma=0.1), kernel_matrix(chosen, gamma=0.1))
    np.testing.assert_allclose(ours.eigenvalues_, plain.eigenvalues[:3], rtol=1e-9)
    same_scores(ours.transform(new), plain.scores(kernel_matrix(new, chosen, gamma=0.1), 3), 1e-8)
    assert ours.captured_trace_ == pytest.approx(plain.captured(np.ones(N)), rel=1e-8)
    if landmarks != "kmeans":
        picked = [int(np.argmin(np.abs(rows - row).sum(axis=1))) for row in chosen]
        np.testing.assert_array_equal(rows[picked], chosen)
        assert len(set(picked)) == 20


def test_scores_follow_the_documented_formula(rows, new):
    for approximation in ("exact", "nystrom"):
        model = KernelPCA(3, gamma=0.1, approximation=approximation, n_landmarks=20).fit(rows).model_
        between = kernel_matrix(new, model.landmarks, gamma=0.1)
        want = (between - model.kernel_means) @ model.coefficients
        same_scores(model.transform(new), want, 1e-12)
        among = kernel_matrix(model.landmarks, rows, gamma=0.1)
        np.testing.assert_allclose(model.kernel_means, among.mean(axis=1), rtol=1e-12)
        scores = model.transform(model.landmarks)
        assert (scores[np.argmax(np.abs(scores), axis=0), [0, 1, 2]] > 0).all()


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("gamma", [0.02, 0.1])
def test_a_fraction_of_the_trace_is_captured(share, gamma, rows):
    ours = KernelPCA(2, approximation="nystrom", gamma=gamma, n_landmarks=share).fit(rows)
    assert ours.captured_trace_ >= share - 1e-9
    among = kernel_matrix(rows, gamma=gamma)
    drawn = [rp_cholesky(among, N, np.random.default_rng(seed)) for seed in range(5)]
    enough = [next(m for m in range(1, N) if captured_by(among, pivots[:m]) >= share) for pivots in drawn]
    assert min(enough) - 4 <= ours.n_landmarks_ <= max(enough) + 4, "and no more landmarks than necessary"
    picked = [int(np.argmin(np.abs(rows - row).sum(axis=1))) for row in present(ours.landmarks_)]
    assert ours.captured_trace_ == pytest.approx(captured_by(among, picked), rel=1e-8)
    assert ours.trace_error_ == pytest.approx(N * (1 - captured_by(among, picked)), rel=1e-7)


def test_more_random_features_are_more_accurate(rows):
    whole = descending(centred(kernel_matrix(rows, gamma=0.1)))[0][:4]
    errors = []
    for m in (50, 400, 3200):
        found = [
            KernelPCA(4, gamma=0.1, approximation="random_features", n_landmarks=m, random_state=seed)
            .fit(rows)
            .eigenvalues_
            for seed in range(4)
        ]
        errors.append(np.sqrt(np.mean((np.array(found) / whole - 1) ** 2)))
    assert errors[0] > 1.7 * errors[1] > 2.9 * errors[2]  # by the square root of eight, up to chance
    assert errors[2] < 0.05


# Derived parameters of kernels


def test_gamma_by_sigma_and_by_the_median(rows):
    assert KernelPCA(2, sigma=2.0).fit(rows).gamma_ == pytest.approx(1 / 8)
    assert KernelPCA(2).fit(rows).gamma_ == 1 / D
    differences = np.linalg.norm(rows[:, None] - rows, axis=2)[np.triu_indices(N, 1)]
    found = KernelPCA(2, gamma="median").fit(rows).gamma_
    assert found == pytest.approx(1 / (2 * np.median(differences) ** 2), rel=0.05)


# Weights, types, difficult rows


@pytest.mark.parametrize("approximation", ["exact", "nystrom"])
def test_a_weight_is_a_number_of_repetitions(approximation, rows, new):
    weights = np.arange(N) % 3
    chosen = rows[weights > 0][::2]
    given: dict[str, Any] = {"approximation": approximation, "gamma": 0.1, "landmarks": chosen}
    if approximation == "exact":
        given.pop("landmarks")
    weighted = KernelPCA(3, **given).fit(rows, sample_weight=weights)
    repeated = KernelPCA(3, **given).fit(np.repeat(rows, weights, axis=0))
    np.testing.assert_allclose(weighted.eigenvalues_, repeated.eigenvalues_, rtol=1e-9)
    same_scores(weighted.transform(new), repeated.transform(new), 1e-8)
    assert weighted.captured_trace_ == pytest.approx(repeated.captured_trace_, rel=1e-9)


@pytest.mark.parametrize("case", ["rbf", "inhomogeneous", "laplacian", "linear", "cosine"])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_single_precision_spans_nearly_what_double_does(case, offset, rows):
    """Kernels of float32 rows are accurate to a few 1e-7: the three axes move by at most 1e-3 radians."""
    if offset and case in ("inhomogeneous", "linear", "cosine"):
        offset = 5.0  # these kernels depend on the offset, and a large one dominates them
    single = (rows + offset).astype("f4")
    given: dict[str, Any] = {"approximation": "nystrom", "n_landmarks": 30, **CASES[case]}
    mixed = KernelPCA(3, **given).fit(single)
    landmarks = present(mixed.landmarks_).astype("f8")
    double = KernelPCA(3, precision="double", landmarks=landmarks, **given).fit(single)
    angles = subspace_angles(mixed.transform(single).astype("f8"), double.transform(single).astype("f8"))
    assert angles.max() < 1e-3
    np.testing.assert_allclose(mixed.eigenvalues_, double.eigenvalues_, rtol=1e-4)
    assert mixed.transform(single).dtype == np.float32


@pytest.mark.parametrize("offset", [0.0, 30.0, 100.0])
@pytest.mark.parametrize(
    "case",
    [{"kernel": "poly", "degree": 2, "gamma": 1e-3}, {"kernel": "linear"}, {"kernel": "rbf", "gamma": 0.01}],
    ids=str,
)
def test_single_precision_far_from_the_origin_is_not_noise(case, offset):
    """A constant part of a kernel costs digits: the error is at most one percent."""
    rows = np.random.default_rng(5).normal(size=(700, D)) * [3.0, 2.0, 1.4, 1.0, 0.7] + offset
    single = rows.astype("f4")
    given: dict[str, Any] = {"approximation": "nystrom", "landmarks": single[::20], **case}
    mixed = KernelPCA(3, **given).fit(single)
    double = KernelPCA(3, precision="double", **given).fit(single)
    np.testing.assert_allclose(mixed.eigenvalues_, double.eigenvalues_, rtol=1e-2)
    angles = subspace_angles(mixed.transform(single).astype("f8"), double.transform(single).astype("f8"))
    assert angles.max() < 1e-2


def test_double_precision_of_single_rows_is_that_of_doubles(rows, new):
    single = rows.astype("f4")
    ours = KernelPCA(3, gamma=0.1, approximation="nystrom", precision="double", landmarks=single[::4]).fit(
        single
    )
    plain = Nystrom(kernel_matrix(single, single[::4], gamma=0.1), kernel_matrix(single[::4], gamma=0.1))
    np.testing.assert_allclose(ours.eigenvalues_, plain.eigenvalues[:3], rtol=1e-9)
    assert ours.captured_trace_ == pytest.approx(plain.captured(np.ones(N)), rel=1e-8)


@pytest.mark.parametrize("approximation", ["exact", "nystrom"])
def test_double_precision_maps_single_rows_in_double_too(approximation, rows):
    """Clusters so far apart that distances within one are rounding in single precision."""
    single = (rows + np.where(np.arange(N) % 2, 300.0, -300.0)[:, None]).astype("f4")
    given: dict[str, Any] = {"approximation": approximation, "precision": "double", "gamma": 1.0}
    ours = KernelPCA(3, n_landmarks=40, **given).fit(single)
    chosen = present(ours.landmarks_)
    plain = Nystrom(kernel_matrix(single, chosen, gamma=1.0), kernel_matrix(chosen, gamma=1.0))
    scores = ours.transform(single)
    assert scores.dtype == np.float32
    want = plain.scores(kernel_matrix(single, chosen, gamma=1.0), 3)
    same_scores(scores, want, 1e-5)


def hostile(kind):
    """Rows and a kernel for which single precision is too coarse."""
    rng = np.random.default_rng(8)
    normal = rng.normal(size=(60, D))
    if kind == "far clusters":
        return (normal + np.where(np.arange(60) % 2, 3000.0, -3000.0)[:, None]).astype("f4"), {"gamma": 1.0}
    if kind == "narrow":
        return np.repeat(1000 * normal[:12], 5, axis=0).astype("i2"), {"gamma": 1.0}
    if kind == "small angles":
        return (normal + 3000.0).astype("f4"), {"kernel": "cosine"}
    if kind == "overflow":
        return (3e6 * normal).astype("f4"), {"kernel": "poly", "gamma": 1.0}
    return (normal * 10.0 ** -np.arange(D)).astype("f4"), {"kernel": "linear"}


@pytest.mark.parametrize("n_landmarks", [5, 6, 30], ids=["many rows", "many rows again", "few rows"])
@pytest.mark.parametrize("kind", ["far clusters", "narrow", "small angles", "overflow", "nearly dependent"])
def test_scores_of_single_precision_rows_have_the_variances_of_the_model(kind, n_landmarks):
    rows, given = hostile(kind)
    ours = KernelPCA(approximation="nystrom", n_landmarks=n_landmarks, **given).fit(rows)
    scores = ours.transform(rows).astype("f8")
    stated = ours.eigenvalues_ / len(rows)
    np.testing.assert_allclose(scores.T @ scores / len(rows), np.diag(stated), rtol=0, atol=1e-3 * stated[0])
    double = KernelPCA(approximation="nystrom", n_landmarks=n_landmarks, precision="double", **given)
    assert ours.eigenvalues_[0] == pytest.approx(double.fit(rows).eigenvalues_[0], rel=1e-3)


def test_a_search_and_random_features_use_double_precision_where_single_is_too_coarse():
    rows, _ = hostile("narrow")
    search = {"search": {"rbf": {"gamma": [1.0, 2.0]}}, "folds": 2}
    for given in ({"kernel": search}, {"gamma": 1e7, "approximation": "random_features"}):
        ours = KernelPCA(3, n_landmarks=6, **given).fit(rows)
        scores = ours.transform(rows).astype("f8")
        stated = ours.eigenvalues_ / len(rows)
        np.testing.assert_allclose(
            scores.T @ scores / len(rows), np.diag(stated), rtol=0, atol=1e-3 * stated[0]
        )
        assert ours.model_.double


@pytest.mark.parametrize("approximation", ["exact", "nystrom"])
def test_an_offset_does_not_matter_to_a_kernel_of_differences(approximation, rows):
    given: dict[str, Any] = {"approximation": approximation, "gamma": 0.1, "n_landmarks": 40}
    near = KernelPCA(3, **given).fit(rows)
    far = KernelPCA(3, **given).fit(rows + 1e6)
    np.testing.assert_allclose(far.eigenvalues_, near.eigenvalues_, rtol=1e-8)
    same_scores(far.transform(rows + 1e6), near.transform(rows), 1e-7)


def test_bytes_are_widened():
    rows = np.random.default_rng(0).integers(180, 256, size=(60, D), dtype=np.uint8)
    gammas: dict[KernelName, float | None] = {"linear": None, "rbf": 1e-3, "poly": 1e-4}
    for kernel, gamma in gammas.items():
        got = KernelPCA(3, kernel=kernel, gamma=gamma, approximation="exact", precision="double").fit(rows)
        want = sklearn.decomposition.KernelPCA(3, kernel=kernel, gamma=gamma).fit(rows.astype("f8"))
        np.testing.assert_allclose(got.eigenvalues_, want.eigenvalues_, rtol=1e-8)


# Degenerate data


def test_eigenvalues_of_zero_are_dropped():
    rows = np.random.default_rng(0).normal(size=(50, 3)) * [3, 2, 1]
    for approximation in ("exact", "nystrom"):
        ours = KernelPCA(kernel="linear", approximation=approximation).fit(rows)
        assert ours.eigenvalues_.shape == (3,)
        assert ours.transform(rows).shape == (50, 3)
        few = KernelPCA(10, kernel="linear", approximation=approximation).fit(rows)
        assert few.eigenvalues_.shape == (3,), "more components are requested than there are"
        # A homogeneous polynomial of degree 2 in three variables: six monomials.
        squares = KernelPCA(kernel="poly", degree=2, coef0=0.0, approximation=approximation).fit(rows)
        assert squares.eigenvalues_.shape == (6,)
        assert np.isfinite(squares.transform(rows)).all()


@pytest.mark.parametrize("approximation", ["exact", "nystrom"])
def test_duplicate_rows_are_allowed(approximation, rows):
    doubled = np.repeat(rows[:15], 4, axis=0)
    ours = KernelPCA(gamma=0.2, approximation=approximation).fit(doubled)
    assert len(ours.eigenvalues_) == 14, "one less than the number of distinct rows"
    want = exact(kernel_matrix(doubled, gamma=0.2))[0][:14]
    np.testing.assert_allclose(ours.eigenvalues_, want, rtol=1e-8)
    scores = ours.transform(doubled)
    np.testing.assert_allclose(scores[::4], scores[3::4], atol=1e-9)


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "laplacian", "cosine"])
@pytest.mark.parametrize("approximation", ["exact", "nystrom"])
def test_constant_data_is_refused(kernel, approximation):
    for value in (0.0, 3.3, 1e6):
        with pytest.raises(ValueError, match="every row is the same"):
            KernelPCA(2, kernel=kernel, approximation=approximation).fit(np.full((30, 4), value))


def test_two_rows_have_one_component():
    for approximation in ("exact", "nystrom"):
        ours = KernelPCA(gamma=0.5, approximation=approximation).fit([[0.0, 0.0], [1.0, 1.0]])
        assert ours.eigenvalues_ == pytest.approx([1 - np.exp(-1)])
        scores = ours.transform([[0.0, 0.0], [1.0, 1.0]])
        assert np.abs(scores[:, 0]) == pytest.approx(np.sqrt((1 - np.exp(-1)) / 2))


def test_a_kernel_that_is_not_positive_semidefinite_is_reported(rows):
    among = kernel_matrix(rows, kernel="sigmoid", gamma=0.2, coef0=1.0)
    values = descending(centred(among))[0]
    ours = KernelPCA(kernel="sigmoid", gamma=0.2, coef0=1.0, approximation="exact").fit(rows)
    above = values[values > 1e-10 * values[0]]
    np.testing.assert_allclose(ours.eigenvalues_, above, rtol=1e-6, atol=1e-10 * values[0])
    negative = np.count_nonzero(values < -1e-10 * values[0])
    assert negative > 0
    assert ours.negative_eigenvalues_ == pytest.approx(negative, abs=2)
    notes = " ".join(ours.model_.summary()["notes"])
    assert "negative" in notes
    assert str(ours.negative_eigenvalues_) in notes
    fine = KernelPCA(2, gamma=0.1, approximation="exact").fit(rows)
    assert fine.negative_eigenvalues_ == 0
    assert "negative" not in " ".join(fine.model_.summary().get("notes", []))


@pytest.mark.parametrize("landmarks", ["rpcholesky", "uniform", "kmeans"])
def test_a_kernel_that_is_not_positive_semidefinite_among_landmarks_is_reported(landmarks, rows):
    given: dict[str, Any] = {"kernel": "sigmoid", "gamma": 0.2, "coef0": 1.0, "landmarks": landmarks}
    ours = KernelPCA(2, approximation="nystrom", n_landmarks=40, **given).fit(rows)
    assert ours.negative_eigenvalues_ > 0
    assert "negative" in " ".join(ours.model_.summary()["notes"])
    assert np.isfinite(ours.transform(rows)).all()


# Errors


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"gamma": 0.0}, "gamma"),
        ({"gamma": -1.0}, "gamma"),
        ({"gamma": float("nan")}, "gamma"),
        ({"gamma": "mean"}, "gamma"),
        ({"sigma": 0.0}, "sigma"),
        ({"sigma": 1.0, "gamma": 1.0}, "sigma"),
        ({"degree": 0, "kernel": "poly"}, "degree"),
        ({"kernel": "gaussian"}, "kernel"),
        ({"approximation": "fast"}, "approximation"),
        ({"n_components": 0}, "n_components"),
        ({"n_landmarks": 0}, "n_landmarks"),
        ({"n_landmarks": -3}, "n_landmarks"),
        ({"n_landmarks": 1.5}, "n_landmarks"),
        ({"landmarks": "best"}, "landmarks"),
        ({"landmarks": np.ones((4, D + 1))}, "landmarks"),
        ({"landmarks": np.full((4, D), np.nan)}, "landmarks"),
        ({"alpha": -1.0, "fit_inverse_transform": True}, "alpha"),
        ({"precision": "half"}, "precision"),
        ({"kernel": "poly", "approximation": "random_features"}, "approximation"),
        ({"kernel": {"search": {}}}, "search"),
        ({"kernel": {"search": {"rbf": {"gamma": [0.0]}}}}, "gamma"),
        ({"kernel": {"search": {"rbf": {"gama": [1.0]}}}}, "gama"),
        ({"kernel": {"search": {"rbf": {"gamma": [1.0]}}, "folds": 1}}, "folds"),
        ({"kernel": {"search": {"rbf": {"gamma": [1.0], "sigma": [1.0]}}}}, "sigma"),
        ({"kernel": {"search": {"rbf": {"sigma": ["wide"]}}}}, "sigma"),
        ({"kernel": {"search": {"poly": {"coef0": ["much"]}}}}, "coef0"),
        ({"kernel": {"search": {"poly": {"degree": [2.5]}}}}, "degree"),
        ({"kernel": {"search": {"gaussian": {}}}}, "gaussian"),
        ({"kernel": {"grid": {"rbf": {}}}}, "search"),
    ],
    ids=str,
)
def test_impossible_parameters_are_refused_by_name(parameters, words, rows):
    with pytest.raises(ParameterError) as refused:
        KernelPCA(**{"n_components": 2, **parameters}).fit(rows)
    assert words in f"{refused.value.parameter}: {refused.value}"


def test_more_landmarks_than_rows_are_refused(rows):
    with pytest.raises(ValueError, match=rf"{N + 1} landmarks of {N} rows"):
        KernelPCA(2, approximation="nystrom", n_landmarks=N + 1).fit(rows)


@pytest.mark.parametrize("approximation", ["exact", "nystrom", "random_features"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_located(approximation, value, rows, tmp_path):
    import zarr

    bad = rows.copy()
    bad[57, 3] = value
    array = zarr.create_array(tmp_path / "x.zarr", shape=bad.shape, chunks=(20, 2), dtype="f8")
    array[:] = bad
    with pytest.raises(ValueError, match="row 57, column 3"):
        KernelPCA(2, approximation=approximation, n_landmarks=10).fit(tmp_path / "x.zarr")
    with pytest.raises(ValueError, match=r"(?i)(NaN|inf) at row 57, column 3"):
        KernelPCA(2, approximation=approximation).fit(bad)


def test_a_matrix_that_is_not_a_kernel_matrix_is_refused(rows):
    among = kernel_matrix(rows)
    for approximation in ("exact", "nystrom"):
        ours = KernelPCA(2, kernel="precomputed", approximation=approximation, n_landmarks=20)
        with pytest.raises(ValueError, match="square"):
            ours.fit(among[:, :-1])
        skew = among.copy()
        skew[3, 70] += 0.1
        with pytest.raises(ValueError, match="symmetric"):
            ours.fit(skew)


@pytest.mark.parametrize("dtype", ["f2", "f4", ">f4", "f8"])
def test_a_matrix_may_be_asymmetric_by_the_rounding_of_its_dtype(dtype, rows):
    among = kernel_matrix(rows)
    rounded = among.astype(dtype)
    ulp = np.spacing(np.abs(rounded).astype(rounded.dtype.newbyteorder("=")))
    rounded[np.triu_indices(len(rows), 1)] += ulp[np.triu_indices(len(rows), 1)]
    assert not np.array_equal(rounded, rounded.T)
    # Each eigenvalue moves by the norm of the change at most (Weyl).
    bound = float(np.linalg.norm(rounded.astype(float) - among, 2)) + 1e-12
    ours = KernelPCA(2, kernel="precomputed", approximation="exact")
    exact = sklearn.base.clone(ours).fit(among).eigenvalues_
    np.testing.assert_allclose(ours.fit(rounded).eigenvalues_, exact, rtol=0, atol=bound)
    for approximation in ("exact", "nystrom"):
        ours.set_params(approximation=approximation, n_landmarks=20).fit(rounded)
        skew = rounded.copy()
        skew[3, 70] += 0.1
        with pytest.raises(ValueError, match="symmetric"):
            ours.fit(skew)


def test_exact_beyond_the_memory_limit_is_refused_with_an_alternative():
    rows = np.random.default_rng(0).normal(size=(20_000, 3))
    with streamdr.execution(memory_limit="1GiB"):
        with pytest.raises(MemoryError, match=r"nystrom"):
            KernelPCA(2, approximation="exact").fit(rows)
        assert KernelPCA(2, n_landmarks=20).fit(rows).model_.approximation == "nystrom"


def test_auto_is_exact_for_few_rows(rows):
    assert KernelPCA(2).fit(rows).model_.approximation == "exact"


# Saved models


@pytest.mark.parametrize("approximation", ["exact", "nystrom", "random_features"])
def test_a_saved_model_comes_back_to_the_bit(approximation, rows, new, tmp_path):
    ours = KernelPCA(3, gamma=0.1, approximation=approximation, n_landmarks=20).fit(rows)
    ours.save(tmp_path / "m.zarr")
    loaded = streamdr.load_model(tmp_path / "m.zarr")
    np.testing.assert_array_equal(loaded.transform(new), ours.transform(new))
    assert loaded.get_params() == ours.get_params()
    assert loaded.model_.summary() == ours.model_.summary()
