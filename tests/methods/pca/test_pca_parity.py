"""Parity with scikit-learn's decompositions: the same names and the same results."""

import dataclasses
import pickle
import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest
import sklearn.decomposition
from narrowing import present
from sklearn.feature_selection import SelectKBest, f_classif, f_regression

import streamdr
from streamdr import store
from streamdr.core.addresses import parse_location
from streamdr.errors import DataError, InputError, ParameterError

SOLVERS = ("covariance", "gram", "krylov")


def rows(n=120, d=9, seed=0, offset=3.0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 4)) @ rng.standard_normal((4, d)) + rng.standard_normal((n, d)) + offset


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_distribution_is_that_of_scikit_learn(solver, dtype):
    data = rows().astype(dtype)
    ours = streamdr.PCA(3, solver=solver, max_passes=9, tol=1e-12).fit(data)
    theirs = sklearn.decomposition.PCA(3, svd_solver="full").fit(data.astype(np.float64))
    close: dict[str, Any] = (
        {"rtol": 1e-9, "atol": 1e-9} if dtype == "float64" else {"rtol": 2e-4, "atol": 2e-4}
    )
    np.testing.assert_allclose(ours.get_covariance(), theirs.get_covariance(), **close)
    np.testing.assert_allclose(ours.get_precision(), theirs.get_precision(), **close)
    np.testing.assert_allclose(ours.score_samples(data), theirs.score_samples(data), **close)
    assert ours.score(data) == pytest.approx(theirs.score(data.astype(np.float64)), rel=close["rtol"])
    assert ours.n_samples_seen_ == len(data)


