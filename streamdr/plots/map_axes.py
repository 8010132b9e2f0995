"""The two axes of a map: which dimensions they are, the edges of its cells, and their labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from streamdr.core.axes import Coordinate, FeatureAxes
from streamdr.core.blocks import Array
from streamdr.core.cf_names import is_latitude, is_longitude
from streamdr.core.figures import plain, shortened

_STEPS = (90, 60, 45, 30, 20, 15, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
"""The distances between labels in degrees."""
_MOST_LABELS = 5
_MOST_NAMES = 25
"""The largest number of text labels along an axis."""
_PRESSURES = ("hpa", "pa", "kpa", "mb", "mbar", "millibar", "millibars", "bar")


@dataclass(frozen=True, eq=False)
class MapAxis:
    """One axis of a map, or of a line: the positions of its cells, in ascending order."""

    dim: str
    edges: Array
    """The edges of the cells, one more than there are cells."""
    centres: Array
    order: Array
    """The cells in this order have ascending positions."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    names: Array | None = None
    """The labels of the cells, where these are text."""
    degrees: Callable[[float], str] | None = None
    """The text of a position in degrees, for latitudes and longitudes."""
    labelled: bool = True
    """Whether it has a coordinate."""

    @classmethod
    def of(cls, axes: FeatureAxes, dim: str) -> MapAxis:
        """Return the axis of a dimension: at the values of its coordinate, if they can be ordered."""
        length = axes.shape[axes.dims.index(dim)]
        found = axes.coordinate(dim)
        if found is not None and found.values.dtype.kind == "U":
            return cls._numbered(dim, length, found.values)
        if found is None or found.values.dtype.kind not in "iuf" or not np.isfinite(found.values).all():
            return cls._numbered(dim, length)
        values, degrees = found.values.astype(np.float64), degrees_of(found)
        if degrees is east:
            values = in_one_turn(values)
        order = np.argsort(values, kind="stable")
        centres = values[order]
        if (np.diff(centres) <= 0).any():  # equal positions would be cells without a width
            return cls._numbered(dim, length)
        edges = edges_of(centres)
        if degrees is north and np.abs(centres).max() <= 90:
            edges = np.clip(edges, -90.0, 90.0)
        return cls(dim, edges, centres, order, found.attributes, degrees=degrees)

    @classmethod
    def _numbered(cls, dim: str, length: int, names: Array | None = None) -> MapAxis:
        """Return an axis without positions: cells are numbered."""
        places = np.arange(length)
        return cls(dim, np.arange(length + 1) - 0.5, places, places, names=names, labelled=False)

    @property
    def points_down(self) -> bool:
        """Whether positions grow downwards: rows of an image without coordinates, depths and pressures."""
        units = str(self.attributes.get("units", "")).strip().lower()
        return not self.labelled or self.attributes.get("positive") == "down" or units in _PRESSURES

    @property
    def label(self) -> str:
        """The text beside the axis: nothing for degrees, which say what they are."""
        if self.degrees is not None:
            return ""
        units = self.attributes.get("units")
        return shortened(self.dim) + (f" ({shortened(units)})" if isinstance(units, str) and units else "")


def north(position: float) -> str:
    """The text of a latitude: `30°N`."""
    return _degrees(position, "S", "N")


def east(position: float) -> str:
    """The text of a longitude: `60°W`."""
    turned = (position + 180.0) % 360.0 - 180.0
    return "180°" if turned == -180.0 else _degrees(turned, "W", "E")


def _degrees(position: float, below: str, above: str) -> str:
    size = f"{round(abs(position), 4):g}"
    if size == "0":
        return "0°"
    return f"{size}°{above if position > 0 else below}"


def degrees_of(coordinate: Coordinate) -> Callable[[float], str] | None:
    """Return how positions of a coordinate are written, for latitudes and longitudes."""
    if is_latitude(coordinate.name, coordinate.attributes):
        return north
    return east if is_longitude(coordinate.name, coordinate.attributes) else None


