"""PCA by every solver against numpy and scikit-learn, on ordinary and on difficult data."""

from __future__ import annotations

from typing import Any, Literal

import dask.array as da
import numpy as np
import pytest
import sklearn.decomposition
from hypothesis import given, settings
from hypothesis import strategies as st
from narrowing import checked, present
from scipy.linalg import subspace_angles

import streamdr
from streamdr.core.blocks import Block, MatrixSpec, Span
from streamdr.core.method import in_memory
from streamdr.errors import DataError, ParameterError
from streamdr.methods.pca import PCA
from streamdr.methods.pca.model import PCAModel
from streamdr.testing import HOSTILE, hostile_data

SOLVERS: list[Literal["covariance", "gram", "krylov"]] = ["covariance", "gram", "krylov"]


def fitted(method: PCA, rows: np.ndarray) -> PCAModel:
    return checked(PCAModel, in_memory(method, rows))


def exact(data, ddof=1, scale=False):
    """Eigenvalues (descending) and components of the covariance, by SVD in extended precision sums."""
    centred = data.astype(np.longdouble)
    centred = centred - centred.mean(axis=0)
    if scale:
        centred = centred / np.sqrt((centred**2).sum(axis=0) / (len(data) - ddof))
    _, singular, components = np.linalg.svd(centred.astype(np.float64), full_matrices=False)
    return singular**2 / (len(data) - ddof), components


def spread(n, d, spectrum, seed=0):
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.normal(size=(n, d)) - 0)[0]
    left -= left.mean(axis=0)
    left = np.linalg.qr(left)[0]
    right = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return (left * np.sqrt(np.asarray(spectrum) * (n - 1))) @ right


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_eigenvalues_on_hostile_data(kind, solver):
    data = hostile_data(kind, 200, 12)
    # Products in single precision have its rounding error. The rounding of stored values does not count.
    single = data.dtype.itemsize <= 2 or data.dtype == np.float32
    values, components = exact(data)
    model = fitted(PCA(4, solver=solver, max_passes=8), data)
    tolerance = (4e-6 if single else 1e-11) * values[0]
    np.testing.assert_allclose(model.explained_variance, values[:4], rtol=0, atol=tolerance)
    np.testing.assert_allclose(model.total_variance, values.sum(), rtol=4e-6 if single else 1e-11)
    identity = model.components @ model.components.T
    np.testing.assert_allclose(identity, np.eye(4), atol=1e-10)
    if values[0] > 10 * values[1]:
        assert abs(model.components[0] @ components[0]) > 1 - 1e-6


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("shape", [(300, 20), (20, 300)])
def test_components_against_svd(solver, scale, ddof, shape):
    rng = np.random.default_rng(0)
    data = rng.normal(size=shape) * np.linspace(3, 1, shape[1]) + 50.0
    values, components = exact(data, ddof, scale)
    model = fitted(PCA(5, solver=solver, scale=scale, ddof=ddof, max_passes=20, tol=0), data)
    np.testing.assert_allclose(model.explained_variance, values[:5], rtol=1e-9)
    assert subspace_angles(model.components.T, components[:5].T).max() < 1e-6
    np.testing.assert_allclose(
        model.explained_variance_ratio.sum(), values[:5].sum() / values.sum(), rtol=1e-9
    )
    np.testing.assert_allclose(model.reconstruction_error, values[5:].sum(), rtol=1e-8)


def test_attributes_are_scikit_learns():
    data = np.random.default_rng(0).normal(size=(400, 15)) + 3.0
    ours, theirs = streamdr.PCA(6).fit(data), sklearn.decomposition.PCA(6, svd_solver="full").fit(data)
    for name in (
        "explained_variance_",
        "explained_variance_ratio_",
        "singular_values_",
        "mean_",
        "noise_variance_",
        "n_features_in_",
        "n_components_",
    ):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-12, err_msg=name)
    np.testing.assert_allclose(ours.model_.get_covariance(), theirs.get_covariance(), rtol=1e-10, atol=1e-12)
    assert list(ours.get_feature_names_out()) == list(theirs.get_feature_names_out())


