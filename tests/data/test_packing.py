"""Stored values become the numbers that xarray decodes, bit for bit."""

from __future__ import annotations

import copy
import tracemalloc

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import example, given
from hypothesis import strategies as st
from narrowing import checked

from streamdr.data.labelled.packing import Packing
from streamdr.errors import DataError

pytestmark = pytest.mark.filterwarnings(
    "ignore::xarray.SerializationWarning", "ignore::RuntimeWarning:xarray"
)
NAN64 = "AAAAAAAA+H8="
"""A NaN in attributes of zarr v3."""


def ours(stored, attributes, fill_value=None):
    """Return the numbers of the stored values."""
    packing = Packing.of(stored.dtype, attributes, "x", fill_value)
    if packing is None:
        return stored.astype(stored.dtype.newbyteorder("="))
    assert packing.stored == stored.dtype
    out = np.empty(stored.shape, packing.decoded)
    packing.decode(stored, out)
    return out


def theirs(stored: np.ndarray, attributes):
    """Return the numbers that xarray decodes."""
    variable = xr.Variable(("i", "j"), stored, copy.deepcopy(attributes))
    return xr.conventions.decode_cf_variable("x", variable, decode_times=False).values


def assert_same_bits(found, expected):
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    assert found.tobytes() == expected.tobytes()


INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i2", ">u4")
FLOATS = ("f2", "f4", "f8", ">f4", ">f8")
COMMON = (0, 1, -1, 7, 100, 127, 255, -128, -32768, 32767, 65535, -999, 2**24 + 1, 2**31 - 1, 2**53 + 1)


def stored_values(name):
    """Return values of a type, among them those that attributes are likely to mean."""
    dtype = np.dtype(name)
    if dtype.kind == "f":
        first = [0.0, -999.0, 1e4, -0.1, np.nan, np.inf, -np.inf, 6e4, 1e-3, 5.0]
        return np.array([first, *np.random.default_rng(0).normal(size=(6, 10)) * 100]).astype(dtype)
    limits = np.iinfo(dtype)
    within = [value for value in COMMON if limits.min <= value <= limits.max][:8]
    given = np.array([*within, limits.min, limits.max, *[0] * 8][:10], dtype)
    random = np.random.default_rng(0).integers(limits.min, limits.max, (6, 10), dtype.newbyteorder("="), True)
    return np.concatenate([given[None], random.astype(dtype)])


def factors():
    """Return scales and offsets: Python floats as from JSON, scalars and 1-element arrays as from HDF5."""
    number = st.sampled_from([0.01, 1.0, -0.5, 1 / 3, 1e-3, 273.15, 1e20])
    return st.one_of(st.none(), number, number.map(np.float32), number.map(np.float64))


@st.composite
def packings(draw):
    """Return stored values and attributes that fit them."""
    stored = stored_values(draw(st.sampled_from(INTEGERS + FLOATS)))
    attributes = {}
    for key in ("scale_factor", "add_offset"):
        if (value := draw(factors())) is not None:
            attributes[key] = value
    for key in ("_FillValue", "missing_value"):
        native = [value.item() for value in stored[:2].ravel()]
        value = draw(st.one_of(st.none(), st.sampled_from(native), st.just(float("nan"))))
        if value is None:
            continue
        plain = draw(st.booleans())
        if np.isnan(value):
            attributes[key] = value if plain else np.float32(value)
        else:
            attributes[key] = value if plain else stored.dtype.newbyteorder("=").type(value)
    unsigned = draw(st.sampled_from([None, "true", "false"]))
    if unsigned is not None:
        attributes["_Unsigned"] = unsigned
        # xarray cannot change the sign of a Python number, or of another type.
        value = attributes.get("_FillValue")
        if value is not None and np.isnan(value):
            del attributes["_FillValue"]
        elif value is not None:
            attributes["_FillValue"] = stored.dtype.newbyteorder("=").type(value)
    return stored, attributes