def in_one_turn(longitudes: Array) -> Array:
    """Return longitudes without a jump of a whole turn between neighbours: of 170, -170 as of 170, 190."""
    steps = np.diff(longitudes)
    if (steps > 0).all() or (steps < 0).all():
        return longitudes
    turned: Array = np.unwrap(longitudes, period=360.0)
    return turned


def edges_of(centres: Array, axis: int = 0) -> Array:
    """Return the edges of cells along an axis: midway between centres, and as far beyond the outer ones."""
    centres = np.moveaxis(centres, axis, 0)
    if len(centres) == 1:
        edges = np.stack([centres[0] - 0.5, centres[0] + 0.5])
    else:
        inner = (centres[1:] + centres[:-1]) / 2
        first, last = 2 * centres[:1] - inner[:1], 2 * centres[-1:] - inner[-1:]
        edges = np.concatenate([first, inner, last])
    return np.moveaxis(edges, 0, axis)


@dataclass(frozen=True, eq=False)
class MapGrid:
    """The cells of a map: from the axes of features to rows and columns of cells."""

    leading: tuple[str, ...]
    """The dimensions that are not drawn: there is a map for each of their positions."""
    n_positions: int
    """The number of positions along these dimensions: of maps for each component."""
    y: MapAxis
    x: MapAxis
    corners: tuple[Array, Array] | None = None
    """The longitudes and latitudes of the corners of cells, for coordinates of two dimensions."""

    @classmethod
    def of(cls, axes: FeatureAxes) -> MapGrid | None:
        """Return the cells of a map; None where fewer than two dimensions are longer than one."""
        long = [dim for dim, length in zip(axes.dims, axes.shape, strict=True) if length > 1]
        if len(long) < 2:
            return None
        down, across = (_dim_of(axes, long, text) for text in (north, east))
        if down is None or across is None:
            down, across = long[-2:]
            if degrees_at(axes, down) is not None and degrees_at(axes, across) is None:
                down, across = across, down  # a section: heights are drawn over the latitude
        leading = tuple(dim for dim in axes.dims if dim not in (down, across))
        n_positions = prod(axes.shape[axes.dims.index(dim)] for dim in leading)
        return cls(
            leading,
            n_positions,
            MapAxis.of(axes, down),
            MapAxis.of(axes, across),
            _corners(axes, down, across),
        )

    @property
    def is_geographic(self) -> bool:
        """Whether the axes of the map are longitude and latitude."""
        return self.corners is not None or (self.y.degrees is north and self.x.degrees is east)

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """The outermost edges: left, right, bottom, top in ascending order."""
        x, y = self.corners or (self.x.edges, self.y.edges)
        return float(x.min()), float(x.max()), float(y.min()), float(y.max())

    @property
    def has_square_units(self) -> bool:
        """Whether a unit is as long on both axes: degrees, cells, or a common unit such as metres."""
        if self.is_geographic or not (self.x.labelled or self.y.labelled):
            return True
        units = [axis.attributes.get("units") for axis in (self.x, self.y)]
        return units[0] is not None and units[0] == units[1]

    @property
    def shown_x(self) -> MapAxis:
        """The horizontal axis as it is labelled: longitudes, where every cell has its own."""
        return self.x if self.corners is None else replace(self.x, degrees=east)

    @property
    def shown_y(self) -> MapAxis:
        """The vertical axis as it is labelled: latitudes, where every cell has its own."""
        return self.y if self.corners is None else replace(self.y, degrees=north)

    def coarse(self, axis: int, factor: int) -> MapGrid:
        """Return cells that are `factor` of these long along an axis: -2 for y, -1 for x."""
        if self.corners is not None:
            x, y = (_every(one, axis, factor) for one in self.corners)
            return replace(self, corners=(x, y))
        old = self.y if axis == -2 else self.x
        new = replace(old, edges=_every(old.edges, -1, factor))
        return replace(self, y=new) if axis == -2 else replace(self, x=new)

    def planes(self, axes: FeatureAxes, values: Array) -> Array:
        """Return values of all features (the last axis) as maps: (..., leading positions, y, x)."""
        outer = values.shape[:-1]
        whole = values.reshape(*outer, *axes.shape)
        places = [len(outer) + axes.dims.index(dim) for dim in (*self.leading, self.y.dim, self.x.dim)]
        turned = whole.transpose(*range(len(outer)), *places)
        flat = turned.reshape(*outer, -1, *turned.shape[-2:])
        if self.corners is not None:
            return flat
        return np.take(np.take(flat, self.y.order, axis=-2), self.x.order, axis=-1)