@pytest.mark.parametrize("solver", SOLVERS)
def test_reconstruction_error_is_the_error_of_reconstruction(solver):
    data = np.random.default_rng(0).normal(size=(80, 10)) * np.arange(1, 11)
    model = fitted(PCA(4, solver=solver, ddof=0, max_passes=20), data)
    rebuilt = model.inverse_transform(model.transform(data))
    error = ((data - rebuilt) ** 2).sum(axis=1).mean()
    np.testing.assert_allclose(model.reconstruction_error, error, rtol=1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("whiten", ["pca", "zca"])
@pytest.mark.parametrize("scale", [False, True])
def test_whitened_data_has_identity_covariance(solver, whiten, scale):
    data = np.random.default_rng(0).normal(size=(500, 6)) @ np.random.default_rng(1).normal(size=(6, 6)) + 9
    n_components = 6 if whiten == "zca" else 4
    model = fitted(PCA(n_components, solver=solver, whiten=whiten, scale=scale, max_passes=20), data)
    white = model.transform(data)
    np.testing.assert_allclose(np.cov(white.T), np.eye(model.n_outputs), atol=1e-8)
    if n_components == 6:
        np.testing.assert_allclose(model.inverse_transform(white), data, rtol=1e-8)


def test_zca_is_the_whitening_closest_to_the_data():
    data = np.random.default_rng(0).normal(size=(400, 5)) * [1, 2, 3, 4, 5]
    centred = data - data.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(data.T))
    expected = centred @ (vectors / np.sqrt(values)) @ vectors.T
    np.testing.assert_allclose(
        fitted(PCA(whiten="zca", solver="covariance"), data).transform(data), expected, atol=1e-10
    )


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("scale", [False, True])
def test_weights_repeat_rows(solver, scale):
    rng = np.random.default_rng(3)
    data, weights = rng.normal(size=(60, 9)) * np.arange(1, 10), rng.integers(0, 4, size=60)
    settings: dict[str, Any] = {"solver": solver, "scale": scale, "max_passes": 20, "tol": 0}
    weighted = streamdr.PCA(3, **settings).fit(data, sample_weight=weights)
    repeated = streamdr.PCA(3, **settings).fit(np.repeat(data, weights, axis=0))
    np.testing.assert_allclose(weighted.explained_variance_, repeated.explained_variance_, rtol=1e-10)
    np.testing.assert_allclose(weighted.mean_, repeated.mean_, rtol=1e-12)
    np.testing.assert_allclose(weighted.components_, repeated.components_, atol=1e-8)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rank", [1, 3, 7])
def test_mle_is_minkas(seed, rank):
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(200, rank)) @ rng.normal(size=(rank, 9)) * 3 + rng.normal(size=(200, 9))
    theirs = sklearn.decomposition.PCA("mle", svd_solver="full").fit(data)
    assert streamdr.PCA("mle").fit(data).n_components_ == theirs.n_components_


@pytest.mark.parametrize("fraction", [0.01, 0.5, 0.9, 0.99, 0.9999])
@pytest.mark.parametrize("shape", [(300, 20), (20, 300)])
def test_fraction_is_scikit_learns(fraction, shape):
    data = np.random.default_rng(0).normal(size=shape) * np.linspace(2, 0.1, shape[1])
    theirs = sklearn.decomposition.PCA(fraction, svd_solver="full").fit(data)
    assert streamdr.PCA(fraction).fit(data).n_components_ == theirs.n_components_


def test_float32_far_from_zero_keeps_its_digits():
    rng = np.random.default_rng(0)
    data = (rng.normal(size=(20_000, 40)) * np.linspace(1.5, 1, 40) + 1e4).astype(np.float32)
    values, _ = exact(data)
    model = fitted(PCA(10, solver="covariance"), data)
    np.testing.assert_allclose(model.explained_variance, values[:10], rtol=1e-6)
    scores = model.transform(data)
    assert scores.dtype == np.float32
    wanted = (data.astype(np.float64) - model.mean) @ model.components.T
    np.testing.assert_allclose(scores, wanted, atol=2e-5)


