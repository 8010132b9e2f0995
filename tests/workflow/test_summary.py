"""A run on one page: a table that adds up, pictures, and nothing from the data that is more than text."""

from __future__ import annotations

import base64
import re
import threading

import numpy as np
import pytest
import zarr
from command_line import write_config, write_store

from streamdr import store
from streamdr.config import load
from streamdr.core.facts import explained_variances
from streamdr.core.progress import Silent
from streamdr.workflow import pipeline
from streamdr.workflow.reports import StagesReport
from streamdr.workflow.run_context import RunContext
from streamdr.workflow.summary import MOST_PICTURE_BYTES, MOST_ROWS, literal, summarise
from streamdr.workflow.verification import verify


@pytest.fixture
def done(tmp_path):
    values = np.random.default_rng(0).normal(size=(200, 5)) * [9, 7, 5, 3, 1]
    write_store(tmp_path / "x.zarr", values)
    output = {"model": str(tmp_path / "model.zarr"), "embedding": str(tmp_path / "z.zarr")}
    file = write_config(tmp_path, input={"path": str(tmp_path / "x.zarr")}, output=output)
    stage = RunContext(load(file), Silent(), threading.Event())
    done = pipeline.run_all(stage)
    return stage, StagesReport(fit=done.fit, transform=done.transform, verify=verify(stage)), values


def test_the_table_says_what_each_component_explains(done):
    stage, reports, values = done
    variances = np.linalg.eigvalsh(np.cov(values.T))[::-1]
    listed, errors = summarise(stage, reports).tables
    assert errors.title == "errors of the variances"
    assert (listed.title, listed.about) == (
        "explained variance",
        "The variance that each component explains.",
    )
    table = listed.records()
    assert [row["component"] for row in table] == [1, 2]
    np.testing.assert_allclose([float(row["variance"]) for row in table], variances[:2])
    np.testing.assert_allclose([float(row["ratio"]) for row in table], variances[:2] / variances.sum())
    np.testing.assert_allclose(
        [float(row["cumulative"]) for row in table], np.cumsum(variances[:2]) / variances.sum()
    )


def test_the_page_has_the_figures_and_the_pictures(done):
    stage, reports, _ = done
    page = summarise(stage, reports).markdown
    pictures = re.findall(r"!\[(.+?)\]\(data:image/png;base64,([\w+/=]+)\)", page)
    assert [title for title, _ in pictures] == ["explained variance", "scores"]
    for _, encoded in pictures:
        picture = base64.b64decode(encoded)
        assert picture.startswith(b"\x89PNG")
        assert len(picture) <= MOST_PICTURE_BYTES
    assert "pca of 200 x 5" in page
    assert "embedding of 200 rows, 2 columns" in page
    assert "every file has its sha256" in page


@pytest.mark.parametrize("kind", ["smooth", "noise"])
def test_the_page_of_a_grid_has_maps_and_series(tmp_path, kind):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(60, 40, 80) if kind == "noise" else (60, 1, 80))
    values = values + rng.normal(size=(60, 40, 80)) * 0.01
    values[:, 3:9, 5:20] = np.nan  # land
    group = zarr.create_group(tmp_path / "x.zarr")
    group.create_array("sst", data=values, chunks=(10, 40, 80), dimension_names=["time", "lat", "lon"])
    output = {"model": str(tmp_path / "model.zarr"), "embedding": str(tmp_path / "z.zarr")}
    given = {"path": str(tmp_path / "x.zarr"), "variable": "sst"}
    file = write_config(tmp_path, input=given, method={"n_components": 12}, output=output)
    stage = RunContext(load(file), Silent(), threading.Event())
    reports = pipeline.run_all(stage)
    page = summarise(stage, StagesReport(fit=reports.fit, transform=reports.transform)).markdown
    pictures = re.findall(r"!\[(.+?)\]\(data:image/png;base64,([\w+/=]+)\)", page)
    assert [title for title, _ in pictures] == ["explained variance", "maps", "scores", "series"]
    assert all(len(base64.b64decode(encoded)) <= MOST_PICTURE_BYTES for _, encoded in pictures)


def test_plain_columns_have_no_maps_even_if_some_are_left_out(tmp_path):
    values = np.random.default_rng(0).normal(size=(60, 5))
    values[:, 2] = np.nan
    write_store(tmp_path / "x.zarr", values)
    output = {"model": str(tmp_path / "model.zarr"), "embedding": str(tmp_path / "z.zarr")}
    given = {"path": str(tmp_path / "x.zarr"), "min_observed": 0.5}
    file = write_config(tmp_path, input=given, output=output)
    stage = RunContext(load(file), Silent(), threading.Event())
    reports = pipeline.run_all(stage)
    page = summarise(stage, StagesReport(fit=reports.fit, transform=reports.transform)).markdown
    assert re.findall(r"!\[(.+?)\]", page) == ["explained variance", "scores"]


