"""Recognition of latitudes and longitudes: by attributes of the CF conventions, or by their usual names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class _Kind:
    """How CF, and data that do not follow it, mark a coordinate."""

    standard_name: str
    axis: str
    axis_type: str
    units: frozenset[str]
    names: re.Pattern[str]


def _directions(direction: str) -> frozenset[str]:
    """The units of CF in lower case: `degrees_north`, `degree_n`, `degreesn`, and the like."""
    ends = (f"_{direction}", f"_{direction[0]}", direction[0])
    return frozenset(f"{degree}{end}" for degree in ("degree", "degrees") for end in ends)


# The names are those of cf_xarray, which has NEMO's, and of the grids of WRF, POP, ROMS and MOM.
_LATITUDE = _Kind(
    "latitude",
    "Y",
    "lat",
    _directions("north"),
    re.compile(
        r"y?(nav_)?lats?(_?[0-9tuvfpqr])?|latitudes?|y?gphi[tuvf]|[txu]lat|lat_(rho|psi)|geolat(_[tcuv])?|y[tu]_ocean"
    ),
)
_LONGITUDE = _Kind(
    "longitude",
    "X",
    "lon",
    _directions("east"),
    re.compile(
        r"x?(nav_)?lons?(_?[0-9tuvfpqr])?|longitudes?|x?glam[tuvf]|[txu]long?|lon_(rho|psi)|geolon(_[tcuv])?|x[tu]_ocean"
    ),
)
_DEGREES = frozenset({"degree", "degrees", "deg"})


def is_latitude(name: str, attributes: Mapping[str, Any]) -> bool:
    """Return whether a coordinate is the latitude in degrees.

    Attributes decide first: `standard_name`, then units such as `degrees_north`, then an axis `Y` in degrees.
    Without them it is the name: `lat`, `latitude`, or the names that ocean models use.

    Parameters
    ----------
    name : str
        The name of the coordinate.
    attributes : mapping
        Its attributes.

    Examples
    --------
    >>> is_latitude("y", {"units": "degrees_north"}), is_latitude("lat", {}), is_latitude("x", {})
    (True, True, False)
    """
    return _is_of(_LATITUDE, name, attributes)


def is_longitude(name: str, attributes: Mapping[str, Any]) -> bool:
    """Return whether a coordinate is the longitude in degrees, by the rules of `is_latitude`.

    Parameters
    ----------
    name : str
        The name of the coordinate.
    attributes : mapping
        Its attributes.

    Examples
    --------
    >>> is_longitude("x", {"units": "degrees_east"}), is_longitude("lon", {}), is_longitude("x", {})
    (True, True, False)
    """
    return _is_of(_LONGITUDE, name, attributes)


def _is_of(kind: _Kind, name: str, attributes: Mapping[str, Any]) -> bool:
    """Whether a coordinate is of a kind."""
    units = _text(attributes, "units").lower()
    if units and units not in kind.units | _DEGREES:
        return False  # radians, metres, degrees of the other direction
    standard_name = _text(attributes, "standard_name")
    if standard_name:
        return standard_name.lower() == kind.standard_name  # not `grid_latitude`, of a rotated pole
    if units in kind.units or _text(attributes, "_CoordinateAxisType").lower() == kind.axis_type:
        return True
    if _text(attributes, "long_name").lower() == kind.standard_name:
        return True
    if units and _text(attributes, "axis").upper() == kind.axis:
        return True
    return kind.names.fullmatch(name.lower()) is not None


def _text(attributes: Mapping[str, Any], key: str) -> str:
    """The text of an attribute; empty if there is none."""
    value = attributes.get(key)
    if isinstance(value, bytes):  # HDF5 may store text so
        value = value.decode(errors="ignore")
    return value.strip() if isinstance(value, str) else ""
