"""The outputs of rows besides the embedding: denoised, imputed, log-likelihoods and responsibilities."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
import zarr
from command_line import streamdr, succeed, write_config, write_store
from dask_processes import scheduler, worker
from killing import Started, chunks
from narrowing import checked, present, values_of
from nightly import Nights, correlated
from zarr.core.metadata import ArrayV3Metadata

from streamdr import PCA, PPCA, config, store
from streamdr.core import blocks
from streamdr.core.addresses import parse_location
from streamdr.core.blocks import Span
from streamdr.core.execution import Execution
from streamdr.core.progress import Silent
from streamdr.core.row_outputs import ROW_OUTPUTS, RowKind
from streamdr.data import open_source
from streamdr.data.source import Source
from streamdr.engine import fitting, planner
from streamdr.errors import ConfigError, DataError, Interrupted, ParameterError, StoreError
from streamdr.workflow import pipeline, report_text
from streamdr.workflow.findings import RowsInspection
from streamdr.workflow.inspection import inspect
from streamdr.workflow.reports import StagesReport
from streamdr.workflow.summary import summarise
from streamdr.workflow.verification import verify

ROWS, COLS = 900, 12
SIZE = ROWS * COLS * 4
KINDS = {kind.name: kind for kind in ROW_OUTPUTS}
FILLED: tuple[RowKind, ...] = ("imputed", "imputed_variance")
OF_PPCA: tuple[RowKind, ...] = ("embedding", *FILLED, "log_likelihood")
METHODS = {
    "ppca": {"name": "ppca", "n_components": 3},
    "ppca_mixture": {"name": "ppca_mixture", "n_components": 2, "n_mixtures": 2, "max_iter": 5},
}


def with_missing(n_rows: int = ROWS, n_cols: int = COLS, part: float = 0.2) -> np.ndarray:
    values = correlated(n_rows, n_cols)
    values[np.random.default_rng(1).random(values.shape) < part] = np.nan
    return values


def begin(place: Path, values: np.ndarray, kinds=OF_PPCA, **output) -> Nights:
    """Write a store of the values, and configure these outputs of a PPCA."""
    asked = {kind: str(place / f"out/{kind}.zarr") for kind in kinds}
    return Nights(place, values, {"method": METHODS["ppca"], "output": asked | output})


def written(nights: Nights, kind: RowKind) -> np.ndarray:
    return store.open_rows(nights.root / f"out/{kind}.zarr", kind)[...]


def mapped(nights: Nights, kind: RowKind, values: np.ndarray | None = None) -> np.ndarray:
    """Return what the saved model gives for rows in memory."""
    model = store.load_model(nights.root / "out/model.zarr").model
    return getattr(model, KINDS[kind].method)(nights.values if values is None else values)


@pytest.fixture
def nights(tmp_path):
    nights = begin(tmp_path, with_missing())
    nights.write(ROWS)
    return nights


@pytest.fixture
def small_blocks(monkeypatch):
    """Partition small data as if it were large."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1 << 13)
    monkeypatch.setattr(blocks, "SEGMENT_BYTES", 1 << 14)
    monkeypatch.setattr(planner, "_CHUNK_BLOCKS", 2)


# ---- what is written


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [None, "float64"])
def test_every_kind_is_what_the_model_says_to_the_bit(tmp_path, method, dtype):
    kinds: tuple[RowKind, ...] = OF_PPCA if method == "ppca" else (*OF_PPCA, "responsibilities")
    nights = begin(tmp_path, with_missing(), kinds, dtype=dtype)
    nights.config["method"] = METHODS[method]
    nights.write(ROWS)
    report = present(nights.run().transform)
    for kind in kinds:
        expected = mapped(nights, kind)
        got = written(nights, kind)
        assert got.dtype == ("float64" if kind == "log_likelihood" else dtype or "float32")
        np.testing.assert_array_equal(got, expected.astype(got.dtype), err_msg=kind)
        assert np.isfinite(got).all()
        assert report.outputs[kind].bytes_read == SIZE, "the input is read once for each"
    there = ~np.isnan(nights.values)
    np.testing.assert_array_equal(written(nights, "imputed")[there], nights.values[there])
    assert not written(nights, "imputed_variance")[there].any()
    assert (written(nights, "imputed_variance")[~there] > 0).all()


