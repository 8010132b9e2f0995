"""A changed configuration does again what depends on the change, and nothing else."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import zarr
from command_line import streamdr
from nightly import Nights, arrays_of, assert_same_bits, correlated

from streamdr import store
from streamdr.core.execution import Execution
from streamdr.data import open_source
from streamdr.engine import fitting
from streamdr.errors import StoreError
from streamdr.methods.pca import PCA
from streamdr.methods.ppca import PPCA
from streamdr.workflow import pipeline

SIZE = 2000 * 20 * 4


@pytest.fixture
def nights(tmp_path):
    nights = Nights(tmp_path, correlated(2000, 20))
    nights.config["output"] = {"embedding": str(tmp_path / "out/e.zarr")}
    nights.write(2000)
    nights.run()
    return nights


def states(nights, **sections):
    stages = pipeline.status(nights.stage(**sections)).stages
    return {stage.name: (stage.state, stage.bytes_to_read) for stage in stages}


def reprocessed(*stages):
    return pipeline.reprocess(stages)


def afresh(nights, **sections):
    """Return the outputs of a run without a ledger."""
    output = {"model": str(nights.root / "fresh/m.zarr"), "embedding": str(nights.root / "fresh/e.zarr")}
    shutil.rmtree(nights.root / "fresh", ignore_errors=True)
    nights.run(**{**sections, "output": sections.get("output", {}) | output})
    return arrays_of(nights.root / "fresh/m.zarr"), store.open_embedding(nights.root / "fresh/e.zarr")[:]


@pytest.mark.parametrize(
    "change",
    [
        {"n_components": 5},
        {"n_components": 0.9},
        {"whiten": "pca"},
        {"whiten": "zca"},
        {"scale": True},
        {"ddof": 0},
        {"solver": "covariance"},
    ],
    ids=str,
)
def test_parameters_that_need_the_same_statistics_read_nothing_for_the_fit(nights, change):
    assert states(nights, method=change) == {"fit": ("stale", 0), "transform": ("stale", SIZE)}
    report = reprocessed(nights.stage(method=change))
    (run,) = report.runs
    assert run.run.fit.bytes_read == 0
    assert run.run.transform.bytes_read == SIZE
    model, embedding = afresh(nights, method=change)
    assert_same_bits(nights.model(), model)
    np.testing.assert_array_equal(store.open_embedding(nights.root / "out/e.zarr")[:], embedding)


def test_another_output_type_only_transforms(nights):
    change = {"dtype": "float64"}
    assert states(nights, output=change) == {"fit": ("fresh", 0), "transform": ("stale", SIZE)}
    (run,) = reprocessed(nights.stage(output=change)).runs
    assert run.run.fit.reused
    assert store.open_embedding(nights.root / "out/e.zarr").dtype == np.float64


def test_nothing_changed_nothing_done(nights):
    assert states(nights) == {"fit": ("fresh", 0), "transform": ("fresh", 0)}
    report = reprocessed(nights.stage())
    assert report.reused
    assert report.bytes_read == 0


def test_other_statistics_are_read(nights):
    change = {"precision": "double"}
    assert states(nights, method=change)["fit"] == ("stale", SIZE)
    (run,) = reprocessed(nights.stage(method=change)).runs
    assert run.run.fit.bytes_read == SIZE


def test_the_plan_says_why(nights):
    stages = pipeline.status(nights.stage(method={"n_components": 5})).stages
    assert stages[0].reason == "n_components was 3 and is 5"
    nights.grow(2000)
    nights.values = correlated(2100, 20)
    nights.grow(2100)
    stages = pipeline.status(nights.stage()).stages
    assert [stage.reason for stage in stages] == ["100 rows were appended to the input"] * 2


def test_a_run_does_not_replace_outputs_of_another_recipe_by_default(nights):
    with pytest.raises(StoreError, match="exists; set output"):
        nights.run(method={"n_components": 5})


def test_configurations_over_one_input_share_what_can_be_shared(nights):
    """Each has outputs elsewhere, and no ledger of its own."""
    stages = [
        nights.stage(
            method={"n_components": k, "precision": "double"},
            output={"model": str(nights.root / f"{k}/m.zarr"), "embedding": None},
        )
        for k in (2, 3, 4)
    ]
    report = reprocessed(*stages)
    assert [each.run.fit.bytes_read for each in report.runs] == [SIZE, 0, 0]
    assert [len(arrays_of(nights.root / f"{k}/m.zarr")["components"]) for k in (2, 3, 4)] == [2, 3, 4]


def test_from_the_command_line_a_folder_at_once(nights):
    folder = nights.root / "configs"
    folder.mkdir()
    for k in (2, 4):
        config = {
            "input": {"path": "x.zarr"},
            "method": {"name": "pca", "n_components": k},
            "output": {"model": f"made/{k}.zarr"},
        }
        (folder / f"{k}.yaml").write_text(json.dumps(config))
    done = streamdr("reprocess", folder, "--json", cwd=nights.root)
    assert done.code == 0, done.err
    assert [run["fit"]["bytes_read"] for run in done.report["runs"]] == [SIZE, 0]
    assert [run["config"] for run in done.report["runs"]] == [str(folder / "2.yaml"), str(folder / "4.yaml")]
    again = streamdr("reprocess", folder, cwd=nights.root)
    assert again.code == 0
    assert "nothing: it was up to date" in again.out
    (folder / "nothing").mkdir()
    empty = streamdr("reprocess", folder / "nothing", cwd=nights.root)
    assert empty.code == 2
    assert "no configuration" in empty.err


def test_the_plan_on_the_command_line_shows_the_stages(nights):
    config = {
        "input": {"path": "x.zarr"},
        "method": {"name": "pca", "n_components": 3},
        "output": {"model": "made/m.zarr", "embedding": "made/e.zarr"},
    }
    (nights.root / "c.yaml").write_text(json.dumps(config))
    shown = streamdr("plan", "c.yaml", cwd=nights.root).out
    assert "fit        stale: it does not exist yet; reads 156 KiB" in shown
    streamdr("run", "c.yaml", cwd=nights.root)
    shown = streamdr("plan", "c.yaml", cwd=nights.root).out
    assert "fit        fresh: it was fitted to this input with these parameters" in shown
    assert "transform  fresh: it was made from this input by this model" in shown
    changed = ["--set", "method.n_components=2"]
    shown = streamdr("plan", "c.yaml", *changed, cwd=nights.root).out
    assert (
        "fit        stale: n_components was 3 and is 2; reads nothing; `run` needs output.overwrite" in shown
    )
    plan = streamdr("plan", "c.yaml", *changed, "--json", cwd=nights.root).report
    assert [stage["in_the_way"] for stage in plan["stages"]] == [True, True]
    overwriting = [*changed, "--set", "output.overwrite=true"]
    plan = streamdr("plan", "c.yaml", *overwriting, "--json", cwd=nights.root).report
    assert [stage["in_the_way"] for stage in plan["stages"]] == [False, False]


@pytest.mark.parametrize("method", [{}, {"solver": "gram"}, {"solver": "krylov"}, {"name": "ppca"}], ids=str)
def test_the_plan_bounds_what_a_night_reads(tmp_path, method):
    values = correlated(2200, 20)
    values[2000:] *= 3  # so that the model moves
    if method.get("name") == "ppca":
        values[::7, 4] = np.nan
    nights = Nights(tmp_path, values)
    nights.config["output"] = {"embedding": str(tmp_path / "out/e.zarr")}
    nights.config["method"] = method
    nights.write(2000)
    nights.run()
    for size in (2100, 2200):
        nights.grow(size)
        planned = pipeline.plan(nights.stage())
        assert planned.fit.seconds >= 0
        report = nights.run()
        for stage in planned.stages:
            done = report.fit if stage.name == "fit" else report.transform
            assert done is not None
            read = done.bytes_read
            assert stage.least_bytes_to_read <= read <= stage.bytes_to_read, stage


def test_bytes_are_counted_as_they_are_stored(tmp_path):
    values = np.random.default_rng(0).integers(0, 200, (500, 12), np.uint8)
    zarr.create_array(tmp_path / "x.zarr", data=values, chunks=(100, 12))
    mask = zarr.create_array(tmp_path / "mask.zarr", data=values > 190, chunks=(100, 12))
    plain = open_source(str(tmp_path / "x.zarr"))
    assert fitting.fit(PCA(2, solver="covariance"), plain, Execution()).bytes_read == values.nbytes
    masked = open_source(str(tmp_path / "x.zarr"), mask=mask)
    one = fitting.fit(PPCA(2, method="em", max_iter=1), masked, Execution())
    assert one.bytes_read == 2 * (values.nbytes + mask.nbytes), "a start and an iteration"
