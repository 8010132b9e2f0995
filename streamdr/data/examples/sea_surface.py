"""Daily sea surface temperatures on a small globe, made of four patterns with known variances, and noise.

The anomaly at time t and place x is  sum_k z_k(t) p_k(x) + noise e(t, x). The patterns p_k are orthogonal
when cells count by their area. The z_k are sums of cosines: over the 730 days of `DAYS` they have mean 0 and
variance 1, and their correlations are known exactly. So the covariance without the noise is known. The last
two patterns are correlated: principal components mix them, and a rotation separates them. A day follows from
its number, so more days can be made later.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from streamdr.core.blocks import Array
from streamdr.store.arrays import ArrayLayout
from streamdr.store.matrix import create_matrix
from streamdr.store.publish import Staging
from streamdr.store.record import draft, write_record

NAME = "sea_surface"
DAYS = 730
"""Two years: the shortest time after which all cosines repeat."""
START = date(2021, 1, 1)

_CHUNK_DAYS = 73
_NOISE = 0.25
_SEASON_PEAK = 226
"""The warmest day of the year in the north: 15 August."""

_ATTRIBUTES: Mapping[str, dict[str, Any]] = {
    "sst": {
        "units": "degC",
        "standard_name": "sea_surface_temperature",
        "long_name": "sea surface temperature",
    },
    "ice": {"units": "1", "standard_name": "sea_ice_area_fraction", "long_name": "sea ice"},
    "time": {"units": f"days since {START}", "calendar": "proleptic_gregorian", "standard_name": "time"},
    "lat": {"units": "degrees_north", "standard_name": "latitude", "axis": "Y"},
    "lon": {"units": "degrees_east", "standard_name": "longitude", "axis": "X"},
}

_LAND = (
    # latitude and longitude of the centre, and half of the extent in both directions
    (54.0, 255.0, 21.0, 42.0),  # North America
    (24.0, 258.0, 14.0, 11.0),
    (-13.0, 298.0, 26.0, 20.0),  # South America
    (-38.0, 290.0, 18.0, 7.0),
    (74.0, 320.0, 10.0, 18.0),  # Greenland
    (14.0, 15.0, 22.0, 30.0),  # Africa
    (-13.0, 26.0, 22.0, 14.0),
    (56.0, 75.0, 20.0, 82.0),  # Europe and Asia
    (28.0, 85.0, 20.0, 38.0),
    (-25.0, 134.0, 11.0, 20.0),  # Australia
)


@dataclass(frozen=True)
class SeaSurface:
    """Sea surface temperatures, and the sea ice that follows from them, on a grid of 24 x 48 cells.

    Parameters
    ----------
    seed : int
        The seed of the noise, and of how the patterns vary.
    """

    seed: int = 0

    names: ClassVar[tuple[str, ...]] = ("season", "tropics", "north", "south")
    """What the patterns are: the season, the tropical and the North Pacific, the Southern Ocean."""
    correlation: ClassVar[float] = 0.3
    """The correlation of the last two patterns."""
    lat: ClassVar[Array] = np.arange(24) * 7.5 - 86.25
    lon: ClassVar[Array] = np.arange(48) * 7.5
    _sd: ClassVar[Array] = np.array([1.0, 2.0, 1.5, 0.93])
    _frequencies: ClassVar[tuple[tuple[int, ...], ...]] = (
        (2,),
        (1, 3, 4, 5, 7),
        (6, 9, 11, 13, 17),
        (8, 10, 12, 15, 20, 25),
    )
    """How often the cosines of each pattern repeat in 730 days. No two are the same: they are orthogonal."""

    @cached_property
    def land(self) -> Array:
        """Whether a cell is land, where nothing is ever observed (lat x lon)."""
        lat, lon = self.lat[:, None], self.lon[None, :]
        land = np.broadcast_to(lat < -72.0, (len(self.lat), len(self.lon))).copy()
        for middle, centre, high, wide in _LAND:
            land |= ((lat - middle) / high) ** 2 + (_apart(lon, centre) / wide) ** 2 < 1
        return land

    @cached_property
    def patterns(self) -> Array:
        """The patterns (4 x lat x lon), in kelvin for one standard deviation; NaN on land."""
        lat, lon = self.lat[:, None], self.lon[None, :]
        shapes = (
            np.broadcast_to(np.sin(np.deg2rad(2 * lat)), self.land.shape),
            _bump(lat, lon, 0, 235, 12, 50) - 0.3 * _bump(lat, lon, 0, 150, 18, 22),
            _bump(lat, lon, 38, 170, 13, 30) - _bump(lat, lon, 32, 222, 16, 16),
            np.exp(-(((lat + 52) / 12) ** 2)) * np.cos(np.deg2rad(3 * lon)),
        )
        sea, area = ~self.land, np.broadcast_to(np.cos(np.deg2rad(lat)), self.land.shape)
        weight = np.sqrt(area[sea])
        # Gram-Schmidt, in the metric of areas: each shape hardly changes, because they hardly overlap.
        orthogonal, _ = np.linalg.qr(np.stack([shape[sea] * weight for shape in shapes], axis=1))
        patterns = np.full((len(shapes), *self.land.shape), np.nan)
        for number, (shape, column) in enumerate(zip(shapes, orthogonal.T, strict=True)):
            found = column / weight * np.sign(column @ (shape[sea] * weight))
            patterns[number][sea] = self._sd[number] * found / np.abs(found).max()
        return patterns

    @cached_property
    def variances(self) -> Array:
        """The variances of the principal components over `DAYS`, without the noise; the largest first.

        These are the eigenvalues of the covariance (with the divisor n) of the features times the square
        root of the cosine of their latitude. The patterns are orthogonal, so this is a matrix of 4 x 4.
        """
        area = np.cos(np.deg2rad(self.lat))[:, None]
        lengths = np.sqrt(np.nansum(self.patterns**2 * area, axis=(1, 2)))
        correlations = np.eye(len(lengths))
        correlations[2, 3] = correlations[3, 2] = self.correlation
        return np.linalg.eigvalsh(np.outer(lengths, lengths) * correlations)[::-1]

    def series(self, days: Array) -> Array:
        """Return how the patterns vary (days x 4), with mean 0 and variance 1 over `DAYS`."""
        rng = np.random.default_rng([self.seed, 1])
        found = np.empty((len(days), len(self._frequencies)))
        for number, frequencies in enumerate(self._frequencies):
            turns = rng.random(len(frequencies))
            if number == 0:
                turns = np.array([-_SEASON_PEAK / 365])
            angles = np.outer(days, frequencies) / DAYS + turns
            found[:, number] = np.cos(2 * math.pi * angles).sum(axis=1) * math.sqrt(2 / len(frequencies))
        found[:, 3] = self.correlation * found[:, 2] + math.sqrt(1 - self.correlation**2) * found[:, 3]
        return found

    def temperatures(self, first: int, days: int) -> Array:
        """Return the temperatures of some days (days x lat x lon); NaN on land."""
        numbers = np.arange(first, first + days)
        mean = 28.5 - 30 * np.sin(np.deg2rad(self.lat[:, None])) ** 2
        values = np.tensordot(self.series(numbers), self.patterns, axes=1) + mean
        for number, day in enumerate(values, first):
            day += _NOISE * np.random.default_rng([self.seed, 2, number]).standard_normal(day.shape)
        return values.astype(np.float32)

    def ice(self, temperatures: Array) -> Array:
        """Return the fraction of ice, which grows from 0 to 1 where it is cold, in whole percent."""
        warmth = 3 * (temperatures.astype(np.float64) + 0.2)
        return np.round(1 / (1 + np.exp(warmth)), 2).astype(np.float32)


def write(path: Path, surface: SeaSurface, recipe: Mapping[str, Any], first: int, days: int) -> None:
    """Write some days to a new store, as xarray would write them. It appears completely or not at all."""
    temperatures = surface.temperatures(first, days)
    grid = ("time", "lat", "lon")
    arrays = {
        "sst": (grid, temperatures),
        "ice": (grid, surface.ice(temperatures)),
        "time": (grid[:1], np.arange(first, first + days, dtype=np.int32)),
        "lat": (grid[1:2], surface.lat),
        "lon": (grid[2:], surface.lon),
    }
    with Staging(path, kind="example", overwrite=False) as staging:
        for name, (dims, values) in arrays.items():
            chunks = (min(len(values), _CHUNK_DAYS), *values.shape[1:]) if dims == grid else values.shape
            array = create_matrix(
                staging.path, ArrayLayout(values.shape, chunks, values.dtype, dims), name=name
            )
            array.update_attributes(_ATTRIBUTES[name])
            array[...] = values
        write_record(staging.path, "example", {"recipe": dict(recipe)}, complete=True)
        staging.publish()


def deliver(folder: Path, *, initial: int = DAYS, seed: int = 0) -> Path:
    """Write the next day to a folder, as a store of its own, and return it.

    A folder without stores gets `initial` days in one store. A store is named after its first day.
    """
    folder.mkdir(parents=True, exist_ok=True)
    recipes = [(draft(path) or {}).get("recipe") for path in folder.glob("*.zarr")]
    ends = [one["first"] + one["days"] for one in recipes if isinstance(one, dict) and "first" in one]
    first, days = (max(ends), 1) if ends else (0, initial)
    path = folder / f"{START + timedelta(days=first)}.zarr"
    write(path, SeaSurface(seed), {"dataset": NAME, "first": first, "days": days, "seed": seed}, first, days)
    return path


def _apart(lon: Array, centre: float) -> Array:
    """Return differences of longitudes, from -180 to 180 degrees."""
    return (lon - centre + 180) % 360 - 180


def _bump(lat: Array, lon: Array, middle: float, centre: float, high: float, wide: float) -> Array:
    """Return a smooth hill on the globe."""
    return np.asarray(np.exp(-(((lat - middle) / high) ** 2) - (_apart(lon, centre) / wide) ** 2))
