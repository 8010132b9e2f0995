"""A run over several labelled files: one that is added is appended rows, other changes are said by name."""

from __future__ import annotations

import shutil
import threading
from typing import Any

import numpy as np
import pytest
import xarray as xr

from streamdr import config, store
from streamdr.core.progress import Silent
from streamdr.errors import DataError
from streamdr.workflow import pipeline

DAYS, GRID = 60, (6, 8)


@pytest.fixture(params=["zarr", "nc"])
def kind(request):
    return request.param


@pytest.fixture
def write(tmp_path, kind):
    """Write a year, with land, and times since the start of that year."""

    def write_year(year, seed=None, days=DAYS, latitudes=None):
        values = np.random.default_rng(seed or year).standard_normal((days, *GRID)).astype("f4") + 280
        values[:, 0] = np.nan
        latitudes = np.linspace(-50, 50, GRID[0]) if latitudes is None else latitudes
        times = np.datetime64(f"{year}-01-01", "ns") + np.arange(days) * np.timedelta64(1, "D")
        data = xr.Dataset(
            {"sst": (("time", "lat", "lon"), values, {"units": "K"})},
            coords={"time": times, "lat": latitudes, "lon": np.arange(8.0)},
        )
        place = tmp_path / f"sst_{year}.{kind}"
        remove(place)
        units = {"time": {"units": f"hours since {year}-01-01"}}
        if kind == "zarr":
            data.to_zarr(place, encoding={"sst": {"chunks": (20, *GRID)}, **units}, consolidated=False)
        else:
            encoding: dict[str, dict[str, Any]] = {"sst": {"chunksizes": (20, *GRID), "zlib": True}, **units}
            data.to_netcdf(place, engine="h5netcdf", encoding=encoding)
        return place

    return write_year


def remove(place):
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


@pytest.fixture
def run(tmp_path, kind):
    """Plan and run, and return the reason for the fit and the report."""

    def plan_and_run(model="model.zarr", **more):
        output = {"model": str(tmp_path / model), "embedding": str(tmp_path / f"z-{model}")}
        given = {"path": str(tmp_path / f"sst_*.{kind}"), "variable": "sst", **more}
        method = {"name": "pca", "n_components": 3, "solver": "covariance"}
        read = config.read({"input": given, "method": method, "output": output})
        context = pipeline.RunContext(read, Silent(), threading.Event())
        reason = pipeline.plan(context).stages[0].reason
        return reason, pipeline.run_all(context)

    return plan_and_run


def digest(tmp_path, model):
    """The components of a model, as bytes."""
    return store.open_backend(tmp_path / model).load_model().model.components.tobytes()


def test_a_file_that_is_added_is_appended_rows(tmp_path, write, run):
    for year in (2000, 2001, 2002):
        write(year)
    assert run()[0] == "it does not exist yet"
    reason, report = run()
    assert (reason, report.bytes_read) == ("it was fitted to this input with these parameters", 0)
    write(2003)
    reason, report = run()
    assert reason == f"{DAYS} rows were appended to the input"
    assert report.fit.bytes_read == DAYS * 48 * 4
    shutil.rmtree(tmp_path / ".streamdr-ledger")
    run("again.zarr")
    assert digest(tmp_path, "model.zarr") == digest(tmp_path, "again.zarr")
    written = xr.open_zarr(tmp_path / "z-model.zarr", consolidated=False)
    expected = [np.datetime64(f"{2000 + n}-01-01") + np.arange(DAYS) for n in range(4)]
    assert np.array_equal(written["time"].values.astype("M8[D]"), np.concatenate(expected))


def test_a_file_that_has_changed_is_said(write, run):
    for year in (2000, 2001, 2002):
        place = write(year)
    run()
    place = write(2001, seed=5)
    reason, report = run()
    assert reason == f"earlier rows of the input have changed ({place}/sst has changed)"
    assert report.fit.bytes_read == 3 * DAYS * 48 * 4


def test_a_file_before_the_others_is_said(write, run):
    places = [write(year) for year in (2001, 2002)]
    run()
    before = write(2000)
    assert run()[0] == (
        f"earlier rows of the input have changed ({before}/sst was added before {places[0]}/sst)"
    )


def test_a_file_that_vanished_is_said(write, run):
    places = [write(year) for year in (2000, 2001, 2002)]
    run()
    remove(places[1])
    with pytest.raises(
        DataError, match=rf"has 120 rows where it had 180 when .* \({places[1]}/sst is gone\)"
    ):
        run()


def test_files_of_other_grids_and_overlapping_times_are_refused(write, run):
    first = write(2000)
    other = write(2001, latitudes=np.linspace(-50, 51, GRID[0]))
    with pytest.raises(DataError, match=rf"{other}/sst: its coordinate 'lat' is .* in {first}/sst \(5 of 6"):
        run()
    write(2000, days=400)
    write(2001)
    message = rf"{other}/sst: its time begins at 2001-01-01, and {first}/sst goes on until 2001-02-03"
    with pytest.raises(DataError, match=message):
        run()
    with pytest.raises(DataError, match="no coordinate 'level' of its samples; it has time"):
        run(order_by="level")