@pytest.mark.parametrize("n_components", [9, None])
def test_the_distribution_is_that_of_scikit_learn_where_components_leave_no_variance(n_components):
    data = rows()
    ours = streamdr.PCA(n_components).fit(data)
    theirs = sklearn.decomposition.PCA(n_components, svd_solver="full").fit(data)
    np.testing.assert_allclose(ours.get_precision(), theirs.get_precision(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.score_samples(data), theirs.score_samples(data), rtol=1e-9)


def test_a_covariance_without_inverse_has_no_likelihood():
    data = rows()
    data[:, 8] = data[:, 0] + data[:, 1]
    for n_components in (8, 9):
        fitted = streamdr.PCA(n_components).fit(data)
        for ask in (fitted.get_precision, lambda fitted=fitted: fitted.score(data)):
            with pytest.raises(DataError, match="set n_components below the rank, 8"):
                ask()
    wide = streamdr.PCA(None).fit(rows(10, 40))
    with pytest.raises(DataError, match="below the rank, 9"):
        wide.get_precision()


def test_the_likelihood_of_scaled_columns_is_that_of_the_columns_themselves():
    data = rows() * np.geomspace(1e-3, 1e3, 9)
    fitted = streamdr.PCA(3, scale=True).fit(data)
    covariance = fitted.get_covariance()
    np.testing.assert_allclose(fitted.get_precision() @ covariance, np.eye(9), atol=1e-6)
    centred = data - fitted.mean_
    whole = np.einsum("ij,jk,ik->i", centred, np.linalg.inv(covariance), centred)
    expected = -0.5 * (whole + np.linalg.slogdet(covariance)[1] + 9 * np.log(2 * np.pi))
    np.testing.assert_allclose(fitted.score_samples(data), expected, rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_variances_are_those_of_incremental_pca(solver, dtype):
    data = (40 * rows() + 100).clip(0, 255).astype(dtype)
    theirs = sklearn.decomposition.IncrementalPCA(3).fit(data.astype(np.float64))
    for center, scale in product((True, False), repeat=2):
        ours = streamdr.PCA(3, solver=solver, center=center, scale=scale).fit(data)
        np.testing.assert_allclose(present(ours.var_), theirs.var_, rtol=1e-9 if dtype == "float64" else 1e-5)
    assert ours.n_samples_seen_ == theirs.n_samples_seen_


def test_rows_are_counted_over_batches():
    data = rows()
    ours = streamdr.PCA(2)
    assert not hasattr(ours, "n_samples_seen_")
    for start in range(0, 120, 50):
        ours.partial_fit(data[start : start + 50])
    assert ours.n_samples_seen_ == 120
    np.testing.assert_allclose(present(ours.var_), data.var(axis=0), rtol=1e-12)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_without_centring_components_are_singular_vectors(solver, dtype, scale):
    data = (40 * rows(offset=2.0) + 60).clip(0, 255).astype(dtype)
    ours = streamdr.PCA(4, center=False, scale=scale, solver=solver, max_passes=9, tol=1e-12).fit(data)
    plain = data.astype(np.float64)
    if scale:
        plain /= np.sqrt((plain**2).sum(axis=0) / (len(plain) - 1))
    theirs = sklearn.decomposition.TruncatedSVD(4, algorithm="arpack").fit(plain)
    rtol = 1e-9 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(ours.singular_values_, theirs.singular_values_, rtol=rtol)
    turned = np.abs(np.einsum("ij,ij->i", ours.components_, theirs.components_))
    np.testing.assert_allclose(turned, 1.0, rtol=rtol)
    assert ours.total_variance_ == pytest.approx((plain**2).sum() / (len(plain) - 1), rel=rtol)
    assert not ours.mean_.any()
    signs = np.sign(np.einsum("ij,ij->i", ours.components_, theirs.components_))
    wanted = theirs.transform(plain) * signs
    np.testing.assert_allclose(ours.transform(data), wanted, atol=10 * rtol * np.abs(wanted).max())
    whitened = streamdr.PCA(4, center=False, scale=scale, solver=solver, whiten=True).fit_transform(data)
    np.testing.assert_allclose(whitened.T @ whitened / (len(data) - 1), np.eye(4), atol=1e-3)


@pytest.mark.parametrize("solver", SOLVERS)
def test_without_centring_weights_and_rank_count(solver):
    rng = np.random.default_rng(0)
    data, weights = rows(40, 12, offset=1e3), rng.integers(0, 3, 40).astype(float)
    ours = streamdr.PCA(3, center=False, solver=solver, ddof=0).fit(data, sample_weight=weights)
    singular = np.linalg.svd(data * np.sqrt(weights)[:, None], compute_uv=False)
    np.testing.assert_allclose(ours.singular_values_, singular[:3], rtol=1e-8)
    few = streamdr.PCA(5, center=False, solver=solver).fit(data[:5])
    assert few.rank_ == 5  # no degree of freedom is lost to a mean
    constant = np.ones((20, 3))
    one = streamdr.PCA(1, center=False, solver=solver).fit(constant)
    np.testing.assert_allclose(one.components_, np.full((1, 3), 3**-0.5))
    with pytest.raises(DataError, match="every column is zero"):
        streamdr.PCA(1, center=False, solver=solver).fit(0 * constant)
    constant[:, 1] = 0
    with pytest.raises(ParameterError, match="column 1 is zero"):
        streamdr.PCA(1, center=False, scale=True, solver=solver).fit(constant)


def test_partial_fit_without_centring_keeps_the_mean_too():
    data = rows()
    parts = streamdr.PCA(3, center=False)
    for start in range(0, 120, 50):
        parts.partial_fit(data[start : start + 50])
    whole = streamdr.PCA(3, center=False, solver="covariance").fit(data)
    np.testing.assert_allclose(parts.explained_variance_, whole.explained_variance_, rtol=1e-12)
    np.testing.assert_allclose(parts.inverse_transform(parts.transform(data)), whole.denoise(data), atol=1e-9)


def test_a_model_stores_whether_it_is_centred_and_earlier_models_are(tmp_path):
    data = rows()
    fitted = streamdr.PCA(3, center=False).fit(data)
    fitted.save(str(tmp_path / "m.zarr"))
    loaded = streamdr.load_model(str(tmp_path / "m.zarr"))
    assert loaded.center_ is False
    assert loaded.get_params()["center"] is False
    np.testing.assert_array_equal(loaded.transform(data), fitted.transform(data))
    np.testing.assert_array_equal(loaded.var_, fitted.var_)

    # A model of an earlier version has neither field, nor the parameter.
    earlier = streamdr.PCA(3).fit(data)
    model = dataclasses.replace(earlier.model_, var=None)
    parameters = {name: value for name, value in earlier.get_params().items() if name != "center"}
    store.save_model(
        parse_location(tmp_path / "old.zarr"),
        model,
        method="pca",
        parameters=parameters,
        feature_names=None,
        input_fingerprint="",
        n_rows=len(data),
        overwrite=False,
    )
    old = streamdr.load_model(str(tmp_path / "old.zarr"))
    assert old.center is True
    assert old.var_ is None
    np.testing.assert_array_equal(old.transform(data), earlier.transform(data))


@pytest.mark.parametrize(("given", "kept"), [(True, "pca"), (False, None), ("pca", "pca"), (None, None)])
def test_whitening_by_a_boolean(given, kept):
    data = rows()
    ours = streamdr.PCA(3, whiten=given).fit(data)
    theirs = sklearn.decomposition.PCA(3, whiten=bool(given)).fit(data)
    assert ours.whiten is given
    assert ours.model_.whiten == kept
    np.testing.assert_allclose(np.abs(ours.transform(data)), np.abs(theirs.transform(data)), rtol=1e-8)


def test_all_of_the_variance_by_its_share():
    data = rows()
    data[:, 8] = data[:, 0]
    assert streamdr.PCA(1.0).fit(data).n_components_ == streamdr.PCA().fit(data).n_components_ == 8
    assert streamdr.PCA(1).fit(data).n_components_ == 1


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75, 0.3, 0.9999])
@pytest.mark.parametrize("solver", ["covariance", "gram"])
def test_a_share_that_is_reached_exactly_is_not_exceeded(solver, share):
    # Four orthogonal columns of the same variance: shares of exactly 1/4.
    data = np.repeat(np.eye(4), 2, axis=0)
    data[1::2] *= -1
    ours = streamdr.PCA(share, solver=solver).fit(data)
    theirs = sklearn.decomposition.PCA(share, svd_solver="full").fit(data)
    assert ours.n_components_ == theirs.n_components_


