"""scikit-learn's own contract, and what its users expect of any input they hold."""

from __future__ import annotations

import doctest
import warnings

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import sklearn.decomposition
import xarray as xr
import zarr
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import streamdr
from streamdr.data import open_source
from streamdr.errors import StreamdrError
from streamdr.estimators.registry import ESTIMATORS
from streamdr.methods import METHODS


def test_every_method_has_an_estimator():
    assert ESTIMATORS.keys() == METHODS.keys()


PARAMETERS: dict[str, dict[str, object]] = {
    "select_forward": {"n_folds": 2},
    "nonmetric_mds": {"n_init": 2},
    "som": {"height": 2, "width": 3},
    "normalize_total": {"empty_rows": "keep"},
    "scale_genotypes": {"ploidy": 1000},
}
"""The checks fit to a dozen rows, which leave next to nothing for each of five folds; and they fit often. A
map of more units than rows has several units at one row, and rounding decides which of them is nearest. Some
rows are empty."""
_FOLDS = "folds go by numbers of rows, which repeated rows change"
_NO_CLASSES = "expects classes of whatever has predict_proba, and this finds groups"
EXPECTED = {
    "select_forward": {
        "check_sample_weight_equivalence_on_dense_data": _FOLDS,
        "check_sample_weight_equivalence_on_sparse_data": _FOLDS,
    },
    "ppca_mixture": {
        "check_estimator_sparse_array": _NO_CLASSES,
        "check_estimator_sparse_matrix": _NO_CLASSES,
    },
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_check_estimator(name):
    expected = EXPECTED.get(name, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = ESTIMATORS[name](**PARAMETERS.get(name, {}))
        checks = check_estimator(estimator, on_fail=None, expected_failed_checks=expected)
    failed = {check["check_name"]: check["exception"] for check in checks if check["status"] == "failed"}
    assert not failed
    assert len(checks) > 40


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(300, 8)) @ rng.normal(size=(8, 8)) + 5.0


def inputs(data, tmp_path):
    store = zarr.create_array(tmp_path / "x.zarr", shape=data.shape, chunks=(70, 3), dtype=data.dtype)
    store[:] = data
    np.save(tmp_path / "x.npy", data)
    return {
        "numpy": data,
        "list": data.tolist(),
        "pandas": pd.DataFrame(data),
        "memmap": np.load(tmp_path / "x.npy", mmap_mode="r"),
        "path": tmp_path / "x.zarr",
        "string": str(tmp_path / "x.zarr"),
        "npy path": tmp_path / "x.npy",
        "zarr": zarr.open_array(tmp_path / "x.zarr", mode="r"),
        "dask": da.from_array(data, chunks=(33, 5)),
        "dask graph": da.from_array(data - 1.0, chunks=(50, 8)) + 1.0,
        "xarray": xr.DataArray(data, dims=("time", "station")),
        "xarray dask": xr.DataArray(data, dims=("time", "station")).chunk({"time": 40}),
    }


@pytest.mark.parametrize("n_components", [3, 0.9, "mle", None])
def test_any_input_gives_the_same_model(data, tmp_path, n_components):
    expected = sklearn.decomposition.PCA(n_components).fit(data)
    for kind, given in inputs(data, tmp_path).items():
        pca = streamdr.PCA(n_components).fit(given)
        assert pca.n_components_ == expected.n_components_, kind
        np.testing.assert_allclose(pca.explained_variance_, expected.explained_variance_, rtol=1e-12)
        cosines = np.abs(np.sum(pca.components_ * expected.components_, axis=1))
        np.testing.assert_allclose(cosines, 1.0, atol=1e-12, err_msg=kind)


def test_transform_keeps_the_kind_of_its_input(data, tmp_path):
    pca = streamdr.PCA(3).fit(data)
    expected = pca.transform(data)
    lazy = {"path", "string", "npy path", "zarr", "dask", "dask graph"}
    given_as = inputs(data, tmp_path)
    for kind, given in given_as.items():
        got = pca.transform(given)
        assert isinstance(got, da.Array) == (kind in lazy), kind
        assert isinstance(got, xr.DataArray) == kind.startswith("xarray"), kind
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-12, atol=1e-12, err_msg=kind)
    assert pca.transform(given_as["xarray dask"]).chunks is not None, "a lazy one was computed"


