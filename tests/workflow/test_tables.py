"""Runs of tables: folders of Parquet files, columns by name and pattern, a column of labels."""

from __future__ import annotations

import threading

import numpy as np
import pandas as pd
import pytest
import zarr
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from streamdr import config, load_model
from streamdr.core.progress import Silent
from streamdr.errors import ConfigError, DataError, StoreError
from streamdr.workflow import pipeline

N = 60


def table(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(N, 3)), columns=["sensor_1", "sensor_2", "depth"])
    frame["station"] = rng.integers(0, 3, N)
    frame["name"] = "x"
    frame[["sensor_1", "depth"]] += frame[["station"]].to_numpy()
    return frame


@pytest.fixture
def run(tmp_path):
    """Plan and run, and return the reasons of the stages and the report."""
    for year in (2019, 2020):
        (tmp_path / "rows" / f"year={year}").mkdir(parents=True)
        table(year).to_parquet(tmp_path / "rows" / f"year={year}" / "part.parquet")

    def plan_and_run(method, path="rows", at="", **more):
        given = {"path": str(tmp_path / path), "columns": ["sensor_*", "depth"], **more}
        output = {"model": str(tmp_path / f"{at}model.zarr"), "embedding": str(tmp_path / f"{at}scores.zarr")}
        context = pipeline.RunContext(
            config.read({"input": given, "method": method or {"name": "pca"}, "output": output}),
            Silent(),
            threading.Event(),
        )
        if method is None:
            return pipeline.transform(context)
        reasons = [stage.reason for stage in pipeline.plan(context).stages]
        return reasons, pipeline.run_all(context)

    return plan_and_run


def test_a_folder_with_a_column_of_labels(run, tmp_path):
    run({"name": "lda"}, label_column="station")
    rows = pd.concat([table(2019), table(2020)])
    model = load_model(tmp_path / "model.zarr")
    features = ["sensor_1", "sensor_2", "depth"]
    assert model.feature_names_in_.tolist() == features
    expected = LinearDiscriminantAnalysis(solver="svd").fit(rows[features], rows["station"])
    np.testing.assert_array_equal(model.predict(rows[features]), expected.predict(rows[features]))
    assert zarr.open_array(tmp_path / "scores.zarr/embedding", mode="r").shape == (2 * N, 2)


@pytest.mark.parametrize("columns", [["sensor_*", "depth"], None])
@pytest.mark.parametrize("category", [False, True])
def test_labels_may_be_text(run, tmp_path, columns, category):
    for path in (tmp_path / "rows").rglob("*.parquet"):
        frame = pd.read_parquet(path).drop(columns="name")
        names = frame["station"].map({0: "Kiel", 1: "Oslo", 2: "Århus"})
        frame["station"] = names.astype("category") if category else names
        frame[["sensor_1", "sensor_2", "depth", "station"]].to_parquet(path, row_group_size=7)
    run({"name": "lda"}, label_column="station", columns=columns)
    rows = pd.concat([table(2019), table(2020)])
    features = ["sensor_1", "sensor_2", "depth"]
    model = load_model(tmp_path / "model.zarr")
    assert model.feature_names_in_.tolist() == features
    expected = LinearDiscriminantAnalysis(solver="svd").fit(rows[features], rows["station"])
    numbers = expected.predict(rows[features])
    found = model.predict(rows[features])
    np.testing.assert_array_equal(found, np.array(["Kiel", "Oslo", "Århus"])[numbers])
    again, _ = run({"name": "lda"}, label_column="station", columns=columns)
    assert again[0] == "it was fitted to this input with these parameters"
    where = [{"name": "select_rows", "where": {"station": ["Oslo"]}}, {"name": "pca", "n_components": 1}]
    (tmp_path / "other").mkdir()
    chosen = run(where, columns=["depth"], at="other/")[1]
    assert chosen.fit.n_rows == (rows["station"] == 1).sum()


def test_a_row_without_a_label_is_named(run, tmp_path):
    path = tmp_path / "rows/year=2020/part.parquet"
    frame = table(2020)
    frame["station"] = [None if row == 5 else "Oslo" for row in range(N)]
    frame.to_parquet(path)
    frame.assign(station="Kiel").to_parquet(tmp_path / "rows/year=2019/part.parquet")
    with pytest.raises(DataError, match=rf"row {N + 5}"):
        run({"name": "lda"}, label_column="station")


def test_files_are_appended_and_columns_are_part_of_the_recipe(run, tmp_path):
    method = {"name": "pca", "n_components": 2}
    run(method)
    assert "it was fitted to this input with these parameters" in run(method)[0]
    table(2021).to_parquet(tmp_path / "rows" / "year=2021.parquet")
    assert run(method)[0][0] == f"{N} rows were appended to the input"
    with pytest.raises(StoreError, match=r"model\.zarr: exists"):
        run(method, columns=["depth", "sensor_1"])


def test_columns_in_another_order_than_in_the_model_are_refused(run, tmp_path):
    run({"name": "pca", "n_components": 2})
    model = load_model(tmp_path / "model.zarr")
    other = tmp_path / "other.parquet"
    table(2021)[["depth", "sensor_1", "sensor_2"]].to_parquet(other)
    said = r"other\.parquet: column 0 is 'depth', and 'sensor_1' in the model; give it the columns of the fit"
    with pytest.raises(DataError, match=said):
        model.transform(str(other))
    with pytest.raises(DataError, match=said):
        run(None, path="other.parquet", columns=None)


def test_columns_that_are_not_there_are_an_error_at_their_key(run):
    with pytest.raises(DataError, match=r"has no column 'sensor_9', but 'sensor_"):
        run({"name": "pca"}, columns=["sensor_9"])
    with pytest.raises(ConfigError, match=r"columns"):
        run({"name": "pca"}, columns="sensor_1")
