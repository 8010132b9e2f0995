"""Recognition of latitudes and longitudes: by attributes of the CF conventions, or by their usual names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ANGLES = frozenset({"", "deg", "degree", "degrees", "°"})
"""Units that do not say in which direction an angle is. An empty text: there are none."""


@dataclass(frozen=True)
class _Direction:
    """What CF and usage call the coordinate of one direction on the sphere."""

    standard_name: str
    units: frozenset[str]
    axis: str
    names: frozenset[str]

    def holds(self, name: str, attributes: Mapping[str, Any]) -> bool:
        units = _text(attributes, "units")
        if units.lower() in self.units:
            return True
        if units.lower() not in _ANGLES:
            return False
        # Rotated grids have latitudes and longitudes of their own, which their standard names tell apart.
        if standard_name := _text(attributes, "standard_name"):
            return standard_name == self.standard_name
        return (_text(attributes, "axis").upper() == self.axis and bool(units)) or name.lower() in self.names


def _of(standard_name: str, letter: str, axis: str, *names: str) -> _Direction:
    whole = {"n": "north", "e": "east"}[letter]
    units = {
        f"{noun}{ending}" for noun in ("degree", "degrees") for ending in (f"_{whole}", f"_{letter}", letter)
    }
    return _Direction(standard_name, frozenset(units), axis, frozenset({standard_name, *names}))


_LATITUDE = _of("latitude", "n", "Y", "lat", "lats", "latitudes", "nav_lat", "xlat", "tlat", "ulat", "geolat")
_LONGITUDE = _of(
    "longitude", "e", "X", "lon", "lons", "long", "longitudes", "nav_lon", "xlong", "tlong", "ulong", "geolon"
)


def is_latitude(name: str, attributes: Mapping[str, Any]) -> bool:
    """Return whether a coordinate is the latitude in degrees.

    Its units say so (`degrees_north` and variants), or its `standard_name`, or `axis: Y` with units of
    degrees. Without these, its name does.

    Examples
    --------
    >>> is_latitude("y", {"units": "degrees_north"}), is_latitude("lat", {}), is_latitude("y", {"units": "m"})
    (True, True, False)
    """
    return _LATITUDE.holds(name, attributes)


def is_longitude(name: str, attributes: Mapping[str, Any]) -> bool:
    """Return whether a coordinate is the longitude in degrees. See `is_latitude`.

    Examples
    --------
    >>> is_longitude("x", {"standard_name": "longitude"}), is_longitude("rlon", {"units": "degrees"})
    (True, False)
    """
    return _LONGITUDE.holds(name, attributes)


def _text(attributes: Mapping[str, Any], key: str) -> str:
    found = attributes.get(key)
    return found.strip() if isinstance(found, str) else ""
