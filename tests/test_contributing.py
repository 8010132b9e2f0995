"""The worked example in CONTRIBUTING.md: put where it says, it is a method like any other."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import zarr
from sklearn.base import clone
from sklearn.preprocessing import MinMaxScaler

import streamdr.accumulators
import streamdr.methods
from streamdr import config, estimators, pipeline, store, terminal
from streamdr.errors import ConfigError
from streamdr.progress import Silent

TEXT = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
CODE = re.findall(r"^```python(?: (\S+))?\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
FILES = {path: code for path, code in CODE if path}
FACE, LAWS = (code for path, code in CODE if not path)

METHOD = """
input: {path: x.zarr}
method: {name: minmax, top: 2.5}
output: {model: model.zarr, embedding: scaled.zarr}
"""


@pytest.fixture
def minmax(tmp_path, monkeypatch):
    """The example's method, in the package as if its files were there, and registered."""
    for path, code in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(code)
    for package in (streamdr.accumulators, streamdr.methods):
        beside = tmp_path.joinpath(*package.__name__.split("."))
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(beside)])
    module = importlib.import_module("streamdr.methods.minmax")
    monkeypatch.setitem(streamdr.methods.METHODS, "minmax", module.MinMax)
    monkeypatch.setattr(streamdr.methods, "MinMax", module.MinMax, raising=False)
    monkeypatch.chdir(tmp_path)
    yield module
    for path in FILES:
        del sys.modules[path.removesuffix(".py").replace("/", ".")]


def test_it_keeps_the_laws(minmax):
    exec(LAWS, vars(minmax))


def test_it_runs_from_a_configuration(minmax):
    data = np.random.default_rng(0).normal(size=(500, 7)) + np.arange(7)
    zarr.create_array("x.zarr", data=data, chunks=(64, 7))
    run = config.parse(METHOD)
    report = pipeline.run_all(pipeline.Stage(run, Silent(), Event()))
    assert "scaled.zarr" in terminal.ran(report)
    want = MinMaxScaler(feature_range=(0, 2.5)).fit_transform(data)
    np.testing.assert_allclose(store.open_embedding(Path("scaled.zarr"))[:], want, rtol=0, atol=1e-14)


def test_its_parameters_are_checked_and_in_the_schema(minmax):
    with pytest.raises(ConfigError, match=r"method\.top: -1.* is not above 0"):
        config.parse(METHOD, ["method.top=-1.0"])
    choices = {choice["title"]: choice for choice in config.schema()["properties"]["method"]["oneOf"]}
    assert choices["minmax"]["properties"]["top"]["description"] == "The largest value that comes out."


def test_it_has_a_scikit_learn_face_and_comes_back_from_disk(minmax, monkeypatch, tmp_path):
    namespace = {"Estimator": estimators.Estimator, "methods": streamdr.methods}
    exec(FACE, namespace)
    monkeypatch.setitem(estimators.ESTIMATORS, "minmax", namespace["MinMax"])
    data = np.random.default_rng(1).normal(size=(40, 5))
    fitted = clone(namespace["MinMax"](top=3.0)).fit(data)
    fitted.save(tmp_path / "model.zarr")
    loaded = estimators.load_model(tmp_path / "model.zarr")
    np.testing.assert_array_equal(loaded.transform(data), fitted.transform(data))
    want = MinMaxScaler(feature_range=(0, 3)).fit_transform(data)
    np.testing.assert_allclose(loaded.transform(data), want, rtol=0, atol=1e-14)
