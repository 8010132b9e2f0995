"""Missing values are given by a mask, or by a number that stands for them. They are read as NaN."""

import json
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cloudpickle
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

from streamdr.core.blocks import Part, Span, working_dtype
from streamdr.data import open_source
from streamdr.data.row_subset import RowSubset
from streamdr.errors import DataError, MissingValuesError, ParameterError

N, D = 23, 7
MISSING_VALUE: dict[str, Any] = {"u1": 255, "i2": -9999, "f4": np.float32(-9999.9)}


@pytest.fixture(autouse=True)
def every_chunk_is_written():
    """Otherwise zarr does not write chunks of a mask without missing values."""
    with zarr.config.set({"array.write_empty_chunks": True}):
        yield


def sample(shape=(N, D), dtype="i2", seed=0):
    """Return values from 1 to 99, and a mask of the missing ones: more than a quarter."""
    rng = np.random.default_rng(seed)
    return rng.integers(1, 100, shape).astype(dtype), rng.random(shape) < 0.3


def with_nan(values, missing):
    """Return the expected values, by definition."""
    return np.where(missing, np.nan, values).astype(working_dtype(values.dtype))


def flat(values, sample_axis):
    return np.moveaxis(values, sample_axis, 0).reshape(values.shape[sample_axis], -1)


def write(path, values, **options):
    options = {"chunks": (5, *values.shape[1:])} | options
    array = zarr.create_array(path, shape=values.shape, dtype=values.dtype, **options)
    array[...] = values
    return path