def test_xarray_shows_named_dimensions(tmp_path):
    nights = begin(tmp_path, with_missing(), (*OF_PPCA, "responsibilities"))
    nights.config["method"] = METHODS["ppca_mixture"]
    nights.write(ROWS)
    nights.run()
    for kind, dims in {
        "embedding": ("sample", "component"),
        "imputed": ("sample", "feature"),
        "imputed_variance": ("sample", "feature"),
        "log_likelihood": ("sample",),
        "responsibilities": ("sample", "mixture"),
    }.items():
        assert xarray.open_zarr(tmp_path / f"out/{kind}.zarr")[kind].dims == dims


def expected_by_blocks(view, source, values) -> np.ndarray:
    """Return what a model gives for the blocks that a transform reads. Sums depend on where blocks start."""
    dtype = np.dtype(view.kind.dtype or source.spec.working)
    chosen = planner.plan_transform(view, source, Execution(workers=2), dtype)
    assert len(values) > 2 * chosen.chunk_rows, "this is about many blocks"
    blocks = (
        b for chunk in Span(0, len(values)).split(chosen.chunk_rows) for b in chunk.split(chosen.block_rows)
    )
    return np.concatenate([view.transform(values[block.slice]) for block in blocks])


def test_threads_and_a_cluster_write_the_bits_that_the_model_gives(nights, tmp_path, small_blocks):
    nights.run(output=dict.fromkeys(OF_PPCA))
    model = store.load_model(tmp_path / "out/model.zarr").model
    source, file = open_source(tmp_path / "x.zarr"), tmp_path / "scheduler.json"
    executions = {"one": Execution(workers=1), "two": Execution(workers=2)}
    executions["cluster"] = Execution(scheduler=str(file))
    with scheduler(file), worker(file), worker(file):
        kinds: tuple[RowKind, ...] = (*FILLED, "log_likelihood")
        for kind in kinds:
            expected = expected_by_blocks(KINDS[kind].of(model), source, nights.values)
            for name, execution in executions.items():
                target = tmp_path / f"{kind} by {name}.zarr"
                fitting.transform(model, source, target, execution, kind=KINDS[kind], attributes={})
                got = store.open_rows(target, kind)[...].reshape(expected.shape)
                np.testing.assert_array_equal(got, expected, err_msg=f"{kind} by {name}")


def test_a_feature_that_was_never_observed_stays_nan_and_is_not_looked_for_twice(tmp_path, monkeypatch):
    values = with_missing()
    values[:, 4] = np.nan
    values[:, 7] = np.where(np.arange(ROWS) == 17, 2.0, np.nan)
    nights = begin(tmp_path, values)
    nights.write(ROWS)
    nights.run(output=dict.fromkeys(OF_PPCA))
    monkeypatch.setattr(
        Source, "block", lambda *_, **__: pytest.fail("read a block once more, to see what is wrong")
    )
    nights.run()
    monkeypatch.undo()
    for kind in FILLED:
        got = written(nights, kind)
        assert np.isnan(got[:, 4]).all()
        assert np.isfinite(np.delete(got, 4, axis=1)).all()
    assert np.isfinite(written(nights, "embedding")).all()
    checks = verify(nights.stage()).checks
    assert checks["imputed"].endswith("all values finite except those of 1 features that were never observed")


def test_rows_without_any_value_become_the_mean(tmp_path):
    values = with_missing()
    values[5] = np.nan
    nights = begin(tmp_path, values)
    nights.write(ROWS)
    nights.run()
    mean = store.load_model(tmp_path / "out/model.zarr").model.mean
    np.testing.assert_array_equal(written(nights, "imputed")[5], mean.astype("f4"))


def test_what_a_number_stands_for_is_filled_as_well(tmp_path):
    values = np.round(np.nan_to_num(with_missing(), nan=-9)).astype("i2")
    nights = begin(tmp_path, values, ("imputed",))
    nights.config["input"] = {"missing_value": -9}
    nights.write(ROWS)
    nights.run()
    got = written(nights, "imputed")
    assert got.dtype == "float32"
    np.testing.assert_array_equal(got[values != -9], values[values != -9])
    np.testing.assert_array_equal(
        got, mapped(nights, "imputed", np.where(values == -9, np.nan, values).astype("f4"))
    )


