"""A fitted estimator as an xarray Dataset, which is what xarray opens of the saved model."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
import pytest
import xarray
from grids import AREA, LAND, labelled, sst
from sklearn.exceptions import NotFittedError

import streamdr
from streamdr import LDA, PCA, PPCA, KernelPCA
from streamdr.core.execution import Execution
from streamdr.data import open_source
from streamdr.engine import fitting

ROWS = np.random.default_rng(0).normal(size=(50, 4))
CLASSES = np.array(["ä", "b", "c"])[np.arange(50) % 3]


def test_arrays_have_their_dimensions_and_scalars_are_attributes():
    pca = PCA(2).fit(ROWS)
    dataset = pca.to_xarray()
    assert dataset.components.dims == ("component", "feature")
    np.testing.assert_array_equal(dataset.components.sel(component=1), pca.components_[1])
    assert dataset.attrs["method"] == "pca"
    assert dataset.attrs["n_rows"] == 50
    assert dataset.attrs["total_variance"] == pca.total_variance_
    assert json.loads(dataset.attrs["parameters"]) == pca.get_params()


def test_the_dataset_is_a_copy():
    pca = PCA(2).fit(ROWS)
    before = pca.components_.copy()
    pca.to_xarray().components[:] = 0
    np.testing.assert_array_equal(pca.components_, before)


def test_names_of_columns_are_a_coordinate():
    frame = pd.DataFrame(ROWS, columns=["a", "b", "é", "d"])
    dataset = PCA(2).fit(frame).to_xarray()
    assert dataset.feature.values.tolist() == ["a", "b", "é", "d"]
    assert dataset.components.sel(feature="é").dims == ("component",)


def test_names_of_columns_are_a_coordinate_of_the_saved_model(tmp_path):
    PCA(2).fit(pd.DataFrame(ROWS, columns=list("abcd"))).save(tmp_path / "m")
    loaded = streamdr.load_model(tmp_path / "m")
    assert loaded.to_xarray().feature.values.tolist() == list("abcd")
    assert xarray.open_zarr(tmp_path / "m").feature.values.tolist() == list("abcd")


def test_classes_of_text_are_along_their_dimension():
    dataset = LDA(1).fit(ROWS, CLASSES).to_xarray()
    assert dataset.classes.dims == dataset.priors.dims
    assert dataset.classes.values.tolist() == ["b", "c", "ä"]


def test_a_function_among_the_parameters_is_named():
    def linear(x, y):
        return x @ y.T

    dataset = KernelPCA(2, kernel=linear).fit(ROWS).to_xarray()
    assert json.loads(dataset.attrs["parameters"])["kernel"].endswith("linear")


def test_a_model_of_a_grid_is_the_dataset_that_its_store_holds(tmp_path):
    source = labelled(open_source(sst(100)))
    fitted = fitting.fit(PCA(2)._method, source, Execution(workers=1))
    pca = PCA(2)
    pca.model_, pca.feature_axes_, pca.n_rows_, pca.n_features_in_ = fitted.model, fitted.axes, 100, 24
    pca.save(tmp_path / "m")
    dataset = streamdr.load_model(tmp_path / "m").to_xarray()
    np.testing.assert_array_equal(np.isnan(dataset.components.sel(component=0)), LAND)
    assert dataset["mean"].attrs == {"units": "K", "long_name": "sea surface temperature"}
    opened = xarray.open_zarr(tmp_path / "m").load()
    assert opened.sizes == dataset.sizes
    assert set(opened.coords) == set(dataset.coords)
    assert set(opened.data_vars) == set(dataset.data_vars)
    for name, stored in opened.variables.items():
        here = dataset.variables[name]
        assert (here.dims, here.attrs) == (stored.dims, stored.attrs)
        assert here.values.tolist() == stored.values.tolist() or np.isnan(here.values).any()
        np.testing.assert_array_equal(here.values, stored.values.astype(here.dtype))


def test_means_of_weighted_values_are_in_the_units_of_the_data():
    weights = np.where(LAND, 1.0, AREA)
    source = labelled(open_source(sst(100)), weights=weights)
    fitted = fitting.fit(PPCA(2)._method, source, Execution(workers=1))
    assert fitted.axes is not None
    assert fitted.axes.weighted
    ppca = PPCA(2)
    ppca.model_, ppca.feature_axes_, ppca.n_rows_ = fitted.model, fitted.axes, 100
    mean = ppca.to_xarray()["mean"]
    np.testing.assert_allclose(mean, sst(100).mean(axis=0, dtype="f8"), rtol=1e-6)
    assert mean.attrs["units"] == "K"


def test_an_estimator_that_is_not_fitted_has_no_dataset():
    with pytest.raises(NotFittedError):
        PCA(2).to_xarray()


def test_without_xarray_the_error_says_what_to_install(monkeypatch):
    pca = PCA(2).fit(ROWS)
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ImportError, match=r"to_xarray needs xarray: pip install 'streamdr\[xarray\]'"):
        pca.to_xarray()


def test_partial_fits_have_a_dataset():
    pca = PCA(2)
    pca.partial_fit(ROWS[:30]).partial_fit(ROWS[30:])
    assert pca.to_xarray().attrs["n_rows"] == 50


def test_a_dataset_is_written_to_a_file(tmp_path):
    source = labelled(open_source(sst(100)))
    pca = PCA(2)
    fitted = fitting.fit(pca._method, source, Execution(workers=1))
    pca.model_, pca.feature_axes_, pca.n_rows_, pca.n_features_in_ = fitted.model, fitted.axes, 100, 24
    pca.to_xarray().drop_vars("region").to_zarr(tmp_path / "copy.zarr", consolidated=False)
    assert xarray.open_zarr(tmp_path / "copy.zarr", consolidated=False).attrs["method"] == "pca"
