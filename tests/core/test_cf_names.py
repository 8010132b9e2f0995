"""Latitudes and longitudes are recognised by what CF says of them, and else by their usual names."""

from __future__ import annotations

from typing import Any

import pytest

from streamdr.core.cf_names import is_latitude, is_longitude

LATITUDES: list[tuple[str, dict[str, Any]]] = [
    *(
        ("y", {"units": unit})
        for unit in ("degrees_north", "degree_north", "degree_N", "degrees_N", "degreeN")
    ),
    ("y", {"units": "degreesN "}),
    ("y", {"standard_name": "latitude"}),
    ("y", {"standard_name": "latitude", "units": "degrees"}),
    ("j", {"axis": "Y", "units": "degrees"}),
    *((name, {}) for name in ("lat", "latitude", "Latitude", "LAT", "nav_lat", "XLAT", "TLAT")),
    ("lat", {"units": "degrees"}),
    ("lat", {"units": 7, "standard_name": None, "axis": ["Y"]}),
]


@pytest.mark.parametrize(("name", "attributes"), LATITUDES)
def test_a_latitude_is_one_and_no_longitude(name: str, attributes: dict[str, Any]) -> None:
    assert is_latitude(name, attributes)
    assert not is_longitude(name, attributes)


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        *(("x", {"units": unit}) for unit in ("degrees_east", "degree_E", "degreesE")),
        ("x", {"standard_name": "longitude"}),
        ("i", {"axis": "X", "units": "degrees"}),
        *((name, {}) for name in ("lon", "longitude", "Lon", "nav_lon", "XLONG", "TLONG")),
    ],
)
def test_a_longitude_is_one_and_no_latitude(name: str, attributes: dict[str, Any]) -> None:
    assert is_longitude(name, attributes)
    assert not is_latitude(name, attributes)


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("y", {}),
        ("x", {}),
        ("y", {"axis": "Y"}),
        ("y", {"axis": "Y", "units": "m", "standard_name": "projection_y_coordinate"}),
        ("lat", {"units": "radian"}),
        ("lon", {"units": "m"}),
        ("rlat", {"standard_name": "grid_latitude", "units": "degrees", "axis": "Y"}),
        ("rlon", {"standard_name": "grid_longitude", "units": "degrees", "axis": "X"}),
        ("lat", {"standard_name": "grid_latitude"}),
        ("plat", {}),
    ],
)
def test_other_coordinates_are_neither(name: str, attributes: dict[str, Any]) -> None:
    assert not is_latitude(name, attributes)
    assert not is_longitude(name, attributes)