def test_an_infinite_value_is_refused_and_named(nights, tmp_path):
    nights.run(output=dict.fromkeys(OF_PPCA))
    zarr.open_array(tmp_path / "x.zarr", mode="r+")[500, 3] = np.inf
    for kind in FILLED:
        with pytest.raises(DataError, match="inf at row 500, column 3"):
            pipeline.transform(nights.stage(output={name: None for name in OF_PPCA if name != kind}))
        assert not (tmp_path / f"out/{kind}.zarr").exists()


# ---- of any shape

CUBE = with_missing(60, 4 * 5).reshape(60, 4, 5)


def run_cube(place: Path, values: np.ndarray, axis: int = 0, **layout) -> Nights:
    nights = begin(place, values, ("imputed", "imputed_variance", "log_likelihood"))
    nights.config["input"] = {"sample_axis": axis}
    layout = {"shape": values.shape, "chunks": tuple(min(25, n) for n in values.shape), **layout}
    zarr.create_array(place / "x.zarr", dtype=values.dtype, **layout)[...] = values
    nights.run()
    return nights


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_what_is_filled_has_the_shape_of_the_input_with_the_samples_first(tmp_path, axis):
    names = ["lat", "lon"]
    names.insert(axis % 3, "time")
    nights = run_cube(tmp_path, np.moveaxis(CUBE, 0, axis), axis, dimension_names=names)
    opened = xarray.open_zarr(tmp_path / "out/imputed.zarr")["imputed"]
    assert opened.dims == ("time", "lat", "lon")
    expected = mapped(nights, "imputed", CUBE.reshape(60, 20)).reshape(CUBE.shape)
    np.testing.assert_array_equal(opened.values, expected)
    assert xarray.open_zarr(tmp_path / "out/log_likelihood.zarr")["log_likelihood"].dims == ("sample",)
    assert "sample of imputed_variance" in verify(nights.stage()).checks


@pytest.mark.parametrize(
    ("names", "dims"),
    [
        (None, ("sample", "axis_1", "axis_2")),
        (["time", None, "lon"], ("time", "axis_1", "lon")),
        (["time", "x", "x"], ("sample", "axis_1", "axis_2")),
    ],
)
def test_dimensions_without_a_name_of_their_own_are_given_one(tmp_path, names, dims):
    layout = {} if names is None else {"dimension_names": names}
    run_cube(tmp_path, CUBE, **layout)
    array = zarr.open_array(tmp_path / "out/imputed.zarr/imputed", mode="r")
    assert checked(ArrayV3Metadata, array.metadata).dimension_names == dims


def test_it_opens_beside_the_coordinates_of_the_input(tmp_path):
    where = {"time": np.arange(60), "lat": [10.0, 20.0, 30.0, 40.0], "lon": np.arange(5) * 72.0}
    original = xarray.DataArray(CUBE, where, name="t2m").to_dataset()
    original.to_zarr(tmp_path / "x.zarr", encoding={"t2m": {"chunks": (25, 4, 5)}}, consolidated=False)
    nights = begin(tmp_path, CUBE, ("imputed",))
    nights.run(input={"array": "t2m"})
    filled = xarray.open_zarr(tmp_path / "out/imputed.zarr")["imputed"].assign_coords(original.coords)
    there = original["t2m"].notnull()
    assert float((filled - original["t2m"]).where(there).max()) == 0.0
    assert filled.sel(lat=30.0, lon=144.0).notnull().all()


def test_what_is_filled_can_take_the_place_of_the_input(tmp_path):
    nights = run_cube(tmp_path, CUBE, dimension_names=("time", "lat", "lon"))
    again = {"path": str(tmp_path / "out/imputed.zarr"), "array": "imputed"}
    report = nights.run(
        input=again,
        method={"name": "pca"},
        output={
            "model": str(tmp_path / "m.zarr"),
            **dict.fromkeys(KINDS),
            "embedding": str(tmp_path / "z.zarr"),
        },
    )
    assert report.fit.n_cols == 20


