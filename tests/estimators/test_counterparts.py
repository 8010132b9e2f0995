"""Counterparts in scikit-learn give the same numbers, and contain nothing of streamdr."""

from __future__ import annotations

import pickle
import pickletools
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray as xr

import streamdr
from streamdr.errors import ParameterError

N, D = 90, 6
MODELS = {
    "pca": streamdr.PCA(3),
    "pca of all": streamdr.PCA(),
    "whitened": streamdr.PCA(3, whiten="pca"),
    "zca": streamdr.PCA(3, whiten="zca"),
    "correlation": streamdr.PCA(3, scale=True),
    "correlation, zca": streamdr.PCA(3, scale=True, whiten="zca"),
    "about zero": streamdr.PCA(3, center=False),
    "scaled about zero": streamdr.PCA(3, center=False, scale=True),
    "varimax": streamdr.PCA(3, rotation="varimax", n_rotated=2, whiten="pca", scale=True),
    "promax": streamdr.PCA(3, rotation="promax"),
    "lda": streamdr.LDA(),
    "one discriminant": streamdr.LDA(1),
    "filter": streamdr.SelectFScore(2),
    "search": streamdr.SelectForward(3),
    "nystrom": streamdr.KernelPCA(3, n_landmarks=20),
    "exact": streamdr.KernelPCA(3, approximation="exact"),
    "poly": streamdr.KernelPCA(3, kernel="poly", n_landmarks=20),
    "linear": streamdr.KernelPCA(3, kernel="linear", n_landmarks=20),
    "laplacian": streamdr.KernelPCA(3, kernel="laplacian", n_landmarks=20),
    "cosine": streamdr.KernelPCA(3, kernel="cosine", n_landmarks=20),
    "random features": streamdr.KernelPCA(3, approximation="random_features", n_landmarks=20),
}


def rows(offset: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 3, N)
    mixed = rng.standard_normal((N, D)) @ rng.standard_normal((D, D))
    return mixed + labels[:, None] * np.arange(D) + offset, labels


def unpickled(estimator: Any) -> Any:
    """The counterpart after a round trip, which needs no module of streamdr."""
    stored = pickle.dumps(estimator.to_sklearn())
    words = {str(argument) for _, argument, _ in pickletools.genops(stored) if argument is not None}
    assert not any("streamdr" in word for word in words)
    return pickle.loads(stored)


