"""A labelled grid for tests: sst (time, lat, lon) in a store, with land, packed times and areas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zarr

from streamdr.core.axes import Coordinate, FeatureAxes
from streamdr.core.blocks import Array
from streamdr.data import open_source
from streamdr.data.source import SampleCoordinate, Source
from streamdr.data.text_labels import TextArray

LAT, LON = np.linspace(-60.0, 60.0, 4), np.arange(6) * 60.0
LAND = np.zeros((4, 6), np.bool_)
LAND[1, 2:4] = LAND[3, 5] = True
AREA = np.sqrt(np.cos(np.deg2rad(LAT)))[:, None] * np.ones(6)
TIME = {"units": "hours since 2000-01-01", "calendar": "standard"}


def sst(n_rows: int, *, missing: float = 0.0) -> Array:
    """Return a field of low rank with noise, NaN on land, and a share of other values missing."""
    rng = np.random.default_rng(3)
    maps, noise = rng.normal(size=(3, 24)) * [[6], [4], [2]], rng.normal(size=(2000, 24))
    values = (rng.normal(size=(2000, 3)) @ maps + 0.3 * noise + 290).reshape(2000, 4, 6).astype("f4")
    gone = rng.random((2000, 4, 6)) < missing
    values[gone] = np.nan
    values[:, LAND] = np.nan
    return values[:n_rows]


def write_grid(path: Path, values: Array, chunk: int = 40) -> Path:
    """Write the values to a store without labels."""
    array = zarr.create_array(path, shape=values.shape, chunks=(chunk, 2, 6), dtype=values.dtype)
    array[...] = values
    return path


def labelled(
    source: Source, *, sample_dims: tuple[str, ...] = ("time",), weights: Array | None = AREA
) -> Source:
    """Label a source of the grid: times and members, or times and seasons."""
    n_rows = source.spec.n_rows
    source.axes = FeatureAxes(
        ("lat", "lon"),
        (4, 6),
        (
            Coordinate("lat", ("lat",), LAT, {"units": "degrees_north"}),
            Coordinate("lon", ("lon",), LON, {"units": "degrees_east"}),
            Coordinate("area", ("lat", "lon"), AREA, {"_FillValue": -1.0}),
            Coordinate("region", ("lat",), np.array(["south", "", "nörd", "north"])),
            Coordinate("level", (), np.array(500), {"units": "hPa"}),
            Coordinate("not a name", ("lat",), LAT),
        ),
        "sst",
        {"units": "K", "long_name": "sea surface temperature"},
        weights=None if weights is None else weights.ravel(),
    )
    source.sample_dims = sample_dims
    hours, members = np.arange(n_rows) * 6, None
    if len(sample_dims) == 2:
        hours, members = hours // 24 * 24, np.arange(n_rows, dtype="i2") % 4
    coords = [SampleCoordinate("time", open_source(hours[:, None]), TIME)]
    if members is None:
        seasons = np.array(["djf", "mam", "jja", "són"])[np.arange(n_rows) % 4]
        coords.append(SampleCoordinate("season", TextArray(seasons, "season")))
    else:
        coords.append(SampleCoordinate("member", open_source(members[:, None])))
    source.sample_coords = tuple(coords)
    return source


def open_grid(
    path: Path, *, sample_dims: tuple[str, ...] = ("time",), weights: Array | None = AREA
) -> Source:
    """Open a store of the grid, and label it."""
    return labelled(open_source(path), sample_dims=sample_dims, weights=weights)
