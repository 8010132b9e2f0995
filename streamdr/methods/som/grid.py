"""The grid of a map: coordinates of units, distances between them, and neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from streamdr.core.blocks import Array, Span

Topology = Literal["rectangular", "hexagonal"]
Neighborhood = Literal["gaussian", "bubble"]

_ROW_HEIGHT = float(np.sqrt(3.0) / 2.0)
"""The distance between rows of hexagons, where two neighbours are at distance 1."""
_ROUNDING = 1e-9
TILE_BYTES = 4 << 20
"""The bytes of a tile: distances of some units from all units."""


@dataclass(frozen=True)
class Grid:
    """Units in rows, numbered row by row.

    Neighbours in a row are at distance 1. On a hexagonal grid every second row is shifted by a half, and each
    unit has six neighbours at distance 1. On a toroidal grid opposite edges touch.
    """

    height: int
    width: int
    topology: Topology = "rectangular"
    toroidal: bool = False

    @property
    def n_units(self) -> int:
        """The number of units."""
        return self.height * self.width

    @cached_property
    def coordinates(self) -> Array:
        """The coordinates (x, y) of each unit in the plane."""
        row, column = np.divmod(np.arange(self.n_units), self.width)
        places = np.stack([column, row], axis=1).astype(np.float64)
        if self.topology == "hexagonal":
            places[:, 0] += 0.5 * (row % 2)
            places[:, 1] *= _ROW_HEIGHT
        return places

    @property
    def periods(self) -> tuple[float, float]:
        """The periods of a toroidal grid along x and y."""
        return float(self.width), self.height * (_ROW_HEIGHT if self.topology == "hexagonal" else 1.0)

    @property
    def reach(self) -> float:
        """The largest distance of neighbours: of 8 on a rectangular grid, of 6 on a hexagonal one."""
        return 1.0 if self.topology == "hexagonal" else float(np.sqrt(2.0))

    def squared_distances(self, units: Span) -> Array:
        """The squared distances of some units from all units, on the grid."""
        here, every = self.coordinates[units.slice], self.coordinates
        total = np.zeros((len(here), len(every)))
        for axis, period in enumerate(self.periods):
            apart = np.abs(here[:, axis, None] - every[:, axis])
            if self.toroidal:
                np.minimum(apart, period - apart, out=apart)
            apart *= apart
            total += apart
        return total

    def are_neighbours(self, first: Array, second: Array) -> Array:
        """Whether units are neighbours, pair by pair."""
        total = np.zeros(len(first))
        for axis, period in enumerate(self.periods):
            apart = np.abs(self.coordinates[first, axis] - self.coordinates[second, axis])
            if self.toroidal:
                np.minimum(apart, period - apart, out=apart)
            apart *= apart
            total += apart
        near: Array = total <= self.reach**2 + _ROUNDING
        return near

    def tiles(self) -> Iterator[Span]:
        """Ranges of units whose distances from all units fill a tile."""
        return Span(0, self.n_units).split(max(1, TILE_BYTES // (8 * self.n_units)))

    def kernel(self, units: Span, neighborhood: Neighborhood, sigma: float, occupied: Array) -> Array:
        """The weights with which some units learn from the rows of each unit, up to a factor per row.

        A Gaussian exp(-d^2 / (2 sigma^2)) is divided by its value at the nearest occupied unit. A common
        factor does not change a mean, and without it a unit far from all rows would divide zero by zero. A
        bubble is 1 up to the distance sigma.
        """
        squares = self.squared_distances(units)
        if neighborhood == "bubble":
            return (squares <= sigma**2 + _ROUNDING).astype(np.float64)
        if occupied.any():
            squares -= squares[:, occupied].min(axis=1, keepdims=True)
        squares *= -0.5 / sigma**2
        # A unit without rows may be nearer than the nearest occupied one.
        np.minimum(squares, 0.0, out=squares)
        return np.exp(squares, out=squares)
