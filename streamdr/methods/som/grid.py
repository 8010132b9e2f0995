"""The grid of a map: where its units lie, how far apart they are, and which are neighbours."""

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
"""How far apart rows of hexagons are, in units of the distance of two neighbours."""
_ROUNDING = 1e-9
TILE_BYTES = 4 << 20
"""What the distances of some units from all others take at a time."""


@dataclass(frozen=True)
class Grid:
    """Units in rows, numbered row by row.

    Neighbours in a row are at distance 1. On a hexagonal grid every second row is moved by a half, and each
    unit has six neighbours at distance 1. On a toroidal grid opposite edges touch.
    """

    height: int
    width: int
    topology: Topology = "rectangular"
    toroidal: bool = False

    @property
    def n_units(self) -> int:
        """How many units there are."""
        return self.height * self.width

    @cached_property
    def coordinates(self) -> Array:
        """The place (x, y) of each unit in the plane."""
        row, column = np.divmod(np.arange(self.n_units), self.width)
        places = np.stack([column, row], axis=1).astype(np.float64)
        if self.topology == "hexagonal":
            places[:, 0] += 0.5 * (row % 2)
            places[:, 1] *= _ROW_HEIGHT
        return places

    @property
    def periods(self) -> tuple[float, float]:
        """After what distance along x and along y a toroidal grid repeats."""
        return float(self.width), self.height * (_ROW_HEIGHT if self.topology == "hexagonal" else 1.0)

    @property
    def reach(self) -> float:
        """How far neighbours are apart at most: 8 surround a unit of a rectangular grid, 6 of a hexagonal."""
        return 1.0 if self.topology == "hexagonal" else float(np.sqrt(2.0))

    def squared_distances(self, units: Span) -> Array:
        """The squared distance of some units from all units, on the grid."""
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
        """Runs of units whose distances from all others fill a tile."""
        return Span(0, self.n_units).split(max(1, TILE_BYTES // (8 * self.n_units)))

    def kernel(self, units: Span, neighborhood: Neighborhood, sigma: float, occupied: Array) -> Array:
        """How much some units learn from the rows of each unit, up to a factor for each of them.

        A Gaussian exp(-d^2 / (2 sigma^2)) is 1 at the nearest unit that is occupied: a common factor does not
        change a mean, and without it a unit that is far from all rows would divide zero by zero. A bubble
        is 1 up to the distance sigma.
        """
        squares = self.squared_distances(units)
        if neighborhood == "bubble":
            return (squares <= sigma**2 + _ROUNDING).astype(np.float64)
        if occupied.any():
            squares -= squares[:, occupied].min(axis=1, keepdims=True)
        squares *= -0.5 / sigma**2
        # Units that are not occupied have no rows: they may be nearer than the nearest that is.
        np.minimum(squares, 0.0, out=squares)
        return np.exp(squares, out=squares)
