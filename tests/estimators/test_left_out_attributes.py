"""Estimators whose fit left out or weighed features: all that goes in and comes out has all features."""

from __future__ import annotations

import pickle

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from fits import stored
from labelled import Grid, labelled
from sklearn import decomposition
from sklearn.base import clone

import streamdr
from streamdr.errors import MissingValuesError, ParameterError


@pytest.fixture
def grid():
    return Grid.made()


@pytest.fixture
def pca(grid):
    return streamdr.PCA(3).fit(labelled(grid.values, (3, 4), grid.weights))


def in_memory(grid: Grid) -> tuple[decomposition.PCA, np.ndarray]:
    """PCA of the columns that are left, times their weights, and these."""
    rows = (grid.sea - grid.sea.mean(axis=0)) * grid.sea_weights
    return decomposition.PCA(3).fit(rows), rows


def whole(grid: Grid, values: np.ndarray) -> np.ndarray:
    """Values of the columns that are left, with NaN for the others."""
    found = np.full((*values.shape[:-1], len(grid.land)), np.nan)
    found[..., ~grid.land] = values
    return found


def test_attributes_along_features_have_all_of_them(grid, pca):
    assert pca.n_features_in_ == 12
    assert pca.components_.shape == (3, 12)
    for values in (pca.components_, pca.mean_, pca.scale_, pca.var_):
        np.testing.assert_array_equal(np.isnan(np.atleast_2d(values)).all(axis=0), grid.land)
    np.testing.assert_allclose(pca.mean_, whole(grid, grid.sea.mean(axis=0)))
    assert pca.explained_variance_.shape == (3,)
    assert pca.get_feature_names_out().tolist() == ["pca0", "pca1", "pca2"]


def test_covariance_and_precision_are_those_of_the_features_that_are_left(grid, pca):
    expected, _ = in_memory(grid)
    products = np.outer(grid.sea_weights, grid.sea_weights)
    for found, wanted in (
        (pca.get_covariance(), expected.get_covariance() / products),
        (pca.get_precision(), expected.get_precision() * products),
    ):
        assert found.shape == (12, 12)
        np.testing.assert_allclose(found[np.ix_(~grid.land, ~grid.land)], wanted, rtol=1e-6)
        assert np.isnan(found[grid.land]).all()
        assert np.isnan(found[:, grid.land]).all()


