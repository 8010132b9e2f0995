"""Labelled grids: time x lat x lon with land, as one store, as a plain matrix, and as many stores."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from rich.progress import track
from zarr.codecs import BloscCodec

PATTERNS = 24
VARIABLE = "sst"


def land(lats: int, lons: int, share: float) -> np.ndarray:
    """Return which cells are land: a smooth random field above a level, so that coasts are ragged."""
    rng = np.random.default_rng(11)
    spectrum = rng.standard_normal((lats, lons)) + 1j * rng.standard_normal((lats, lons))
    wave = np.hypot(*np.meshgrid(np.fft.fftfreq(lats) * lats, np.fft.fftfreq(lons) * lons, indexing="ij"))
    field = np.fft.ifft2(spectrum / (1 + wave**2)).real
    found: np.ndarray = field > np.quantile(field, 1 - share)
    return found


def coordinates(lats: int, lons: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the latitudes, from north to south, and the longitudes."""
    return 90 - (np.arange(lats) + 0.5) * 180 / lats, (np.arange(lons) + 0.5) * 360 / lons


def grid(
    folder: Path, rows: int, lats: int, lons: int, *, chunk: int, share: float = 0.3, dtype: str = "f4"
) -> Path:
    """Make a store of smooth patterns with decreasing variances, noise, and land that is NaN."""
    path = folder / f"grid-{rows}x{lats}x{lons}-{dtype}.zarr"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    group = create(partial, rows, (lats, lons), chunk, dtype)
    array_in(group, "time")[:] = np.arange(rows)
    array = array_in(group, VARIABLE)
    rng = np.random.default_rng(12)
    waves = rng.integers(1, 9, (PATTERNS, 2)), rng.uniform(0, 2 * np.pi, PATTERNS)
    lat, lon = coordinates(lats, lons)
    patterns = np.array(
        [
            np.cos(np.deg2rad(lat))[:, None] * np.cos(a * np.deg2rad(lat)[:, None] + b * np.deg2rad(lon) + p)
            for (a, b), p in zip(*waves, strict=True)
        ]
    ).reshape(PATTERNS, -1)
    patterns *= 1.25 ** -np.arange(PATTERNS)[:, None]
    patterns, is_land = patterns.astype(dtype), land(lats, lons, share)
    for start in track(range(0, rows, chunk), description=path.name):
        n = min(chunk, rows - start)
        values = 2 * rng.standard_normal((n, PATTERNS)).astype(dtype) @ patterns
        values += 0.2 * rng.standard_normal(values.shape).astype(dtype) + 15
        values = values.reshape(n, lats, lons)
        values[:, is_land] = np.nan
        array[start : start + n] = values
    os.rename(partial, path)
    return path


def array_in(group: zarr.Group, name: str) -> zarr.Array[Any]:
    """Return an array of a group."""
    found = group[name]
    if not isinstance(found, zarr.Array):
        raise TypeError(f"{group}/{name} is not an array")
    return found


def create(
    path: Path, rows: int, shape: tuple[int, ...], chunk: int, dtype: str, attributes: Mapping[str, Any] = {}
) -> zarr.Group:
    """Create a store without values, with its coordinates, as xarray writes it."""
    group = zarr.open_group(path, mode="w")
    days = {"units": "days since 1950-01-01", "calendar": "proleptic_gregorian"}
    time = group.create_array(
        "time", shape=(rows,), chunks=(min(rows, 4096),), dtype="i8", dimension_names=("time",)
    )
    time.attrs.update(days)
    for name, values, unit in zip(("lat", "lon"), coordinates(*shape), ("north", "east"), strict=True):
        axis = group.create_array(name, data=values, dimension_names=(name,))
        axis.attrs["units"] = f"degrees_{unit}"
    array = group.create_array(
        VARIABLE,
        shape=(rows, *shape),
        chunks=(chunk, *shape),
        dtype=dtype,
        fill_value=np.nan,
        compressors=BloscCodec(cname="lz4"),
        dimension_names=("time", "lat", "lon"),
    )
    array.attrs.update({"units": "degC", **attributes})
    return group


def plain(store: Path) -> Path:
    """Make the matrix of the cells that are not land, times the square root of the cosine of the latitude."""
    path = store.with_name(f"{store.stem}-plain.zarr")
    if path.exists():
        return path
    array = array_in(zarr.open_group(store, mode="r"), VARIABLE)
    rows, lats, lons = array.shape
    sea = ~np.isnan(np.asarray(array[0]))
    weights = np.broadcast_to(np.sqrt(np.cos(np.deg2rad(coordinates(lats, lons)[0])))[:, None], sea.shape)[
        sea
    ]
    partial = path.with_name(path.name + ".partial")
    chunk = array.chunks[0]
    matrix = zarr.create_array(
        partial,
        shape=(rows, int(sea.sum())),
        chunks=(chunk, int(sea.sum())),
        dtype=array.dtype,
        compressors=BloscCodec(cname="lz4"),
        overwrite=True,
    )
    for start in track(range(0, rows, chunk), description=path.name):
        values = np.asarray(array[start : start + chunk])[:, sea]
        matrix[start : start + chunk] = values * weights.astype(values.dtype)
    os.rename(partial, path)
    return path


def repeated(store: Path, times: int) -> Path:
    """Make a store of several times the rows out of links to the chunks of another."""
    path = store.with_name(f"{store.stem}-times{times}.zarr")
    if path.exists():
        return path
    array = array_in(zarr.open_group(store, mode="r"), VARIABLE)
    rows, chunk = array.shape[0], array.chunks[0]
    if rows % chunk:
        raise ValueError(f"{rows} rows do not fill chunks of {chunk}")
    partial = path.with_name(path.name + ".partial")
    group = create(partial, times * rows, array.shape[1:], chunk, array.dtype.str)
    array_in(group, "time")[:] = np.arange(times * rows)
    for index in range(times * rows // chunk):
        link(store, index % (rows // chunk), partial, index)
    os.rename(partial, path)
    return path


def link(store: Path, index: int, other: Path, number: int) -> None:
    """Make a chunk of another store a link to one of a store."""
    target = other / VARIABLE / "c" / str(number) / "0" / "0"
    target.parent.mkdir(parents=True)
    target.hardlink_to(store / VARIABLE / "c" / str(index) / "0" / "0")


def parts(store: Path, number: int) -> Path:
    """Make a folder of stores, one after another the rows of a store, out of links to its chunks."""
    folder = store.with_name(f"{store.stem}-parts{number}")
    if folder.exists():
        return folder
    whole = zarr.open_group(store, mode="r")
    array = array_in(whole, VARIABLE)
    rows, chunk = array.shape[0], array.chunks[0]
    each = rows // number
    if each % chunk or rows % number:
        raise ValueError(f"{rows} rows in chunks of {chunk} do not make {number} equal parts")
    partial = folder.with_name(folder.name + ".partial")
    partial.mkdir(parents=True, exist_ok=True)
    for part in range(number):
        path = partial / f"part_{part:03d}.zarr"
        group = create(path, each, array.shape[1:], chunk, array.dtype.str)
        array_in(group, "time")[:] = np.arange(part * each, (part + 1) * each)
        for index in range(each // chunk):
            link(store, part * (each // chunk) + index, path, index)
    os.rename(partial, folder)
    return folder