def assert_reads(source, matrix):
    """Assert that all values, rows, columns and a region are read; twice, since memory is reused."""
    n, d = matrix.shape
    assert (source.spec.n_rows, source.spec.n_cols, source.spec.dtype) == (n, d, matrix.dtype)
    some_rows, some_cols = Span(n // 3, n // 2 + 1), Span(d // 3, d // 2 + 1)
    for rows, cols in [(Span(0, n), Span(0, d)), (some_rows, Span(0, d)), (some_rows, some_cols)] * 2:
        expected = matrix[rows.slice, cols.slice]
        np.testing.assert_array_equal(source.read(rows, cols), expected, strict=True)
        np.testing.assert_array_equal(source.read_scratch(rows, cols), expected, strict=True)
    for axis, expected in (("rows", matrix[some_rows.slice]), ("columns", matrix[:, some_cols.slice])):
        span = some_rows if axis == "rows" else some_cols
        np.testing.assert_array_equal(source.block(span, axis, allow_nan=True).values, expected, strict=True)
        np.testing.assert_array_equal(
            source.scratch_block(span, axis, allow_nan=True).values, expected, strict=True
        )


LAYOUTS: dict[str, dict[str, Any]] = {
    "v2": {"zarr_format": 2},
    "v2, big-endian": {"zarr_format": 2, "dtype": ">"},
    "v3": {},
    "ragged": {"chunks": (4, 3)},
    "sharded": {"chunks": (3, 2), "shards": (6, 6)},
    "one chunk": {"chunks": (N, D)},
}


def write_as(path, values, layout):
    options = dict(LAYOUTS[layout])
    values = values.astype(values.dtype.newbyteorder(options.pop("dtype", "=")))
    return write(path, values, **options)


# A number that stands for a missing value


@pytest.mark.parametrize("dtype", MISSING_VALUE)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_number_stands_for_a_missing_value(tmp_path, layout, dtype):
    values, missing = sample(dtype=dtype)
    write_as(tmp_path / "x.zarr", np.where(missing, MISSING_VALUE[dtype], values).astype(dtype), layout)
    source = open_source(
        tmp_path / "x.zarr",
        missing_value=MISSING_VALUE[dtype].item() if dtype == "f4" else MISSING_VALUE[dtype],
    )
    source.validate()
    assert_reads(source, with_nan(values, missing))


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", MISSING_VALUE)
def test_the_fill_value_can_be_that_number(tmp_path, zarr_format, dtype):
    values, missing = sample(dtype=dtype)
    stored = np.where(missing, MISSING_VALUE[dtype], values).astype(dtype)
    write(tmp_path / "x.zarr", stored, zarr_format=zarr_format, fill_value=MISSING_VALUE[dtype])
    assert_reads(open_source(tmp_path / "x.zarr", missing_value="fill_value"), with_nan(values, missing))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_nan_is_missing_in_any_case(tmp_path, zarr_format):
    values, missing = sample(dtype="f4")
    write(tmp_path / "x.zarr", with_nan(values, missing), zarr_format=zarr_format, fill_value=np.nan)
    plain = open_source(tmp_path / "x.zarr")
    for missing_value in ("fill_value", np.nan):
        source = open_source(tmp_path / "x.zarr", missing_value=missing_value)
        assert_reads(source, with_nan(values, missing))
        assert (source.identity, source.fingerprint()) == (plain.identity, plain.fingerprint())
    values[0, :3] = -1, np.inf, np.nan
    expected = with_nan(values, np.isinf(values))
    assert_reads(open_source(values, missing_value=np.inf), expected)
    assert_reads(open_source(values, missing_value=-1), with_nan(values, values == -1))


def test_a_number_is_compared_as_it_is_stored():
    large = np.array([[2**63 - 1, 2**63 - 2], [0, 1]])
    assert_reads(open_source(large, missing_value=2**63 - 1), with_nan(large, large == 2**63 - 1))
    assert_reads(open_source(-large - 1, missing_value=-(2.0**63)), with_nan(-large - 1, large == 2**63 - 1))
    single = np.array([[0.1, 0.2], [0.3, 0.4]], "f4")
    assert_reads(open_source(single, missing_value=0.1), with_nan(single, np.array([[1, 0], [0, 0]], bool)))
    half = np.array([[-9999, 1], [2, 3]], "f2")
    assert_reads(open_source(half, missing_value=-9999), with_nan(half, np.array([[1, 0], [0, 0]], bool)))


@pytest.mark.parametrize(
    ("dtype", "number"),
    [("u1", -1), ("u1", 256), ("i2", -99999), ("i2", 0.5), ("i2", np.nan), ("f4", 1e300), ("?", 2)],
)
def test_a_number_that_the_type_cannot_represent_is_refused(dtype, number):
    with pytest.raises(ParameterError, match=rf"{re.escape(str(number))} cannot be among .* array.* type is"):
        open_source(np.ones((3, 2), dtype), missing_value=number)


@pytest.mark.parametrize("given", ["-9999", "fill", True, [1], 1j])
def test_a_missing_value_that_is_not_a_number_is_refused(given):
    with pytest.raises(ParameterError, match="is neither a number nor 'fill_value'") as caught:
        open_source(np.ones((3, 2)), missing_value=given)
    assert caught.value.parameter == "missing_value"


def test_data_without_a_fill_value_is_an_error(tmp_path):
    write(tmp_path / "x.zarr", np.ones((3, 2)), zarr_format=2)
    file = tmp_path / "x.zarr/.zarray"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"fill_value": None}))
    for data in (np.ones((3, 2)), da.ones((3, 2)), tmp_path / "x.zarr"):
        with pytest.raises(ParameterError, match="has no fill value"):
            open_source(data, missing_value="fill_value")


# Masks


def saved(path, values):
    np.save(path / "m.npy", values)
    return path / "m.npy"


MASKS = {
    "numpy": lambda _, m: m,
    "lists": lambda _, m: m.astype(int).tolist(),
    "bytes": lambda _, m: m.astype("u1"),
    "signed": lambda _, m: m.astype(">i4"),
    "dask": lambda _, m: da.from_array(m, chunks=3),
    "xarray": lambda _, m: xr.DataArray(m),
    "npy": lambda path, m: saved(path, m),
    "path": lambda path, m: write(path / "m.zarr", m),
    "text": lambda path, m: str(write(path / "m.zarr", m.astype("u1"))),
    "zarr, other chunks": lambda path, m: zarr.open_array(
        write(path / "m.zarr", m, chunks=(4,) * m.ndim), mode="r"
    ),
    "source": lambda path, m: open_source(write(path / "m.zarr", m)),
}
DATA = {
    "numpy": lambda _, x: x,
    "fortran": lambda _, x: np.asfortranarray(x),
    "memmap": lambda path, x: mapped(path, x),
    "dask": lambda _, x: da.from_array(x, chunks=4),
    "one dask chunk": lambda _, x: da.from_array(x, chunks=x.shape),
    "xarray": lambda _, x: xr.DataArray(x),
    "zarr": lambda path, x: write(path / "x.zarr", x),
}