@pytest.mark.parametrize("solver", SOLVERS)
def test_precision_double_takes_products_in_double(solver):
    data = np.random.default_rng(0).normal(size=(300, 30)).astype(np.float32)
    values, _ = exact(data)
    model = fitted(PCA(5, solver=solver, precision="double", max_passes=20, tol=0), data)
    np.testing.assert_allclose(model.explained_variance, values[:5], rtol=1e-12)


def test_nist_numacc4():
    values = 10_000_000 + np.array([0.2, *([0.1, 0.3] * 500)])
    model = fitted(PCA(1, solver="covariance"), np.column_stack([values, values]))
    deviation = np.sqrt(model.explained_variance[0] / 2)
    assert -np.log10(abs(deviation - 0.1) / 0.1) > 8.2
    np.testing.assert_allclose(model.mean, 10_000_000.2, rtol=1e-15)


def test_lauchli_is_rank_limited():
    tiny = 1e-8
    data = np.vstack([np.ones(3), tiny * np.eye(3), -np.ones(3), -tiny * np.eye(3)])
    model = fitted(PCA(3, solver="covariance"), data)
    assert model.rank == 1
    with pytest.raises(ParameterError, match="rank 1"):
        fitted(PCA(3, solver="covariance", whiten="pca"), data)


@pytest.mark.parametrize("solver", ["covariance", "gram"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(200, 12), (12, 200)])
def test_rank_deficiency_is_reported(solver, dtype, shape):
    rng = np.random.default_rng(0)
    data = (rng.normal(size=(shape[0], 4)) @ rng.normal(size=(4, shape[1])) + 1).astype(dtype)
    if dtype == np.float32:
        data = np.round(data * 64) / 64  # exact in single precision, so that the rank is 4 and rounding
        left = np.round(rng.normal(size=(shape[0], 4)) * 8)
        data = (left @ np.round(rng.normal(size=(4, shape[1])) * 8)).astype(dtype)
    model = fitted(PCA(None, solver=solver), data)
    assert model.rank == model.n_components == 4
    full = fitted(PCA(8, solver=solver), data)
    np.testing.assert_allclose(full.components @ full.components.T, np.eye(8), atol=1e-10)
    assert (full.explained_variance[4:] <= 1e-5 * full.explained_variance[0]).all()
    with pytest.raises(ParameterError, match="the data has rank 4: set n_components to 4 or fewer"):
        fitted(PCA(8, solver=solver, whiten="zca"), data)
    with pytest.raises(ParameterError, match="rank 4"):
        fitted(PCA(None, solver=solver, whiten="pca"), data)


@pytest.mark.parametrize(("passes", "missed"), [(3, 2e-6), (4, 1e-9), (5, 1e-13)])
def test_krylov_beats_power_iterations(passes, missed):
    """Singular values 1/i, 20 of 300 wanted: power iterations miss 6e-4 after 3 passes and 6e-6 after 5."""
    data = spread(3000, 300, 1 / np.arange(1, 301) ** 2)
    model = fitted(PCA(20, solver="krylov", max_passes=passes, tol=0), data)
    captured = np.einsum("ki,ij,kj->k", model.components, np.cov(data.T), model.components)
    assert 1 - np.mean(captured / exact(data)[0][:20]) < missed
    assert present(model.residuals).shape == (20,)


def test_krylov_stops_when_it_has_converged():
    data = spread(500, 60, np.geomspace(1, 1e-8, 60))
    passes = PCA(3, solver="krylov", max_passes=20).passes(MatrixSpec(500, 60, data.dtype))
    request, count = next(passes), 1
    while True:
        full = request.empty.empty_like()
        full.update(Block(Span(0, 500), data))
        try:
            request = passes.send(full)
            count += 1
        except StopIteration:
            break
    assert count < 6


