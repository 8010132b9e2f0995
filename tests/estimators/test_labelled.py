"""Estimators on DataArrays and Datasets: fits, and results with the coordinates of samples and features."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import xarray as xr

import streamdr
from streamdr.errors import DataError, StreamdrError

TIMES, MEMBERS, LATS, LONS = 40, 3, 8, 12
HOLDS = ("memory", "dask", "lazy")


@pytest.fixture(scope="module")
def grids() -> xr.Dataset:
    """Two variables of low rank and noise, with land in the first cells."""
    rng = np.random.default_rng(2)
    patterns = rng.standard_normal((4, LATS * LONS)) * np.array([4, 3, 2, 1])[:, None]
    scores = rng.standard_normal((TIMES * MEMBERS, 4))
    values = (scores @ patterns + 0.1 * rng.standard_normal((TIMES * MEMBERS, LATS * LONS))).reshape(
        TIMES, MEMBERS, LATS, LONS
    )
    values[..., :2, :5] = np.nan
    return xr.Dataset(
        {
            "sst": (("time", "member", "lat", "lon"), values + 280, {"units": "K"}),
            "ice": (("time", "member", "lat", "lon"), np.exp(values / 8), {"units": "1"}),
        },
        coords={
            "time": xr.date_range("1990-01-01", periods=TIMES, freq="MS"),
            "member": ["a", "b", "c"],
            "lat": ("lat", np.linspace(70, -70, LATS), {"units": "degrees_north"}),
            "lon": np.arange(LONS) * 30.0,
        },
    )


def held(data, hold, tmp_path):
    if hold == "memory":
        return data
    if hold == "dask":
        return data.chunk(time=7, lat=3)
    data.chunk(time=7).to_zarr(tmp_path / "x.zarr", consolidated=False)
    return xr.open_zarr(tmp_path / "x.zarr", consolidated=False, chunks=None)


def expected_svd(data, lat):
    """Centred rows of cells that are not land, times the weights, and their decomposition."""
    weights = np.broadcast_to(np.sqrt(np.cos(np.deg2rad(lat)))[:, None], data.shape[-2:]).reshape(-1)
    rows = data.reshape(-1, weights.size)
    sea = ~np.isnan(rows[0])
    centred = (rows[:, sea] - rows[:, sea].mean(axis=0)) * weights[sea]
    left, singular, right = np.linalg.svd(centred, full_matrices=False)
    return sea, left * singular, singular**2 / (len(rows) - 1), right


@pytest.mark.parametrize("hold", HOLDS)
def test_pca_of_a_data_array_is_numpys(grids, hold, tmp_path):
    given = held(grids, hold, tmp_path)["sst"]
    pca = streamdr.PCA(3).fit(given, sample_dims=["time", "member"], feature_weights="coslat")
    sea, scores, variances, right = expected_svd(grids.sst.values, grids.lat.values)
    assert pca.components_.shape == (3, LATS * LONS)
    assert np.isnan(pca.components_[:, ~sea]).all()
    np.testing.assert_allclose(pca.explained_variance_, variances[:3], rtol=1e-10)
    np.testing.assert_allclose(np.abs(pca.components_[:, sea]), np.abs(right[:3]), atol=1e-9)
    embedded = pca.transform(given)
    assert embedded.dims == ("time", "member", "component")
    np.testing.assert_array_equal(embedded.time, grids.time)
    np.testing.assert_array_equal(embedded.member, grids.member)
    found = np.asarray(embedded.values).reshape(-1, 3)
    np.testing.assert_allclose(np.abs(found), np.abs(scores[:, :3]), atol=1e-8)
    back = pca.inverse_transform(embedded)
    assert back.dims == ("time", "member", "lat", "lon")
    np.testing.assert_array_equal(back.lat, grids.lat)
    assert back.attrs == {"units": "K"}
    assert np.isnan(back.values[..., :2, :5]).all()
    np.testing.assert_allclose(back.values, pca.denoise(given).values, atol=1e-9)
    assert float(np.nanmax(np.abs(back.values - grids.sst.values))) < 12


@pytest.mark.parametrize("hold", HOLDS)
def test_variables_of_a_data_set_are_features_side_by_side(grids, hold, tmp_path):
    given = held(grids, hold, tmp_path)
    how: dict[str, Any] = {
        "variable": ["sst", "ice"],
        "sample_dims": ("time", "member"),
        "select": {"lat": [-40, 40]},
    }
    pca = streamdr.PCA(2).fit(given, **how)
    part = grids.sel(lat=slice(40, -40))
    rows = np.stack([part.sst.values, part.ice.values], axis=2).reshape(TIMES * MEMBERS, -1)
    rows = rows[:, ~np.isnan(rows[0])]
    expected = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)[:2] ** 2 / (len(rows) - 1)
    np.testing.assert_allclose(pca.explained_variance_, expected, rtol=1e-10)
    back = pca.inverse_transform(pca.transform(given))
    assert back.dims == ("time", "member", "variable", "lat", "lon")
    assert back["variable"].values.tolist() == ["sst", "ice"]
    np.testing.assert_array_equal(back.lat, part.lat)


def test_a_saved_model_opens_rows_as_its_fit_did(grids, tmp_path):
    how: dict[str, Any] = {
        "variable": "sst",
        "sample_dims": ["time", "member"],
        "select": {"time": ["1990", "1991"]},
    }
    pca = streamdr.PCA(2).fit(grids, **how)
    pca.save(tmp_path / "model.zarr")
    for other in (streamdr.load_model(tmp_path / "model.zarr"), pickle.loads(pickle.dumps(pca))):
        found = other.transform(grids)
        assert found.sizes == {"time": 24, "member": MEMBERS, "component": 2}
        np.testing.assert_allclose(found.values, pca.transform(grids).values, atol=1e-10)


def test_ppca_fills_cells_that_are_missing_in_some_steps(grids):
    data = grids.sst.copy(deep=True)
    rng = np.random.default_rng(0)
    gaps = rng.random(data.shape) < 0.1
    data.values[gaps] = np.nan
    how: dict[str, Any] = {"sample_dims": ["time", "member"], "min_observed": 0.5}
    ppca = streamdr.PPCA(4).fit(data, **how)
    filled = ppca.impute(data)
    assert filled.dims == data.dims
    known = gaps & ~np.isnan(grids.sst.values)
    error = np.sqrt(np.mean((filled.values[known] - grids.sst.values[known]) ** 2))
    assert error < 0.25  # the noise is 0.1, and values deviate by more than 5
    assert np.isnan(filled.values[..., :2, :5]).all()
    with pytest.raises(StreamdrError, match="PPCA"):
        streamdr.PCA(2).fit(data, sample_dims=["time", "member"])


def test_an_unlabelled_array_may_be_weighted():
    rng = np.random.default_rng(1)
    rows, weights = rng.standard_normal((50, 6)) + 3, np.array([1.0, 2, 0.5, 0, 1, 3])
    pca = streamdr.PCA(2).fit(rows, feature_weights=weights)
    kept = weights > 0
    centred = (rows[:, kept] - rows[:, kept].mean(axis=0)) * weights[kept]
    expected = np.linalg.svd(centred, compute_uv=False)[:2] ** 2 / 49
    np.testing.assert_allclose(pca.explained_variance_, expected, rtol=1e-12)
    np.testing.assert_allclose(pca.inverse_transform(pca.transform(rows))[:, 3], np.nan)


def test_a_selector_reads_labelled_rows(grids):
    labels = np.arange(TIMES) % 3
    data = grids.sst.isel(member=0, lat=slice(2, None))
    chosen = streamdr.SelectFScore(4).fit(data, labels, sample_dims="time")
    found = chosen.transform(data)
    assert found.shape == (TIMES, 4)
    flat = data.values.reshape(TIMES, -1)
    np.testing.assert_array_equal(found.values, flat[:, chosen.get_support()])


ORDERS = [
    ("time", "member", "lon", "lat"),
    ("lon", "lat", "member", "time"),
    ("lat", "time", "lon", "member"),
]


@pytest.mark.parametrize("hold", HOLDS)
@pytest.mark.parametrize("order", ORDERS, ids=",".join)
def test_dimensions_of_new_data_are_matched_by_name(grids, hold, order, tmp_path):
    pca = streamdr.PCA(3).fit(grids["sst"], sample_dims=["time", "member"], feature_weights="coslat")
    given = held(grids.transpose(*order), hold, tmp_path)
    expected = pca.transform(grids["sst"])
    for new in (given["sst"], given[["sst"]]):
        xr.testing.assert_allclose(pca.transform(new).transpose(*expected.dims), expected, rtol=1e-12)
    assert pca.denoise(given["sst"]).dims == ("time", "member", "lat", "lon")


def test_dimensions_are_matched_by_name_without_sample_dims(grids):
    one = grids.isel(member=0)
    pca = streamdr.PCA(3).fit(one["sst"])
    expected = pca.transform(one["sst"])
    xr.testing.assert_allclose(pca.transform(one["sst"].transpose("lon", "lat", "time")), expected)


def test_several_variables_are_matched_by_name(grids):
    names = ["sst", "ice"]
    pca = streamdr.PCA(3).fit(grids, variable=names, sample_dims=["time", "member"])
    swapped = grids.transpose("member", "lon", "time", "lat")
    xr.testing.assert_allclose(pca.transform(swapped), pca.transform(grids), rtol=1e-12)


def test_a_selector_matches_dimensions_by_name(grids):
    wide = grids["sst"].isel(member=0).fillna(0.0)
    selector = streamdr.SelectCorrelation(3).fit(wide, np.arange(TIMES) % 7)
    swapped = selector.transform(wide.transpose("lon", "time", "lat"))
    np.testing.assert_array_equal(swapped, selector.transform(wide))


def test_partial_fit_matches_dimensions_by_name(grids):
    wide = grids["sst"].isel(member=0, lat=slice(2, None))
    swapped = wide.transpose("time", "lon", "lat")
    pca = streamdr.PCA(3).partial_fit(wide[:20]).partial_fit(swapped[20:])
    plain = streamdr.PCA(3).partial_fit(wide[:20]).partial_fit(wide[20:])
    np.testing.assert_allclose(pca.components_, plain.components_, atol=1e-10)
    assert pca.to_xarray().components.dims == ("component", "lat", "lon")
    with pytest.raises(DataError, match=r"its coordinate 'lon' is 5\.0 at position 0"):
        pca.partial_fit(wide.assign_coords(lon=wide.lon + 5))


OTHER_GRIDS = {
    "shifted": (
        lambda data: data.assign_coords(lat=data.lat - 1.5),
        r"its coordinate 'lat' is 68\.5 at position 0, and 70\.0 in the model \(8 of 8 values differ\)",
    ),
    "descending": (
        lambda data: data.isel(lon=slice(None, None, -1)),
        r"its coordinate 'lon' is 330\.0 at position 0, and 0\.0 in the model \(12 of 12",
    ),
    "longer": (
        lambda data: data.isel(lon=slice(0, 9)),
        "its dimension 'lon' has 9 features, and 12 in the model",
    ),
    "swapped lengths": (
        lambda data: data.rename(lat="lon", lon="lat"),
        "its dimension 'lat' has 12 features, and 8 in the model",
    ),
}


@pytest.mark.parametrize("hold", HOLDS)
@pytest.mark.parametrize(("change", "message"), OTHER_GRIDS.values(), ids=OTHER_GRIDS)
def test_another_grid_is_refused(grids, change, message, hold, tmp_path):
    pca = streamdr.PCA(3).fit(grids["sst"], sample_dims=["time", "member"])
    other = held(change(grids), hold, tmp_path)["sst"]
    for use in (pca.transform, pca.denoise, pca.score):
        with pytest.raises(DataError, match=message):
            use(other)


def test_coordinates_that_are_rounded_otherwise_or_absent_are_accepted(grids):
    data = grids["sst"]
    pca = streamdr.PCA(3).fit(data, sample_dims=["time", "member"])
    expected = pca.transform(data)
    rounded = data.assign_coords(lat=np.nextafter(data.lat.values, 1e3), lon=data.lon.astype(np.float32))
    for other in (rounded, data.drop_vars(["lat", "lon"]), data.isel(time=slice(3, 9))):
        found = expected[3:9] if other.shape[0] == 6 else expected
        np.testing.assert_allclose(pca.transform(other), found, rtol=0, atol=1e-10)


def test_times_as_features_are_compared_in_their_units(grids):
    data = grids["sst"].isel(member=0, lat=slice(2, None)).transpose("lat", ...)
    pca = streamdr.PCA(2).fit(data, sample_dims="lat")
    data.time.encoding = {"units": "minutes since 1950-01-01"}
    np.testing.assert_allclose(pca.transform(data), pca.transform(data.drop_vars("time")), atol=1e-10)


@pytest.mark.parametrize("hold", HOLDS)
def test_a_missing_value_of_new_data_names_its_cell(grids, hold, tmp_path):
    pca = streamdr.PCA(3).fit(grids["sst"], sample_dims=["time", "member"])
    holed = grids.copy(deep=True)
    holed["sst"][3, 1, 4, 2] = np.nan
    with pytest.raises(StreamdrError, match=r"nan at row 10, column 50 \(lat=-10\.0, lon=60\.0\)"):
        np.asarray(pca.transform(held(holed, hold, tmp_path)["sst"]))


def test_values_on_land_are_ignored(grids):
    pca = streamdr.PCA(3).fit(grids["sst"], sample_dims=["time", "member"])
    filled = pca.transform(grids["sst"].fillna(7.0))
    np.testing.assert_allclose(filled, pca.transform(grids["sst"]), atol=1e-10)


def test_a_multi_index_is_kept(grids):
    stacked = grids["sst"].stack(sample=("time", "member")).transpose("sample", ...)
    pca = streamdr.PCA(3).fit(stacked, sample_dims="sample")
    embedded = pca.transform(stacked)
    xr.testing.assert_identical(embedded.coords["sample"], stacked.coords["sample"])
    cells = stacked.stack(cell=("lat", "lon"))
    components = streamdr.PCA(3).fit(cells, sample_dims="sample").to_xarray().components
    np.testing.assert_array_equal(components.lat, cells.lat)
