"""Data frames, data sets and arrays of many dimensions give the same model as a plain matrix."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray as xr
import zarr

from streamdr import LDA, PCA, PPCA, SelectFScore
from streamdr.data import open_source
from streamdr.errors import DataError, MissingValuesError

NAMES = ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(60, 4)) * [4.0, 3.0, 2.0, 1.0]


FRAMES = {
    "pandas": lambda rows: pd.DataFrame(rows, columns=NAMES),
    "polars": lambda rows: pl.DataFrame(rows, schema=NAMES),
    "dask": lambda rows: dd.from_pandas(pd.DataFrame(rows, columns=NAMES), npartitions=3),
}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_frames_keep_the_names_of_their_columns(rows, make):
    frame = make(rows)
    assert open_source(frame).feature_names == tuple(NAMES)
    fitted = PCA(2).fit(frame)
    assert fitted.feature_names_in_.tolist() == NAMES
    np.testing.assert_allclose(fitted.components_, PCA(2).fit(rows).components_, atol=1e-12)
    np.testing.assert_allclose(np.asarray(fitted.transform(frame)), fitted.transform(rows), atol=1e-12)
    labels = (rows[:, 0] > 0).astype(int)
    chosen = SelectFScore(2).fit(frame, labels)
    assert (
        chosen.get_feature_names_out().tolist()
        == SelectFScore(2).fit(FRAMES["pandas"](rows), labels).get_feature_names_out().tolist()
    )
    assert np.asarray(chosen.transform(frame)).shape == (60, 2)


def test_labels_from_a_column_of_a_lazy_frame(rows):
    frame = FRAMES["dask"](rows)
    labels = (rows[:, 3] > 0).astype(int)
    fitted = LDA().fit(frame[NAMES[:3]], (frame["d"] > 0).astype(int))
    np.testing.assert_allclose(fitted.coef_, LDA().fit(rows[:, :3], labels).coef_, rtol=1e-9)


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_a_column_of_text_is_refused_by_name(rows, make):
    text = {"a": [1.0, 2.0, 3.0], "species": ["x", "y", "z"]}
    frame = {"pandas": pd.DataFrame, "polars": pl.DataFrame}.get(
        next(name for name, other in FRAMES.items() if other is make),
        lambda columns: dd.from_pandas(pd.DataFrame(columns), npartitions=1),
    )(text)
    for act in (open_source, PCA(1).fit):
        with pytest.raises(DataError, match="the column 'species' of the data frame holds something else"):
            act(frame)


@pytest.mark.parametrize("column", [pd.to_datetime(["2020-01-01"] * 3), pd.Categorical(["u", "v", "u"])])
def test_columns_of_dates_and_categories_are_refused(column):
    with pytest.raises(DataError, match="'t'"):
        PCA(1).fit(pd.DataFrame({"a": [1.0, 2.0, 4.0], "t": column}))


@pytest.mark.parametrize(
    "column",
    [
        pd.array([1, 2, None, 5], dtype="Int64"),
        np.array([1.0, 2, None, 5], dtype=object),
        pd.Categorical([1.0, 2, None, 5]),
    ],
)
def test_every_kind_of_missing_value_in_a_frame_is_recognised(column):
    frame = pd.DataFrame({"a": [1.0, 2, 3, 5], "b": column})
    with pytest.raises(MissingValuesError, match=r"row 2, column 1 \('b'\).*streamdr\.PPCA"):
        PCA(1).fit(frame)
    assert PPCA(1).fit(frame).n_features_in_ == 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_non_finite_values_in_memory_are_located(rows, bad, dtype):
    invalid = pd.DataFrame(rows.astype(dtype), columns=NAMES)
    invalid.iloc[7, 2] = bad
    fitted = PCA(2).fit(pd.DataFrame(rows, columns=NAMES))
    for act in (PCA(2).fit, PCA(2).partial_fit, fitted.transform):
        with pytest.raises(DataError, match=r"row 7, column 2 \('c'\)") as caught:
            act(invalid)
        assert "HistGradientBoosting" not in str(caught.value)


LAZY = {
    "dask": lambda rows: da.from_array(rows, chunks=(30, 2)),
    "DataArray": lambda rows: xr.DataArray(rows, dims=("time", "station")),
    "lazy DataArray": lambda rows: xr.DataArray(rows, dims=("time", "station")).chunk({"time": 30}),
    "Dataset": lambda rows: xr.DataArray(rows, dims=("time", "station")).to_dataset(name="t"),
}


@pytest.mark.parametrize("make", LAZY.values(), ids=LAZY)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_values_are_refused_in_a_lazy_transform(rows, make, bad):
    invalid = rows.copy()
    invalid[37, 2] = bad
    for fitted in (PCA(2).fit(rows), LDA(1).fit(rows, rows[:, 0] > 0)):
        with pytest.raises(DataError, match=r"at row 3?7, column 2"):
            np.asarray(fitted.transform(make(invalid)))
    incomplete = np.where(np.isfinite(invalid), invalid, np.nan)
    assert np.isfinite(np.asarray(PPCA(2).fit(rows).transform(make(incomplete)))).all()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"X": "no.zarr"}, "X: no.zarr: no such file"),
        ({"sample_weight": "no.zarr"}, "sample_weight: no.zarr: no such file"),
        ({"y": "no.zarr"}, "y: no.zarr: no such file"),
        ({"sample_weight": np.ones(59)}, "sample_weight: .*59 weights for the 60 rows"),
        ({"y": da.zeros(59, chunks=59, dtype=int)}, "y: .*59 labels for the 60 rows"),
    ],
)
def test_errors_name_the_argument_that_cannot_be_opened(rows, given, name):
    with pytest.raises(DataError, match=f"^{name}"):
        LDA(1).fit(**{"X": rows, "y": rows[:, 0] > 0, **given})


def test_a_polars_lazy_frame_is_refused_with_advice(rows):
    lazy = FRAMES["polars"](rows).lazy()
    for act in (open_source, PCA(2).fit, PCA(2).fit(rows).transform):
        with pytest.raises(DataError, match=r"collect\(\).*sink_parquet"):
            act(lazy)
    for companion in ({"y": lazy}, {"sample_weight": lazy}):
        with pytest.raises(DataError, match=r"collect\(\).*sink_parquet"):
            LDA(1).fit(rows, **{"y": rows[:, 0] > 0, **companion})


@pytest.mark.parametrize("labels", [[0, 1, 2], ["u", "v", "w"]])
def test_labels_and_weights_in_data_sets_of_one_variable(rows, labels):
    y, weights = np.resize(labels, 60), np.arange(60.0)
    expected = LDA(1).fit(rows, y, sample_weight=weights)
    found = LDA(1).fit(
        rows, xr.Dataset({"y": ("time", y)}), sample_weight=xr.Dataset({"w": ("time", weights)})
    )
    np.testing.assert_array_equal(found.predict(rows), expected.predict(rows))
    with pytest.raises(DataError, match="the variables 'y', 'z'"):
        LDA(1).fit(rows, xr.Dataset({"y": ("time", y), "z": ("time", y)}))


@pytest.mark.parametrize("key", ["sample_weight", "y"])
def test_errors_name_the_argument_that_is_a_group_of_several_arrays(rows, key, tmp_path):
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    group["a"] = group["b"] = np.arange(60)
    with pytest.raises(
        DataError, match=f"^{key}: .*the arrays a, b; give the path of one array, as in .*/a$"
    ):
        LDA(1).fit(rows, **{"y": rows[:, 0] > 0, key: str(tmp_path / "g.zarr")})


def test_the_only_variable_of_a_data_set_is_used(rows, tmp_path):
    data = xr.Dataset({"t": (("time", "station"), rows)}, coords={"station": NAMES})
    expected = PCA(2).fit(rows)
    data.to_zarr(tmp_path / "x.zarr", consolidated=False)
    for held in (data, data.chunk(time=10), xr.open_zarr(tmp_path / "x.zarr", consolidated=False)):
        fitted = PCA(2).fit(held)
        np.testing.assert_allclose(fitted.components_, expected.components_, atol=1e-12)
        assert fitted.transform(held).dims == ("time", "component")


def test_a_data_set_of_several_variables_is_refused_with_their_names(rows):
    data = xr.Dataset({"t": (("time", "station"), rows), "u": (("time", "station"), rows)})
    with pytest.raises(
        DataError, match=r"the variables 't', 'u'; give one of them, as in data\['t'\], or name"
    ):
        PCA(2).fit(data)
    with pytest.raises(DataError, match="no variables"):
        PCA(2).fit(xr.Dataset())
    with pytest.raises(DataError, match="DataTree"):
        PCA(2).fit(xr.DataTree(data))


@pytest.mark.parametrize("shape", [(12, 5, 4), (15, 2, 2, 4), (60, 1, 4)])
def test_trailing_dimensions_are_features(rows, shape, tmp_path):
    cube = rows.reshape(shape)
    flat = rows.reshape(shape[0], -1)
    np.save(tmp_path / "x.npy", cube)
    zarr.create_array(tmp_path / "x.zarr", data=cube, chunks=(5, *shape[1:]))
    expected = PCA(2).fit(flat)
    holders = {
        "numpy": cube,
        "fortran": np.asfortranarray(cube),
        "list": cube.tolist(),
        "masked": np.ma.masked_array(cube),
        "memmap": np.load(tmp_path / "x.npy", mmap_mode="r"),
        "npy": tmp_path / "x.npy",
        "zarr": tmp_path / "x.zarr",
        "dask": da.from_array(cube, chunks=(4, *shape[1:])),
    }
    for held in holders.values():
        fitted = PCA(2).fit(held)
        assert fitted.n_features_in_ == flat.shape[1]
        np.testing.assert_allclose(fitted.components_, expected.components_, atol=1e-10)
        np.testing.assert_allclose(np.asarray(fitted.transform(held)), expected.transform(flat), atol=1e-10)
    with pytest.raises(ValueError, match="0 sample"):
        PCA(2).fit(cube[:0])
    partial = PCA(2).partial_fit(cube[:6]).partial_fit(cube[6:])
    np.testing.assert_allclose(partial.components_, expected.components_, atol=1e-10)