def test_dataarray_keeps_its_labels(data):
    times = pd.date_range("2026-01-01", periods=len(data))
    stations = [f"s{i}" for i in range(8)]
    given = xr.DataArray(data, dims=("time", "station"), coords={"time": times, "station": stations})
    scores = streamdr.PCA(2).fit(given).transform(given)
    assert scores.dims == ("time", "component")
    assert list(scores.component.values) == ["pca0", "pca1"]
    assert (scores.time.values == times.values).all()
    white = streamdr.PCA(whiten="zca").fit(given)
    assert white.transform(given).dims == ("time", "station")
    assert list(white.feature_names_in_) == stations
    assert list(white.get_feature_names_out()) == stations


def test_set_output_pipeline_and_clone(data):
    frame = pd.DataFrame(data, columns=list("abcdefgh"))
    pca = streamdr.PCA(2).set_output(transform="pandas").fit(frame)
    assert list(pca.transform(frame).columns) == ["pca0", "pca1"]
    pipeline = make_pipeline(StandardScaler(), clone(pca))
    expected = make_pipeline(StandardScaler(), sklearn.decomposition.PCA(2)).fit_transform(frame)
    np.testing.assert_allclose(np.abs(pipeline.fit_transform(frame)), np.abs(expected), rtol=1e-10)
    assert clone(streamdr.PCA(0.5, whiten="pca", scale=True)).get_params()["whiten"] == "pca"


@pytest.mark.parametrize("sizes", [[1, 2, 297], [300], [1] * 300, [150, 150]])
def test_partial_fit_is_fit(data, sizes):
    whole = streamdr.PCA(4, solver="covariance").fit(data)
    pca = streamdr.PCA(4)
    for stop, size in zip(np.cumsum(sizes), sizes, strict=True):
        pca.partial_fit(data[stop - size : stop])
    np.testing.assert_allclose(pca.explained_variance_, whole.explained_variance_, rtol=1e-12)
    np.testing.assert_allclose(pca.components_, whole.components_, atol=1e-12)
    np.testing.assert_allclose(pca.mean_, whole.mean_, rtol=1e-14)


def test_partial_fit_takes_streams_and_weights(data):
    weights = np.arange(len(data)) % 3
    pca = streamdr.PCA(4).partial_fit(da.from_array(data[:100], chunks=30), sample_weight=weights[:100])
    pca.partial_fit(data[100:], sample_weight=weights[100:])
    expected = streamdr.PCA(4).fit(np.repeat(data, weights, axis=0))
    np.testing.assert_allclose(pca.explained_variance_, expected.explained_variance_, rtol=1e-12)


def test_a_small_first_batch_waits_for_more(data):
    pca = streamdr.PCA(4).partial_fit(data[:1])
    with pytest.raises(ValueError, match="at least 2 rows"):
        _ = pca.model_
    assert pca.partial_fit(data[1:]).components_.shape == (4, 8)


@pytest.mark.parametrize("dtype", ["i2", "f4", "f8"])
def test_what_is_masked_is_missing(data, dtype):
    values = (100 * data).astype(dtype)
    masked = np.ma.masked_array(values, np.random.default_rng(0).random(values.shape) < 0.1)
    with_nan = np.where(masked.mask, np.nan, values).astype("f8" if dtype == "f8" else "f4")
    ppca = streamdr.PPCA(2).fit(masked)
    expected = streamdr.PPCA(2).fit(with_nan)
    np.testing.assert_array_equal(ppca.components_, expected.components_)
    np.testing.assert_array_equal(ppca.transform(masked), expected.transform(with_nan))
    for refused in (streamdr.PCA(2).fit, streamdr.PCA(2).partial_fit, streamdr.PCA(2).fit(values).transform):
        with pytest.raises(ValueError, match="NaN"):
            refused(masked)