def test_an_array_of_numbers_alone(tmp_path):
    np.save(tmp_path / "x.npy", CUBE)
    nights = begin(tmp_path, CUBE, ("imputed",))
    nights.run(input={"path": str(tmp_path / "x.npy")})
    assert written(nights, "imputed").shape == CUBE.shape


def test_in_a_bucket_it_is_the_same(bucket, tmp_path):
    write_store(tmp_path / "x.zarr", CUBE, chunks=(25, 4, 5))
    for root in (bucket.url, str(tmp_path)):
        nights = Nights(tmp_path, CUBE, {"method": METHODS["ppca"]})
        nights.config["output"] = {name: f"{root}/out/{name}.zarr" for name in ("model", *OF_PPCA)}
        nights.run()
        assert nights.run().reused
        verify(nights.stage())
    for kind in OF_PPCA:
        there = store.open_rows(parse_location(f"{bucket.url}/out/{kind}.zarr"), kind)
        np.testing.assert_array_equal(there[...], written(nights, kind))


# ---- what is refused


def test_a_method_that_cannot_make_an_output_is_refused_with_the_line(tmp_path):
    output = {"imputed": "out/i.zarr", "predicted": "out/p.zarr", "responsibilities": "out/r.zarr"}
    file = write_config(tmp_path, input={"path": "nowhere.zarr"}, output=output)
    with pytest.raises(ConfigError) as refused:
        config.load(file)
    line = file.read_text().splitlines().index('  imputed: "out/i.zarr"') + 1
    first, second, third = str(refused.value).splitlines()
    assert f"config.yaml:{line}:" in first
    assert first.endswith("output.imputed: pca does not impute; use ppca or ppca_mixture")
    assert second.endswith("output.predicted: pca predicts nothing; use ppca_mixture, lda or som")
    assert third.endswith("output.responsibilities: pca is not a mixture; use ppca_mixture")
    assert streamdr("plan", "config.yaml", cwd=tmp_path).code == 2


@pytest.mark.parametrize("method", METHODS)
def test_not_all_methods_denoise(tmp_path, method):
    output = {"denoised": "out/d.zarr"}
    file = write_config(tmp_path, input={"path": "x.zarr"}, method=METHODS[method], output=output)
    with pytest.raises(ConfigError, match=f"output.denoised: {method} does not denoise; use pca"):
        config.load(file)


def test_a_model_of_another_method_is_refused_before_anything_is_read(tmp_path, monkeypatch):
    nights = begin(tmp_path, correlated(ROWS, COLS), ("imputed",))
    nights.write(ROWS)
    nights.run(method={"name": "pca"}, output={"imputed": None})
    monkeypatch.setattr(Source, "scratch_block", lambda *_, **__: pytest.fail("read a block"))
    with pytest.raises(
        ParameterError, match=r"output.imputed: .*model.zarr is a model by pca, which does not impute"
    ):
        pipeline.transform(nights.stage())


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ({"imputed": "out/model.zarr"}, "output.imputed: 'out/model.zarr' is where the model goes"),
        (
            {"imputed": "out/a.zarr", "log_likelihood": "out/a.zarr"},
            "output.log_likelihood: 'out/a.zarr' is where the imputed goes",
        ),
        ({"imputed": "x.zarr/filled"}, "lies inside the input"),
        ({"imputed": "out/a.zarr", "imputed_variance": "out/a.zarr/v"}, "overlaps another output"),
    ],
    ids=str,
)
def test_every_output_has_a_place_of_its_own(tmp_path, output, said):
    write_store(tmp_path / "x.zarr", with_missing())
    write_config(tmp_path, input={"path": "x.zarr"}, method=METHODS["ppca"], output=output)
    for command in ("plan", "run"):
        outcome = streamdr(command, "config.yaml", cwd=tmp_path)
        assert outcome.code in (1, 2)
        assert said in outcome.errors[0]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_output_of_another_kind_is_not_taken_for_it_and_never_replaced(nights, tmp_path, overwrite):
    nights.run()
    swapped: dict[str, Any] = {**dict.fromkeys(OF_PPCA), "log_likelihood": str(tmp_path / "out/imputed.zarr")}
    with pytest.raises(
        StoreError, match=r"imputed\.zarr: exists and is never overwritten, since it is an output"
    ):
        nights.run(output={**swapped, "overwrite": overwrite})
    assert checked(RowsInspection, inspect(tmp_path / "out/imputed.zarr")).kind == "imputed"


