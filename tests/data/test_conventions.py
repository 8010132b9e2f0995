"""Outputs inherit the plain attributes of a variable."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

from streamdr.data.labelled.conventions import plain_attributes


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
