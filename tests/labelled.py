"""Labelled sources for tests: rows with never observed features, weights, and the columns that are left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fits import stored

from streamdr.core.axes import Coordinate, FeatureAxes
from streamdr.data import open_source
from streamdr.data.source import Source


def axes(shape: tuple[int, ...], weights: np.ndarray | None = None, **wishes: Any) -> FeatureAxes:
    """Return axes with the names that grids have, and coordinates."""
    dims = {1: ("station",), 2: ("lat", "lon"), 3: ("variable", "lat", "lon")}[len(shape)]
    coords = tuple(
        Coordinate(dim, (dim,), np.linspace(-80.0, 80.0, length))
        for dim, length in zip(dims, shape, strict=True)
        if dim != "variable"
    )
    return FeatureAxes(dims, shape, coords, weights=weights, **wishes)


def labelled(
    values: Any, shape: tuple[int, ...] | None = None, weights: np.ndarray | None = None, **wishes: Any
) -> Source:
    """Return an array in memory, or a store, whose features have axes; a new source each time."""
    source = values if isinstance(values, Source) else open_source(values)
    source.axes = axes(shape or (source.spec.n_cols,), weights, **wishes)
    return source


@dataclass(frozen=True)
class Grid:
    """Rows with land: features that are NaN in every row."""

    values: np.ndarray
    land: np.ndarray
    weights: np.ndarray

    @classmethod
    def made(
        cls, n_rows: int = 83, n_cols: int = 12, dtype: Any = np.float64, offset: float = 3.0, seed: int = 0
    ) -> Grid:
        """Rows of rank 4 with noise, land in the first, the last and other columns, and uneven weights."""
        rng = np.random.default_rng(seed)
        spread = np.array([9.0, 5.0, 2.5, 1.3])
        values = (rng.normal(size=(n_rows, 4)) * spread) @ rng.normal(size=(4, n_cols))
        values += 0.1 * rng.normal(size=(n_rows, n_cols)) + offset * (1 + np.arange(n_cols))
        land = np.zeros(n_cols, bool)
        land[[0, 3, 4, n_cols - 1]] = True
        values[:, land] = np.nan
        return cls(values.astype(dtype), land, 0.2 + rng.random(n_cols))

    @property
    def sea(self) -> np.ndarray:
        """The columns that are observed, in double precision."""
        kept: np.ndarray = self.values[:, ~self.land].astype(np.float64)
        return kept

    @property
    def sea_weights(self) -> np.ndarray:
        """The weights of these columns."""
        kept: np.ndarray = self.weights[~self.land]
        return kept

    def store(self, folder: Path, chunks: tuple[int, int] = (16, 5)) -> Path:
        """Write the values to a new store."""
        return stored(folder / "x.zarr", self.values, chunks)
