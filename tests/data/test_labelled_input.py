"""Variables of a data set with named dimensions are opened as rows x features, as xarray reads them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import xarray as xr
from command_line import succeed

import streamdr
from streamdr import config
from streamdr.core.axes import FeatureAxes
from streamdr.core.blocks import Span
from streamdr.data.source import Source
from streamdr.errors import ConfigError, DataError, ParameterError, StreamdrError
from streamdr.store import load_model

TIMES, MEMBERS, LATS, LONS = 25, 3, 7, 11


def data_set(dtype="f4", *, descending=False):
    rng = np.random.default_rng(3)
    shape = (TIMES, MEMBERS, LATS, LONS)
    values = rng.standard_normal(shape).astype(dtype)
    lat = np.linspace(-75, 75, LATS)
    return xr.Dataset(
        {
            "sst": (("time", "member", "lat", "lon"), values, {"units": "K", "cell_methods": "time: mean"}),
            "ice": (("time", "member", "lat", "lon"), 3 * values + 1, {"units": "1"}),
            "depth": (("lat", "lon"), rng.random((LATS, LONS))),
        },
        coords={
            "time": xr.date_range("1990-01-15", periods=TIMES, freq="MS"),
            "member": [f"run {number}" for number in range(MEMBERS)],
            "lat": ("lat", lat[::-1] if descending else lat, {"units": "degrees_north"}),
            "lon": ("lon", np.linspace(0.0, 350.0, LONS), {"units": "degrees_east"}),
            "season": ("time", np.arange(TIMES) % 4),
            "basin": (("lat", "lon"), rng.integers(0, 5, (LATS, LONS))),
        },
    )


def stored(tmp_path, data, **options):
    path = str(tmp_path / "x.zarr")
    options.setdefault("zarr_format", 3)
    data.chunk({dim: size for dim, size in {"time": 4, "lat": 3}.items() if dim in data.dims}).to_zarr(
        path, consolidated=False, **options
    )
    return path


def open_source(data: Any, **given: Any) -> Source:
    return streamdr.open_source(data, **given)


def axes_of(source: Source) -> FeatureAxes:
    assert source.axes is not None
    return source.axes


def everything(source):
    return source.read(Span(0, source.spec.n_rows), Span(0, source.spec.n_cols))


def coordinate(source, name):
    found = {one.name: one for one in source.sample_coords}[name]
    return found.values.read(Span(0, source.spec.n_rows), Span(0, 1))[:, 0], found.attributes


SELECTIONS: dict[str, tuple[Any, Any]] = {
    "nothing": ({}, {}),
    "a box": ({"lat": [-60, 60], "lon": [30, 200]}, {"lat": slice(-60, 60), "lon": slice(30, 200)}),
    "from a year on": ({"time": ["1991", None]}, {"time": slice("1991", None)}),
    "up to a month": ({"time": [None, "1990-10"]}, {"time": slice(None, "1990-10")}),
    "a label": ({"lat": 25}, {"lat": 25}),
    "a name": ({"member": "run 1"}, {"member": "run 1"}),
    "names": ({"member": ["run 1", "run 2"]}, {"member": slice("run 1", "run 2")}),
}


@pytest.mark.parametrize("chosen", SELECTIONS)
@pytest.mark.parametrize("version", [2, 3])
def test_values_are_those_of_xarray(tmp_path, chosen, version):
    data = data_set()
    given, expected = SELECTIONS[chosen]
    path = stored(tmp_path, data, zarr_format=version)
    selected = data.sst.sel(expected)
    dims = ["time", "member"] if "member" in selected.dims else ["time"]
    source = open_source(path, variable="sst", sample_dims=dims, select=given)
    matrix = selected.values.reshape(source.spec.n_rows, -1)
    np.testing.assert_array_equal(everything(source), matrix)
    rows, cols = Span(2, 9), Span(1, min(6, matrix.shape[1]))
    np.testing.assert_array_equal(source.read(rows, cols), matrix[rows.slice, cols.slice])
    np.testing.assert_array_equal(source.read_scratch(rows, cols), matrix[rows.slice, cols.slice])
    features = [dim for dim in selected.dims if dim not in dims]
    assert axes_of(source).dims == tuple(features)
    for one in axes_of(source).coords:
        np.testing.assert_array_equal(one.values, selected[one.name].values)


@pytest.mark.parametrize("hold", ["zarr", "memory", "dask", "lazy"])
def test_a_data_set_in_python_is_the_store(tmp_path, hold):
    data = data_set()
    path = stored(tmp_path, data)
    given = {
        "zarr": path,
        "memory": data,
        "dask": data.chunk(time=4, lat=3),
        "lazy": xr.open_zarr(path, consolidated=False, chunks=None),
    }[hold]
    source = open_source(
        given, variable=["sst", "ice"], sample_dims=("time", "member"), select={"lat": [-30, 30]}
    )
    part = data.sel(lat=slice(-30, 30))
    expected = np.stack([part.sst.values, part.ice.values], axis=2).reshape(source.spec.n_rows, -1)
    np.testing.assert_array_equal(everything(source), expected)
    np.testing.assert_array_equal(source.read(Span(3, 20), Span(5, 50)), expected[3:20, 5:50])
    assert axes_of(source).dims == ("variable", "lat", "lon")
    assert [one.values.tolist() for one in axes_of(source).coords if one.name == "variable"] == [
        ["sst", "ice"]
    ]
    assert source.sample_dims == ("time", "member")
    times, attributes = coordinate(source, "time")
    decoded = xr.decode_cf(xr.Dataset({"time": ("row", times, dict(attributes))})).time.values
    np.testing.assert_array_equal(decoded, np.repeat(data.time.values, MEMBERS))
    np.testing.assert_array_equal(coordinate(source, "season")[0], np.repeat(data.season.values, MEMBERS))
    assert coordinate(source, "member")[0].tolist() == data.member.values.tolist() * TIMES


@pytest.mark.parametrize("order", [("time", "member"), ("member", "time")])
@pytest.mark.parametrize("stored_as", [("time", "member", "lat", "lon"), ("lat", "member", "lon", "time")])
def test_rows_go_through_sample_dims_in_the_order_given(tmp_path, order, stored_as):
    data = data_set()
    path = stored(tmp_path, data.transpose(*stored_as))
    source = open_source(path, variable="sst", sample_dims=order)
    features = [dim for dim in stored_as if dim not in order]
    expected = data.sst.transpose(*order, *features).values.reshape(source.spec.n_rows, -1)
    np.testing.assert_array_equal(everything(source), expected)
    for start, stop in ((0, 1), (1, 8), (2, 75), (74, 75)):
        np.testing.assert_array_equal(source.read(Span(start, stop), Span(0, 77)), expected[start:stop])


def test_a_plain_variable_is_read_as_the_array_itself(tmp_path):
    path = stored(tmp_path, data_set().isel(member=0))
    labelled, plain = open_source(path, variable="sst"), open_source(path, array="sst")
    assert type(labelled) is type(plain)
    assert labelled.identity == plain.identity
    assert labelled.fingerprint() == plain.fingerprint()


@pytest.mark.parametrize("version", [2, 3])
def test_packed_integers_are_decoded_as_xarray_does(tmp_path, version):
    data = data_set().isel(member=0)[["sst"]]
    data["sst"] = data.sst.where(data.sst > -1)
    packed = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 3.0, "_FillValue": -32768}
    path = stored(tmp_path, data, zarr_format=version, encoding={"sst": packed})
    source = open_source(path, variable="sst", select={"lon": [0, 200]})
    expected = xr.open_zarr(path, consolidated=False).sst.sel(lon=slice(0, 200)).values
    assert np.isnan(expected).any()
    assert source.spec.dtype == expected.dtype
    np.testing.assert_array_equal(everything(source), expected.reshape(TIMES, -1))


def test_longitudes_may_descend(tmp_path):
    data = data_set(descending=True).isel(member=0)
    path = stored(tmp_path, data)
    for wanted in ([-30, 30], [30, -30]):
        source = open_source(path, variable="sst", select={"lat": wanted})
        expected = data.sst.sel(lat=slice(30, -30))
        np.testing.assert_array_equal(everything(source), expected.values.reshape(TIMES, -1))


def test_positions_and_dimensions_without_coordinates(tmp_path):
    data = data_set().isel(member=0).drop_vars("lon")
    path = stored(tmp_path, data)
    by_position = open_source(path, variable="sst", select={"lat": {"positions": [1, 3]}, "lon": [2, None]})
    expected = data.sst.isel(lat=slice(1, 3), lon=slice(2, None)).values.reshape(TIMES, -1)
    np.testing.assert_array_equal(everything(by_position), expected)
    for labels in ([-60, 60], 2.5, "east"):
        with pytest.raises(ParameterError, match=r"lon: has no coordinate, so .* cannot be labels"):
            open_source(path, variable="sst", select={"lon": labels})
    single = open_source(path, variable="sst", select={"lat": {"positions": -1}})
    np.testing.assert_array_equal(everything(single), data.sst.isel(lat=-1).values)
    assert axes_of(single).dims == ("lon",)


def test_rows_that_are_appended_to_a_window_leave_its_digests(tmp_path):
    data = data_set()
    path = stored(tmp_path, data.isel(time=slice(0, 12)))

    def opened():
        return open_source(
            path, variable="sst", sample_dims=["time", "member"], select={"time": ["1990-05", None]}
        )

    before = opened()
    rows = before.spec.n_rows
    digests = [before.snapshot().digest(number) for number in (3, 12, rows)]
    identity = before.identity
    data.isel(time=slice(12, None)).chunk(time=4, lat=3).drop_vars(
        ["basin", "lat", "lon", "depth", "member"]
    ).to_zarr(path, append_dim="time", consolidated=False)
    after = opened()
    assert after.spec.n_rows == rows + MEMBERS * (TIMES - 12)
    assert [after.snapshot().digest(number) for number in (3, 12, rows)] == digests
    assert after.identity == identity


def test_weights_of_features(tmp_path):
    data = data_set()
    path = stored(tmp_path, data)
    at: dict[str, Any] = {"variable": "sst", "sample_dims": ["time", "member"], "select": {"lat": [-60, 60]}}
    part = data.sel(lat=slice(-60, 60))
    cosine = np.sqrt(np.cos(np.deg2rad(part.lat.values)))
    expected = np.broadcast_to(cosine[:, None], (part.sizes["lat"], LONS)).reshape(-1)
    weights = axes_of(open_source(path, **at, feature_weights="coslat")).weights
    np.testing.assert_allclose(np.asarray(weights), expected, rtol=1e-15)
    named = axes_of(open_source(path, **at, feature_weights="depth")).weights
    np.testing.assert_array_equal(named, part.depth.values.reshape(-1))
    array = axes_of(open_source(data, **at, feature_weights=part.depth.T)).weights
    np.testing.assert_array_equal(array, part.depth.values.reshape(-1))
    vector = open_source(path, **at, feature_weights=list(range(expected.size)))
    np.testing.assert_array_equal(axes_of(vector).weights, np.arange(expected.size))


BAD: dict[str, tuple[Any, str]] = {
    "no such variable": ({"variable": "sss"}, "no variable 'sss'; it has depth, ice, sst"),
    "which variable": ({"sample_dims": "time"}, "it has depth, ice, sst; say which"),
    "named twice": ({"variable": ["sst", "sst"]}, "'sst' is named twice"),
    "no variables": ({"variable": []}, "names no variable"),
    "no such sample dimension": (
        {"variable": "sst", "sample_dims": "times"},
        "no dimension 'times'; it has time, member, lat, lon",
    ),
    "other grids": ({"variable": ["sst", "depth"]}, "depth has lat 7 x lon 11, and sst has time 25"),
    "no such dimension": ({"variable": "sst", "select": {"height": 3}}, "no dimension 'height'"),
    "an empty box": ({"variable": "sst", "select": {"lat": [80, 90]}}, "no label is between 80 and 90"),
    "across the end": ({"variable": "sst", "select": {"lon": [350, 10]}}, "across the end of a circle"),
    "no such label": ({"variable": "sst", "select": {"lat": 1}}, "no label is 1; it goes from -75.0 to 75.0"),
    "text for a number": ({"variable": "sst", "select": {"lat": "north"}}, "'north' is not a number"),
    "no such date": ({"variable": "sst", "select": {"time": ["1990-13", None]}}, "1990-13"),
    "before the first": ({"variable": "sst", "select": {"time": [None, "1980"]}}, "goes from 1990-02-01"),
    "one sample": ({"variable": "sst", "select": {"time": "1990-03"}}, "is a sample dimension"),
    "three ends": ({"variable": "sst", "select": {"lat": [1, 2, 3]}}, "neither one label nor a range of two"),
    "a position too far": ({"variable": "sst", "select": {"lat": {"positions": 9}}}, "no position 9 among 7"),
    "not a position": (
        {"variable": "sst", "select": {"lat": {"positions": [1.5, 2]}}},
        "1.5 is not a position",
    ),
    "an unknown member": ({"variable": "sst", "select": {"member": "run 9"}}, "no label is 'run 9'"),
    "array as well": ({"variable": "sst", "array": "ice"}, "cannot be combined with variable"),
    "sample_axis as well": ({"variable": "sst", "sample_axis": 1}, "give sample_dims"),
    "weights of another shape": (
        {"variable": "sst", "feature_weights": [1.0, 2.0]},
        "2 weights for features",
    ),
    "negative weights": (
        {"variable": "sst", "feature_weights": -np.ones((MEMBERS, LATS, LONS))},
        "the weight of member=run 0, lat=-75.0, lon=0.0 is -1.0",
    ),
    "weights of zero": ({"variable": "sst", "feature_weights": np.zeros(231)}, "every weight is 0"),
    "a misspelt way to weigh": (
        {"variable": "sst", "feature_weights": "cos_lat"},
        "'cos_lat' is neither coslat, nor a file, nor an array of ",
    ),
    "no variable of a group": ({}, "say which with `variable`, if its dimensions have names"),
    "weights along samples": ({"variable": "sst", "feature_weights": "season"}, "has the dimensions time"),
    "one variable to balance": ({"variable": "sst", "balance_variables": True}, "needs several variables"),
    "a share above 1": ({"variable": "sst", "min_observed": 1.5}, "1.5 is not a share"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_requests(tmp_path, what):
    given, message = BAD[what]
    path = stored(tmp_path, data_set())
    with pytest.raises(StreamdrError, match=f".*{re.escape(message)}"):
        open_source(path, **given)


def test_a_selection_that_is_in_none_of_several_files(tmp_path):
    data = data_set()
    for name, part in {"a": slice(0, 10), "b": slice(10, None)}.items():
        data.isel(time=part).to_zarr(tmp_path / f"{name}.zarr", consolidated=False)
    assert open_source(tmp_path / "*.zarr", variable="sst").spec.n_rows == TIMES
    with pytest.raises(
        ParameterError, match=r"selected of any of 2 files; .*b\.zarr: time: no label is from 2035 on"
    ):
        open_source(str(tmp_path / "*.zarr"), variable="sst", select={"time": ["2035", None]})


def test_there_may_be_no_latitude(tmp_path):
    path = stored(tmp_path, data_set().rename(lat="y", lon="x").drop_vars(["x", "y"]))
    with pytest.raises(ParameterError, match=r"no latitude to weigh by.*\(basin\)"):
        open_source(path, variable="sst", sample_dims=["time", "member"], feature_weights="coslat")


def test_labels_that_are_not_next_to_each_other(tmp_path):
    data = data_set()
    path = stored(tmp_path, data.isel(lat=[0, 3, 1, 2, 4, 5, 6]))
    with pytest.raises(ParameterError, match="are not next to each other"):
        open_source(path, variable="sst", select={"lat": [-75, -25]})


def test_arrays_without_names_of_dimensions(tmp_path):
    import zarr

    zarr.create_array(str(tmp_path / "plain.zarr"), data=np.zeros((3, 2)))
    group = zarr.open_group(str(tmp_path / "group.zarr"), mode="w")
    group.create_array("a", data=np.zeros((3, 2)))
    with pytest.raises(ParameterError, match="its dimensions have no names"):
        open_source(tmp_path / "group.zarr", variable="a")
    with pytest.raises((ParameterError, DataError), match="it has no variables"):
        open_source(tmp_path / "plain.zarr", sample_dims="time")
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    with pytest.raises(StreamdrError, match="has no named dimensions"):
        open_source(tmp_path / "x.npy", variable="a")


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_chunks_of_land_need_not_be_written(tmp_path, sharded, packed):
    rng = np.random.default_rng(0)
    values = rng.standard_normal((20, 6, 8))
    values[:, :3, 4:], values[:, 3, 2] = np.nan, np.nan
    data = xr.Dataset({"sst": (("time", "lat", "lon"), values)}, coords={"lat": np.arange(6) * 10.0})
    encoding: dict[str, Any] = {"chunks": (5, 3, 4), "write_empty_chunks": False}
    encoding |= {"shards": (10, 3, 8)} if sharded else {}
    if packed:
        encoding |= {"dtype": "i2", "scale_factor": 0.001, "_FillValue": -32768, "fill_value": -32768}
    path = tmp_path / "x.zarr"
    data.to_zarr(path, encoding={"sst": encoding}, consolidated=False, zarr_format=3)
    source = open_source(path, variable="sst")
    source.validate()
    source.validate(source.snapshot())
    expected = xr.open_zarr(path, consolidated=False).sst.values.reshape(20, -1)
    np.testing.assert_array_equal(everything(source), expected)
    with pytest.raises(DataError, match="is missing"):
        open_source(path, array="sst").validate()
    fitted = streamdr.PCA(2).fit(path, variable="sst")
    assert np.isnan(fitted.components_).sum() == 2 * 13
    lost = path / "sst" / "c" / "1" / "1" / "0"
    lost.unlink()
    with pytest.raises(DataError, match=re.escape("chunk c/1/1/0 is missing")):
        open_source(path, variable="sst").validate()


def test_what_is_selected_is_resolved_once_and_recorded(tmp_path):
    data = data_set().isel(member=0).drop_vars("member")
    path = stored(tmp_path, data)
    (tmp_path / "run.yaml").write_text(
        f"""
        input: {{path: {path}, variable: sst, select: {{lat: [-30, 30], time: ["1991", null]}}}}
        method: {{name: pca, n_components: 2}}
        output: {{model: {tmp_path / "model.zarr"}}}
        """
    )
    succeed("fit", "run.yaml", cwd=tmp_path)
    recorded = load_model(tmp_path / "model.zarr").record["extra"]
    assert recorded["selected"] == {"lat": [2, 5], "time": [11, None]}
    assert recorded["labelled"] == {
        "variable": "sst",
        "select": {"lat": [-30, 30], "time": ["1991", None]},
    }


@pytest.mark.parametrize(
    "given", ["true", "[1, 2, 3]", "{at: 3}", "{positions: [1.5, 2]}", "null", "[[1], 2]"]
)
def test_a_selection_of_another_form_is_refused_with_its_line(given):
    text = (
        f"input: {{path: x.zarr, select: {{lat: {given}}}}}\nmethod: {{name: pca}}\noutput: {{model: m.zarr}}"
    )
    with pytest.raises(
        ConfigError, match=r"1:.*input\.select: lat: expected a label \(500\), a range of two"
    ):
        config.parse(text)
