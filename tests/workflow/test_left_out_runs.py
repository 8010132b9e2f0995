"""Runs over grids with land: plan, run, verify and inspect say what is left out; maps have all features."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import yaml

from streamdr import config
from streamdr.core.addresses import parse_location
from streamdr.core.progress import Silent
from streamdr.errors import DataError
from streamdr.store import load_model
from streamdr.workflow import pipeline, report_text
from streamdr.workflow.inspection import inspect
from streamdr.workflow.run_context import RunContext
from streamdr.workflow.verification import verify

LAT, LON, ROWS = 4, 6, 300
COVARIANCE = {"name": "pca", "n_components": 3, "solver": "covariance"}


def dataset(n_rows: int = ROWS) -> xr.Dataset:
    """Two variables of different variance, with four cells of land each."""
    rng = np.random.default_rng(0)
    spread = np.array([9.0, 5.0, 2.5, 1.3])
    values = (rng.normal(size=(400, 4)) * spread) @ rng.normal(size=(4, 2 * LAT * LON))
    values = (values + 0.1 * rng.normal(size=values.shape)).reshape(400, 2, LAT, LON)[:n_rows]
    values[:, :, 0, [0, 3, 4, 5]] = np.nan
    dims = ("time", "lat", "lon")
    return xr.Dataset(
        {"sst": (dims, 280 + values[:, 0]), "msl": (dims, 1e5 + 100 * values[:, 1])},
        coords={
            "time": np.arange(n_rows),
            "lat": ("lat", np.linspace(-60, 60, LAT), {"units": "degrees_north"}),
            "lon": np.arange(LON) * 60.0,
        },
    )


def written(folder: Path, data: xr.Dataset) -> None:
    data.chunk(time=50).to_zarr(folder / "x.zarr", consolidated=False)


def context(folder: Path, method: dict[str, Any], **given: Any) -> RunContext:
    """Return a run over the store of a folder."""
    of_features = "imputed" if method["name"] == "ppca" else "denoised"
    document = {
        "input": {"path": str(folder / "x.zarr"), "feature_weights": "coslat", **given},
        "method": method,
        "output": {
            "model": str(folder / "model.zarr"),
            "embedding": str(folder / "scores.zarr"),
            of_features: str(folder / "features.zarr"),
        },
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return RunContext(config.load(path), Silent(), threading.Event())


@pytest.mark.parametrize("given", [{}, {"min_observed": 0.5}])
@pytest.mark.parametrize("name", ["pca", "ppca"])
def test_a_run_says_what_it_leaves_out_and_verifies(name, given, tmp_path):
    data = dataset()
    written(tmp_path, data)
    run = context(tmp_path, {"name": name, "n_components": 3}, variable="sst", **given)
    counts = bool(given) or name == "ppca"
    planned = pipeline.plan(run)
    assert (planned.fit.n_cols, planned.fit.n_left_out, planned.fit.counting_passes) == (24, 4, counts)
    text = report_text.planned(planned)
    assert "20 of 24, 4 left out" in text
    assert ("1 pass that counts observed values, then " in text) == counts
    assert planned.stages[0].bytes_to_read >= (1 + counts) * data.sst.nbytes
    done = pipeline.run_all(run)
    assert done.fit.n_left_out == 4
    assert done.fit.bytes_read == (1 + counts) * data.sst.nbytes
    assert "20 of 24, 4 left out" in report_text.ran(done)
    assert done.to_json()["fit"]["n_left_out"] == 4
    found = inspect(parse_location(run.run.output.model))
    assert (found.to_json()["n_features"], found.to_json()["n_left_out"]) == (24, 4)
    assert "20 of 24, 4 left out" in report_text.inspected(found)
    output = "imputed" if name == "ppca" else "denoised"
    assert "except those of 4 features that were never observed" in verify(run).checks[output]
    rows = xr.open_zarr(tmp_path / "features.zarr", consolidated=False)[output]
    assert rows.dims == ("time", "lat", "lon")
    np.testing.assert_array_equal(np.isnan(rows), np.isnan(data.sst))
    assert pipeline.run_all(run).reused
    assert [stage.state for stage in pipeline.plan(run).stages] == ["fresh"] * 3


BALANCED: dict[str, Any] = {"variable": ["sst", "msl"], "balance_variables": True}


def test_balanced_weights_are_recorded_with_the_model(tmp_path):
    data = dataset()
    written(tmp_path, data)
    run = context(tmp_path, COVARIANCE, **BALANCED)
    pipeline.run_all(run)
    saved = load_model(parse_location(run.run.output.model))
    weights = np.sqrt(np.cos(np.deg2rad(data.lat))).broadcast_like(data.sst[0]).values
    factors = []
    for variable in (data.sst, data.msl):
        weighted = (variable - variable.mean("time")) * weights
        factors.append(weights / np.sqrt(float((weighted**2).mean("time").sum())))
    assert saved.axes is not None
    assert saved.axes.weights is not None
    np.testing.assert_allclose(saved.axes.weights, np.stack(factors).reshape(-1), rtol=1e-9)
    np.testing.assert_allclose(saved.model.total_variance, 2 * ROWS / (ROWS - 1), rtol=1e-10)


def test_appended_rows_are_counted_and_the_others_not_read_again(tmp_path):
    folders = {rows: tmp_path / str(rows) for rows in (ROWS, 400)}
    for rows, folder in folders.items():
        folder.mkdir()
        written(folder, dataset(rows))
    runs = {rows: context(folder, COVARIANCE, **BALANCED) for rows, folder in folders.items()}
    for run in runs.values():
        pipeline.run_all(run)
    more = dataset(400).isel(time=slice(ROWS, None))
    more.to_zarr(folders[ROWS] / "x.zarr", append_dim="time", consolidated=False)
    done = pipeline.run_all(runs[ROWS])
    assert done.fit.bytes_read == 2 * more.sst.nbytes + 2 * more.msl.nbytes, "counted, and summed"
    one, other = (load_model(parse_location(run.run.output.model)) for run in runs.values())
    np.testing.assert_array_equal(one.model.components, other.model.components)
    assert one.axes is not None
    assert other.axes is not None
    np.testing.assert_array_equal(one.axes.weights, other.axes.weights)


def test_all_cells_missing(tmp_path):
    written(tmp_path, dataset() * np.nan)
    run = context(tmp_path, COVARIANCE, variable="sst", allow_missing_chunks=True)
    with pytest.raises(DataError, match="all 24 features are missing in the first rows"):
        pipeline.run_all(run)