def _every(edges: Array, axis: int, factor: int) -> Array:
    """Return every `factor`th edge along an axis, and the last one."""
    last = edges.shape[axis] - 1
    return np.take(edges, [*range(0, last, factor), last], axis=axis)


def degrees_at(axes: FeatureAxes, dim: str) -> Callable[[float], str] | None:
    """Return how positions along a dimension are written, if they are latitudes or longitudes."""
    found = axes.coordinate(dim)
    return None if found is None or found.values.dtype.kind not in "iuf" else degrees_of(found)


def _dim_of(axes: FeatureAxes, dims: list[str], text: Callable[[float], str]) -> str | None:
    """Return the dimension whose positions are latitudes (`north`) or longitudes (`east`)."""
    return next((dim for dim in dims if degrees_at(axes, dim) is text), None)


def _corners(axes: FeatureAxes, down: str, across: str) -> tuple[Array, Array] | None:
    """Return the corners of the cells of a grid with a latitude and a longitude for each cell."""
    found: dict[Any, Array] = {}
    for one in axes.coords:
        if set(one.dims) == {down, across} and one.values.dtype.kind == "f":
            values = one.values if one.dims == (down, across) else one.values.T
            if np.isfinite(values).any():
                found[degrees_of(one)] = values.astype(np.float64)
    if north not in found or east not in found:
        return None
    places = (_filled(_in_turns(found[east])), _filled(found[north]))
    x, y = (edges_of(edges_of(centres, 0), 1) for centres in places)
    return x, np.clip(y, -90.0, 90.0)


def _in_turns(longitudes: Array) -> Array:
    """Return longitudes of cells without jumps of a whole turn along rows, and from row to row."""
    turned = longitudes.copy()
    before = None
    for row in turned:
        known = np.isfinite(row)
        if known.any():
            row[known] = np.unwrap(row[known], period=360.0)
            middle = float(np.median(row[known]))
            if before is not None:
                row -= 360.0 * round((middle - before) / 360.0)
            before = float(np.median(row[known]))
    return turned


def _filled(places: Array) -> Array:
    """Return places with those that are missing, as on land, between those that are not."""
    whole = places.copy()
    for lines in (whole, whole.T):
        for line in lines:
            known = np.isfinite(line)
            if known.any() and not known.all():
                line[~known] = np.interp(np.flatnonzero(~known), np.flatnonzero(known), line[known])
    return whole


def label_positions(drawn: Any, axis: MapAxis, low: float, high: float) -> None:
    """Label an axis of matplotlib (`axes.xaxis` or `axes.yaxis`) between two positions."""
    from matplotlib.ticker import MaxNLocator

    if axis.degrees is not None:
        step = next((one for one in reversed(_STEPS) if (high - low) / one <= _MOST_LABELS), _STEPS[0])
        first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
        positions = np.arange(first, last + 1) * step
        if not len(positions):
            positions = np.array([(low + high) / 2])
        drawn.set_ticks(positions, [axis.degrees(float(one)) for one in positions])
    elif axis.names is not None and len(axis.names) <= _MOST_NAMES:
        drawn.set_ticks(axis.centres, [plain(shortened(one)) for one in axis.names])
    else:
        drawn.set_major_locator(MaxNLocator(_MOST_LABELS, integer=not axis.labelled, min_n_ticks=1))