def agree(found: Any, expected: Any, tolerance: float = 1e-10) -> None:
    """Differences are small beside the largest value."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("name", MODELS)
def test_the_numbers_are_the_same(name):
    values, labels = rows()
    ours = MODELS[name].fit(values, labels)
    theirs, others = unpickled(ours), rows(5.0)[0][::-1]
    agree(theirs.transform(others), ours.transform(others))
    if not isinstance(ours, streamdr.KernelPCA):
        scores = ours.transform(others)
        if hasattr(theirs, "inverse_transform"):
            agree(theirs.inverse_transform(scores), ours.inverse_transform(scores))


@pytest.mark.parametrize(
    "estimator",
    [
        streamdr.SelectColumns(["1:3", 5]),
        streamdr.SelectVariance(3),
        streamdr.SelectVariance(3, flavor="seurat", n_bins=3),
        streamdr.ScaleGenotypes(min_maf=0.05),
    ],
)
def test_steps_for_counts_give_the_same_numbers(estimator):
    genotypes = np.random.default_rng(9).binomial(2, np.linspace(0.02, 0.6, D), (N, D)).astype(float)
    ours = estimator.fit(genotypes)
    genotypes[::7, 2] = np.nan if isinstance(ours, streamdr.ScaleGenotypes) else 1.0
    agree(unpickled(ours).transform(genotypes), ours.transform(genotypes))


@pytest.mark.parametrize("offset", [0.0, 1e8])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_and_probabilities_are_the_same(n_classes, offset):
    values, labels = rows(offset)
    names = np.array(["a", "b", "c"])[labels % n_classes]
    ours = streamdr.LDA().fit(values, names)
    theirs = unpickled(ours)
    np.testing.assert_array_equal(theirs.predict(values), ours.predict(values))
    agree(theirs.predict_proba(values), ours.predict_proba(values))
    agree(theirs.decision_function(values), ours.decision_function(values))
    assert theirs.score(values, names) == ours.score(values, names)


@pytest.mark.parametrize("name", ["pca", "whitened", "zca", "lda", "nystrom", "random features"])
def test_a_large_offset_loses_no_digits(name):
    values, labels = rows(1e8)
    ours = MODELS[name].fit(values, labels)
    agree(unpickled(ours).transform(values), ours.transform(values))


@pytest.mark.parametrize("name", ["pca", "whitened", "zca", "correlation", "lda", "nystrom"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint16", "bool"])
def test_rows_of_any_type_keep_their_digits(name, dtype):
    """The reference is float64: the counterparts do not round the mean to the type of the rows."""
    values, labels = rows(100.0 if dtype in ("float32", "float16", "uint16") else 0.0)
    values = (values > 0 if dtype == "bool" else np.clip(values, -100, 2000)).astype(dtype)
    ours = MODELS[name].fit(values, labels)
    agree(unpickled(ours).transform(values), ours.transform(values.astype(np.float64)), 1e-9)


STEPS = {
    "log1p": streamdr.Log1p(),
    "totals": streamdr.NormalizeTotal(target_sum=1e4),
    "norms": streamdr.UnitNorm(),
    "standardise": streamdr.Standardise(max_value=1.5),
    "scale": streamdr.Standardise(with_mean=False),
    "clip": streamdr.Clip(max=1.3),
    "genotypes": streamdr.Chain([streamdr.ScaleGenotypes(ploidy=1000), streamdr.PCA(2)]),
    "columns": streamdr.Chain([streamdr.SelectColumns("1:5"), streamdr.PCA(3)]),
    "counts": streamdr.Chain([streamdr.NormalizeTotal(), streamdr.Log1p(), streamdr.PCA(3)]),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_steps_keep_the_digits_of_rows_of_any_type(name, dtype):
    values = (np.abs(rows(100.0)[0]) % 251 + 1).astype(dtype)
    ours = STEPS[name].fit(values.astype(np.float64))
    agree(unpickled(ours).transform(values), ours.transform(values.astype(np.float64)), 1e-9)


@pytest.mark.parametrize("name", ["log1p", "totals", "norms", "scale"])
def test_steps_keep_sparse_rows_sparse(name):
    counts = np.random.default_rng(2).poisson(0.7, (N, D)).astype(np.uint8)
    counts[counts.sum(axis=1) == 0, 0] = 1
    ours = STEPS[name].fit(counts)
    found = unpickled(ours).transform(sp.csr_array(counts))
    assert sp.issparse(found)
    agree(found.toarray(), ours.transform(counts.astype(np.float64)))


def test_missing_values_stay_missing_in_steps_that_take_them():
    values = rows()[0]
    values[::5, 2] = np.nan
    for ours in (streamdr.Standardise(), streamdr.Log1p(), streamdr.Clip(max=1.0)):
        found = ours.fit(np.abs(values)).transform(np.abs(values))
        agree(np.nan_to_num(unpickled(ours).transform(np.abs(values))), np.nan_to_num(found))
        assert np.isnan(found).sum() == np.isnan(values).sum()


def test_whitening_of_tiny_rows():
    values = rows()[0] * 1e-30
    ours = streamdr.PCA(2, whiten="pca").fit(values)
    agree(unpickled(ours).transform(values), ours.transform(values))
    scores = ours.transform(values)
    agree(unpickled(ours).inverse_transform(scores), ours.inverse_transform(scores))


def test_the_likelihood_and_the_precision_come_with_it():
    values = rows()[0]
    ours = streamdr.PCA(3).fit(values)
    theirs = unpickled(ours)
    np.testing.assert_allclose(theirs.score_samples(values), ours.score_samples(values), rtol=1e-10)
    np.testing.assert_allclose(theirs[-1].get_covariance(), ours.get_covariance(), atol=1e-10)


def test_constant_and_low_rank_columns():
    values = rows()[0]
    values[:, 2], values[:, 4] = 7.0, values[:, 3]
    for ours in (streamdr.PCA(3), streamdr.PCA(3, whiten="pca"), streamdr.LDA()):
        ours.fit(values, rows()[1])
        agree(unpickled(ours).transform(values), ours.transform(values))


def test_names_of_features_are_checked_and_kept():
    frame = pd.DataFrame(rows()[0], columns=list("abcdef"))
    theirs = unpickled(streamdr.SelectFScore(2).fit(frame, rows()[1]))
    ours = streamdr.SelectFScore(2).fit(frame, rows()[1])
    assert list(theirs.get_feature_names_out()) == list(ours.get_feature_names_out())
    agree(theirs.transform(frame), ours.transform(frame))
    with pytest.raises(ValueError, match="feature names"):
        unpickled(streamdr.PCA(2).fit(frame)).transform(frame[list("fedcba")])


def test_names_go_through_steps():
    frame = pd.DataFrame(np.abs(rows()[0]), columns=list("abcdef"))
    steps = [streamdr.Log1p(), streamdr.Standardise(max_value=2), streamdr.SelectColumns(["b", "e"])]
    ours = streamdr.Chain([*steps, streamdr.SelectFScore(1)]).fit(frame, rows()[1])
    theirs = unpickled(ours)
    assert list(theirs.get_feature_names_out()) == list(ours.get_feature_names_out())
    with pytest.raises(ValueError, match="feature names"):
        theirs.transform(frame[list("fedcba")])


@pytest.mark.parametrize(
    "estimator", [streamdr.PCA(2), streamdr.PCA(2, scale=True), streamdr.PCA(2, whiten="pca")]
)
def test_weights_of_features_and_features_left_out(estimator):
    values = rows()[0]
    values[:, 1] = np.nan
    ours = estimator.fit(values, feature_weights=np.linspace(0.5, 2, D), min_observed=0.5)
    theirs = unpickled(ours)
    agree(theirs.transform(values), ours.transform(values))


def test_a_labelled_grid():
    grid = xr.DataArray(rows()[0].reshape(N, 2, 3), dims=("time", "lat", "lon"), coords={"lat": [10.0, 60.0]})
    ours = streamdr.PCA(2).fit(grid, feature_weights="coslat")
    agree(unpickled(ours).transform(rows()[0]), np.asarray(ours.transform(grid)))


def test_precomputed_kernels():
    values = rows()[0]
    kernel = values @ values.T
    ours = streamdr.KernelPCA(2, kernel="precomputed").fit(kernel)
    agree(unpickled(ours).transform(kernel), ours.transform(kernel))


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (streamdr.PPCA(2), "scikit-learn has nothing that gives the numbers of ppca"),
        (streamdr.SOM(), "scikit-learn has nothing"),
        (streamdr.KernelPCA(2, kernel=lambda x, y: x @ y), "is a function of yours"),
    ],
)
def test_what_has_no_counterpart_says_so(estimator, message):
    with pytest.raises(ParameterError, match=message):
        estimator.fit(rows()[0]).to_sklearn()


def test_zca_of_weighted_features_says_so():
    ours = streamdr.PCA(2, whiten="zca").fit(rows()[0], feature_weights=np.linspace(0.5, 2, D))
    with pytest.raises(ParameterError, match="fit without min_observed and feature_weights"):
        ours.to_sklearn()
