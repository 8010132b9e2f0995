"""Selectors as scikit-learn's users expect them: any input, names of features, pipelines, row by row."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from narrowing import present
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import SelectKBest, SequentialFeatureSelector, f_regression
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import PredefinedSplit
from sklearn.pipeline import make_pipeline

import streamdr
from streamdr import plots, store
from streamdr.errors import ConfigError, DataError
from streamdr.workflow.plotting import PlotRequest, draw

SELECTORS = (
    streamdr.SelectForward,
    streamdr.SelectFScore,
    streamdr.SelectCorrelation,
    streamdr.SelectMutualInfo,
)


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True)


def test_a_sequential_selector_of_scikit_learn_agrees(diabetes):
    rows, target = diabetes
    split = PredefinedSplit(streamdr.folds(len(rows), 5, 2))
    theirs = SequentialFeatureSelector(LinearRegression(), n_features_to_select=6, cv=split).fit(rows, target)
    ours = streamdr.SelectForward(6, random_state=2).fit(rows, target)
    np.testing.assert_array_equal(ours.get_support(), theirs.get_support())
    np.testing.assert_array_equal(ours.transform(rows), theirs.transform(rows))
    np.testing.assert_array_equal(ours.get_support(indices=True), theirs.get_support(indices=True))
    np.testing.assert_array_equal(
        ours.inverse_transform(ours.transform(rows)), theirs.inverse_transform(theirs.transform(rows))
    )


def test_a_filter_of_scikit_learn_agrees(diabetes):
    rows, target = diabetes
    theirs = SelectKBest(f_regression, k=4).fit(rows, target)
    ours = streamdr.SelectFScore(4).fit(rows, target)
    np.testing.assert_array_equal(ours.get_support(), theirs.get_support())
    np.testing.assert_allclose(ours.scores_, theirs.scores_, rtol=1e-10)
    np.testing.assert_allclose(present(ours.p_values_), theirs.pvalues_, rtol=1e-8)


@pytest.mark.parametrize("selector", SELECTORS)
def test_any_input_gives_the_same_columns(selector, diabetes, tmp_path):
    rows, target = diabetes
    zarr.create_array(tmp_path / "x.zarr", shape=rows.shape, chunks=(70, 3), dtype="f8")[:] = rows
    zarr.create_array(tmp_path / "y.zarr", shape=target.shape, chunks=(50,), dtype="f8")[:] = target
    given = {
        "list": (rows.tolist(), target.tolist()),
        "pandas": (pd.DataFrame(rows), pd.Series(target)),
        "path": (tmp_path / "x.zarr", tmp_path / "y.zarr"),
        "path and numpy": (str(tmp_path / "x.zarr"), target),
        "dask": (da.from_array(rows, chunks=(33, 5)), da.from_array(target, chunks=33)),
        "xarray": (xr.DataArray(rows, dims=("patient", "measure")), target),
    }
    expected = selector(3).fit(rows, target)
    kept = expected.transform(rows)
    np.testing.assert_array_equal(kept, rows[:, np.sort(expected.selected_)])
    for kind, (X, y) in given.items():
        found = selector(3).fit(X, y)
        assert found.selected_.tolist() == expected.selected_.tolist(), kind
        np.testing.assert_array_equal(np.asarray(found.transform(X)), kept, err_msg=kind)


LAZY = {
    "zarr": zarr.array,
    "dask": lambda rows: da.from_array(rows, chunks=(9, 4)),
    "xarray": lambda rows: xr.DataArray(rows, dims=("sample", "snp")).chunk({"sample": 13}),
    "xarray in memory": lambda rows: xr.DataArray(rows, dims=("sample", "snp")),
}


@pytest.fixture
def alleles():
    rows = np.random.default_rng(0).integers(0, 3, (60, 8)).astype(float)
    rows[:, 2] = 0.0  # left out by scale_genotypes
    return rows


@pytest.mark.parametrize("hold", LAZY.values(), ids=LAZY)
@pytest.mark.parametrize(
    "step", [streamdr.ScaleGenotypes(), streamdr.SelectVariance(6), streamdr.SelectColumns(exclude=[0])]
)
def test_missing_values_of_lazy_rows_are_those_of_rows_in_memory(step, hold, alleles):
    alleles[41, 6] = np.nan
    alleles[:, 7] = np.nan
    expected = step.fit_transform(alleles)
    found = step.fit(hold(alleles)).transform(hold(alleles))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-13)


@pytest.mark.parametrize("hold", LAZY.values(), ids=LAZY)
def test_errors_in_lazy_rows_name_the_row_and_the_column_of_the_whole(hold, alleles):
    step = streamdr.ScaleGenotypes().fit(alleles)
    alleles[41, 6] = 7.0
    with pytest.raises(DataError, match=r"row 41: scale_genotypes: the value 7 in column 6 is not between"):
        np.asarray(step.transform(hold(alleles)))
    alleles[41, 6] = np.inf
    for one in (step, streamdr.Standardise().fit(alleles[:40])):
        with pytest.raises(DataError, match="inf at row 41, column 6 "):
            np.asarray(one.transform(hold(alleles)))


def test_columns_keep_their_names(diabetes):
    frame, target = load_diabetes(return_X_y=True, as_frame=True)
    selector = streamdr.SelectCorrelation(2).fit(frame, target)
    assert selector.get_feature_names_out().tolist() == ["bmi", "s5"]
    named = selector.set_output(transform="pandas").transform(frame)
    pd.testing.assert_frame_equal(named, frame[["bmi", "s5"]])


def test_samples_of_any_shape_are_rows(diabetes):
    rows, target = diabetes
    cube = xr.DataArray(rows.reshape(-1, 2, 5), dims=("patient", "a", "b")).chunk({"patient": 50})
    selector = streamdr.SelectFScore(3).fit(cube, target)
    np.testing.assert_array_equal(selector.transform(cube).values, rows[:, selector.get_support()])
    lazy = da.from_array(rows.reshape(-1, 2, 5), chunks=(60, 1, 5))
    np.testing.assert_array_equal(selector.transform(lazy).compute(), rows[:, selector.get_support()])


def test_a_pipeline_learns_from_what_is_kept():
    rows, labels = load_breast_cancer(return_X_y=True)
    pipeline = make_pipeline(streamdr.SelectForward(5), LinearDiscriminantAnalysis())
    assert pipeline.fit(rows, labels).score(rows, labels) > 0.94
    assert pipeline[-1].n_features_in_ == 5


@pytest.mark.parametrize(
    "selector",
    [streamdr.SelectForward(4), streamdr.SelectFScore("cv"), streamdr.SelectCorrelation(4)],
    ids=lambda selector: type(selector).__name__,
)
def test_rows_may_come_a_few_at_a_time(selector, diabetes):
    rows, target = diabetes
    whole = type(selector)(selector.k).fit(rows, target)
    for start in range(0, len(rows), 37):
        selector.partial_fit(rows[start : start + 37], target[start : start + 37])
    assert selector.selected_.tolist() == whole.selected_.tolist()
    np.testing.assert_allclose(selector.scores_, whole.scores_, rtol=1e-9, atol=1e-12)
    if selector.path_fold_scores_ is not None:
        np.testing.assert_allclose(selector.path_fold_scores_, whole.path_fold_scores_, atol=1e-12)
    assert not hasattr(streamdr.SelectMutualInfo(), "partial_fit")


@pytest.mark.parametrize("selector", SELECTORS)
def test_a_saved_selector_is_the_one_that_was_fitted(selector, tmp_path):
    rows, labels = load_breast_cancer(return_X_y=True)
    for y in (labels, labels.astype(float), np.where(labels, "benign", "malignant")):
        fitted = selector("cv").fit(rows, y)
        fitted.save(tmp_path / "m.zarr", overwrite=True)
        loaded = streamdr.load_model(tmp_path / "m.zarr")
        for name in type(fitted.model_).__dataclass_fields__:
            np.testing.assert_array_equal(
                getattr(loaded.model_, name), getattr(fitted.model_, name), err_msg=name
            )
        np.testing.assert_array_equal(loaded.transform(rows), fitted.transform(rows))


def test_labels_are_needed(diabetes, tmp_path):
    rows, target = diabetes
    with pytest.raises(ValueError, match="requires y to be passed"):
        streamdr.SelectForward(2).fit(rows)
    zarr.create_array(tmp_path / "x.zarr", shape=rows.shape, chunks=(70, 3), dtype="f8")[:] = rows
    with pytest.raises(DataError, match="one label per row is needed"):
        streamdr.SelectForward(2).fit(tmp_path / "x.zarr", target[:-1])
    target = target.copy()
    target[7] = np.nan
    with pytest.raises(DataError, match="7"):
        streamdr.SelectForward(2).fit(tmp_path / "x.zarr", target)


def test_the_path_is_drawn(diabetes, tmp_path):
    for selector in (streamdr.SelectForward("cv", direction="floating"), streamdr.SelectFScore("cv")):
        model = selector.fit(*diabetes).save(tmp_path / "m.zarr", overwrite=True)
        report = draw(PlotRequest(model, tmp_path / "path.png"))
        assert report.kind == "selection_path"
        assert (tmp_path / "path.png").stat().st_size > 10_000
        axes = plots.selection_path(store.load_model(model).model).axes[0]
        line = axes.lines[0].get_xydata()
        np.testing.assert_array_equal(line[:, 0], selector.path_sizes_)
        np.testing.assert_allclose(line[:, 1], present(selector.path_scores_))
        assert f"{selector.model_.n_outputs} of 10 columns" in axes.get_title(loc="left")
    backward = streamdr.SelectForward(3, direction="backward").fit(*diabetes)
    shown = {text.get_text() for text in plots.selection_path(backward.model_).axes[0].texts}
    assert shown == {str(column) for column in range(10) if column not in backward.selected_}
    without = streamdr.SelectFScore(3).fit(*diabetes).save(tmp_path / "m.zarr", overwrite=True)
    with pytest.raises(ConfigError, match="needs a model with a path of subsets"):
        draw(PlotRequest(without, tmp_path / "path.png", "selection_path"))