def mapped(path, values):
    np.save(path / "x.npy", values)
    return np.load(path / "x.npy", mmap_mode="r")


@pytest.mark.parametrize("hold", MASKS)
def test_a_mask_of_any_kind(tmp_path, hold):
    values, missing = sample()
    source = open_source(write(tmp_path / "x.zarr", values), mask=MASKS[hold](tmp_path, missing))
    source.validate()
    assert_reads(source, with_nan(values, missing))


@pytest.mark.parametrize("dtype", ["i2", "f4", "f8"])
@pytest.mark.parametrize("hold", DATA)
def test_a_mask_for_data_of_any_kind_which_is_left_as_it_is(tmp_path, hold, dtype):
    values, missing = sample(dtype=dtype)
    held = values.copy()
    data = DATA[hold](tmp_path, held)
    assert_reads(open_source(data, mask=write(tmp_path / "m.zarr", missing)), with_nan(values, missing))
    np.testing.assert_array_equal(held, values)
    np.testing.assert_array_equal(open_source(data).read(Span(0, N), Span(0, D)), values)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_mask_is_stored_in_any_way(tmp_path, layout):
    values, missing = sample(dtype="f4")
    write_as(tmp_path / "x.zarr", values, layout)
    write_as(tmp_path / "m.zarr", missing, layout)
    assert_reads(open_source(tmp_path / "x.zarr", mask=tmp_path / "m.zarr"), with_nan(values, missing))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("hold", ["numpy", "dask", "path"])
def test_a_mask_flattens_like_its_data(tmp_path, hold, axis):
    values, missing = sample((4, 9, 5), "u1")
    write(tmp_path / "x.zarr", values, chunks=(3, 4, 2))
    mask = MASKS[hold](tmp_path, missing)
    expected = flat(with_nan(values, missing), axis)
    assert_reads(open_source(tmp_path / "x.zarr", sample_axis=axis, mask=mask), expected)
    opened = open_source(tmp_path / "x.zarr", sample_axis=axis)
    assert_reads(open_source(opened, mask=mask), expected)


def test_a_named_axis_is_that_of_the_mask_too():
    values, missing = sample((4, 9, 5), "u1")
    data = xr.DataArray(values, dims=("time", "cell", "gene"))
    mask = xr.DataArray(missing, dims=data.dims).transpose("cell", "time", "gene")
    assert_reads(open_source(data, sample_axis="cell", mask=mask), flat(with_nan(values, missing), 1))
    with pytest.raises(
        DataError, match=r"mask: no dimension 'cell'.* needs the shape \(4, 9, 5\) of DataArray"
    ):
        open_source(data, sample_axis="cell", mask=missing)


def test_a_mask_and_a_number_add_up(tmp_path):
    values, missing = sample()
    source = open_source(write(tmp_path / "x.zarr", values), mask=missing, missing_value=7)
    assert_reads(source, with_nan(values, missing | (values == 7)))
    assert_reads(
        open_source(source, missing_value=8), with_nan(values, missing | (values == 7) | (values == 8))
    )
    _, more = sample(seed=1)
    again = open_source(source, mask=write(tmp_path / "m.zarr", more))
    assert_reads(again, with_nan(values, missing | more | (values == 7)))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_masked_values_may_be_anything(bad):
    values, missing = sample(dtype="f4")
    values[missing] = bad
    assert_reads(open_source(values, mask=missing), with_nan(values, missing))


@pytest.mark.parametrize("shape", [(N - 1, D), (N, D + 1), (D, N), (N,), (N, D, 1)])
def test_a_mask_of_another_shape_is_refused(tmp_path, shape):
    write(tmp_path / "x.zarr", sample()[0])
    said = re.escape(f"mask: a mask of shape {shape} for {tmp_path / 'x.zarr'} of shape {(N, D)}")
    with pytest.raises(DataError, match=said):
        open_source(tmp_path / "x.zarr", mask=np.zeros(shape, bool))
    write(tmp_path / "m.zarr", np.zeros(shape, bool), chunks=shape)
    with pytest.raises(
        DataError, match=re.escape(f"{tmp_path / 'm.zarr'}: a mask of shape {shape} for array")
    ):
        open_source(sample()[0], mask=tmp_path / "m.zarr")


