"""Whole runs of PCA, and of methods that predict: parameters in YAML, types of outputs, upgrades."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from nightly import Nights, correlated
from sklearn.decomposition import PCA as SKLEARN
from sklearn.decomposition import TruncatedSVD

from streamdr import load_model, store
from streamdr.core.row_outputs import RowView
from streamdr.workflow import pipeline
from streamdr.workflow.verification import verify


def nights(place, values, method, **output):
    outputs = {kind: str(place / f"out/{kind}.zarr") for kind in output} | {
        "model": str(place / "out/m.zarr")
    }
    made = Nights(place, values, {"method": method, "output": outputs})
    made.write(len(values))
    return made


def test_uncentred_components_and_likelihoods_in_a_configuration(tmp_path):
    values = correlated(400, 6)
    method = {"name": "pca", "n_components": 2, "center": False, "whiten": False}
    made = nights(tmp_path, values, method, embedding=True, log_likelihood=True)
    made.run()
    model = load_model(tmp_path / "out/m.zarr")
    assert model.center_ is False
    expected = TruncatedSVD(2, algorithm="arpack").fit(values.astype(np.float64))
    np.testing.assert_allclose(model.singular_values_, expected.singular_values_, rtol=1e-5)
    written = store.open_rows(tmp_path / "out/log_likelihood.zarr", "log_likelihood")[:]
    assert written.dtype == np.float64
    np.testing.assert_allclose(written, model.score_samples(values), rtol=1e-6)
    assert "center was False and is True" in str(
        pipeline.plan(made.stage(method={"center": True})).stages[0].reason
    )


def test_likelihoods_are_those_of_scikit_learn(tmp_path):
    values = correlated(400, 6, dtype="f8")
    nights(tmp_path, values, {"name": "pca", "n_components": 2}, log_likelihood=True).run()
    written = store.open_rows(tmp_path / "out/log_likelihood.zarr", "log_likelihood")[:]
    np.testing.assert_allclose(written, SKLEARN(2).fit(values).score_samples(values), rtol=1e-9)


def test_outputs_of_a_version_without_a_parameter_stay_up_to_date(tmp_path):
    made = nights(tmp_path, correlated(300, 5), {"name": "pca", "n_components": 2}, embedding=True)
    made.run()
    # Earlier versions recorded no "center": its default is not recorded, so that the recipe is the same.
    assert "center" not in made.stage().open_input().recipe["parameters"]
    assert made.stage(method={"center": False}).open_input().recipe["parameters"]["center"] is False


@pytest.mark.parametrize("dtype", ["int64", "uint8", "int16", "bool", "float32", "float64"])
def test_predicted_classes_are_of_the_type_of_the_labels(tmp_path, dtype):
    rng = np.random.default_rng(0)
    labels = (np.arange(300) % 2).astype(dtype)
    values = (rng.standard_normal((300, 4)) + 3 * labels.astype(float)[:, None]).astype(np.float32)
    zarr.create_array(tmp_path / "y.zarr", data=labels, chunks=(100,))
    made = nights(tmp_path, values, {"name": "lda", "n_components": 1}, predicted=True)
    made.config["input"] = {"labels": str(tmp_path / "y.zarr")}
    made.run()
    written = store.open_rows(tmp_path / "out/predicted.zarr", "predicted")[:]
    assert written.dtype == labels.dtype
    np.testing.assert_array_equal(written, load_model(tmp_path / "out/m.zarr").predict(values))
    assert made.run().transform.outputs["predicted"].reused
    verify(made.stage())


def test_classes_that_an_earlier_version_wrote_as_floats_are_written_again(tmp_path, monkeypatch):
    labels = np.arange(300) % 2
    values = (np.random.default_rng(0).standard_normal((300, 4)) + 3 * labels[:, None]).astype(np.float32)
    zarr.create_array(tmp_path / "y.zarr", data=labels, chunks=(100,))
    made = nights(tmp_path, values, {"name": "lda", "n_components": 1}, predicted=True)
    made.config["input"] = {"labels": str(tmp_path / "y.zarr")}
    with monkeypatch.context() as earlier:
        earlier.setattr(RowView, "dtype", np.dtype(np.float64))
        made.run()
    assert store.open_rows(tmp_path / "out/predicted.zarr", "predicted").dtype == np.float64
    report = made.run().transform.outputs["predicted"]
    assert not report.reused
    written = store.open_rows(tmp_path / "out/predicted.zarr", "predicted")[:]
    assert written.dtype == np.int64
    np.testing.assert_array_equal(written, load_model(tmp_path / "out/m.zarr").predict(values))


def test_components_of_a_mixture_are_stored_as_integers(tmp_path):
    rng = np.random.default_rng(0)
    values = (rng.standard_normal((300, 3)) + 8 * (np.arange(300) % 2)[:, None]).astype(np.float32)
    method = {"name": "ppca_mixture", "n_mixtures": 2, "n_components": 1}
    nights(tmp_path, values, method, predicted=True).run()
    assert store.open_rows(tmp_path / "out/predicted.zarr", "predicted")[:].dtype == np.int64