def test_a_source_brings_what_it_knows_of_missing_values(data, tmp_path):
    values = (100 * data).astype("i2")
    values[::3, 1] = -9999
    array = zarr.create_array(
        tmp_path / "x.zarr", shape=values.shape, chunks=(20, values.shape[1]), dtype="i2"
    )
    array[...] = values
    source = open_source(tmp_path / "x.zarr", missing_value=-9999)
    with_nan = np.where(values == -9999, np.nan, values).astype("f4")
    ppca, expected = streamdr.PPCA(2).fit(source), streamdr.PPCA(2).fit(with_nan)
    np.testing.assert_allclose(np.abs(ppca.components_), np.abs(expected.components_), rtol=1e-5, atol=1e-7)
    scores = ppca.transform(source)
    assert isinstance(scores, da.Array)
    np.testing.assert_allclose(scores.compute(), ppca.transform(with_nan), rtol=1e-3, atol=1e-3)


def test_partial_fit_refuses_other_features(data):
    pca = streamdr.PCA(2).partial_fit(data)
    for other in (data[:, :5], da.from_array(data[:, :5])):
        with pytest.raises(ValueError, match="5 features, but PCA is expecting 8 features"):
            pca.partial_fit(other)


def test_transform_refuses_other_features(data, tmp_path):
    pca = streamdr.PCA(2).fit(data)
    with pytest.raises(ValueError, match="has 5 features, and the model takes 8"):
        pca.transform(da.from_array(data[:, :5]))


@pytest.mark.parametrize("whiten", [None, "pca", "zca"])
@pytest.mark.parametrize("scale", [False, True])
def test_saved_models_come_back_to_the_bit(data, tmp_path, whiten, scale):
    pca = streamdr.PCA(3, whiten=whiten, scale=scale).fit(pd.DataFrame(data, columns=list("abcdefgh")))
    pca.save(tmp_path / "model.zarr")
    loaded = streamdr.load_model(tmp_path / "model.zarr")
    assert loaded.get_params() == pca.get_params()
    assert list(loaded.feature_names_in_) == list("abcdefgh")
    np.testing.assert_array_equal(loaded.model_.transform(data), pca.model_.transform(data))
    labelled = xr.open_zarr(tmp_path / "model.zarr")
    assert labelled["components"].dims == ("component", "feature")


def test_unfitted_has_no_components():
    assert not hasattr(streamdr.PCA(), "components_")
    with pytest.raises(AttributeError, match="no attribute 'components_'"):
        _ = streamdr.PCA().components_


def test_public_names_are_what_they_say_whatever_was_imported_before():
    from streamdr import PCA, execution, load_model

    assert callable(load_model)
    assert callable(streamdr.execution)
    with execution(workers=1, memory_limit="4GiB") as setting:
        assert setting.memory_limit == 4 << 30
        assert PCA(1).fit(np.eye(4)).n_components_ == 1
    with pytest.raises(ValueError, match="workers: 0 is not at least 1"), execution(workers=0):
        pass


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workers", "two"),
        ("workers", 1.5),
        ("memory_limit", "much"),
        ("ledger", 5),
        ("cluster", "LocalCluster"),
        ("tls", "ca.pem"),
        ("checkpoint_seconds", -1),
        ("checkpoint_seconds", "often"),
    ],
)
def test_settings_that_mean_nothing_are_called_by_their_names(name, value):
    with pytest.raises(ValueError, match=f"^{name}: "), streamdr.execution(**{name: value}):
        pass