@given(packings())
@example((stored_values("i4"), {"scale_factor": np.float32(0.01), "_FillValue": np.int32(2**31 - 1)}))
@example((stored_values("f4"), {"scale_factor": np.float64(0.1), "_FillValue": np.float32("nan")}))
@example((stored_values("f4"), {"scale_factor": 0.1, "_FillValue": float("nan")}))
@example((stored_values("f4"), {"missing_value": 0.1}))
@example((stored_values("i2"), {"missing_value": [-1, 7]}))
@example((stored_values("i2"), {"_FillValue": -1, "missing_value": 7}))
@example((stored_values("i1"), {"_Unsigned": "true", "_FillValue": np.int8(-1), "missing_value": -1}))
@example((stored_values("i1"), {"_Unsigned": "true", "_FillValue": np.int8(-1), "missing_value": 7}))
@example(
    (stored_values("i4"), {"_Unsigned": "true", "_FillValue": np.int32(-1), "scale_factor": np.float32(0.1)})
)
@example(
    (
        stored_values("u4"),
        {"_Unsigned": "false", "_FillValue": np.uint32(2**31 - 1), "scale_factor": np.float32(1)},
    )
)
@example((stored_values("u1"), {"_Unsigned": "false", "_FillValue": np.uint8(255), "scale_factor": 0.5}))
@example((stored_values("f8"), {"_Unsigned": "true"}))
@example((stored_values("f8"), {"scale_factor": np.float32(1e30), "add_offset": np.float32(1e30)}))
@example((stored_values("i1"), {"scale_factor": np.float16(0.1), "_FillValue": np.int8(7)}))
@example((stored_values("i2"), {"missing_value": 1e20}))
@example((stored_values("i8"), {"missing_value": 2**53}))
@example((stored_values("i2"), {"scale_factor": None, "_FillValue": None}))
def test_numbers_are_those_of_xarray(case):
    stored, attributes = case
    before = stored.tobytes()
    expected = theirs(stored, {key: value for key, value in attributes.items() if value is not None})
    assert_same_bits(ours(stored, attributes), expected)
    assert stored.tobytes() == before


@pytest.mark.parametrize("key", ["scale_factor", "add_offset", "_FillValue", "missing_value"])
def test_an_array_of_one_value_is_its_value(key):
    stored = stored_values("i2")
    attributes = {"scale_factor": np.float32(0.1), "add_offset": np.float32(5), "_FillValue": np.int16(7)}
    attributes["missing_value"] = np.int16(100)
    expected = theirs(stored, attributes)
    assert_same_bits(ours(stored, attributes | {key: np.array([attributes[key]])}), expected)


@pytest.mark.parametrize("number", [2, np.int16(2), np.int64(2)])
def test_whole_scales_and_offsets_count_as_double(number):
    stored = np.array([[1, 30_000, -7]], "i2")
    for attributes in (
        {"scale_factor": number},
        {"add_offset": number},
        {"scale_factor": number, "_FillValue": -7},
    ):
        found = ours(stored, attributes)
        expected = stored * 2.0 if "scale_factor" in attributes else stored + 2.0
        if "_FillValue" in attributes:
            expected[0, 2] = np.nan
        assert_same_bits(found, expected)


