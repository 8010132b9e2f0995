"""Variables in groups of a store: their coordinates are in the same group, or in one above."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import streamdr
from streamdr.core.blocks import Span
from streamdr.errors import ParameterError

SELECTED = {"lat": [-40, 40], "time": ["2000-01-05", None]}


def grid() -> xr.Dataset:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((12, 5, 4))
    return xr.Dataset(
        {"sst": (("time", "lat", "lon"), values), "ice": (("time", "lat", "lon"), values**2)},
        coords={
            "time": xr.date_range("2000-01-01", periods=12),
            "lat": ("lat", np.linspace(80.0, -80.0, 5), {"units": "degrees_north"}),
            "lon": np.arange(4) * 90.0,
        },
    )


def written(tmp_path, suffix: str, group: str, *, above: bool) -> str:
    """Write the variables to a group, and their coordinates to the same or to the root."""
    place, data = tmp_path / f"x.{suffix}", grid()
    write = (
        (lambda part, **how: part.to_zarr(place, consolidated=False, **how))
        if suffix == "zarr"
        else (lambda part, **how: part.to_netcdf(place, engine="h5netcdf", **how))
    )
    if above:
        write(data.drop_vars(["sst", "ice"]), mode="w")
        data = data.drop_vars(["time", "lat", "lon"])
    write(data, group=group, mode="a")
    return str(place)


@pytest.mark.parametrize("group", ["ocean", "ocean/monthly"])
@pytest.mark.parametrize("suffix", ["zarr", "nc"])
@pytest.mark.parametrize("above", [False, True], ids=["beside", "above"])
def test_coordinates_of_a_variable_in_a_group_are_found(tmp_path, suffix, group, above):
    place = written(tmp_path, suffix, group, above=above)
    source = streamdr.open_source(
        place, variable=f"{group}/sst", sample_dims="time", select=SELECTED, feature_weights="coslat"
    )
    expected = grid().sst.sel(lat=slice(40, -40), time=slice("2000-01-05", None))
    values = source.read(Span(0, source.spec.n_rows), Span(0, source.spec.n_cols))
    np.testing.assert_array_equal(values, expected.values.reshape(8, -1))
    axes = source.axes
    assert axes is not None
    assert (axes.name, axes.dims, axes.shape) == ("sst", ("lat", "lon"), (3, 4))
    np.testing.assert_array_equal(axes.coords[0].values, expected.lat)
    assert [one.name for one in source.sample_coords] == ["time"]


def test_several_variables_of_a_group(tmp_path):
    place = written(tmp_path, "zarr", "ocean", above=False)
    source = streamdr.open_source(place, variable=["ocean/sst", "ocean/ice"], select=SELECTED)
    axes = source.axes
    assert axes is not None
    assert axes.coords[0].values.tolist() == ["sst", "ice"]
    assert axes.shape == (2, 3, 4)


def test_a_variable_that_is_not_in_the_group(tmp_path):
    place = written(tmp_path, "zarr", "ocean", above=False)
    with pytest.raises(ParameterError, match=r"x\.zarr/ocean: no variable 'sss'; it has ice, sst"):
        streamdr.open_source(place, variable="ocean/sss")
