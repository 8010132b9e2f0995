"""Runs over grids with land: plan, run, verify and inspect say what is left out; maps have all features."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import yaml
from narrowing import checked

from streamdr import config
from streamdr.core.addresses import parse_location
from streamdr.core.progress import Silent
from streamdr.errors import DataError, ParameterError
from streamdr.methods.chain import ChainModel
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
    return configured(folder, method, [of_features], **given)


def configured(folder: Path, method: Any, of_features: list[str], **given: Any) -> RunContext:
    """Return a run of a method or of a chain, with an output of features."""
    document = {
        "input": {"path": str(folder / "x.zarr"), "feature_weights": "coslat", **given},
        "method": method,
        "output": {
            "model": str(folder / "model.zarr"),
            "embedding": str(folder / "scores.zarr"),
            **{name: str(folder / "features.zarr") for name in of_features},
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


def flat(folder: Path, name: str) -> np.ndarray:
    """The rows of an output of features."""
    rows: np.ndarray = xr.open_zarr(folder / "features.zarr", consolidated=False)[name].values
    return rows.reshape(len(rows), -1)


@pytest.mark.parametrize("solver", ["covariance", "gram", "krylov"])
@pytest.mark.parametrize("asked", ["coslat", None])
def test_a_chain_leaves_out_land_and_weighs_what_its_steps_make(solver, asked, tmp_path):
    data = dataset()
    written(tmp_path, data)
    chain = [{"name": "standardise"}, COVARIANCE | {"solver": solver, "tol": 1e-12, "max_passes": 30}]
    run = configured(tmp_path, chain, ["denoised"], variable="sst", feature_weights=asked)
    assert "20 of 24, 4 left out" in report_text.planned(pipeline.plan(run))
    pipeline.run_all(run)
    assert "except those of 4 features that were never observed" in verify(run).checks["denoised"]
    assert pipeline.run_all(run).reused
    values = data.sst.values.reshape(ROWS, -1)
    sea = ~np.isnan(values[0])
    mean, scale = values[:, sea].mean(axis=0), values[:, sea].std(axis=0)
    weights = np.sqrt(np.cos(np.deg2rad(np.repeat(data.lat.values, LON))))[sea] if asked else 1.0
    left, sizes, right = np.linalg.svd((values[:, sea] - mean) / scale * weights, full_matrices=False)
    scores = xr.open_zarr(tmp_path / "scores.zarr", consolidated=False)["embedding"].values
    np.testing.assert_allclose(np.abs(scores), np.abs(left * sizes)[:, :3], rtol=0, atol=1e-8 * sizes[0])
    expected = np.full(values.shape, np.nan)
    expected[:, sea] = (left * sizes)[:, :3] @ right[:3] / weights * scale + mean
    np.testing.assert_allclose(flat(tmp_path, "denoised"), expected, rtol=1e-8)


def test_a_chain_that_selects_columns_on_a_grid_is_opened_with_all_its_places(tmp_path):
    data = dataset()
    written(tmp_path, data)
    chain = [{"name": "select_variance", "n_features": 9}, COVARIANCE]
    run = configured(tmp_path, chain, [], variable="sst", min_observed=0.5)
    pipeline.run_all(run)
    verify(run)
    variances = np.where(np.isnan(data.sst[0]), -1.0, data.sst.var("time")).reshape(-1)
    chosen = xr.open_zarr(tmp_path / "model.zarr" / "select_variance", consolidated=False)["support"]
    assert (chosen.dims, chosen.dtype) == (("lat", "lon"), np.bool_)
    assert set(np.flatnonzero(chosen)) == set(np.argsort(variances)[-9:])
    maps = xr.open_zarr(tmp_path / "model.zarr" / "pca", consolidated=False)["components"]
    np.testing.assert_array_equal(~np.isnan(maps[0]), chosen)


def test_appended_rows_of_a_chain_on_a_grid_give_the_bits_of_all_rows(tmp_path):
    folders = {rows: tmp_path / str(rows) for rows in (ROWS, 400)}
    chain = [{"name": "clip", "max": 290.0}, COVARIANCE]
    saved = {}
    for rows, folder in folders.items():
        folder.mkdir()
        written(folder, dataset(rows))
        run = configured(folder, chain, [], variable="sst")
        pipeline.run_all(run)
        if rows == ROWS:
            more = dataset(400).isel(time=slice(ROWS, None))
            more.to_zarr(folder / "x.zarr", append_dim="time", consolidated=False)
            done = pipeline.run_all(run)
            assert done.fit.bytes_read == more.sst.nbytes
        saved[rows] = checked(ChainModel, load_model(parse_location(run.run.output.model)).model)
    np.testing.assert_array_equal(*(model.last.components for model in saved.values()))


def test_weights_that_no_method_would_apply_after_a_step_are_refused(tmp_path):
    written(tmp_path, dataset())
    chain = [{"name": "standardise"}, {"name": "ppca", "n_components": 3}]
    run = configured(tmp_path, chain, [], variable="sst")
    with pytest.raises(ParameterError, match=r"feature_weights: ppca does not weigh what standardise makes"):
        pipeline.run_all(run)
    chain = [{"name": "select_columns", "columns": "0:5"}, COVARIANCE]
    run = configured(tmp_path, chain, [], variable="sst")
    with pytest.raises(ParameterError, match="feature_weights: select_columns cannot leave out or weigh"):
        pipeline.run_all(run)
