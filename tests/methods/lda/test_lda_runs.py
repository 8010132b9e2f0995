"""LDA of stores: the number of passes, appended rows, whole runs, and memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr
from command_line import succeed
from fits import bits
from narrowing import array_in, present, values_of
from nightly import Nights
from sklearn.datasets import load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from streamdr import LDA as ESTIMATOR
from streamdr import load_model, store
from streamdr.core.execution import Execution
from streamdr.core.row_outputs import ROW_OUTPUTS
from streamdr.data import open_source
from streamdr.engine import fitting
from streamdr.engine.planner import plan
from streamdr.errors import DataError, ParameterError
from streamdr.methods.lda import LDA
from streamdr.methods.pca import PCA

N, D = 1500, 12
ALL = N * D * 4
METHODS = {
    "plain": LDA(),
    "shrunk": LDA(1, shrinkage=0.2),
    "auto": LDA(shrinkage="auto"),
    "priors": LDA(priors=[0.2, 0.3, 0.5]),
}
pytestmark = pytest.mark.usefixtures("small_blocks")
PASSES = {"plain": 1, "shrunk": 1, "auto": 2, "priors": 1}


def classes(n_rows: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Rows of three classes that overlap a little, in random order."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, n_rows)
    mixing = rng.normal(size=(D, D)) / 4 + np.eye(D)
    rows = rng.normal(size=(n_rows, D)) @ mixing + rng.normal(size=(3, D))[labels] + 40.0
    return rows.astype("f4"), labels


@pytest.fixture(scope="module")
def data():
    return classes()


def stored(path, rows, labels, chunks=(40, 5)):
    """Write rows and their labels to one store, in chunks of different lengths."""
    group = zarr.open_group(path, mode="w")
    group.create_array("X", shape=rows.shape, chunks=chunks, dtype=rows.dtype)[:] = rows
    group.create_array("y", shape=labels.shape, chunks=(33,), dtype=labels.dtype)[:] = labels
    return path


@pytest.fixture
def path(tmp_path, data):
    return stored(tmp_path / "x.zarr", *data)


def source(path):
    return open_source(path, array="X", labels=path / "y")


def fit(method, path, *, progress=None, stop=None, **settings):
    return fitting.fit(method, source(path), Execution(**settings), progress=progress, stop=stop)


@pytest.mark.parametrize("name", METHODS)
def test_a_fit_reads_the_data_as_often_as_it_has_passes(name, path):
    assert fit(METHODS[name], path).bytes_read == PASSES[name] * ALL


def test_another_number_of_discriminants_or_another_shrinkage_reads_nothing(path, tmp_path):
    settings = {"ledger": tmp_path / "ledger"}
    fit(LDA(), path, **settings)
    for other in (LDA(1), LDA(shrinkage=0.3), LDA(shrinkage=0.9)):
        assert fit(other, path, **settings).bytes_read == 0


# Appended rows


def grown(path, rows, labels):
    group = zarr.open_group(path, mode="r+")
    for name, values in (("X", rows), ("y", labels)):
        array = array_in(group, name)
        before = array.shape[0]
        array.resize(values.shape)
        array[before:] = values[before:]


def test_only_appended_rows_are_read_even_if_they_have_a_new_class(tmp_path):
    rows, labels = classes(6000)
    labels = np.where(np.arange(6000) >= 5500, 7, labels)
    path = stored(tmp_path / "x.zarr", rows[:5000], labels[:5000], (100, D))
    settings = {"ledger": tmp_path / "ledger"}
    for size in (5000, 5400, 6000):
        grown(path, rows[:size], labels[:size])
        found = fit(LDA(), path, **settings)
        assert bits(found.model) == bits(fit(LDA(), path).model)
        if size > 5000:
            assert found.bytes_read <= (600 + size / 16) * D * 4
    assert found.model.classes.tolist() == [0, 1, 2, 7]


def test_changed_labels_are_read_again(path, tmp_path, data):
    settings = {"ledger": tmp_path / "ledger"}
    first = fit(LDA(), path, **settings)
    zarr.open_array(path / "y", mode="r+")[:] = 2 - data[1]
    second = fit(LDA(), path, **settings)
    assert second.bytes_read == ALL
    np.testing.assert_allclose(second.model.means, first.model.means[::-1], rtol=1e-6)


# Whole runs


def nights(path, text: bool) -> Nights:
    rows, labels = classes(2000)
    names = np.array(["oak", "ash", "beech"])[labels] if text else labels
    outputs = {kind: str(path / f"out/{kind}.zarr") for kind in ("embedding", "predicted", "probabilities")}
    zarr.create_array(path / "y.zarr", data=names, chunks=(100,))
    found = Nights(
        path,
        rows,
        {
            "input": {"labels": str(path / "y.zarr")},
            "method": {"name": "lda", "n_components": 2},
            "output": outputs,
        },
    )
    found.write(2000)
    return found


@pytest.mark.parametrize("text", [False, True])
def test_a_run_writes_classes_and_their_probabilities(tmp_path, text):
    made = nights(tmp_path, text)
    report = made.run()
    assert report.fit.summary["n_classes"] == 3
    model = load_model(tmp_path / "out/model.zarr")
    predicted = store.open_rows(tmp_path / "out/predicted.zarr", "predicted")[:]
    assert predicted.dtype == np.int64
    expected = model.predict(made.values)
    if text:
        assert model.classes_.tolist() == ["ash", "beech", "oak"]
        expected = np.searchsorted(model.classes_, expected)
    np.testing.assert_array_equal(predicted, expected)
    probabilities = store.open_rows(tmp_path / "out/probabilities.zarr", "probabilities")[:]
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities, model.predict_proba(made.values), atol=1e-5)
    assert present(made.run().transform).outputs["predicted"].reused


def test_a_missing_value_is_not_classified(tmp_path, path, data):
    model = fit(LDA(), path).model
    kinds = {kind.name: kind for kind in ROW_OUTPUTS}
    zarr.open_array(path / "X", mode="r+")[700, 3] = np.nan
    for name in ("predicted", "probabilities"):
        with pytest.raises(DataError, match="row 700, column 3"):
            fitting.transform(
                model, source(path), tmp_path / name, Execution(), kind=kinds[name], attributes={}
            )


def test_the_shipped_configuration_runs_from_the_command_line(tmp_path):
    rows, labels = load_wine(return_X_y=True)
    config = Path(__file__).parents[3] / "configs/lda.yaml"
    report = succeed("run", str(config), "--json", cwd=tmp_path).report
    assert report["n_rows"] == 178
    reference = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto").fit(rows, labels)
    written = values_of(zarr.open_array(tmp_path / "out/lda/probabilities.zarr/probabilities", mode="r"))
    np.testing.assert_allclose(written, reference.predict_proba(rows), atol=1e-8)
    predicted = zarr.open_array(tmp_path / "out/lda/predicted.zarr/predicted", mode="r")[:]
    np.testing.assert_array_equal(predicted, reference.predict(rows))
    succeed("verify", str(config), cwd=tmp_path)


def test_estimators_accept_stores_and_lazy_arrays(path, data):
    here = ESTIMATOR().fit(*data)
    there = ESTIMATOR().fit(path / "X", path / "y")
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-3, atol=1e-4)
    assert there.score(path / "X", path / "y") == pytest.approx(here.score(*data), abs=2e-3)
    predicted = there.predict(path / "X")
    assert predicted.dtype == data[1].dtype
    np.testing.assert_array_equal(predicted.compute(), there.predict(data[0]))
    probabilities = there.predict_proba(path / "X").compute()
    np.testing.assert_allclose(probabilities, there.predict_proba(data[0]), atol=1e-6)
    with pytest.raises(ValueError, match="requires y"):
        ESTIMATOR().fit(path / "X")
    with pytest.raises(ParameterError, match="learns from labels"):
        fitting.fit(LDA(), open_source(path, array="X"), Execution())


# Memory


@pytest.mark.parametrize("name", METHODS)
def test_the_plan_includes_the_largest_number_of_classes(name, path):
    few, many = (
        plan(LDA(**vars(METHODS[name]) | {"max_classes": most}), source(path), Execution(workers=2))
        for most in (3, 300)
    )
    assert few.peak < many.peak or name == "priors"
    assert plan(PCA(2, solver="covariance"), source(path), Execution(workers=2)).peak <= few.peak
