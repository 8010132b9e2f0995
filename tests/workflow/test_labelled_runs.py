"""Runs over labelled inputs: outputs with coordinates grow, are checked and are written again."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
import zarr
from grids import LAND, labelled, sst
from narrowing import checked, present
from nightly import Nights

from streamdr import store
from streamdr.config import load
from streamdr.core.addresses import parse_location
from streamdr.core.progress import Silent
from streamdr.errors import StoreError
from streamdr.workflow import pipeline
from streamdr.workflow.findings import RowsInspection
from streamdr.workflow.inspection import inspect
from streamdr.workflow.run_context import RunContext
from streamdr.workflow.verification import verify

FIRST = np.datetime64("2000-01-01", "ns")


@pytest.fixture
def nights(tmp_path, monkeypatch):
    """A grid of 400 time steps, with its labels, and a fit that writes scores and maps."""
    rows = RunContext._rows
    monkeypatch.setattr(RunContext, "_rows", lambda self: labelled(rows(self)))
    outputs: dict[str, Any] = {kind: str(tmp_path / f"out/{kind}.zarr") for kind in ("embedding", "denoised")}
    nights = Nights(tmp_path, sst(600), {"output": {**outputs, "refresh_tolerance": 0.5}})
    nights.write(400, chunks=(100, 4, 6))
    return nights


def opened(nights: Nights, kind: str) -> xarray.Dataset:
    return xarray.open_zarr(nights.root / f"out/{kind}.zarr").load()


def times(n_rows: int) -> np.ndarray:
    return FIRST + np.arange(n_rows) * np.timedelta64(6, "h")


def test_a_run_writes_labelled_outputs_that_can_be_verified(nights):
    nights.run()
    np.testing.assert_array_equal(opened(nights, "embedding").time, times(400))
    maps = opened(nights, "denoised").denoised
    assert maps.dims == ("time", "lat", "lon")
    assert np.isnan(maps.values[:, LAND]).all()
    checks = verify(nights.stage()).checks
    assert "except those of 3 features that were never observed" in checks["denoised"]
    assert nights.run().bytes_read == 0, "all outputs are up to date"


def test_appended_rows_get_their_times(nights):
    nights.run()
    before = opened(nights, "embedding").embedding.values
    nights.grow(600)
    report = nights.run()
    assert present(report.transform).outputs["embedding"].rows_written == 200
    np.testing.assert_array_equal(opened(nights, "embedding").embedding[:400], before)
    for kind in ("embedding", "denoised"):
        np.testing.assert_array_equal(opened(nights, kind).time, times(600))
    verify(nights.stage())


@pytest.mark.parametrize("name", ["time/c/0", "season/c/0", "lat/zarr.json"])
def test_a_missing_coordinate_is_found_and_written_again(nights, name):
    nights.run()
    file = Path(nights.root, "out/denoised.zarr", name)
    good = file.read_bytes()
    file.unlink()
    stages = {stage.name: stage for stage in pipeline.status(nights.stage()).stages}
    assert stages["denoised"].state == "stale"
    assert str(file) in stages["denoised"].reason
    with pytest.raises(StoreError, match=str(file)):
        verify(nights.stage())
    nights.run(output={"overwrite": True})
    assert file.read_bytes() == good
    verify(nights.stage())


@pytest.mark.parametrize("name", ["time/c/0", "season/c/0", "level/c"])
def test_a_damaged_coordinate_is_found_by_verify(nights, name):
    nights.run()
    assert (
        "have their crc32c, and so have lat, lon, area, region, level, time, season"
        in (verify(nights.stage()).checks["denoised"])
    )
    file = Path(nights.root, "out/denoised.zarr", name)
    content = bytearray(file.read_bytes())
    content[5] ^= 1
    file.write_bytes(content)
    coordinate = re.escape(str(nights.root / "out/denoised.zarr" / name.partition("/")[0]))
    with pytest.raises(StoreError, match=f"{coordinate}: .*checksum do not match.*transform again"):
        verify(nights.stage())


def test_an_output_with_coordinates_is_inspected_as_rows(nights):
    nights.run()
    found = checked(RowsInspection, inspect(parse_location(nights.root / "out/denoised.zarr")))
    assert (found.dims, found.shape) == (("time", "lat", "lon"), (400, 4, 6))
    assert store.open_rows(nights.root / "out/denoised.zarr", "denoised").dims == found.dims


@pytest.fixture
def shifted(tmp_path):
    """A store with coordinates, which can be moved, and a run over it with maps."""
    data = sst(40).reshape(40, 4, 6)
    grid = xarray.Dataset(
        {"sst": (("time", "lat", "lon"), data)},
        coords={"time": np.arange(40), "lat": ("lat", np.arange(4.0), {"units": "degrees_north"})},
    )
    grid.to_zarr(tmp_path / "x.zarr", consolidated=False)
    config = tmp_path / "run.yaml"

    def state(**features: Any) -> tuple[str, str]:
        given = {"path": str(tmp_path / "x.zarr"), "variable": "sst", **features}
        outputs = {"model": str(tmp_path / "m.zarr"), "denoised": str(tmp_path / "d.zarr"), "overwrite": True}
        run = {"input": given, "method": {"name": "pca", "n_components": 2}, "output": outputs}
        config.write_text(json.dumps(run))
        context = RunContext(load(config), Silent(), threading.Event())
        before = next(one for one in pipeline.status(context).stages if one.name == "fit")
        pipeline.run_all(context)
        return before.state, before.reason

    state()
    return state


def test_other_coordinates_of_the_same_values_are_written(shifted, tmp_path):
    zarr.open_array(tmp_path / "x.zarr" / "lat")[:] = np.arange(4.0) + 0.5
    state, reason = shifted()
    assert state == "stale"
    assert "coordinates of the input have changed" in reason
    assert "its coordinate 'lat' is 0.5 at position 0, and 0.0 in the model" in reason
    for name in ("m", "d"):
        found = xarray.open_zarr(tmp_path / f"{name}.zarr")
        np.testing.assert_array_equal(found.lat, np.arange(4.0) + 0.5)
    assert shifted()[0] == "fresh"


def test_other_weights_are_told_in_words(shifted):
    weights = np.array([1.0, 2.0, 1.0, 1.0]).repeat(6)
    assert shifted(feature_weights="coslat")[1].startswith("input.feature_weights are given, and were not")
    assert shifted(feature_weights=weights.tolist())[1].startswith("input.feature_weights have changed")
    assert shifted()[1].startswith("input.feature_weights were given, and are not")


def test_a_feature_dimension_may_have_the_name_of_the_columns(tmp_path):
    coords = {"time": np.arange(40), "component": [3.0, 4.0, 5.0, 6.0], "lon": np.arange(6.0)}
    data = xarray.DataArray(sst(40), dims=tuple(coords), coords=coords, name="sst")
    data.to_dataset().to_zarr(tmp_path / "x.zarr", consolidated=False)
    run = {
        "input": {"path": str(tmp_path / "x.zarr"), "variable": "sst"},
        "method": {"name": "pca", "n_components": 2},
        "output": {name: str(tmp_path / f"{name}.zarr") for name in ("model", "embedding", "denoised")},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(run))
    pipeline.run_all(RunContext(load(tmp_path / "run.yaml"), Silent(), threading.Event()))
    assert xarray.open_zarr(tmp_path / "embedding.zarr").embedding.sizes == {"time": 40, "component": 2}
    denoised = xarray.open_zarr(tmp_path / "denoised.zarr").denoised
    np.testing.assert_array_equal(denoised.component, data.component)


def test_a_window_that_begins_within_a_chunk_can_grow(tmp_path):
    values = np.random.default_rng(0).normal(size=(420, 4, 6))
    data = xarray.Dataset({"sst": (("time", "lat", "lon"), values)}, {"time": np.arange(420)})
    place = tmp_path / "x.zarr"
    data.isel(time=slice(0, 370)).chunk(time=50).to_zarr(place, consolidated=False)
    config = tmp_path / "run.yaml"
    config.write_text(
        f"""
        input: {{path: {place}, variable: sst, select: {{time: [20, null]}}}}
        method: {{name: pca, n_components: 2, solver: covariance}}
        output: {{model: {tmp_path}/m.zarr, embedding: {tmp_path}/z.zarr, refresh_tolerance: 10}}
        """
    )

    def run(**settings: Any) -> Any:
        return pipeline.run_all(RunContext(load(config), Silent(), threading.Event(), **settings))

    run()
    data.isel(time=slice(370, 420)).chunk(time=50).to_zarr(place, append_dim="time", consolidated=False)
    stages = {
        one.name: one for one in pipeline.status(RunContext(load(config), Silent(), threading.Event())).stages
    }
    assert stages["fit"].reason == stages["transform"].reason == "50 rows were appended to the input"
    grown = run()
    assert grown.transform.outputs["embedding"].rows_written == 70, (
        "from the first row of an incomplete chunk"
    )
    bits = np.asarray(zarr.open_array(tmp_path / "m.zarr/components")[:]).tobytes()
    run(fresh=True)
    assert np.asarray(zarr.open_array(tmp_path / "m.zarr/components")[:]).tobytes() == bits