# ---- once, and again


def states(nights, **sections):
    return {
        each.name: (each.state, each.bytes_to_read) for each in pipeline.plan(nights.stage(**sections)).stages
    }


def test_each_is_a_stage_that_is_fresh_or_stale(nights, tmp_path):
    names = ["transform", *FILLED, "log_likelihood"]
    assert list(states(nights)) == ["fit", *names]
    assert {states(nights)[name] for name in names} == {("stale", SIZE)}
    first = nights.run()
    assert first.bytes_read == first.fit.bytes_read + 4 * SIZE
    assert set(states(nights).values()) == {("fresh", 0)}
    assert nights.run().reused
    (tmp_path / "out/imputed.zarr/imputed/c/0/0").unlink()
    assert [name for name, state in states(nights).items() if state[0] == "stale"] == ["imputed"]
    again = pipeline.reprocess([nights.stage()])
    assert again.bytes_read == SIZE
    outputs = present(again.runs[0].run.transform).outputs
    assert [kind for kind, report in outputs.items() if not report.reused] == ["imputed"]


def test_transform_writes_all_that_is_asked_for(nights):
    pipeline.fit(nights.stage())
    report = pipeline.transform(nights.stage(output={"embedding": None}))
    assert list(report.outputs) == [*FILLED, "log_likelihood"]
    assert (report.bytes_read, report.reused, report.embedding) == (3 * SIZE, False, None)
    with pytest.raises(ConfigError, match=r"output.embedding: is not set"):
        pipeline.transform(nights.stage(output=dict.fromkeys(OF_PPCA)))


class StopAfter(Silent):
    """Stops while the values are being filled in."""

    def __init__(self, rows):
        self.left, self.label, self.stop = rows, "", threading.Event()

    def start(self, begun):
        self.label = begun.label

    def advance(self, rows):
        self.left -= rows if self.label == "imputed values" else 0
        if self.left <= 0:
            self.stop.set()


def test_an_interrupted_run_goes_on_where_it_was(tmp_path, small_blocks):
    n_rows = 10 * ROWS  # far more than the workers may have started when they are asked to stop
    nights = begin(tmp_path, with_missing(n_rows))
    nights.write(n_rows)
    stage, stopper = nights.stage(), StopAfter(400)
    with pytest.raises(Interrupted):
        pipeline.run_all(pipeline.RunContext(stage.run, stopper, stopper.stop))
    assert (tmp_path / "out/embedding.zarr").exists()
    assert not (tmp_path / "out/imputed.zarr").exists()
    report = nights.run()
    assert 0 < present(report.transform).outputs["imputed"].bytes_read < 10 * SIZE
    assert any("resuming imputed values" in line for line in nights.said)
    halves = written(nights, "imputed")
    again: dict[str, Any] = {kind: str(tmp_path / f"again/{kind}.zarr") for kind in OF_PPCA}
    nights.run(output=again)
    np.testing.assert_array_equal(halves, store.open_rows(Path(again["imputed"]), "imputed")[...])
    assert not list(tmp_path.glob("out/.*.partial")), "something was left behind"


def test_a_transform_that_is_killed_is_made_good_by_the_next(tmp_path):
    whole, place = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    write_store(whole / "x.zarr", with_missing(350, 6), chunks=(100, 6))
    output: dict[str, Any] = {kind: f"out/{kind}.zarr" for kind in OF_PPCA}
    method = {"name": "ppca", "n_components": 2, "max_iter": 3}
    write_config(whole, input={"path": "x.zarr"}, method=method, output=output)
    succeed("fit", "config.yaml", cwd=whole)
    for last_step in (50, 62, 80):  # changes of the file system, of a hundred
        shutil.copytree(whole, place)
        with Started("transform", "config.yaml", cwd=place, last_step=last_step) as run:
            assert run.outcome().code == -9
        assert (place / "out/embedding.zarr").exists()
        assert not (place / "out/log_likelihood.zarr").exists()
        succeed("transform", "config.yaml", cwd=place)
        shutil.move(place, tmp_path / f"after {last_step}")
    succeed("transform", "config.yaml", cwd=whole)
    for last_step in (50, 62, 80):
        place = tmp_path / f"after {last_step}"
        assert chunks(place / "out") == chunks(whole / "out")
        assert sorted(os.listdir(place / "out")) == sorted(os.listdir(whole / "out"))