def test_a_mask_of_the_right_size_and_another_shape_is_refused():
    values = sample((4, 9, 5))[0]
    with pytest.raises(DataError, match=r"shape \(5, 9, 4\) for array of shape \(4, 9, 5\)"):
        open_source(values, sample_axis=1, mask=np.zeros((5, 9, 4), bool))
    with pytest.raises(DataError, match=r"mask: no axis 2 .* needs the shape \(4, 9, 5\) of array"):
        open_source(values, sample_axis=2, mask=np.zeros((5, 36), bool))


@pytest.mark.parametrize("mask", [np.zeros((N, D)), np.ma.masked_array(np.zeros((N, D), bool), True)])
def test_a_mask_of_floats_is_refused(mask):
    with pytest.raises(DataError, match=r"mask: values of type float\d\d do not make a mask; .* 0 and 1"):
        open_source(sample()[0], mask=mask)


@pytest.mark.parametrize(("dtype", "bad"), [("u1", 255), ("i8", 2), ("i2", -1)])
def test_a_mask_with_values_other_than_0_and_1_is_refused(tmp_path, dtype, bad):
    values, missing = sample()
    mask = missing.astype(dtype)
    mask[11, 3] = bad
    named = xr.DataArray(values, coords={"gene": list("abcdefg")}, dims=("cell", "gene"), name="x")
    source = open_source(named, mask=write(tmp_path / "m.zarr", mask))
    source.block(Span(0, 10), allow_nan=True)
    said = rf"m\.zarr: {bad} at row 11, column 3 \('d'\); make it a mask of 0 and 1"
    for read in (source.block, source.scratch_block):
        with pytest.raises(DataError, match=said):
            read(Span(10, 15), allow_nan=True)


# Masked arrays


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8"])
def test_the_mask_of_a_masked_array_is_used(dtype):
    values, missing = sample((4, 9, 5), dtype)
    masked = np.ma.masked_array(values, missing)
    for axis in range(3):
        source = open_source(masked, sample_axis=axis)
        assert_reads(source, flat(with_nan(values, missing), axis))
        _, more = sample((4, 9, 5), seed=1)
        both = open_source(masked, sample_axis=axis, mask=more)
        assert_reads(both, flat(with_nan(values, missing | more), axis))
    unmasked = open_source(np.ma.masked_array(values))
    np.testing.assert_array_equal(unmasked.read(Span(0, 4), Span(0, 45)), flat(values, 0), strict=True)


def test_masked_weights_are_refused():
    source = open_source(sample()[0], weights=np.ma.masked_array(np.ones(N), np.arange(N) == 4))
    with pytest.raises(DataError, match="weights: row 4 has weight nan"):
        source.block(Span(0, 6))


# Weights, names, threads and pickles


def test_weights_names_and_chunks_are_kept(tmp_path):
    values, missing = sample()
    write(tmp_path / "x.zarr", values, attributes={"feature_names": list("abcdefg")})
    plain = open_source(tmp_path / "x.zarr", weights=np.arange(N))
    for source in (
        open_source(tmp_path / "x.zarr", weights=np.arange(N), mask=missing),
        open_source(plain, mask=missing),
        open_source(open_source(tmp_path / "x.zarr", mask=missing), weights=np.arange(N)),
    ):
        assert (source.name, source.chunks) == (plain.name, plain.chunks)
        assert source.feature_names == tuple("abcdefg")
        block = source.block(Span(3, 9), allow_nan=True)
        np.testing.assert_array_equal(block.weights, np.arange(3.0, 9.0))
        np.testing.assert_array_equal(block.values, with_nan(values, missing)[3:9])
    assert plain.weights is not None


def test_a_part_of_the_rows_has_their_missing_values(tmp_path):
    values, missing = sample((60, D))
    source = open_source(write(tmp_path / "x.zarr", values), mask=missing, missing_value=7)
    block = RowSubset(source, Part(1, 3)).scratch_block(Span(0, 15), allow_nan=True)
    expected = with_nan(values, missing | (values == 7))[block.numbers]
    np.testing.assert_array_equal(block.values, expected)


def test_read_does_not_overwrite_scratch_memory(tmp_path):
    values, missing = sample(dtype="f4")
    source = open_source(write(tmp_path / "x.zarr", values), mask=write(tmp_path / "m.zarr", missing))
    scratch = source.read_scratch(Span(0, 5), Span(0, D))
    source.read(Span(5, 10), Span(0, D))
    np.testing.assert_array_equal(scratch, with_nan(values, missing)[:5])