OVERFLOWING = {
    "KernelPCA": lambda: streamdr.KernelPCA(1),
    "KernelPCA, poly": lambda: streamdr.KernelPCA(1, kernel="poly", fit_inverse_transform=True),
    "SparseKernelPCA": lambda: streamdr.SparseKernelPCA(1),
    "PCA": lambda: streamdr.PCA(1),
    "PPCA": lambda: streamdr.PPCA(1),
    "LDA": lambda: streamdr.LDA(),
    "LandmarkMDS": lambda: streamdr.LandmarkMDS(1),
    "SelectFScore": lambda: streamdr.SelectFScore(1),
    "SelectCorrelation": lambda: streamdr.SelectCorrelation(1),
    "SelectForward": lambda: streamdr.SelectForward(1),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", OVERFLOWING.values(), ids=OVERFLOWING)
@pytest.mark.parametrize(("scale", "dtype"), [(1e154, "f8"), (1e200, "f8"), (1e19, "f4"), (1e30, "f4")])
@pytest.mark.parametrize("numbers", [False, True])
def test_what_overflows_is_said_in_words_and_never_warned_of(make, scale, dtype, numbers):
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(30, 5)) * scale).astype(dtype)
    target = rng.normal(size=30) * (scale if dtype == "f8" else 1) if numbers else np.arange(30) % 2
    estimator = make()
    if numbers and isinstance(estimator, streamdr.LDA):
        estimator = streamdr.SelectMutualInfo(1)
    found, said = np.zeros(1), None
    try:
        found = estimator.fit(rows, target).transform(rows)
    except StreamdrError as error:
        said = str(error)
    assert np.isfinite(found).all()
    assert said is None or "overflow" in said


@pytest.mark.parametrize("estimator", ESTIMATORS.values())
def test_an_unfitted_estimator_can_be_listed(estimator):
    assert {"fit", "transform", "get_params"} <= set(dir(estimator()))


def test_a_fitted_estimator_lists_what_it_has_learnt():
    unfitted, fitted = streamdr.PCA(2), streamdr.PCA(2).fit(np.random.default_rng(0).normal(size=(20, 4)))
    assert "components_" not in dir(unfitted)
    learnt = [name for name in dir(fitted) if name.endswith("_") and not name.startswith("_")]
    assert {"components_", "explained_variance_ratio_", "mean_", "model_", "n_features_in_"} <= set(learnt)
    for name in learnt:
        getattr(fitted, name)


@pytest.mark.parametrize("kind", ["classical", "landmark", "metric", "nonmetric"])
def test_every_kind_of_scaling_is_one(kind):
    assert isinstance(streamdr.MDS(2, kind=kind), streamdr.MDS)
    assert not isinstance(streamdr.PCA(2), streamdr.MDS)


@pytest.mark.parametrize("name", streamdr.__all__)
def test_every_public_name_is_there(name):
    assert getattr(streamdr, name) is not None
    assert name in dir(streamdr)


def test_the_example_of_the_laws_runs():
    assert doctest.testmod(streamdr.testing).failed == 0


CLASSES = np.arange(30) % 3


@pytest.mark.parametrize("hold", [np.asarray, zarr.array], ids=["in memory", "streamed"])
@pytest.mark.parametrize(
    ("labels", "weights", "expected"),
    [
        (CLASSES, -1.0, "sample_weight: row 0 has weight -1"),
        (CLASSES, np.where(CLASSES, np.nan, 1.0), "sample_weight: row 1 has weight nan"),
        (CLASSES, np.zeros(30), "sample_weight: every weight is zero"),
        (CLASSES, np.ones(29), "sample_weight: 29 weights for the 30 rows"),
        (np.where(CLASSES == 1, np.nan, CLASSES), None, r"(y: row 1 has the label nan|Input y contains NaN)"),
    ],
    ids=["negative", "NaN", "zero", "too few", "label"],
)
def test_errors_of_labels_and_weights_name_the_argument(hold, labels, weights, expected):
    rows = np.random.default_rng(0).normal(size=(30, 4))
    weights = np.full(30, weights) if isinstance(weights, float) else weights
    with pytest.raises(ValueError, match=rf"^{expected}"):
        streamdr.LDA(1).fit(hold(rows), labels, sample_weight=weights)
