"""Selection from stores: the number of passes, appended rows, reads of selected columns, and memory."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import zarr
from fits import bits, grown, stored
from nightly import Nights
from sklearn.feature_selection import f_classif, f_regression

from streamdr import store
from streamdr.config import parse
from streamdr.core.blocks import Span
from streamdr.core.execution import Execution
from streamdr.core.method import Method
from streamdr.core.progress import Silent
from streamdr.core.row_outputs import EMBEDDING
from streamdr.data import open_source
from streamdr.data.column_subset import ColumnSubset
from streamdr.data.zarr.reading import FileReader
from streamdr.engine import fitting
from streamdr.engine.planner import plan_transform, view_and_source
from streamdr.errors import DataError
from streamdr.methods.selection import SelectCorrelation, SelectForward, SelectFScore, SelectMutualInfo
from streamdr.workflow import pipeline

N, D = 1500, 12
ALL = N * D * 4
METHODS: dict[str, tuple[Method, str]] = {
    "mutual_info": (SelectMutualInfo(4), "numbers"),
    "mutual_info cv": (SelectMutualInfo("cv", n_folds=3), "classes"),
    "f_score": (SelectFScore(4), "classes"),
    "f_score cv": (SelectFScore("cv"), "classes"),
    "correlation": (SelectCorrelation(4), "numbers"),
    "forward": (SelectForward(5), "numbers"),
    "discriminant": (SelectForward(5, n_folds=4), "text"),
    "backward": (SelectForward(5, direction="backward"), "classes"),
    "floating": (SelectForward("cv", direction="floating", learner="ridge"), "numbers"),
}


pytestmark = pytest.mark.usefixtures("small_blocks")


def made(n_rows):
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 3, size=n_rows)
    rows = rng.normal(size=(n_rows, D)) @ rng.normal(size=(D, D)) + 2 * rng.normal(size=(3, D))[classes]
    numbers = rows @ rng.normal(size=D) + 3 * rng.normal(size=n_rows)
    rows[:, 3] = np.round(rows[:, 3])
    return rows.astype("f4"), {
        "classes": classes,
        "numbers": numbers,
        "text": np.array(["a", "b", "cd"])[classes],
    }


ROWS, TARGETS = made(N)


@pytest.fixture
def path(tmp_path):
    return stored(tmp_path / "x.zarr", ROWS)


def fit(name, path, *, targets=TARGETS, start=None, progress=None, stop=None, **settings):
    method, target = METHODS[name]
    source = open_source(path, labels=targets[target])
    return fitting.fit(method, source, Execution(**settings), start=start, progress=progress, stop=stop)


@pytest.mark.parametrize("name", METHODS)
def test_the_data_is_read_once_and_once_more_for_bins(name, path):
    assert fit(name, path).bytes_read == (2 * ALL if "mutual" in name else ALL)


def test_scores_of_a_store_equal_those_of_scikit_learn(path):
    expected = f_classif(ROWS.astype(float), TARGETS["classes"])[0]
    np.testing.assert_allclose(fit("f_score", path).model.scores, expected, rtol=1e-5)
    expected = np.sqrt(f_regression(ROWS.astype(float), TARGETS["numbers"])[0])
    found = np.abs(fit("correlation", path).model.scores)
    np.testing.assert_allclose(found / np.sqrt(1 - found**2) * np.sqrt(N - 2), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["mutual_info", "mutual_info cv"])
def test_only_appended_rows_are_read_and_the_bins_are_kept(name, tmp_path):
    rows, targets = made(6000)
    path, labels, y = tmp_path / "x.zarr", tmp_path / "y.zarr", targets[METHODS[name][1]]
    stored(path, rows[:5000], (100, D))
    stored(labels, y[:5000], (100,))
    settings = {"targets": {METHODS[name][1]: labels}, "ledger": tmp_path / "ledger"}
    first = fit(name, path, **settings)
    grown(path, rows[:5200])
    grown(labels, y[:5200])
    second = fit(name, path, start=first.model, **settings)
    assert second.bytes_read <= (200 + max(5200 / 16, 400)) * D * 4
    assert second.model.n_samples == 5200
    afresh = fit(name, path, targets=settings["targets"], start=first.model)
    assert bits(second.model) == bits(afresh.model)


def test_repeated_runs_read_only_appended_rows(tmp_path):
    rows, targets = made(6000)
    config = {
        "input": {"path": str(tmp_path / "x.zarr"), "labels": str(tmp_path / "y.zarr")},
        "method": {"name": "select_forward", "k": 4},
        "output": {"model": str(tmp_path / "out/model.zarr"), "embedding": str(tmp_path / "out/z.zarr")},
    }
    nights = Nights(tmp_path, rows)
    nights.write(5000)

    def run():
        return pipeline.run_all(pipeline.RunContext(parse(json.dumps(config)), Silent(), threading.Event()))

    labels = zarr.create_array(tmp_path / "y.zarr", shape=(5000,), chunks=(100,), dtype="f8")
    labels[:] = targets["numbers"][:5000]
    assert run().fit.bytes_read == 5000 * D * 4
    nights.grow(5200)
    labels.resize((5200,))
    labels[5000:] = targets["numbers"][5000:5200]
    report = run()
    assert report.fit.bytes_read <= (200 + 5200 / 16) * D * 4
    assert report.transform.outputs["embedding"].rows_written < 1000
    model = store.load_model(tmp_path / "out/model.zarr").model
    kept = store.open_embedding(tmp_path / "out/z.zarr")[:]
    np.testing.assert_array_equal(kept, rows[:5200, np.sort(model.selected)])
    assert run().fit.bytes_read == 0


# Selected columns


def recorded_chunks(monkeypatch):
    """A list that records the chunks that are read after this call."""
    read_chunks, fill = [], FileReader.fill

    def recording_fill(self, piece, target):
        read_chunks.append(tuple(piece.coords))
        fill(self, piece, target)

    monkeypatch.setattr(FileReader, "fill", recording_fill)
    return read_chunks


@pytest.mark.parametrize("chunks", [(100, 1), (250, 5), (1500, 12)])
def test_only_chunks_with_selected_columns_are_read(tmp_path, monkeypatch, chunks):
    path = stored(tmp_path / "x.zarr", ROWS, chunks)
    model = fit("forward", path).model
    read_chunks = recorded_chunks(monkeypatch)
    target = tmp_path / "z.zarr"
    done = fitting.transform(model, open_source(path), target, Execution(workers=2), attributes={})
    np.testing.assert_array_equal(store.open_embedding(target)[:], ROWS[:, model.reads])
    bands = {column // chunks[1] for column in model.reads}
    wanted = {(row, band) for row in range(-(-N // chunks[0])) for band in bands}
    assert {*read_chunks} == wanted
    assert len(read_chunks) == len(wanted), "each chunk is read once"
    columns = sum(min(chunks[1], D - band * chunks[1]) for band in bands)
    assert done.bytes_read == N * columns * 4, "whole chunks are counted"


def test_damaged_chunks_of_other_columns_are_not_read(tmp_path):
    rows = ROWS.copy()
    path = stored(tmp_path / "x.zarr", ROWS, (100, 1))
    model = fit("forward", path).model
    other = int(np.flatnonzero(~model.support)[0])
    (tmp_path / f"x.zarr/c/3/{other}").write_bytes(b"nonsense")
    fitting.transform(model, open_source(path), tmp_path / "z.zarr", Execution(), attributes={})
    np.testing.assert_array_equal(store.open_embedding(tmp_path / "z.zarr")[:], rows[:, model.reads])
    zarr.open_array(path, mode="r+")[333, int(model.reads[2])] = np.nan
    with pytest.raises(DataError, match=f"nan at row 333, column {model.reads[2]} "):
        fitting.transform(model, open_source(path), tmp_path / "y.zarr", Execution(), attributes={})


def test_a_subset_of_columns_is_a_source(path):
    columns = np.array([1, 4, 5, 11])
    source = ColumnSubset(open_source(path), columns)
    np.testing.assert_array_equal(source.read(Span(30, 90), Span(0, 4)), ROWS[30:90, columns])
    np.testing.assert_array_equal(source.read(Span(30, 90), Span(1, 3)), ROWS[30:90, [4, 5]])
    np.testing.assert_array_equal(source.block(Span(2, 4), "columns").values, ROWS[:, [5, 11]])
    assert source.fingerprint() == open_source(path).fingerprint()


def test_a_transform_is_planned_for_the_selected_columns(tmp_path):
    path = stored(tmp_path / "x.zarr", np.tile(ROWS, (1, 50)), (40, 10))
    labels = TARGETS["numbers"]
    model = fitting.fit(SelectFScore(3), open_source(path, labels=labels), Execution()).model
    source = open_source(path)
    one = Execution(workers=1)
    whole = plan_transform(EMBEDDING.of(model), source, one, np.dtype("f4"))
    few = plan_transform(*view_and_source(model, source, EMBEDDING), one, np.dtype("f4"))
    assert few.peak <= whole.peak
    assert few.block_rows >= whole.block_rows
