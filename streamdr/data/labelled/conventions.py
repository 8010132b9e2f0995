"""CF attributes: which coordinates are latitudes and longitudes, and which attributes outputs inherit."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


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

_STORAGE = {
    *("missing_value", "scale_factor", "add_offset", "dtype", "chunksizes", "least_significant_digit"),
    *("valid_min", "valid_max", "valid_range", "actual_range"),  # of the values as they are packed
    *("coordinates", "bounds", "climatology", "grid_mapping", "geometry", "node_coordinates", "node_count"),
    *(
        "part_node_count",
        "interior_ring",
        "cell_measures",
        "formula_terms",
        "ancillary_variables",
        "compress",
    ),
    *("mesh", "location", "CLASS", "NAME", "DIMENSION_LIST", "DIMENSION_LABELS", "REFERENCE_LIST"),
    *("streamdr", "feature_names"),
}


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
    >>> from streamdr.data.labelled.conventions import is_latitude
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
    >>> from streamdr.data.labelled.conventions import is_longitude
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
    value = _plain(attributes.get(key))
    return value.strip() if isinstance(value, str) else ""


def plain_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that outputs inherit, as JSON values.

    Parameters
    ----------
    attributes : mapping
        The attributes of an array: JSON values, or those of HDF5.

    Returns
    -------
    dict
        All but those that describe how values are stored (`_FillValue`, `scale_factor`, `valid_range`, all
        that begin with an underscore), those that name other arrays (`coordinates`, `bounds`,
        `grid_mapping`), and those that JSON cannot have.

    Examples
    --------
    >>> import numpy as np
    >>> from streamdr.data.labelled.conventions import plain_attributes
    >>> plain_attributes({"units": "K", "_FillValue": -1, "level": np.float32(850), "bounds": "lat_bnds"})
    {'units': 'K', 'level': 850.0}
    """
    found = {
        key: _plain(value)
        for key, value in attributes.items()
        if isinstance(key, str) and key not in _STORAGE and not key.startswith("_")
    }
    return {key: value for key, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    """A JSON value, or None if there is none: NaN, references, objects."""
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in "mM":  # its item would be a number without a unit
            return None
        value = value.item() if value.size == 1 else value.tolist()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        items = [_plain(item) for item in value]
        return None if any(item is None for item in items) else items
    if isinstance(value, Mapping):
        entries = {key: _plain(item) for key, item in value.items()}
        plain = all(isinstance(key, str) and item is not None for key, item in entries.items())
        return entries if plain else None
    return None
