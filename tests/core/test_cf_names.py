"""Latitudes and longitudes are recognised by what CF says of them, and else by their usual names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamdr.core.cf_names import is_latitude, is_longitude

LATITUDE_NAMES = (
    *(
        "lat",
        "latitude",
        "Latitude",
        "LAT",
        "lats",
        "nav_lat",
        "gphit",
        "ylat",
        "TLAT",
        "ULAT",
        "XLAT",
        "lat_rho",
    ),
    *("yt_ocean", "yu_ocean", "geolat", "geolat_t", "lat_0", "latitudes", "lat1"),
)
LONGITUDE_NAMES = (
    *("lon", "longitude", "Longitude", "LON", "lons", "nav_lon", "glamt", "xlon", "TLONG", "ULONG", "XLONG"),
    *("xt_ocean", "xu_ocean", "geolon", "geolon_t", "lon_0", "longitudes", "lon1", "lon_rho"),
)
KINDS = (
    (is_latitude, "latitude", "Y", "north", "Lat", LATITUDE_NAMES),
    (is_longitude, "longitude", "X", "east", "Lon", LONGITUDE_NAMES),
)


@pytest.mark.parametrize(("found", "standard_name", "axis", "direction", "axis_type", "names"), KINDS)
def test_coordinates_are_found_by_attributes_or_name(found, standard_name, axis, direction, axis_type, names):
    letter = direction[0].upper()
    for unit in ("degree", "degrees"):
        for end in (f"_{direction}", f"_{letter}", letter):
            assert found("q", {"units": f"{unit}{end}"})
    assert found("q", {"standard_name": standard_name})
    assert found("q", {"standard_name": np.bytes_(standard_name.encode())})
    assert found("q", {"long_name": standard_name.title()})
    assert found("q", {"_CoordinateAxisType": axis_type})
    assert found("q", {"axis": axis, "units": "degrees"})
    for name in names:
        assert found(name, {}), name
        assert found(name, {"units": "degrees"}), name


@pytest.mark.parametrize(("found", "standard_name", "axis", "direction", "axis_type", "names"), KINDS)
def test_attributes_overrule_names(found, standard_name, axis, direction, axis_type, names):
    name = names[0]
    assert not found(name, {"units": "m"})
    assert not found(name, {"units": "radians"})
    assert not found(name, {"standard_name": f"grid_{standard_name}", "units": "degrees", "axis": axis})
    assert not found(name, {"standard_name": standard_name, "units": "radians"})
    assert not found("q", {"axis": axis})
    assert not found("q", {"axis": axis, "units": "m"})
    assert not found("q", {})
    other = is_longitude if found is is_latitude else is_latitude
    for one in names:
        assert not other(one, {})
    assert not other(name, {"units": f"degrees_{direction}"})


@pytest.mark.parametrize(
    "name",
    [
        "late",
        "latent",
        "latent_heat",
        "rlat",
        "rlon",
        "lat_bnds",
        "lon_bnds",
        "y",
        "x",
        "plate",
        "longwave",
        "",
    ],
)
def test_names_that_only_resemble_them_are_others(name):
    assert not is_latitude(name, {})
    assert not is_longitude(name, {})


@pytest.mark.parametrize("value", [None, 5, ["degrees_north"], {"a": 1}, object(), b"\xff"])
def test_attributes_that_are_no_text_say_nothing(value):
    assert is_latitude("lat", {"units": value, "standard_name": value})
    assert not is_latitude("q", {"units": value, "standard_name": value, "axis": value})


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