# ---- when rows are appended


def test_only_new_rows_are_written_while_the_model_moves_little(tmp_path):
    nights = begin(tmp_path, with_missing(6000), refresh_tolerance=0.3)
    nights.write(5000)
    nights.run()
    old = {kind: written(nights, kind) for kind in OF_PPCA}
    nights.grow(5150)
    outputs = present(nights.run().transform).outputs
    for kind in OF_PPCA:
        assert outputs[kind].rows_written == 150
        assert outputs[kind].bytes_read < 300 * COLS * 4
        assert 0 < present(outputs[kind].model_moved) < 0.3
        new = written(nights, kind)
        np.testing.assert_array_equal(new[:5000], old[kind])
        np.testing.assert_array_equal(new[5000:], mapped(nights, kind, nights.values[5000:5150]))
    verify(nights.stage())


def test_all_rows_are_written_anew_when_the_model_moved_more(tmp_path):
    nights = begin(tmp_path, with_missing(1100), refresh_tolerance=0.0)
    nights.write(1000)
    nights.run()
    nights.grow(1100)
    outputs = present(nights.run().transform).outputs
    for kind in OF_PPCA:
        assert outputs[kind].rows_written == 1100
        np.testing.assert_array_equal(written(nights, kind), mapped(nights, kind))
    for measure in ("spread of the imputed values", "size of the variance of imputed values"):
        assert any(measure in line for line in nights.said), nights.said


def test_first_rows_without_missing_values_do_not_show_how_far_the_model_has_moved(tmp_path):
    values = with_missing(1100)
    values[:100] = correlated(100, COLS, seed=3)
    nights = begin(tmp_path, values, FILLED, refresh_tolerance=10.0)
    nights.write(1000)
    nights.run()
    nights.grow(1100)
    outputs = present(nights.run().transform).outputs
    assert {(outputs[kind].rows_written, outputs[kind].model_moved) for kind in FILLED} == {(1100, None)}
    assert any("do not show how far the model has moved" in line for line in nights.said), nights.said


def test_a_feature_that_is_observed_at_last_is_filled_everywhere(tmp_path):
    values = with_missing(1100)
    values[:1000, 4] = np.nan
    nights = begin(tmp_path, values, FILLED, refresh_tolerance=10.0)
    nights.write(1000)
    nights.run()
    assert np.isnan(written(nights, "imputed")[:, 4]).all()
    nights.grow(1100)
    nights.run()
    assert np.isfinite(written(nights, "imputed")).all()
    assert np.isfinite(written(nights, "imputed_variance")).all()


# ---- looking at it


