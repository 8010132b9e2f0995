"""A day per run: it is delivered, and only it is read; the outputs are those of a fit to everything."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from command_line import succeed
from narrowing import checked, present

from streamdr.cli.supervisor import StageError
from streamdr.data.examples.sea_surface import DAYS
from streamdr.flows.append_day import append_day
from streamdr.flows.parameters import Configuration
from streamdr.workflow.reports import StagesReport

CONFIG = Path(__file__).parents[2] / "configs" / "climate_nightly.yaml"
DAY_BYTES = 24 * 48 * 4


@pytest.fixture
def nightly(tmp_path, monkeypatch) -> Path:
    """A directory with the configuration, and nothing else."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(CONFIG, tmp_path)
    return tmp_path


def configured(*sets: str) -> Configuration:
    return Configuration.load(CONFIG.name, list(sets))


def test_a_day_is_delivered_and_only_it_is_read(reporting, nightly):
    first = checked(StagesReport, append_day(configured()))
    assert present(first.fit).n_rows == DAYS
    second = checked(StagesReport, append_day(configured()))
    fitted, transformed = present(second.fit), present(second.transform)
    assert fitted.n_rows == DAYS + 1
    # Sums are kept for whole grains, here of 292 days: those that did not fill one are read again.
    assert fitted.bytes_read == (DAYS % 292 + 1) * DAY_BYTES
    assert transformed.bytes_read <= 74 * DAY_BYTES  # the chunk on which the change is measured, and the day
    assert {path.name for path in nightly.glob("data/days/*")} == {"2021-01-01.zarr", "2023-01-01.zarr"}
    run = reporting.runs(name="append-day")[0]
    stages = {"deliver", "plan", "fit", "transform", "verify", "summarise"}
    assert set(reporting.tasks(run["id"], expected=6)) == stages
    page = reporting.artifacts(run["id"])["summary"]["data"]
    assert {"![maps](data:image/png", "![series](data:image/png"} <= set(re.findall(r"!\[\w+\]\([^;]*", page))

    elsewhere = "output={model: all/model.zarr, embedding: all/scores.zarr}"
    succeed("run", CONFIG.name, "--set", elsewhere, cwd=nightly)
    for name in ("components", "mean", "explained_variance"):
        ours, theirs = (
            np.asarray(zarr.open_array(nightly / place / "model.zarr" / name, mode="r")[:])
            for place in ("out/climate_nightly", "all")
        )
        np.testing.assert_array_equal(ours, theirs)
    ours, theirs = (
        xr.open_zarr(nightly / place / "scores.zarr", consolidated=False)
        for place in ("out/climate_nightly", "all")
    )
    np.testing.assert_array_equal(ours.time, theirs.time)
    assert str(ours.time.values[-1])[:10] == "2023-01-01"
    # Rows that were embedded yesterday are kept while the model hardly changes: by output.refresh_tolerance.
    spread = theirs.embedding.values.std(axis=0)
    assert (np.abs(ours.embedding - theirs.embedding).values.max(axis=0) < 0.1 * spread).all()


@pytest.mark.parametrize("path", ["data/x.zarr", "[data/a.zarr, data/b.zarr]", "s3://bucket/days/*.zarr"])
def test_days_are_delivered_to_a_folder_on_this_machine_only(reporting, nightly, path):
    with pytest.raises(StageError, match="is not a folder of stores on this machine") as caught:
        append_day(configured(f"input.path={path}"))
    assert caught.value.exit_code == 2
    assert not (nightly / "data").exists()
