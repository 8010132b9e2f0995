"""Every registered method keeps the laws, on every kind of hostile data that has variance enough."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from streamdr.blocks import MatrixSpec
from streamdr.methods import (
    LDA,
    METHODS,
    PCA,
    PPCA,
    ClassicalMDS,
    KernelPCA,
    LandmarkMDS,
    MetricMDS,
    NonmetricMDS,
    PPCAMixture,
    SelectCorrelation,
    SelectForward,
    SelectFScore,
    SelectMutualInfo,
    SparseKernelPCA,
    in_memory,
)
from streamdr.testing import HOLES, HOSTILE, check_method, hostile_data

EXAMPLES = {
    "pca": [PCA(3), PCA(0.9), PCA("mle"), PCA(3, scale=True)],
    "ppca": [
        PPCA(3, method="closed_form"),
        PPCA([1, 3]),
        PPCA(3, method="em", max_iter=5),
        PPCA([2, 3], method="em", max_iter=3, holdout=0.1),
        PPCA(2, method="em", max_iter=3, ridge=1.0),
        PPCA(3, method="minibatch", max_iter=2),
        PPCA(3, method="minibatch", max_iter=1, batch_rows=7),
    ],
    "ppca_mixture": [PPCAMixture(1, 2, max_iter=3), PPCAMixture(2, [1, 2], max_iter=3)],
    "kernel_pca": [
        KernelPCA(3, gamma="median"),
        KernelPCA(3, gamma="median", approximation="nystrom", n_landmarks=20),
        KernelPCA(2, gamma="median", approximation="nystrom", n_landmarks=0.8, precision="double"),
        KernelPCA(2, gamma="median", approximation="nystrom", n_landmarks=5, landmarks="kmeans"),
        KernelPCA(2, gamma="median", approximation="random_features", n_landmarks=30),
        KernelPCA(
            2, kernel={"search": {"rbf": {"gamma": ["median"]}, "linear": {}}, "folds": 3}, n_landmarks=9
        ),
    ],
    "sparse_kernel_pca": [
        SparseKernelPCA(3, gamma="median"),
        SparseKernelPCA(2, gamma="median", n_candidates=5),
    ],
    "lda": [
        LDA(),
        LDA(1, precision="double"),
        LDA(priors=[0.2, 0.5, 0.3]),
        LDA(shrinkage=0.1),
        LDA(1, shrinkage="auto"),
    ],
    "select_mutual_info": [
        SelectMutualInfo(3),
        SelectMutualInfo("cv", n_folds=3),
        SelectMutualInfo(8, n_bins=4),
    ],
    "select_f_score": [SelectFScore(3), SelectFScore("cv", n_folds=3), SelectFScore(2, precision="double")],
    "select_correlation": [SelectCorrelation(3), SelectCorrelation("cv", n_folds=3)],
    "select_forward": [
        SelectForward(3),
        SelectForward("cv", n_folds=3),
        SelectForward(2, direction="backward", n_folds=3),
        SelectForward(3, direction="floating", n_folds=3, precision="double"),
    ],
    "classical_mds": [
        ClassicalMDS(2),
        ClassicalMDS(2, metric="cityblock"),
        ClassicalMDS(2, solver="krylov", max_passes=3),
    ],
    "landmark_mds": [
        LandmarkMDS(2, n_landmarks=20),
        LandmarkMDS(2, metric="cityblock", n_landmarks=20, landmarks="random"),
    ],
    "metric_mds": [
        MetricMDS(2, max_iter=3, n_init=2),
        MetricMDS(2, metric="cityblock", algorithm="gradient", stress="sammon", max_iter=3),
        MetricMDS(2, algorithm="stochastic", stress="relative", n_epochs=2),
    ],
    "nonmetric_mds": [NonmetricMDS(2, max_iter=2, n_init=2), NonmetricMDS(2, ties="primary", max_iter=2)],
}
LITTLE_VARIANCE = ("rank one", "constant column")
LITTLE_NOISE = ("drifting", "uneven scales", "rank one")
"""Where the largest direction is more than a million times as wide as the noise."""


LABELS = np.random.default_rng(3).integers(0, 3, size=60)


def test_every_method_is_under_the_laws():
    assert EXAMPLES.keys() == METHODS.keys()


@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if kind not in LITTLE_VARIANCE])
def test_laws_of_pca(kind):
    for method in EXAMPLES["pca"]:
        check_method(method, hostile_data(kind, 60, 8))


@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if kind not in LITTLE_NOISE])
@pytest.mark.parametrize("name", ["ppca", "ppca_mixture"])
def test_laws_of_what_has_latent_variables(name, kind):
    for method in EXAMPLES[name]:
        check_method(method, hostile_data(kind, 60, 8))


@pytest.mark.parametrize("holes", HOLES)
@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if kind not in LITTLE_NOISE])
@pytest.mark.parametrize("name", ["ppca", "ppca_mixture"])
def test_laws_with_holes(name, kind, holes):
    for method in EXAMPLES[name]:
        if getattr(method, "method", "") != "closed_form":
            check_method(method, hostile_data(kind, 60, 8, holes=holes))


@pytest.mark.parametrize("holes", [None, *HOLES])
@pytest.mark.parametrize("kind", LITTLE_NOISE)
def test_latent_variables_are_as_exact_as_there_is_noise(kind, holes):
    """They are counted in units of the noise, beside which rounding may be large: no law can be stricter."""
    data = hostile_data(kind, 60, 8, holes=holes)
    for method in EXAMPLES["ppca"]:
        if holes is not None and method.method == "closed_form":
            continue
        for route in method.routes(MatrixSpec(*data.shape, data.dtype)):
            model, again = (in_memory(route.method, data) for _ in range(2))
            whole = model.transform(data)
            np.testing.assert_array_equal(again.transform(data), whole)
            contrast = model.explained_variance[0] / model.noise_variance
            rounding = 64 * np.finfo(np.float64).eps * contrast * np.abs(whole).max()
            np.testing.assert_allclose(model.transform(data[:1]), whole[:1], rtol=0, atol=rounding)


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("name", ["kernel_pca", "sparse_kernel_pca"])
def test_laws_of_kernels(name, kind):
    for method in EXAMPLES[name]:
        check_method(method, hostile_data(kind, 60, 8))


@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if kind not in LITTLE_NOISE])
@pytest.mark.filterwarnings("ignore:within classes")  # of a constant column
def test_laws_of_discriminants(kind):
    for method in EXAMPLES["lda"]:
        for labels in (LABELS, np.array(["b", "a", "cd"])[LABELS]):
            check_method(method, hostile_data(kind, 60, 8), labels=labels)


@pytest.mark.parametrize("kind", LITTLE_NOISE)
def test_laws_of_discriminants_that_are_shrunk(kind):
    """Where one direction is that much wider than others, scores of unit variance are small differences."""
    for shrinkage in (0.1, "auto"):
        check_method(LDA(shrinkage=shrinkage), hostile_data(kind, 60, 8), labels=LABELS)


SCALED = [
    (name, kind)
    for name in ("classical_mds", "landmark_mds", "metric_mds", "nonmetric_mds")
    for kind in HOSTILE
    # Squares of distances along a direction that is a million times as long as others drown these.
    if kind not in (("drifting", "rank one") if name in ("classical_mds", "landmark_mds") else ())
]


@pytest.mark.parametrize(("name", "kind"), SCALED)
def test_laws_of_scaling(name, kind):
    for method in EXAMPLES[name]:
        check_method(method, hostile_data(kind, 60, 8))


@pytest.mark.parametrize(("name", "kind"), SCALED)
def test_laws_of_scaling_of_stored_distances(name, kind):
    rows = hostile_data(kind, 60, 8).astype(float)
    wanted = cdist(rows, rows)
    for method in EXAMPLES[name]:
        check_method(replace(method, metric="precomputed"), wanted)


@pytest.mark.parametrize("whiten", ["pca", "zca"])
@pytest.mark.parametrize("kind", ["kind", "float32", "bytes", "big offset"])
def test_laws_of_whitening(whiten, kind):
    check_method(PCA(3, whiten=whiten), hostile_data(kind, 60, 8))


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("labels", ["classes", "numbers", "text"])
def test_laws_of_selection(kind, labels):
    numbers = LABELS + np.random.default_rng(4).normal(size=60)
    target = {"classes": LABELS, "numbers": numbers, "text": np.array(["a", "b", "cd"])[LABELS]}[labels]
    for name, methods in EXAMPLES.items():
        for method in methods if name.startswith("select_") else []:
            check_method(method, hostile_data(kind, 60, 8), labels=target)