def flip(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[5] ^= 1
    file.write_bytes(raw)


def test_a_flipped_bit_of_any_of_them_is_found(nights, tmp_path):
    nights.run()
    checks = verify(nights.stage()).checks
    assert {"model", "sample", "scores", *OF_PPCA, *(f"sample of {kind}" for kind in OF_PPCA[1:])} == set(
        checks
    )
    for kind in OF_PPCA[1:]:
        chunk = min(file for file in (tmp_path / f"out/{kind}.zarr/{kind}/c").rglob("*") if file.is_file())
        flip(chunk)
        with pytest.raises(StoreError, match=rf"{kind}\.zarr: rows 0-\d+: .*transform again"):
            verify(nights.stage())
        flip(chunk)
    verify(nights.stage())


@pytest.mark.parametrize("kind", OF_PPCA[1:])
def test_rows_that_are_in_the_wrong_place_are_found(nights, tmp_path, kind):
    nights.run()
    rows = zarr.open_array(tmp_path / f"out/{kind}.zarr/{kind}", mode="r+")
    rows[:] = values_of(rows)[::-1]
    with pytest.raises(StoreError, match="the rows of the sample, mapped again, differ by"):
        verify(nights.stage())


def test_a_missing_value_that_was_not_imputed_is_found(nights, tmp_path):
    nights.run()
    zarr.open_array(tmp_path / "out/imputed.zarr/imputed", mode="r+")[7, 1] = np.nan
    with pytest.raises(StoreError, match=r"imputed\.zarr: rows 0-\d+: not all values are finite"):
        verify(nights.stage())


def test_inspect_says_what_they_are(tmp_path):
    run_cube(tmp_path, CUBE, dimension_names=("time", "lat", "lon"))
    report = checked(RowsInspection, inspect(tmp_path / "out/imputed.zarr"))
    assert (report.kind, report.shape, report.dims) == (
        "imputed",
        (60, 4, 5),
        ("time", "lat", "lon"),
    )
    assert (report.n_rows, report.n_outputs, report.method) == (60, 20, "ppca")
    for name, said in {
        "imputed": ["streamdr imputed", "60 x 4 x 5 float32", "time, lat, lon"],
        "log_likelihood": ["streamdr log_likelihood", "60 float64", "out/model.zarr (ppca)"],
    }.items():
        text = succeed("inspect", f"out/{name}.zarr", cwd=tmp_path).out
        assert [words for words in said if words not in text] == []


def test_people_see_each_of_them(nights, tmp_path):
    report = nights.run()
    text = report_text.ran(report)
    for said in (
        "embedding of 900 rows, 3 columns",
        "imputed values of 900 rows, 12 columns",
        "log-likelihood of 900 rows, 1 column\n",
        str(tmp_path / "out/imputed_variance.zarr"),
    ):
        assert said in text
    json.dumps(report.to_json(), allow_nan=False)
    plan = report_text.planned(pipeline.plan(nights.stage()))
    assert "imputed_variance  fresh: it was made from this input by this model" in plan
    page = summarise(nights.stage(), StagesReport(transform=report.transform)).markdown
    assert "variance of imputed values of 900 rows" in page


# ---- denoised


def noisy(n_rows: int = ROWS) -> np.ndarray:
    return correlated(n_rows, COLS) + np.random.default_rng(2).normal(size=(n_rows, COLS)).astype("f4")


def begin_denoising(place: Path, values: np.ndarray, **output) -> Nights:
    asked = {kind: str(place / f"out/{kind}.zarr") for kind in ("embedding", "denoised")}
    return Nights(place, values, {"output": asked | output})


@pytest.mark.parametrize("asked", [{}, {"whiten": "pca"}, {"whiten": "zca", "scale": True}], ids=str)
@pytest.mark.parametrize("dtype", [None, "float64"])
def test_what_components_explain_is_written_to_the_bit(tmp_path, asked, dtype):
    nights = begin_denoising(tmp_path, noisy(), dtype=dtype)
    nights.config["method"] = asked
    nights.write(ROWS)
    report = present(nights.run().transform).outputs["denoised"]
    assert (report.bytes_read, report.n_outputs) == (SIZE, COLS)
    got = written(nights, "denoised")
    assert got.dtype == (dtype or "float32")
    np.testing.assert_array_equal(got, mapped(nights, "denoised").astype(got.dtype))
    model = store.load_model(tmp_path / "out/model.zarr").model
    there_and_back = model.inverse_transform(model.transform(nights.values))
    np.testing.assert_allclose(got, there_and_back, rtol=1e-4, atol=1e-4)
    before, after = (np.sqrt(np.mean((rows - correlated(ROWS, COLS)) ** 2)) for rows in (nights.values, got))
    assert after < 0.6 * before, "three components of twelve keep half of the noise: a quarter of its square"
    assert nights.run().reused
    checks = verify(nights.stage()).checks
    assert {"denoised", "sample of denoised"} <= set(checks)


def test_what_is_denoised_has_the_shape_of_the_input(tmp_path):
    values = noisy(60)[:, :12].reshape(60, 3, 4)
    nights = begin_denoising(tmp_path, values)
    nights.write(60, chunks=(25, 3, 4), dimension_names=("time", "lat", "lon"))
    report = nights.run()
    opened = xarray.open_zarr(tmp_path / "out/denoised.zarr")["denoised"]
    assert opened.dims == ("time", "lat", "lon")
    np.testing.assert_array_equal(
        opened.values.reshape(60, 12), mapped(nights, "denoised", values.reshape(60, 12))
    )
    assert "denoised values of 60 rows, 12 columns" in report_text.ran(report)
    assert "streamdr denoised" in succeed("inspect", "out/denoised.zarr", cwd=tmp_path).out


def test_only_new_rows_are_denoised_while_the_model_moves_little(tmp_path):
    nights = begin_denoising(tmp_path, noisy(1100), refresh_tolerance=0.3)
    nights.write(1000)
    nights.run()
    old = written(nights, "denoised")
    nights.grow(1100)
    report = present(nights.run().transform).outputs["denoised"]
    assert (report.rows_written, 0 < present(report.model_moved) < 0.3) == (100, True)
    new = written(nights, "denoised")
    np.testing.assert_array_equal(new[:1000], old)
    np.testing.assert_array_equal(new[1000:], mapped(nights, "denoised", nights.values[1000:]))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_cannot_be_denoised_is_named(tmp_path, value):
    nights = begin_denoising(tmp_path, noisy())
    nights.write(ROWS)
    nights.run(output={"embedding": None, "denoised": None})
    zarr.open_array(tmp_path / "x.zarr", mode="r+")[500, 3] = value
    with pytest.raises(DataError, match=f"{value} at row 500, column 3"):
        pipeline.transform(nights.stage(output={"embedding": None}))
    assert not (tmp_path / "out/denoised.zarr").exists()


def test_estimators_denoise_what_they_are_given(tmp_path):
    values = noisy()
    pca = PCA(3).fit(values)
    expected = pca.model_.denoise(values)
    assert expected.dtype == np.float32
    np.testing.assert_array_equal(pca.denoise(values), expected)
    frame = xarray.DataArray(values, dims=("time", "station"), coords={"station": [*"abcdefghijkl"]})
    lazily = pca.denoise(frame.chunk({"time": 300}))
    assert lazily.dims == ("time", "station")
    assert list(lazily["station"].values) == [*"abcdefghijkl"]
    np.testing.assert_allclose(lazily.values, expected, rtol=1e-5, atol=1e-5)
    assert not hasattr(PPCA(3), "denoise")


# ---- memory

FRESH = """
import json, sys
from pathlib import Path
from streamdr.engine import fitting, planner; from streamdr import store
from streamdr.core.row_outputs import ROW_OUTPUTS, RowKind
from streamdr.core.execution import Execution
from streamdr.data import open_source

model, path, target, name, limit = sys.argv[1:]
kind = next(kind for kind in ROW_OUTPUTS if kind.name == name)
model = store.load_model(Path(model)).model
execution = Execution(memory_limit=int(limit), workers=2)
planned = planner.plan_transform(kind.of(model), open_source(path), execution, open_source(path).spec.working)
fitting.transform(model, open_source(path), Path(target), execution, kind=kind, attributes={})
print(json.dumps({"planned": planned.peak, "workers": planned.workers, "peak": planner.peak_resident()}))
"""


@pytest.mark.parametrize("kind", [*FILLED, "denoised"])
def test_a_fresh_process_keeps_the_promise(tmp_path, kind):
    piece = correlated(10_000, 128) if kind == "denoised" else with_missing(10_000, 128)
    method = {"name": "pca"} if kind == "denoised" else METHODS["ppca"] | {"max_iter": 2}
    nights = Nights(tmp_path, piece, {"method": method})
    nights.write(10_000, chunks=(10_000, 128))
    nights.run()
    array = zarr.open_array(tmp_path / "x.zarr", mode="r+")
    array.resize((80_000, 128))
    for start in range(10_000, 80_000, 10_000):
        array[start : start + 10_000] = piece
    limit = 500 << 20
    words = [tmp_path / "out/model.zarr", tmp_path / "x.zarr", tmp_path / "z.zarr", kind, limit]
    done = subprocess.run(
        [sys.executable, "-c", FRESH, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["workers"] == 2
    assert report["peak"] <= report["planned"] <= limit