def test_threads_do_not_share_scratch_memory(tmp_path):
    values, missing = sample((200, D))
    source = open_source(write(tmp_path / "x.zarr", values), mask=missing, missing_value=7)
    expected = with_nan(values, missing | (values == 7))

    def right(start):
        return np.array_equal(
            source.scratch_block(Span(start, start + 5), allow_nan=True).values,
            expected[start : start + 5],
            True,
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(right, list(range(0, 200, 5)) * 5))


def test_it_pickles_as_paths(tmp_path):
    values, missing = sample((1000, 50))
    data, mask = write(tmp_path / "x.zarr", values), write(tmp_path / "m.zarr", missing)
    source = open_source(data, mask=mask, missing_value=7, weights=write(tmp_path / "w.zarr", np.ones(1000)))
    source.read(Span(0, 1000), Span(0, 50))
    text = cloudpickle.dumps(source)
    assert len(text) < 8000
    copy = pickle.loads(text)
    assert_reads(copy, with_nan(values, missing | (values == 7)))
    assert (copy.fingerprint(), copy.identity) == (source.fingerprint(), source.identity)


def test_errors_locate_missing_values_and_name_the_method_that_allows_them(tmp_path):
    values = np.ones((N, D), "i2")
    values[11, 3] = values[12, 4] = -9999
    source = open_source(write(tmp_path / "x.zarr", values), missing_value=-9999)
    said = (
        r"x\.zarr: nan at row 11, column 3 \(2 such values in rows 10-14\); .*, or use the method ppca, which"
    )
    with pytest.raises(MissingValuesError, match=said):
        source.block(Span(10, 15))
    with pytest.raises(MissingValuesError, match=said):
        source.scratch_block(Span(10, 15)).locate_nonfinite()


def test_infinities_are_not_missing():
    values, missing = sample(dtype="f4")
    values[2, 3], missing[2, 3] = np.inf, False
    with pytest.raises(DataError, match="inf at row 2, column 3"):
        open_source(values, mask=missing).block(Span(0, 5), allow_nan=True)


# Missing chunks


def unlink(path, *keys):
    for key in keys:
        (path / key).unlink()
    return path


def test_validation_checks_the_data_and_the_mask(tmp_path):
    values, missing = sample()
    data, mask = write(tmp_path / "x.zarr", values), write(tmp_path / "m.zarr", missing)
    unlink(mask, "c/1/0")
    with pytest.raises(DataError, match=r"m\.zarr: chunk c/1/0 is missing, rows 5-9; .*allow_missing_chunks"):
        open_source(data, mask=mask).validate()
    open_source(data, mask=mask, allow_missing_chunks=True).validate()
    open_source(data, mask=open_source(mask, allow_missing_chunks=True)).validate()
    unlink(data, "c/2/0")
    with pytest.raises(DataError, match=r"x\.zarr: chunk c/2/0 is missing, rows 10-14"):
        open_source(data, mask=missing).validate()


@pytest.mark.parametrize("layout", ["v2", "v3", "sharded"])
@pytest.mark.parametrize(("dtype", "fill_value"), [("i2", -9999), ("u1", 0), ("f4", np.nan), ("f8", 1e20)])
def test_chunks_that_were_never_written_are_missing_values(tmp_path, layout, dtype, fill_value):
    values, missing = sample((24, 6), dtype)
    array = zarr.create_array(
        tmp_path / "x.zarr",
        shape=values.shape,
        dtype=dtype,
        fill_value=fill_value,
        **{"chunks": (6, 6)} | LAYOUTS[layout],
    )
    missing[6:18] = True
    array[:6], array[18:] = np.where(missing, array.fill_value, values)[np.r_[:6, 18:24]].reshape(2, 6, 6)
    with pytest.raises(DataError, match="is missing"):
        open_source(tmp_path / "x.zarr", missing_value="fill_value").validate()
    source = open_source(tmp_path / "x.zarr", missing_value="fill_value", allow_missing_chunks=True)
    source.validate()
    assert_reads(source, with_nan(values, missing))


# Identity and fingerprint, as used by the ledger


def fingerprint_of(data, **options):
    return open_source(data, **options).fingerprint()


