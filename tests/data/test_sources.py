"""numpy, memmap, dask and xarray arrays are opened as rows x features, with and without weights."""

import itertools
import math
import pickle

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from fits import stored
from narrowing import present

from streamdr.core.blocks import Axis, Part, Span
from streamdr.data import open_source
from streamdr.data import source as base
from streamdr.data.row_subset import RowSubset
from streamdr.errors import DataError, ParameterError

SHAPES = [(5,), (5, 4), (4, 3, 2), (3, 2, 1, 3)]


def numbers(shape, dtype="f4"):
    return np.arange(1, math.prod(shape) + 1, dtype=dtype).reshape(shape)


def flat(values, sample_axis):
    """Return the matrix by definition: sample axis first, the others flattened in C order."""
    return np.moveaxis(values, sample_axis, 0).reshape(values.shape[sample_axis], -1)


def assert_reads(source, matrix):
    """Assert that everything is read, and every span of columns of some rows."""
    n, d = matrix.shape
    assert (source.spec.n_rows, source.spec.n_cols, source.spec.dtype) == (n, d, matrix.dtype)
    assert all(1 <= size <= length for size, length in zip(source.chunks, (n, d), strict=True))
    np.testing.assert_array_equal(source.read(Span(0, n), Span(0, d)), matrix, strict=True)
    rows = Span(n // 3, n // 2 + 1)
    for start, stop in itertools.combinations(range(d + 1), 2):
        np.testing.assert_array_equal(
            source.read(rows, Span(start, stop)), matrix[rows.slice, start:stop], strict=True
        )


def saved(tmp_path, values):
    np.save(tmp_path / "x.npy", values)
    return tmp_path / "x.npy"


def lazily(tmp_path, values):
    """Return a DataArray that reads its zarr store when indexed, without dask."""
    dims = [f"d{axis}" for axis in range(values.ndim)]
    chunks = tuple(min(3, length) for length in values.shape)
    named = xr.DataArray(values, dims=dims, name="x")
    named.to_dataset().to_zarr(tmp_path / "x.zarr", encoding={"x": {"chunks": chunks}}, consolidated=False)
    return xr.open_zarr(tmp_path / "x.zarr", chunks=None, consolidated=False)["x"]


HOLDERS = {
    "numpy": lambda _, x: x,
    "fortran": lambda _, x: np.asfortranarray(x),
    "strided": lambda _, x: np.repeat(x, 2, axis=0)[::2],
    "big-endian": lambda _, x: x.astype(">f4"),
    "nested lists": lambda _, x: x.astype("f8").tolist(),
    "npy": saved,
    "npy as text": lambda path, x: str(saved(path, x)),
    "npy in fortran order": lambda path, x: saved(path, np.asfortranarray(x)),
    "memmap": lambda path, x: np.load(saved(path, x), mmap_mode="r"),
    "part of a memmap": lambda path, x: np.load(saved(path, np.concatenate([x, x])), mmap_mode="r")[len(x) :],
    "private memmap": lambda path, x: np.load(saved(path, x), mmap_mode="c"),
    "dask": lambda _, x: da.from_array(x, chunks=2),
    "dask, uneven": lambda _, x: da.concatenate(
        [da.from_array(x[:1], chunks=3), da.from_array(x[1:], chunks=2)]
    ),
    "dask, lazy work": lambda _, x: (da.from_array(x.astype("f8") + 1, chunks=2) - 1).astype("f4"),
    "xarray": lambda _, x: xr.DataArray(x),
    "xarray of dask": lambda _, x: xr.DataArray(da.from_array(x, chunks=2)),
    "xarray, lazy": lazily,
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS.keys())
def test_every_holder_is_the_same_matrix_along_any_axis(tmp_path, hold, shape):
    held = hold(tmp_path, numbers(shape))
    values = np.asarray(np.load(held) if str(held).endswith(".npy") else held)
    for axis in range(-1, len(shape)):
        assert_reads(open_source(held, sample_axis=axis), flat(values, axis))


@pytest.mark.parametrize("dtype", ["?", "i1", "<i2", ">i4", "i8", "u1", ">u2", "u4", "u8", "f2", ">f4", "f8"])
@pytest.mark.parametrize("hold", ["numpy", "npy", "dask", "xarray"])
def test_blocks_are_native_floats_of_the_same_values(tmp_path, hold, dtype):
    values = (np.arange(35) % 2).astype(dtype).reshape(7, 5)
    source = open_source(HOLDERS[hold](tmp_path, values))
    parts: dict[Axis, np.ndarray] = {"rows": values[2:6], "columns": values[:, 2:4]}
    for axis, part in parts.items():
        block = source.block(Span(2, 2 + part.shape[axis == "columns"]), axis)
        assert block.values.dtype == source.spec.working
        assert block.values.dtype.isnative
        np.testing.assert_array_equal(block.values, part.astype("f8"))


def test_a_source_is_returned_as_it_is():
    source = open_source(numbers((3, 2)))
    assert open_source(source) is source


def test_dimension_names_choose_the_sample_axis():
    labelled = xr.DataArray(numbers((3, 4, 2)), dims=("time", "cell", "gene"))
    assert_reads(open_source(labelled, sample_axis="cell"), flat(labelled.values, 1))
    with pytest.raises(ParameterError, match=r"no dimension 'sample'; it has time, cell, gene"):
        open_source(labelled, sample_axis="sample")
    with pytest.raises(ParameterError, match=r"its dimensions have no names"):
        open_source(labelled.values, sample_axis="cell")


@pytest.mark.parametrize("axis", [2, -3])
def test_an_axis_that_does_not_exist_is_refused(axis):
    with pytest.raises(ParameterError, match=f"no axis {axis} in an array of 2 dimensions"):
        open_source(numbers((3, 2)), sample_axis=axis)


@pytest.mark.parametrize("make", [lambda x: x, lambda x: x.chunk(2)], ids=["numpy", "dask"])
def test_feature_names_come_from_the_coordinates_of_a_matrix(make):
    genes = ["a", "b", "c"]
    labelled = make(xr.DataArray(numbers((4, 3)), dims=("cell", "gene"), coords={"gene": genes}))
    assert open_source(labelled).feature_names == ("a", "b", "c")
    assert open_source(labelled.T, sample_axis="cell").feature_names == ("a", "b", "c")
    assert open_source(labelled, sample_axis="gene").feature_names is None
    assert open_source(labelled.assign_coords(gene=[1, 2, 3])).feature_names is None
    assert open_source(labelled.expand_dims("time", 1)).feature_names is None


def test_lazy_xarray_stays_lazy(tmp_path):
    lazy = lazily(tmp_path, numbers((9, 4)))
    for path in tmp_path.glob("x.zarr/x/c/[12]/*"):
        path.write_bytes(b"must not be read")
    source = open_source(lazy)
    np.testing.assert_array_equal(source.block(Span(0, 3)).values, numbers((9, 4))[:3])
    with pytest.raises(DataError, match=r"DataArray 'x': rows 3-5 cannot be read"):
        source.block(Span(3, 6))


def test_dask_computes_in_the_calling_thread_and_only_what_a_block_needs():
    computed = []

    def record(block, block_info=None):
        computed.append(block_info[0]["chunk-location"])
        return block

    array = da.from_array(numbers((8, 4)), chunks=(2, 2)).map_blocks(
        record, dtype="f4", meta=np.empty((0, 0), "f4")
    )
    source = open_source(array)
    with dask.config.set(scheduler="processes"):
        source.read(Span(2, 4), Span(0, 4))
    assert sorted(computed) == [(1, 0), (1, 1)]


def test_dask_errors_name_the_rows():
    def fail(block):
        raise OSError("the disk is on fire")

    array = da.from_array(numbers((8, 4)), chunks=(2, 4)).map_blocks(
        fail, dtype="f4", meta=np.empty((0, 0), "f4")
    )
    with pytest.raises(DataError, match="rows 4-5 cannot be computed: the disk is on fire") as caught:
        open_source(array).read(Span(4, 6), Span(0, 4))
    assert isinstance(caught.value.__cause__, OSError)


def test_dask_arrays_of_unknown_length_are_refused():
    array = da.from_array(numbers((8, 4)), chunks=2)
    with pytest.raises(DataError, match=r"compute_chunk_sizes"):
        open_source(array[array[:, 0] > 3])


@pytest.mark.parametrize("hold", ["numpy", "npy", "memmap", "dask", "xarray, lazy"])
def test_pickling_keeps_the_values(tmp_path, hold):
    values = numbers((7, 5))
    source = open_source(HOLDERS[hold](tmp_path, values), weights=np.arange(7.0))
    source.read(Span(0, 7), Span(0, 5))
    copy = pickle.loads(cloudpickle.dumps(source))
    assert_reads(copy, values)
    assert copy.fingerprint() == source.fingerprint()
    np.testing.assert_array_equal(copy.block(Span(2, 4)).weights, [2.0, 3.0])


def test_a_file_pickles_as_its_path(tmp_path):
    assert len(pickle.dumps(open_source(saved(tmp_path, numbers((1000, 100)))))) < 2000


# Weights


@pytest.mark.parametrize(
    "hold",
    [
        lambda _, w: w,
        lambda _, w: w.tolist(),
        lambda _, w: w[:, None],
        lambda _, w: w.astype(">i4"),
        lambda _, w: da.from_array(w, chunks=3),
        lambda _, w: xr.DataArray(w),
        lambda path, w: saved(path, w),
        lambda path, w: stored(path / "w.zarr", w, (3,) * w.ndim),
        lambda path, w: open_source(stored(path / "w.zarr", w, (3,) * w.ndim)),
    ],
)
def test_weights_of_any_kind_are_read_with_their_rows(tmp_path, hold):
    source = open_source(numbers((7, 2)), weights=hold(tmp_path, np.arange(7.0)))
    source.validate()
    spec = present(source.weights).spec
    assert (spec.n_rows, spec.n_cols) == (7, 1)
    block = source.block(Span(3, 6))
    np.testing.assert_array_equal(block.weights, np.array([3.0, 4.0, 5.0]), strict=True)


def test_weights_do_not_change_the_source_they_are_added_to():
    source = open_source(numbers((3, 2)))
    assert open_source(source, weights=[1, 2, 3]).weights is not None
    assert source.weights is None


@pytest.mark.parametrize(
    ("weights", "given"), [(np.ones(5), "5 weights"), (np.ones((7, 2)), "7 x 2 weights")]
)
def test_weights_of_another_length_are_refused(weights, given):
    with pytest.raises(DataError, match=f"weights: {given} for the 7 rows of array"):
        open_source(numbers((7, 2)), weights=weights)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_negative_and_non_finite_weights_are_refused(bad):
    source = open_source(numbers((4, 2)), weights=[1, 1, bad, 1])
    source.block(Span(0, 2))
    with pytest.raises(DataError, match=f"weights: row 2 has weight {bad}"):
        source.block(Span(1, 4))


def test_missing_chunks_of_weights_are_found_by_validation(tmp_path):
    (stored(tmp_path / "w.zarr", np.arange(1, 8.0), (3,)) / "c/1").unlink()
    with pytest.raises(DataError, match=r"w\.zarr: chunk c/1 is missing, rows 3-5"):
        open_source(numbers((7, 2)), weights=tmp_path / "w.zarr").validate()


# Non-finite values


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("axis", ["rows", "columns"])
def test_non_finite_values_are_located(axis, bad):
    values = numbers((9, 6))
    values[4, 3] = values[5, 3] = bad
    source = open_source(
        xr.DataArray(values, coords={"gene": list("abcdef")}, dims=("cell", "gene"), name="x")
    )
    with pytest.raises(DataError, match=rf"DataArray 'x': {bad} at row 4, column 3 \('d'\) \(2 such values"):
        source.block(Span(2, 6), axis)
    source.block(Span(0, 3), axis)


def test_huge_finite_values_are_read():
    values = np.full((4, 2), np.finfo("f4").max, "f4")
    np.testing.assert_array_equal(open_source(values).block(Span(0, 4)).values, values)


@pytest.mark.parametrize("part", [None, Part(0, 2)])
def test_non_finite_values_are_counted_in_pieces_and_the_first_is_named(monkeypatch, part):
    monkeypatch.setattr(base, "_CHECKED_BYTES", 64)
    values = numbers((12, 9)).astype("f4")
    values[2, 7] = values[2, 5] = values[5, 1] = np.inf
    source = open_source(values)
    if part is not None:
        source = RowSubset(source, part)
    for check in (source.scratch_block(Span(0, 6)).locate_nonfinite, lambda: source.block(Span(0, 6))):
        with pytest.raises(DataError) as refused:
            check()
        assert "inf at row 2, column 5" in str(refused.value)
        if part is None:
            assert "3 such values in rows 0-5" in str(refused.value)
    assert source.checking_bytes(6, 9) < 6 * 9 * 10
