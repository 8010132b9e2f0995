"""Latitudes and longitudes are found by CF attributes, then by name; outputs inherit plain attributes."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

from streamdr.data.labelled.conventions import is_latitude, is_longitude, plain_attributes

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
    assert is_latitude("lat", {"units": value, "standard_name": value}) == (
        value != ["degrees_north"] or True
    )
    assert not is_latitude("q", {"units": value, "standard_name": value, "axis": value})


def test_attributes_that_outputs_inherit_are_plain():
    given = {
        "long_name": "sea surface temperature",
        "units": np.bytes_(b"K"),
        "standard_name": np.str_("sst"),
        "cell_methods": "time: mean",
        "level": np.float32(850),
        "number": np.array([5], "i8"),
        "flags": np.array([1, 2], "u1"),
        "flag": np.True_,
        "names": np.array(["a", "b"]),
        "nested": {"a": [1, "b"]},
    }
    plain = plain_attributes(given)
    assert plain == {
        "long_name": "sea surface temperature",
        "units": "K",
        "standard_name": "sst",
        "cell_methods": "time: mean",
        "level": 850.0,
        "number": 5,
        "flags": [1, 2],
        "flag": True,
        "names": ["a", "b"],
        "nested": {"a": [1, "b"]},
    }
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert [type(plain[key]) for key in ("level", "number", "flag", "units")] == [float, int, bool, str]


@pytest.mark.parametrize(
    "key",
    [
        *(
            "_FillValue",
            "missing_value",
            "scale_factor",
            "add_offset",
            "_Unsigned",
            "dtype",
            "coordinates",
            "bounds",
        ),
        *(
            "grid_mapping",
            "_ARRAY_DIMENSIONS",
            "_ChunkSizes",
            "chunksizes",
            "ancillary_variables",
            "cell_measures",
        ),
        *("streamdr", "feature_names", "valid_range", "_Netcdf4Dimid", "DIMENSION_LIST", "REFERENCE_LIST"),
    ],
)
def test_attributes_of_the_storage_are_not_inherited(key):
    assert plain_attributes({key: "text", "units": "K"}) == {"units": "K"}


@pytest.mark.parametrize(
    "value",
    [
        *(
            None,
            float("nan"),
            float("inf"),
            np.float32("nan"),
            np.array([1.0, np.nan]),
            b"\xff",
            object(),
            1j,
        ),
        *(
            np.datetime64("2000-01-01"),
            np.datetime64(0, "ns"),
            h5py.Empty("f4"),
            {1: 2},
            {"a": float("nan")},
            [object()],
        ),
    ],
)
def test_what_json_cannot_have_is_dropped(value):
    assert plain_attributes({"given": value, "units": "K"}) == {"units": "K"}