@pytest.mark.parametrize("solver", ["covariance", "gram"])
def test_a_share_that_is_reached_up_to_rounding_is_not_exceeded(solver):
    for seed in range(10):
        data = rows(40, 5, seed)
        reached = np.cumsum(sklearn.decomposition.PCA(svd_solver="full").fit(data).explained_variance_ratio_)
        for share in reached[:-1]:
            theirs = sklearn.decomposition.PCA(share, svd_solver="full").fit(data)
            assert streamdr.PCA(share, solver=solver).fit(data).n_components_ == theirs.n_components_


def test_shares_keep_as_many_as_scikit_learn():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        data = rows(int(rng.integers(20, 100)), int(rng.integers(2, 15)), seed)
        share = float(rng.uniform(0.05, 0.99))
        ours, theirs = streamdr.PCA(share).fit(data), sklearn.decomposition.PCA(share).fit(data)
        assert ours.n_components_ == theirs.n_components_


@pytest.mark.parametrize("selector", [streamdr.SelectFScore, streamdr.SelectCorrelation])
@pytest.mark.parametrize("numbers", [False, True])
def test_selectors_have_the_p_values_of_scikit_learn(selector, numbers):
    data = rows()
    target = data[:, 1] + np.arange(120) / 30 if numbers else np.arange(120) // 40
    ours = selector("all").fit(data, target)
    theirs = SelectKBest(f_regression if numbers else f_classif, k="all").fit(data, target)
    np.testing.assert_allclose(ours.pvalues_, theirs.pvalues_, rtol=1e-7, atol=1e-300)
    np.testing.assert_array_equal(ours.pvalues_, ours.p_values_)
    assert ours.get_support().all()
    np.testing.assert_array_equal(ours.transform(data), data)


def test_all_columns_by_other_selectors():
    data, labels = rows(d=4), np.arange(120) // 40
    for selector in (streamdr.SelectMutualInfo("all"), streamdr.SelectForward("all")):
        fitted = selector.fit(data, labels)
        assert fitted.get_support().all()
    assert streamdr.SelectMutualInfo("all").fit(data, labels).pvalues_ is None
    with pytest.raises(ParameterError, match="'most' is not a whole number"):
        streamdr.SelectFScore("most").fit(data, labels)  # type: ignore[arg-type]


def test_errors_name_their_parameter():
    with pytest.raises(ParameterError, match=r"^n_components: 99 components need") as refused:
        streamdr.PCA(99).fit(rows())
    with pytest.raises(ParameterError, match=r"^whiten: 'yes' is not"):
        streamdr.PCA(2, whiten="yes").fit(rows())  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match=r"^priors: "):
        streamdr.LDA(priors=[1, 1, 1]).fit(rows(), np.arange(120) % 2)
    for error in (refused.value, InputError("array", "x.zarr: is a group", located=True)):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.parameter) == (type(error), str(error), error.parameter)
    assert str(InputError("array", "c.yaml:3: input.array: no", located=True)) == "c.yaml:3: input.array: no"


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_fit_raises_a_warning(solver):
    rng = np.random.default_rng(0)
    cases = {
        "constant columns": np.hstack([rows(30, 3), np.full((30, 3), 7.0)]),
        "tiny": rows(30, 4) * 1e-100,
        "huge": rows(30, 4) * 1e150,
        "large": rows(30, 4) * 1e90,
        "rank one": np.outer(np.arange(30.0), np.ones(5)),
        "repeated": np.repeat(rows(3, 5), 10, axis=0),
        "bytes": rng.integers(0, 2, (30, 6)).astype(np.uint8),
        "float32": (rows(30, 6) * 1e-30).astype(np.float32),
        "two rows": rows(2, 5),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, data in cases.items():
            for n_components in (1, min(data.shape), 0.5, 1.0, "mle", None):
                changes: list[dict[str, Any]] = [{}, {"scale": True}, {"whiten": True}, {"center": False}]
                for parameters in changes:
                    try:
                        fitted = streamdr.PCA(n_components, solver=solver, **parameters).fit(data)
                    except (ParameterError, DataError):
                        continue
                    assert np.isfinite(fitted.transform(data)).all(), (name, n_components, parameters)
                    assert fitted.explained_variance_ratio_.sum() <= 1 + 1e-9, (
                        name,
                        n_components,
                        parameters,
                    )
