"""Exported models give the numbers of streamdr in onnxruntime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from command_line import streamdr as command
from command_line import succeed

import streamdr
from streamdr.core.addresses import parse_location
from streamdr.core.onnx_graph import OPSET, Graph
from streamdr.core.plain_maps import Scale, ScaleNorms, Subtract
from streamdr.errors import ParameterError, StreamdrError
from streamdr.methods.chain import chain_model
from streamdr.store import load_model, save_model
from streamdr.workflow.exporting import export_onnx, onnx_model

N, D = 80, 7
ESTIMATORS = {
    "pca": streamdr.PCA(3),
    "whitened": streamdr.PCA(3, whiten="pca"),
    "zca": streamdr.PCA(3, whiten="zca"),
    "correlation": streamdr.PCA(3, scale=True, whiten="pca"),
    "about zero": streamdr.PCA(2, center=False),
    "varimax": streamdr.PCA(3, rotation="varimax", n_rotated=2),
    "lda": streamdr.LDA(),
    "ppca": streamdr.PPCA(2),
    "selection": streamdr.SelectFScore(3),
    "clip": streamdr.Clip(max=2.0),
    "clip both": streamdr.Clip(-1.0, 1.0),
    "standardise": streamdr.Standardise(max_value=1.5),
    "scale only": streamdr.Standardise(with_mean=False, max_value=1.5),
    "l1": streamdr.UnitNorm("l1"),
    "l2": streamdr.UnitNorm("l2"),
    "max": streamdr.UnitNorm("max"),
}
ON_COUNTS = {
    "log1p": streamdr.Log1p(),
    "totals": streamdr.NormalizeTotal(empty_rows="keep"),
    "to 1e4": streamdr.NormalizeTotal(1e4, empty_rows="keep"),
}


def rows(dtype: Any, offset: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(6)
    mixed = rng.standard_normal((N, D)) @ rng.standard_normal((D, D))
    mixed[::3] += 2.0
    return (mixed + offset).astype(dtype)


def classes() -> np.ndarray:
    return np.where(np.arange(N) % 3 == 0, 1, np.where(np.arange(N) % 2, 0, 5))


def counts(dtype: Any) -> np.ndarray:
    found = np.random.default_rng(7).poisson(0.8, (N, D))
    found[3] = 0
    return found.astype(dtype)


def exported(model: Any, place: Path, dtype: str = "float32") -> onnxruntime.InferenceSession:
    model.save(place / "model")
    export_onnx(parse_location(str(place / "model")), place / "model.onnx", dtype)
    return onnxruntime.InferenceSession(place / "model.onnx")


def agree(found: np.ndarray, expected: np.ndarray, tolerance: float = 1e-6) -> None:
    """Differences are small beside the largest value."""
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_numbers_are_the_same(tmp_path, name, offset, dtype):
    values = rows(dtype, offset)
    ours = ESTIMATORS[name].fit(values, classes())
    session = exported(ours, tmp_path, dtype)
    tolerance = 1e-6 if dtype == "float32" else 1e-11
    agree(session.run(["scores"], {"X": values})[0], ours.transform(values), tolerance)
    assert session.run(["scores"], {"X": values[:0]})[0].shape == (0, ours.model_.n_outputs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ON_COUNTS)
def test_the_numbers_of_counts_are_the_same(tmp_path, name, dtype):
    values = counts(dtype)
    values[0] = np.finfo(dtype).eps / 8
    ours = ON_COUNTS[name].fit(values)
    found = exported(ours, tmp_path, dtype).run(None, {"X": values})[0]
    np.testing.assert_allclose(found, ours.transform(values), rtol=1e-6 if dtype == "float32" else 1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["numbers", "text", "two"])
def test_classes_and_probabilities_are_the_same(tmp_path, kind, dtype):
    labels = {"numbers": classes(), "text": np.array(list("aábcdö"))[classes()], "two": classes() > 0}[kind]
    values = rows(dtype, 100.0)
    ours = streamdr.LDA().fit(values, labels.astype(int) if kind == "two" else labels)
    session = exported(ours, tmp_path, dtype)
    found, shares = session.run(["labels", "probabilities"], {"X": values})
    np.testing.assert_array_equal(np.asarray(found, ours.classes_.dtype), ours.predict(values))
    agree(shares.astype(np.float64), ours.predict_proba(values).astype(np.float64), 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_chain_is_exported_with_its_steps(tmp_path, dtype):
    values = counts(dtype) + 1
    steps = {
        "totals": streamdr.NormalizeTotal(),
        "log": streamdr.Log1p(),
        "few": streamdr.SelectFScore(4),
        "same": streamdr.Standardise(max_value=2.0),
        "lda": streamdr.LDA(),
    }
    mapped, members = values, []
    for step in steps.values():
        members.append(step.fit(mapped, classes()).model_)
        mapped = step.transform(mapped)
    chain: Any = chain_model(list(steps), members)
    graph = Graph(D, np.dtype(dtype))
    graph.output("scores", graph.mapped(chain.plain_maps()), 2)
    graph.classes(chain.plain_classes())
    session = onnxruntime.InferenceSession(graph.model({}).SerializeToString())
    scores, labels, _ = session.run(None, {"X": values})
    agree(scores, chain.transform(values), 2e-6 if dtype == "float32" else 1e-11)
    np.testing.assert_array_equal(labels, chain.predict(values))


def test_weights_of_features_and_features_left_out(tmp_path):
    values = rows("float32", 1e4)
    values[:, 1] = np.nan
    ours = streamdr.PCA(2).fit(values, feature_weights=np.linspace(0.5, 2, D), min_observed=0.5)
    found = exported(ours, tmp_path).run(None, {"X": values})[0]
    # float64 is the reference: streamdr weighs rows of float32 before it subtracts their mean.
    agree(found, ours.transform(values.astype(np.float64)).astype(np.float32), 2e-6)


def test_a_mean_is_subtracted_before_rows_are_scaled():
    """The digits that a large offset leaves in float32 are not lost in a product."""
    values = rows("float32", 1e6)
    mean, factors = values.mean(axis=0, dtype=np.float64), np.linspace(0.1, 3.3, D)
    graph = Graph(D, np.dtype("float32"))
    graph.output("scores", graph.mapped([Scale(factors), Subtract(mean * factors)]), D)
    session = onnxruntime.InferenceSession(graph.model({}).SerializeToString())
    exact = (values.astype(np.float64) - mean) * factors
    np.testing.assert_allclose(session.run(None, {"X": values})[0], exact, atol=1e-6 * np.abs(exact).max())


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_norms_neither_overflow_nor_vanish(norm):
    values = np.array([[3e38, 1e38], [1e-30, 2e-30], [0, 0]], np.float32)
    graph = Graph(2, np.dtype("float32"))
    graph.output("scores", graph.mapped([ScaleNorms(norm)]), 2)
    session = onnxruntime.InferenceSession(graph.model({}).SerializeToString())
    expected = streamdr.UnitNorm(norm).fit(values).transform(values)
    np.testing.assert_allclose(session.run(None, {"X": values})[0], expected, rtol=1e-6)


def test_the_file_says_what_it_is(tmp_path):
    frame_names = [f"gene {i}" for i in range(D)]
    ours = streamdr.PCA(2).fit(rows("float64"))
    save_model(
        tmp_path / "model",
        ours.model_,
        method="pca",
        parameters={"n_components": 2},
        feature_names=frame_names,
        input_fingerprint="",
        n_rows=N,
    )
    report = succeed("export", "model", "--onnx", "a.onnx", "--json", cwd=tmp_path).report
    assert report["outputs"] == ["scores"]
    assert report["opset"] == OPSET
    made = onnx.load(tmp_path / "a.onnx")
    about = {entry.key: entry.value for entry in made.metadata_props}
    assert json.loads(about["feature_names"]) == frame_names
    assert about["method"] == "pca"
    assert about["streamdr_version"] == streamdr.__version__ == made.producer_version
    assert [entry.version for entry in made.opset_import] == [OPSET]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.onnx", "model"]
    said = command("export", "model", "--onnx", "a.onnx", "--dtype", "int8", cwd=tmp_path)
    assert "--dtype: 'int8' is not one of float32, float64" in said.err


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (streamdr.KernelPCA(2), "a model by kernel_pca is not a sequence of linear maps"),
        (streamdr.SOM(), "a model by som is not"),
    ],
)
def test_what_is_not_linear_is_refused(tmp_path, estimator, message):
    estimator.fit(rows("float64")).save(tmp_path / "model")
    with pytest.raises(ParameterError, match=message):
        export_onnx(parse_location(str(tmp_path / "model")), tmp_path / "a.onnx")
    assert not (tmp_path / "a.onnx").exists()


def test_never_observed_features_are_refused(tmp_path):
    values = rows("float64")
    values[:, 2] = np.nan
    streamdr.PPCA(2).fit(values).save(tmp_path / "model")
    with pytest.raises(ParameterError, match="fit with min_observed"):
        onnx_model(load_model(tmp_path / "model"))


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    streamdr.PCA(2).fit(rows("float64")).save(tmp_path / "model")
    monkeypatch.setitem(__import__("sys").modules, "streamdr.core.onnx_graph", None)
    with pytest.raises(StreamdrError, match=r"pip install 'streamdr\[onnx\]'"):
        onnx_model(load_model(tmp_path / "model"))


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    streamdr.PCA(2).fit(rows("float64")).save(tmp_path / "model")
    (tmp_path / "file").write_text("mine")
    for name in ("no/a.onnx", "file/a.onnx"):
        with pytest.raises(StreamdrError, match=f"{name}: cannot be written"):
            export_onnx(parse_location(str(tmp_path / "model")), tmp_path / name)


def test_only_files_that_were_exported_are_replaced(tmp_path):
    model = parse_location(str(tmp_path / "model"))
    streamdr.PCA(2).fit(rows("float64")).save(tmp_path / "model")
    export_onnx(model, tmp_path / "a.onnx")
    before = (tmp_path / "a.onnx").read_bytes()
    export_onnx(model, tmp_path / "a.onnx", "float64")
    assert (tmp_path / "a.onnx").read_bytes() != before
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    for name in ("file", "folder"):
        with pytest.raises(StreamdrError, match=f"{name}: exists, and streamdr did not export it"):
            export_onnx(model, tmp_path / name)
    for name in ("zarr.json", "new.onnx"):
        with pytest.raises(StreamdrError, match=f"{name}: lies in the model"):
            export_onnx(model, tmp_path / "model" / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.onnx", "file", "folder", "model"]
    load_model(tmp_path / "model")