def test_a_fingerprint_covers_the_values_the_mask_and_the_number(tmp_path):
    values, missing = sample()
    data = write(tmp_path / "x.zarr", values)
    mask = write(tmp_path / "m.zarr", missing)
    sources = [
        open_source(data),
        open_source(data, mask=mask),
        open_source(data, missing_value=7),
        open_source(data, missing_value=8),
        open_source(data, mask=mask, missing_value=7),
        open_source(data, mask=mask, weights=np.ones(N)),
        open_source(data, mask=missing),
    ]
    for facts in ([source.fingerprint() for source in sources], [source.identity for source in sources]):
        assert len(set(facts)) == len(sources)
    before = fingerprint_of(data, mask=mask)
    assert fingerprint_of(data, mask=str(mask)) == fingerprint_of(open_source(data), mask=mask) == before
    opened = zarr.open_array(mask)
    opened[12, 3] = not opened[12, 3]
    changed = fingerprint_of(data, mask=mask)
    zarr.open_array(data)[12, 3] = values[12, 3] + 1
    assert len({before, changed, fingerprint_of(data, mask=mask)}) == 3


@pytest.mark.parametrize("layout", ["v2", "v3", "sharded"])
def test_appended_rows_keep_the_digest_of_what_was_there(tmp_path, layout):
    values, missing = sample((48, D))
    data, mask = tmp_path / "x.zarr", tmp_path / "m.zarr"
    write_as(data, values[:24], layout)
    write_as(mask, missing[:24], layout)
    options = {"mask": mask, "missing_value": 7}
    before = open_source(data, **options)
    whole = 24 - 24 % before.chunks[0]
    digest = before.snapshot().digest(whole)
    for path, more in ((data, values), (mask, missing)):
        array = zarr.open_array(path)
        array.resize(more.shape)
        array[24:] = more[24:]
    after = open_source(data, **options)
    assert after.identity == before.identity
    assert after.snapshot().digest(whole) == digest
    assert after.fingerprint() != before.fingerprint()
    assert_reads(after, with_nan(values, missing | (values == 7)))
    opened = zarr.open_array(mask)
    opened[0, 0] = not opened[0, 0]
    assert open_source(data, **options).snapshot().digest(whole) != digest


# Memory


MEASURE = """
import json, sys
from streamdr.core.blocks import Span
from streamdr.data import open_source

def status(key):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

options = {"mask": sys.argv[2] or None, "missing_value": json.loads(sys.argv[3])}
open_source(sys.argv[4], mask=sys.argv[4], missing_value=7).scratch_block(Span(0, 4), allow_nan=True)
source = open_source(sys.argv[1], **options)

def cost(read):
    open("/proc/self/clear_refs", "w").write("5")  # reset the peak
    before = status("VmRSS")
    values = read()
    return status("VmHWM") - before - values.nbytes

block = cost(lambda: source.scratch_block(Span(0, 4096), allow_nan=True).values)
read = cost(lambda: source.read(Span(0, 4096), Span(0, 512)))
print(json.dumps({"block": block, "read": read, "promised": source.overhead(4096, 512)}))
"""


@pytest.mark.parametrize(
    ("dtype", "mask", "number"),
    [("f4", "?", None), ("f4", "i4", 7), ("f8", None, 7), ("i2", "?", 7), ("u1", "u1", None)],
)
@pytest.mark.parametrize("hold", ["zarr", "npy"])
def test_it_takes_no_more_memory_than_it_promises(tmp_path, hold, dtype, mask, number):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 100, (8192, 512)).astype(dtype)
    write(tmp_path / "tiny.zarr", np.eye(8, 4, dtype="u1"), chunks=(4, 4))
    data = tmp_path / f"x.{hold}"
    if hold == "zarr":
        write(data, values, chunks=(2048, 512))
    else:
        np.save(data, values)
    path = "" if mask is None else write(tmp_path / "m.zarr", (values > 70).astype(mask), chunks=(2048, 512))
    command = [
        sys.executable,
        "-c",
        MEASURE,
        str(data),
        str(path),
        json.dumps(number),
        str(tmp_path / "tiny.zarr"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    cost = json.loads(done.stdout)
    # The system may allocate an extra huge page of 2 MiB.
    assert cost["block"] <= cost["promised"] + 3 * 2**20
    assert cost["read"] <= cost["promised"] + 3 * 2**20