def test_a_model_without_variances_has_no_table(tmp_path):
    write_store(tmp_path / "x.zarr", np.random.default_rng(0).normal(size=(30, 3)))
    given, output = {"path": str(tmp_path / "x.zarr")}, {"model": str(tmp_path / "model.zarr")}
    file = write_config(tmp_path, input=given, method={"name": "classical_mds"}, output=output)
    stage = RunContext(load(file), Silent(), threading.Event())
    assert summarise(stage, StagesReport(fit=pipeline.fit(stage))).tables == ()


def test_a_table_ends(tmp_path):
    write_store(tmp_path / "x.zarr", np.random.default_rng(0).normal(size=(400, 130)))
    given, output = {"path": str(tmp_path / "x.zarr")}, {"model": str(tmp_path / "model.zarr")}
    file = write_config(tmp_path, input=given, method={"n_components": 120}, output=output)
    stage = RunContext(load(file), Silent(), threading.Event())
    fitted = pipeline.fit(stage)
    table, _ = summarise(stage, StagesReport(fit=fitted)).tables
    assert (len(table.rows), table.left_out) == (MOST_ROWS, 120 - MOST_ROWS)
    assert (len(fitted.tables[0].rows), fitted.tables[0].left_out) == (120, 0)


def test_a_model_lists_no_more_than_a_thousand_rows():
    (table,) = explained_variances(np.full(1500, 0.0005), 2.0)
    assert (len(table.rows), table.left_out) == (1000, 500)
    assert table.head(20).left_out == 1480


def test_text_is_shown_as_it_is_and_without_secrets():
    hostile = "a```\n<script>alert(1)</script> ![x](http://host/)"
    lines = literal(hostile).splitlines()
    assert lines[0] == lines[-1] == "````"
    assert "\n".join(lines[1:-1]) == hostile
    assert "hush" not in literal("s3://me:hush@bucket/x.zarr")


def test_the_page_of_a_fit_by_em_shows_how_that_went_and_what_was_filled(tmp_path):
    values = np.random.default_rng(0).normal(size=(200, 2)) @ np.random.default_rng(1).normal(size=(2, 5))
    values += 0.1 * np.random.default_rng(2).normal(size=values.shape)
    values[np.random.default_rng(3).random(values.shape) < 0.2] = np.nan
    write_store(tmp_path / "x.zarr", values)
    file = write_config(
        tmp_path,
        input={"path": str(tmp_path / "x.zarr")},
        method={"name": "ppca", "n_components": 2},
        output={"model": str(tmp_path / "model.zarr"), "imputed": str(tmp_path / "filled.zarr")},
    )
    stage = RunContext(load(file), Silent(), threading.Event())
    reports = pipeline.run_all(stage)
    page = summarise(stage, StagesReport(fit=reports.fit, transform=reports.transform)).markdown
    assert "![log-likelihood](data:image/png;base64," in page
    assert "imputed values of 200 rows, 5 columns" in page
    assert re.search(r"log-likelihood +-?[\d.]+ nats per row\n  iterations +\d+\n", page)


def test_the_page_of_a_search_shows_every_kernel_that_was_tried(tmp_path):
    write_store(tmp_path / "x.zarr", np.random.default_rng(0).normal(size=(200, 3)))
    file = write_config(
        tmp_path,
        input={"path": str(tmp_path / "x.zarr")},
        method={
            "name": "kernel_pca",
            "n_components": 2,
            "kernel": {"search": {"rbf": {"gamma": [0.1, 1.0]}, "linear": {}}, "folds": 3},
            "n_landmarks": 50,
        },
        output={"model": str(tmp_path / "model.zarr")},
    )
    stage = RunContext(load(file), Silent(), threading.Event())
    reports = pipeline.run_all(stage)
    shown = summarise(stage, StagesReport(fit=reports.fit))
    for kernel in ("rbf gamma=0.1", "rbf gamma=1", "linear"):
        assert re.search(rf"  {kernel} +\d+\.\d+%", shown.markdown)
    kernels, variances = (table.records() for table in shown.tables)
    assert {row["kernel"] for row in kernels} == {"rbf gamma=0.1", "rbf gamma=1", "linear"}
    assert [row["component"] for row in variances] == [1, 2]
    model = store.load_model(tmp_path / "model.zarr").model
    np.testing.assert_allclose([float(row["variance"]) for row in variances], model.explained_variance)