@pytest.mark.parametrize(
    ("dtype", "encoding"),
    [
        ("f4", {}),
        ("f8", {"_FillValue": 1e20}),
        ("f4", {"_FillValue": np.float32(1e20)}),
        ("f4", {"dtype": "f4", "scale_factor": 0.1, "_FillValue": np.float32("nan")}),
        ("f8", {"dtype": "i2", "scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -32768}),
        ("f4", {"dtype": "i2", "scale_factor": np.float32(0.01), "_FillValue": -32768}),
        ("f8", {"dtype": "i4", "add_offset": 5.0, "_FillValue": -1}),
        ("f8", {"dtype": "i1", "_Unsigned": "true", "scale_factor": 0.5, "_FillValue": -1}),
        ("f8", {"dtype": "u2", "scale_factor": 0.5, "missing_value": 65535, "_FillValue": 65535}),
        ("i4", {}),
        ("u1", {"_FillValue": 255}),
    ],
)
@pytest.mark.parametrize("version", [2, 3])
def test_stores_that_xarray_writes_are_read_as_xarray_reads_them(tmp_path, version, dtype, encoding):
    values = np.arange(60).reshape(6, 10).astype(dtype)
    if dtype[0] == "f":
        values[1, 3:] = np.nan
    xr.Dataset({"x": (("i", "j"), values)}).to_zarr(
        tmp_path / "x.zarr", encoding={"x": dict(encoding)}, zarr_format=version, consolidated=False
    )
    _assert_read_as_xarray_reads(tmp_path / "x.zarr")


def _assert_read_as_xarray_reads(path):
    """Compare the decoded values of the array x of a store."""
    array = checked(zarr.Array, zarr.open_group(path, mode="r")["x"])
    fill_value = array.fill_value if array.metadata.zarr_format == 2 else None
    found = ours(array[:], dict(array.attrs), fill_value)
    with xr.open_zarr(path, decode_times=False, consolidated=False) as opened:
        assert_same_bits(found, opened["x"].values)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("fill_value", [0, 7])
def test_the_fill_value_of_zarr_means_missing_in_version_2_only(tmp_path, version, fill_value):
    group = zarr.create_group(tmp_path / "x.zarr", zarr_format=version)
    names = None if version == 2 else ("i", "j")
    array = group.create_array(
        "x", shape=(6, 10), dtype="i2", chunks=(6, 10), fill_value=fill_value, dimension_names=names
    )
    array[:] = np.arange(60).reshape(6, 10)
    array.attrs.update({"scale_factor": 0.5} | ({"_ARRAY_DIMENSIONS": ["i", "j"]} if version == 2 else {}))
    _assert_read_as_xarray_reads(tmp_path / "x.zarr")
    missing = np.isnan(ours(array[:], dict(array.attrs), array.fill_value if version == 2 else None))
    assert np.argwhere(missing).tolist() == ([[0, fill_value]] if version == 2 else [])


def test_attributes_of_version_2_give_way_to_its_fill_value():
    stored = stored_values("i2")
    assert_same_bits(ours(stored, {"_FillValue": 7}, np.int16(1)), theirs(stored, {"_FillValue": 1}))


def test_fill_values_of_floats_in_version_3_are_in_base64():
    stored = stored_values("f4")
    assert Packing.of(stored.dtype, {"_FillValue": NAN64}, "x") is None
    packing = Packing.of(stored.dtype, {"_FillValue": "AAAAAAA4j8A="}, "x")
    assert packing is not None
    assert packing.missing == (-999.0,)


@pytest.mark.parametrize("dtype", ["i2", "u1", "f4", "f8"])
@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_files_of_hdf5_are_decoded_by_the_types_of_their_attributes(tmp_path, dtype, real):
    stored = stored_values(dtype)
    with h5py.File(tmp_path / "x.nc", "w") as file:
        made = file.create_dataset("x", data=stored)
        made.attrs["_FillValue"] = np.array([stored[0, 1]], dtype)
        made.attrs["missing_value"] = stored[0, 2]
        made.attrs["scale_factor"] = np.array([0.01], real)
        made.attrs["add_offset"] = real(273.15)
        made.attrs["_Unsigned"] = np.bytes_(b"true")
    with h5py.File(tmp_path / "x.nc") as file:
        attributes = dict(file["x"].attrs)
        values = file["x"][:]
    scalars = {
        key: value[0] if isinstance(value, np.ndarray) else value
        for key, value in attributes.items()
        if key != "_Unsigned"
    }
    unsigned = {} if dtype[0] == "f" else {"_Unsigned": "true"}
    assert_same_bits(ours(values, attributes), theirs(stored, scalars | unsigned))


def test_files_of_netcdf_3_are_decoded_as_xarray_decodes_them(tmp_path):
    values = np.arange(60.0).reshape(6, 10)
    values[2, 5:] = np.nan
    encoding = {"dtype": "i2", "scale_factor": np.float32(0.5), "add_offset": np.float32(2), "_FillValue": -9}
    xr.Dataset({"x": (("i", "j"), values)}).to_netcdf(
        tmp_path / "x.nc", engine="scipy", encoding={"x": encoding}
    )
    with xr.open_dataset(tmp_path / "x.nc", engine="scipy", mask_and_scale=False) as raw:
        stored, attributes = raw["x"].values, raw["x"].attrs
        with xr.open_dataset(tmp_path / "x.nc", engine="scipy", decode_times=False) as opened:
            assert_same_bits(ours(stored, attributes), opened["x"].values)


@pytest.mark.parametrize(
    ("dtype", "attributes"),
    [
        ("f4", {}),
        ("f4", {"_FillValue": float("nan")}),
        ("f8", {"_FillValue": np.float32("nan"), "missing_value": np.array([np.nan])}),
        ("f4", {"units": "K", "valid_range": [0, 5]}),
        ("i2", {"_FillValue": float("nan")}),
        ("u1", {"_Unsigned": "true"}),
        ("i1", {"_Unsigned": "false"}),
        ("f4", {"_Unsigned": "true"}),
        (">i4", {}),
        ("i4", {"_FillValue": None, "scale_factor": None}),
        ("?", {"_FillValue": False}),
        ("M8[ns]", {"scale_factor": 2.0}),
        ("S4", {"_FillValue": "none"}),
    ],
)
def test_values_that_are_the_numbers_need_no_packing(dtype, attributes):
    assert Packing.of(np.dtype(dtype), attributes, "x") is None


def test_a_fill_value_beyond_the_sign_is_the_same_bits():
    stored = np.array([[-1, 0, 127, -128]], "i1")
    for value in (255, -1, np.uint8(255), np.int8(-1)):
        expected = np.array([[np.nan, 0, 127, 128]], "f4")
        assert_same_bits(ours(stored, {"_Unsigned": "true", "_FillValue": value}), expected)


@pytest.mark.parametrize(
    ("dtype", "attributes", "message"),
    [
        ("i2", {"scale_factor": "0.01"}, "sst: scale_factor is '0.01', not a number; correct the attribute"),
        ("i2", {"add_offset": b"5"}, "sst: add_offset is b'5', not a number"),
        ("i2", {"scale_factor": True}, "sst: scale_factor is True, not a number"),
        ("i2", {"scale_factor": np.True_}, "not a number"),
        ("i2", {"scale_factor": {"value": 1}}, "not a number"),
        ("i2", {"scale_factor": []}, "sst: scale_factor is \\[\\], not a number"),
        ("i2", {"scale_factor": 1j}, "not a number"),
        ("i2", {"scale_factor": 10**400}, "sst: scale_factor is 1000.*\\.\\.\\., not a number"),
        ("i2", {"scale_factor": h5py.Empty("f4")}, "not a number"),
        ("i2", {"scale_factor": [0.1, 0.2]}, "sst: scale_factor has 2 values; it must be one number"),
        ("i2", {"add_offset": np.array([1.0, 2.0])}, "sst: add_offset has 2 values"),
        ("i2", {"scale_factor": float("nan")}, "sst: scale_factor is nan; it must be a finite number"),
        ("f4", {"add_offset": np.float32("inf")}, "sst: add_offset is inf; it must be a finite number"),
        ("i2", {"_FillValue": -99999}, "sst: _FillValue is -99999, which no value of type int16 can be"),
        ("i2", {"_FillValue": 1e20}, "sst: _FillValue is 1e\\+20, which no value of type int16 can be"),
        ("i2", {"_FillValue": -999.5}, "-999.5, which no value of type int16"),
        ("i2", {"_FillValue": float("inf")}, "inf, which no value of type int16"),
        ("u1", {"_FillValue": -1}, "-1, which no value of type uint8"),
        ("i1", {"_FillValue": 256, "_Unsigned": "true"}, "256, which no value of type int8"),
        ("f4", {"_FillValue": 1e300}, "1e\\+300, which no value of type float32"),
        ("i2", {"_FillValue": [1, 2]}, "sst: _FillValue has 2 values; it must be one number"),
        ("i2", {"_FillValue": "none"}, "sst: _FillValue is 'none', not a number"),
        ("i2", {"_FillValue": False}, "sst: _FillValue is False, not a number"),
        (
            "f4",
            {"_FillValue": "NaN"},
            "sst: _FillValue is the text 'NaN', which is neither a number nor one in base64",
        ),
        ("f4", {"_FillValue": "AAAA"}, "neither a number nor one in base64"),
        ("f4", {"_FillValue": "é" * 100}, "sst: _FillValue is the text 'é+\\.\\.\\., which"),
        ("f4", {"missing_value": "none"}, "sst: missing_value is 'none', not a number"),
        ("f4", {"missing_value": [1.0, None]}, "sst: missing_value is \\[1.0, None\\], not a number"),
        ("i1", {"_Unsigned": "maybe"}, "sst: _Unsigned is 'maybe'; it must be the text 'true' or 'false'"),
        ("i1", {"_Unsigned": True}, "sst: _Unsigned is True; it must be the text"),
        ("i1", {"_Unsigned": "True"}, "sst: _Unsigned is 'True'"),
    ],
)
def test_malformed_attributes_are_refused_by_name(dtype, attributes, message):
    with pytest.raises(DataError, match=message):
        Packing.of(np.dtype(dtype), attributes, "sst")


def test_decoding_needs_no_more_memory_than_a_slab():
    stored = np.zeros((4000, 1000), "i2")
    packing = Packing.of(stored.dtype, {"scale_factor": 0.1, "add_offset": 1.0, "_FillValue": 7}, "x")
    assert packing is not None
    out = np.empty(stored.shape)
    tracemalloc.start()
    try:
        packing.decode(stored, out)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20 < out.nbytes
    np.testing.assert_array_equal(out, 1.0)


@pytest.mark.parametrize("order", ["C", "F"])
def test_views_are_decoded_in_place(order):
    stored = np.asarray(stored_values("i2"), order=order)[::2, 1::3]
    attributes = {"scale_factor": 0.1, "_FillValue": 7, "_Unsigned": "true"}
    packing = Packing.of(stored.dtype, attributes, "x")
    assert packing is not None
    whole = np.full((stored.shape[0], 2 * stored.shape[1]), -5.0)
    packing.decode(stored, whole[:, ::2])
    np.testing.assert_array_equal(whole[:, ::2], ours(np.ascontiguousarray(stored), attributes))
    assert (whole[:, 1::2] == -5).all()


def test_empty_and_single_dimensions_are_decoded():
    attributes = {"scale_factor": 0.5, "_FillValue": 2}
    np.testing.assert_array_equal(ours(np.array([1, 2], "i2"), attributes), [0.5, np.nan])
    assert ours(np.empty((0, 3), "i2"), attributes).shape == (0, 3)
    assert ours(np.ones((2, 3, 4), "i2"), attributes).sum() == 12


def test_a_packing_is_in_the_byte_order_of_the_machine():
    packing = Packing.of(np.dtype(">i2"), {"_FillValue": 1}, "x")
    assert packing == Packing(np.dtype(">i2"), np.dtype("f4"), (1,))
    assert packing.decoded.isnative