def test_signs_do_not_depend_on_the_solver():
    data = spread(100, 30, np.geomspace(1, 1e-3, 30))
    models = [fitted(PCA(5, solver=solver, max_passes=20, tol=0), data) for solver in SOLVERS]
    for model in models:
        largest = np.abs(model.components).argmax(axis=1)
        assert (model.components[np.arange(5), largest] > 0).all()
        np.testing.assert_allclose(model.components, models[0].components, atol=1e-7)


@settings(max_examples=30, deadline=None)
@given(
    shift=st.floats(-1e8, 1e8),
    factor=st.floats(1e-3, 1e3),
    rows=st.integers(3, 40),
    columns=st.integers(2, 9),
)
def test_shift_leaves_and_scale_squares_the_variances(shift, factor, rows, columns):
    data = np.random.default_rng(rows * columns).normal(size=(rows, columns))
    plain = fitted(PCA(2, solver="covariance"), data)
    moved = fitted(PCA(2, solver="covariance"), data + shift)
    scaled = fitted(PCA(2, solver="covariance"), data * factor)
    rounding = 1e-12 + 4e-16 * abs(shift)
    np.testing.assert_allclose(
        moved.explained_variance, plain.explained_variance, rtol=40 * rounding, atol=rounding
    )
    np.testing.assert_allclose(scaled.explained_variance, factor**2 * plain.explained_variance, rtol=1e-11)


BAD: dict[str, list[Any]] = {
    "n_components": [0, -1, 1.5, 0.0, "most", True, [3]],
    "whiten": ["yes", 1],
    "solver": ["svd"],
    "ddof": [2, -1],
    "precision": ["half"],
    "n_oversamples": [-1],
    "max_passes": [0],
    "tol": [-1.0],
}


@pytest.mark.parametrize(("parameter", "value"), [(name, value) for name in BAD for value in BAD[name]])
def test_impossible_parameters_are_refused_by_name(parameter, value):
    with pytest.raises(ParameterError) as refused:
        PCA(**{parameter: value}).check()
    assert refused.value.parameter == parameter


@pytest.mark.parametrize(("solver", "n_components"), [("krylov", 0.5), ("krylov", None), ("gram", "mle")])
def test_a_solver_that_needs_a_number_of_components_is_refused_without_data(solver, n_components):
    with pytest.raises(ParameterError) as refused:
        PCA(n_components, solver=solver).check()
    assert refused.value.parameter == "n_components"


def refusal(pca, data):
    with pytest.raises((ParameterError, DataError)) as refused:
        streamdr.PCA.fit(pca, data)
    return str(refused.value)


def test_data_that_cannot_be_fitted_is_refused():
    data = np.random.default_rng(0).normal(size=(10, 4))
    assert "10 x 4: set it to 4 or fewer" in refusal(streamdr.PCA(5), data)
    assert "n_samples = 1" in refusal(streamdr.PCA(1), data[:1])
    assert "every column is constant" in refusal(streamdr.PCA(1), np.ones((5, 3)))
    constant = np.where(np.arange(4) == 2, 1.0, data)
    for solver in SOLVERS:
        assert "column 2 is constant" in refusal(streamdr.PCA(1, scale=True, solver=solver), constant)
        assert streamdr.PCA(1, solver=solver).fit(constant).components_[0, 2] == pytest.approx(0, abs=1e-12)
    assert "whole number" in refusal(streamdr.PCA(0.5, solver="krylov"), data)
    assert "'mle' needs at least as many rows as columns" in refusal(streamdr.PCA("mle"), data.T)
    assert "overflow" in refusal(streamdr.PCA(1), (data * 1e25).astype(np.float32))
    with pytest.raises(DataError, match="every weight is zero"):
        streamdr.PCA(1).fit(da.from_array(data), sample_weight=np.zeros(10))
