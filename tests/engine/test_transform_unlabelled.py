"""The command line transforms rows without labels and without weights."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zarr
from command_line import streamdr, succeed, write_store

from streamdr import load_model

METHODS = {
    "lda": {"name": "lda", "n_components": 1},
    "select_f_score": {"name": "select_f_score", "k": 2},
    "select_forward": {"name": "select_forward", "k": 2},
}


def data(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n_rows).astype("f8")
    return rng.normal(size=(n_rows, 4)) + labels[:, None] * [2.0, 0.0, 1.0, 0.0], labels


@pytest.fixture
def fitted(tmp_path):
    """A folder with rows, labels and weights, and with other rows without labels and weights."""
    rows, labels = data(60, 0)
    write_store(tmp_path / "x.zarr", rows)
    zarr.create_array(tmp_path / "y.zarr", data=labels, chunks=(20,))
    zarr.create_array(tmp_path / "w.zarr", data=np.linspace(1, 2, 60), chunks=(20,))
    write_store(tmp_path / "both.zarr", np.column_stack([rows[:, :2], labels, rows[:, 2:]]))
    write_store(tmp_path / "new.zarr", data(35, 1)[0])
    return tmp_path


def write_config(place, **sections) -> None:
    output = {"model": "model.zarr", "embedding": "scores.zarr"}
    method = {"name": "pca", "n_components": 2}
    (place / "config.yaml").write_text(json.dumps({"method": method, "output": output, **sections}))


def mapped(place, *sets) -> np.ndarray:
    words = [word for text in ("input.path=new.zarr", *sets) for word in ("--set", text)]
    succeed("transform", "config.yaml", *words, cwd=place)
    succeed("verify", "config.yaml", *words, cwd=place)
    return np.asarray(zarr.open_array(place / "scores.zarr/embedding", mode="r")[:])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("beside", [{"labels": "y.zarr"}, {"labels": "y.zarr", "weights": "w.zarr"}])
@pytest.mark.parametrize("removed", [False, True])
def test_a_transform_does_not_need_the_labels_and_weights_of_the_fit(fitted, name, beside, removed):
    write_config(fitted, input={"path": "x.zarr", **beside}, method=METHODS[name])
    succeed("fit", "config.yaml", cwd=fitted)
    nulls = [f"input.{key}=null" for key in beside] if removed else []
    expected = load_model(fitted / "model.zarr").transform(data(35, 1)[0])
    np.testing.assert_allclose(mapped(fitted, *nulls), expected, rtol=1e-9, atol=1e-9)


def test_a_transform_does_not_need_the_weights_of_a_fit_without_labels(fitted):
    write_config(fitted, input={"path": "x.zarr", "weights": "w.zarr"})
    succeed("fit", "config.yaml", cwd=fitted)
    expected = load_model(fitted / "model.zarr").transform(data(35, 1)[0])
    np.testing.assert_allclose(mapped(fitted), expected, rtol=1e-9, atol=1e-9)


def test_a_transform_does_not_need_the_column_of_labels(fitted):
    given = {"path": "both.zarr", "label_column": 2}
    write_config(fitted, input=given, method=METHODS["lda"])
    succeed("fit", "config.yaml", cwd=fitted)
    expected = load_model(fitted / "model.zarr").transform(data(35, 1)[0])
    np.testing.assert_allclose(mapped(fitted), expected, rtol=1e-9, atol=1e-9)


def test_a_transform_of_the_rows_of_the_fit_is_up_to_date_after_a_run(fitted):
    given = {"path": "x.zarr", "labels": "y.zarr", "weights": "w.zarr"}
    write_config(fitted, input=given, method=METHODS["lda"])
    succeed("run", "config.yaml", cwd=fitted)
    assert succeed("transform", "config.yaml", "--json", cwd=fitted).report["reused"]


@pytest.mark.parametrize("command", ["fit", "run", "plan"])
def test_a_fit_without_labels_is_refused(fitted, command):
    write_config(fitted, input={"path": "x.zarr"}, method=METHODS["lda"])
    outcome = streamdr(command, "config.yaml", "--json", cwd=fitted)
    assert outcome.code == 2
    assert "learns from labels" in json.loads(outcome.out)["error"]["message"]