def test_covariance_of_values_that_the_method_sees_weighted_is_in_units_of_the_data(grid):
    ppca = streamdr.PPCA(3).fit(labelled(grid.values, (3, 4), grid.weights))
    plain = streamdr.PPCA(3).fit(grid.sea * grid.sea_weights)
    products = np.outer(grid.sea_weights, grid.sea_weights)
    found = ppca.get_covariance()[np.ix_(~grid.land, ~grid.land)]
    np.testing.assert_allclose(found, plain.get_covariance() / products, rtol=1e-9)
    rows = ppca.sample(5, random_state=1)
    np.testing.assert_allclose(rows, whole(grid, plain.sample(5, random_state=1) / grid.sea_weights))
    means, covariances = ppca.latent(grid.values)
    expected = plain.latent(grid.sea * grid.sea_weights)
    np.testing.assert_array_equal(means, expected[0])
    np.testing.assert_array_equal(covariances, expected[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_go_in_and_come_out_in_their_type_with_all_features(dtype):
    grid = Grid.made(dtype=dtype)
    expected, rows = in_memory(grid)
    pca = streamdr.PCA(3).fit(labelled(grid.values, (3, 4), grid.weights))
    scores = pca.transform(grid.values)
    assert scores.dtype == dtype
    np.testing.assert_allclose(np.abs(scores), np.abs(expected.transform(rows)), rtol=1e-3, atol=1e-4)
    back = expected.inverse_transform(expected.transform(rows)) / grid.sea_weights + grid.sea.mean(axis=0)
    for found in (pca.inverse_transform(scores), pca.denoise(grid.values)):
        assert found.dtype == dtype
        np.testing.assert_allclose(found, whole(grid, back), rtol=1e-4, atol=1e-4)
    ppca = streamdr.PPCA(3).fit(labelled(grid.values, (3, 4), grid.weights))
    for found in (ppca.transform(grid.values), ppca.impute(grid.values)):
        assert found.dtype == dtype
    assert ppca.score_samples(grid.values).dtype == np.float64
    mixture = streamdr.PPCAMixture(1, n_mixtures=2).fit(labelled(grid.values, (3, 4), grid.weights))
    assert mixture.predict(grid.values).dtype == np.int64
    assert mixture.predict_proba(grid.values).dtype == np.float64


def test_zca_has_all_features_as_outputs(grid):
    pca = streamdr.PCA(3, whiten="zca").fit(labelled(grid.values, (3, 4), grid.weights))
    scores = pca.transform(grid.values)
    assert scores.shape == grid.values.shape
    assert len(pca.get_feature_names_out()) == 12
    np.testing.assert_allclose(pca.inverse_transform(scores), pca.denoise(grid.values), rtol=1e-10)


def test_lazy_rows_and_stores(grid, pca, tmp_path):
    expected = pca.transform(grid.values)
    path = stored(tmp_path / "x.zarr", grid.values)
    array = xr.DataArray(grid.values.reshape(-1, 3, 4), dims=("time", "lat", "lon"))
    for given in (path, da.from_array(grid.values, chunks=(20, 12)), array, labelled(grid.values, (3, 4))):
        np.testing.assert_allclose(np.asarray(pca.transform(given)), expected, rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(pca.denoise(path)), pca.denoise(grid.values))


def test_values_on_land_are_ignored_and_missing_ones_elsewhere_refused(grid, pca):
    rows = grid.values.copy()
    rows[:, grid.land] = 7.0
    np.testing.assert_array_equal(pca.transform(rows), pca.transform(grid.values))
    rows[3, 5] = np.nan
    with pytest.raises(MissingValuesError, match=r"nan at row 3, column 5 "):
        pca.transform(rows)


def test_pickles_and_clones(grid, pca):
    again = pickle.loads(pickle.dumps(pca))
    np.testing.assert_array_equal(again.transform(grid.values), pca.transform(grid.values))
    np.testing.assert_array_equal(again.components_, pca.components_)
    assert clone(pca).get_params() == pca.get_params()


@pytest.mark.parametrize("estimator", [streamdr.PCA(3), streamdr.PCA(3, whiten="zca"), streamdr.PPCA(3)])
def test_a_saved_model_is_the_same(estimator, grid, tmp_path):
    fitted = clone(estimator).fit(labelled(grid.values, (3, 4), grid.weights))
    again = streamdr.load_model(fitted.save(tmp_path / "model.zarr"))
    np.testing.assert_array_equal(again.components_, fitted.components_)
    np.testing.assert_array_equal(again.mean_, fitted.mean_)
    np.testing.assert_array_equal(again.transform(grid.values), fitted.transform(grid.values))
    assert again.n_features_in_ == 12


@pytest.mark.parametrize("wish", [{"weights": np.ones(12)}, {"min_observed": 0.5}, {"balanced": True}])
def test_partial_fit_neither_weighs_nor_leaves_out(grid, wish):
    rows = np.nan_to_num(grid.values)
    with pytest.raises(ParameterError, match="partial_fit: rows cannot be added to a fit that leaves out"):
        streamdr.PCA(3).partial_fit(labelled(rows, (3, 4), **wish))


def test_partial_fit_does_not_continue_a_fit_with_features_left_out(grid, pca):
    with pytest.raises(ParameterError, match="partial_fit: rows cannot be added"):
        pca.partial_fit(grid.values)


def test_a_plain_matrix_with_a_column_of_nan_is_refused_as_before(grid):
    with pytest.raises(MissingValuesError, match=r"nan at row 0, column 0 .*min_observed"):
        streamdr.PCA(3).fit(grid.values)


@pytest.mark.parametrize("wish", [{"min_observed": 0.5}, {"feature_weights": np.ones(12)}])
def test_a_plain_matrix_leaves_columns_out_on_request(grid, wish):
    pca = streamdr.PCA(3).fit(grid.values, **wish)
    assert pca.components_.shape == (3, 12)
    np.testing.assert_array_equal(np.isnan(pca.mean_), grid.land)
    expected = decomposition.PCA(3).fit(grid.sea)
    np.testing.assert_allclose(pca.explained_variance_, expected.explained_variance_, rtol=1e-10)
    np.testing.assert_allclose(np.abs(pca.transform(grid.values)), np.abs(expected.transform(grid.sea)))
    rows = grid.values.copy()
    rows[7, 5] = np.nan
    with pytest.raises(MissingValuesError, match="nan at row 7, column 5"):
        streamdr.PCA(3).fit(rows, **wish)


def test_a_fit_to_plain_columns_forgets_the_features_of_an_earlier_one(grid, pca):
    pca.fit(grid.sea)
    assert pca.n_features_in_ == 8
    assert pca.components_.shape == (3, 8)
    assert pca.partial_fit(grid.sea).n_samples_seen_ == 2 * 83


def test_a_selection_by_variance_has_the_numbers_of_all_features(grid, tmp_path):
    chosen = streamdr.SelectVariance(5).fit(labelled(grid.values, (3, 4)))
    kept = np.sort(np.argsort(np.where(grid.land, -1.0, grid.values.var(axis=0)))[-5:])
    np.testing.assert_array_equal(chosen.get_support(indices=True), kept)
    np.testing.assert_array_equal(np.flatnonzero(chosen.support_), kept)
    assert len(chosen.get_feature_names_out(np.arange(12).astype(str))) == 5
    expected = grid.values[:, kept]
    store = stored(tmp_path / "x.zarr", grid.values, (10, 5))
    for rows in (grid.values, da.from_array(grid.values, chunks=(20, 6)), store):
        np.testing.assert_array_equal(np.asarray(chosen.transform(rows)), expected)
