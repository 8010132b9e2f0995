"""Files of other formats are converted to zarr stores with the same values, or one clear error is raised."""

from __future__ import annotations

import gzip
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from narrowing import checked

from streamdr.core.progress import Silent
from streamdr.data import open_source
from streamdr.data.ingest import ingest
from streamdr.errors import ConfigError, DataError, StoreError

quiet = Silent()


def stored(path: Path) -> np.ndarray:
    return np.asarray(zarr.open_array(path / "X", mode="r")[:])


def feature_names(path: Path) -> list[str] | None:
    names = zarr.open_array(path / "X", mode="r").attrs.get("feature_names")
    return None if names is None else [checked(str, name) for name in checked(list, names)]


def text_file(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def ingest_text(tmp_path: Path, content: str | bytes, name: str = "x.csv", **options) -> np.ndarray:
    ingest(text_file(tmp_path / name, content), tmp_path / "x.zarr", progress=quiet, **options)
    return stored(tmp_path / "x.zarr")


class Recorder(Silent):
    """Adds up the progress, and interrupts after a number of calls."""

    def __init__(self, max_calls: int = 10**9) -> None:
        self.calls_left = max_calls
        self.done, self.finished = 0, 0

    def start(self, begun):
        self.total, self.unit = begun.total, begun.unit

    def advance(self, rows):
        self.done += rows
        self.calls_left -= 1
        if self.calls_left < 0:
            raise KeyboardInterrupt

    def finish(self):
        self.finished += 1


@pytest.fixture
def matrix() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((23, 5))


# The store


def test_the_report_describes_the_store(tmp_path, matrix):
    np.save(tmp_path / "x.npy", matrix)
    report = ingest(tmp_path / "x.npy", tmp_path / "x.zarr", chunk_rows=10, progress=quiet)
    assert (report.n_rows, report.n_cols, report.dtype) == (23, 5, "float64")
    assert (report.chunks, report.path) == ((10, 5), tmp_path / "x.zarr")
    assert report.bytes_written == sum(f.stat().st_size for f in report.path.rglob("*") if f.is_file())
    assert report.seconds > 0


def test_xarray_and_streamdr_open_the_store_with_names(tmp_path):
    ingest_text(tmp_path, "height,weight\n1,2\n3,4\n")
    shown = xr.open_zarr(tmp_path / "x.zarr")["X"]
    assert shown.dims == ("sample", "feature")
    assert shown.attrs == {"feature_names": ["height", "weight"]}
    np.testing.assert_array_equal(shown.values, [[1, 2], [3, 4]])
    assert open_source(tmp_path / "x.zarr").feature_names == ("height", "weight")


@pytest.mark.parametrize("position", [0, 0.5, -1])
def test_a_flipped_bit_is_detected(tmp_path, matrix, position):
    np.save(tmp_path / "x.npy", matrix)
    ingest(tmp_path / "x.npy", tmp_path / "x.zarr", progress=quiet)
    chunk = tmp_path / "x.zarr/X/c/0/0"
    content = bytearray(chunk.read_bytes())
    content[int(position * len(content)) if position >= 0 else -1] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        stored(tmp_path / "x.zarr")


def test_chunks_of_zeros_are_written(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((9, 2)))
    ingest(tmp_path / "x.npy", tmp_path / "x.zarr", chunk_rows=4, progress=quiet)
    assert sorted(f.parent.name for f in (tmp_path / "x.zarr/X/c").rglob("0") if f.is_file()) == [
        "0",
        "1",
        "2",
    ]


# npy


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f8", ">f8", ">f4", "<f2", "<i2", ">u4", "<i8", "|u1", "|b1"])
def test_npy_of_any_type_and_order_is_read(tmp_path, dtype, order):
    values = np.random.default_rng(1).integers(0, 2, (11, 3)).astype(dtype, order=order)
    np.save(tmp_path / "x.npy", values)
    ingest(tmp_path / "x.npy", tmp_path / "x.zarr", chunk_rows=4, progress=quiet)
    found = stored(tmp_path / "x.zarr")
    assert found.dtype == values.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("shape", [(7,), (7, 1), (1, 7), (5, 2, 3), (4, 2, 3, 2)])
def test_npy_keeps_its_shape(tmp_path, shape):
    values = np.arange(np.prod(shape)).reshape(shape)
    np.save(tmp_path / "x.npy", values)
    report = ingest(tmp_path / "x.npy", tmp_path / "x.zarr", chunk_rows=2, progress=quiet)
    np.testing.assert_array_equal(stored(tmp_path / "x.zarr"), values)
    assert report.n_rows * report.n_cols == values.size


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1.5, -2.25], "float32", np.float32),
        ([1, 200], "uint8", np.uint8),
        ([1, 2**40], "float32", np.float32),
        ([True, False], "int16", np.int16),
        ([1.0, np.nan, np.inf], "float16", np.float16),
    ],
)
def test_values_are_converted_to_a_dtype_that_can_represent_them(tmp_path, values, dtype, expected):
    np.save(tmp_path / "x.npy", np.array(values)[:, None])
    ingest(tmp_path / "x.npy", tmp_path / "x.zarr", dtype=dtype, progress=quiet)
    np.testing.assert_array_equal(stored(tmp_path / "x.zarr"), np.array(values)[:, None].astype(expected))


@pytest.mark.parametrize(
    ("values", "dtype", "message"),
    [
        ([1.0, 1e300], "float32", "1e.300 at row 1, column 0 is out of range for float32"),
        ([1, 2, 300], "uint8", "300 at row 2, column 0 is out of range for uint8"),
        ([1, -1], "uint64", "-1 at row 1, column 0 is out of range for uint64"),
        ([0, 70000], "float16", "70000 at row 1, column 0 is out of range for float16"),
        ([1.5], "int32", "int32 cannot hold; a store of a floating type is needed"),
    ],
)
def test_a_dtype_that_cannot_represent_the_values_is_refused(tmp_path, values, dtype, message):
    np.save(tmp_path / "x.npy", np.array(values)[:, None])
    with pytest.raises(DataError, match=message):
        ingest(tmp_path / "x.npy", tmp_path / "x.zarr", dtype=dtype, progress=quiet)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([{"a": 1}], object), "Python objects"),
        (np.zeros(3, [("a", "f8"), ("b", "i4")]), "matrix of real numbers"),
        (np.zeros((3, 2), complex), "complex128"),
        (np.array(["a", "b"]), "matrix of real numbers"),
        (np.zeros((0, 4)), r"is empty, of shape \(0, 4\)"),
        (np.zeros((4, 0)), r"is empty, of shape \(4, 0\)"),
        (np.float64(3), "a single number"),
        (np.zeros((2, 2), np.longdouble), "give `--dtype float64`"),
    ],
)
def test_npy_that_is_not_a_matrix_is_refused(tmp_path, values, message):
    np.save(tmp_path / "x.npy", values, allow_pickle=True)
    with pytest.raises(DataError, match=message):
        ingest(tmp_path / "x.npy", tmp_path / "x.zarr", progress=quiet)


def test_a_pickle_is_never_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return Path.touch, (tmp_path / "executed",)

    np.save(tmp_path / "x.npy", np.array([Trap()], object), allow_pickle=True)
    with pytest.raises(DataError):
        ingest(tmp_path / "x.npy", tmp_path / "x.zarr", progress=quiet)
    assert not (tmp_path / "executed").exists()


def test_a_truncated_npy_is_refused(tmp_path, matrix):
    np.save(tmp_path / "x.npy", matrix)
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content[:-8])
    with pytest.raises(DataError, match=r"x\.npy: cannot be read as \.npy"):
        ingest(tmp_path / "x.npy", tmp_path / "x.zarr", progress=quiet)


def test_wide_npy_is_chunked_by_columns(tmp_path):
    values = np.arange(3 * 2_000_000, dtype=np.float32).reshape(3, -1)
    np.save(tmp_path / "x.npy", values)
    progress = Recorder()
    report = ingest(tmp_path / "x.npy", tmp_path / "x.zarr", progress=progress)
    assert report.chunks == (3, 2**24 // 12)
    assert (progress.done, progress.total, progress.unit) == (2_000_000, 2_000_000, "columns")
    np.testing.assert_array_equal(stored(tmp_path / "x.zarr"), values)


def test_memory_does_not_grow_with_the_file(tmp_path):
    n_rows = 400_000
    np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype="f4", shape=(n_rows, 256))  # sparse zeros
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from streamdr.data.ingest import ingest; from streamdr.core.progress import Silent\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "before = peak(); ingest(Path(sys.argv[1]), Path(sys.argv[2]), progress=Silent())\n"
        "print(peak() - before)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "x.npy"), str(tmp_path / "x.zarr")]
    taken = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert taken < 300e6 < n_rows * 256 * 4


# CSV


@pytest.mark.parametrize(
    ("content", "expected", "names"),
    [
        ("1,2\n3,4\n", [[1, 2], [3, 4]], None),
        ("1,2\n3,4", [[1, 2], [3, 4]], None),
        ("a,b\n1,2\n3,4\n", [[1, 2], [3, 4]], ["a", "b"]),
        ("a;b\n1;2\n", [[1, 2]], ["a", "b"]),
        ("a\tb\n1\t2\n", [[1, 2]], ["a", "b"]),
        ("a|b\n1|2\n", [[1, 2]], ["a", "b"]),
        ("1.5 2\n3 4\n", [[1.5, 2], [3, 4]], None),  # as written by numpy.savetxt
        ("a b\n1\n2\n", [[1], [2]], ["a b"]),
        ("a b,c\n1,2\n", [[1, 2]], ["a b", "c"]),
        ("a;b\n1;2\n,;3\n".replace(",", ""), [[1, 2], [np.nan, 3]], ["a", "b"]),
        ("x\n1\n2\n", [[1], [2]], ["x"]),
        ("1\n\n2\n", [[1], [2]], None),
        ("a,b\r\n1,2\r\n3,4\r\n", [[1, 2], [3, 4]], ["a", "b"]),
        ("\ufeffa,b\n1,2\n", [[1, 2]], ["a", "b"]),
        ("\ufeff1,2\n", [[1, 2]], None),
        ("\n\na,b\n\n1,2\n   \n3,4\n\n", [[1, 2], [3, 4]], ["a", "b"]),
        ('"a","b, c"\n"1","2"\n3,"4"\n', [[1, 2], [3, 4]], ["a", "b, c"]),
        ('"a\nb",c\n1,2\n', [[1, 2]], ["a\nb", "c"]),
        (" a , b \n 1 , 2 \n", [[1, 2]], ["a", "b"]),
        ("a,b,c\n,NA,nan\n1,N/A,null\n", [[np.nan] * 3, [1, np.nan, np.nan]], ["a", "b", "c"]),
        ("a,b\n,\n1,2\n", [[np.nan, np.nan], [1, 2]], ["a", "b"]),
        ("inf,-Infinity\n1e-3,+.5\n", [[np.inf, -np.inf], [0.001, 0.5]], None),
        (",a\n0,5\n", [[5]], ["a"]),  # the index of pandas has no name
        (",a\n3,5\n4,6\n", [[5], [6]], ["a"]),  # an index with any numbers
        (",,a\n0,x,5\n0,y,6\n", [[5], [6]], ["a"]),  # an index with several levels
        ("a,,b\n0,1,5\n", [[0, 1, 5]], ["a", "", "b"]),
        (",0,1\n0,5,6\n", [[5, 6]], ["0", "1"]),  # pandas numbers columns, too
        (",2001,2002\nx,5,6\n", [[5, 6]], ["2001", "2002"]),
        (",2001,2002\n,5,6\n", [[np.nan, 2001, 2002], [np.nan, 5, 6]], None),
        ("0,1\n5.5,6\n", [[5.5, 6]], ["0", "1"]),
        ("0,1,2,3,4,5,6,7\n5,6,7,8,9,8,7,6\n", [[5, 6, 7, 8, 9, 8, 7, 6]], list("01234567")),
        ("0,1\n1,0\n", [[0, 1], [1, 0]], None),
        ("0,1\n2,3\n", [[0, 1], [2, 3]], None),  # the table of 0, 1, 2, ...
        ("0,1\n", [[0, 1]], None),
        ("0\n5\n", [[0], [5]], None),
        ("id,a\n0,5\n1,6\n", [[5], [6]], ["a"]),
        ("id,a\n7,5\n9,6\n", [[7, 5], [9, 6]], ["id", "a"]),
        ("Index,a\n1,5\n2,6\n", [[5], [6]], ["a"]),
        ("t,a\n0,5\n1,6\n", [[0, 5], [1, 6]], ["t", "a"]),
    ],
)
def test_csv_is_detected(tmp_path, content, expected, names):
    np.testing.assert_array_equal(ingest_text(tmp_path, content), np.array(expected, np.float64))
    assert feature_names(tmp_path / "x.zarr") == names


@pytest.mark.parametrize(
    ("options", "content", "expected", "names"),
    [
        ({"header": True}, "2001,2002\n1,2\n", [[1, 2]], ["2001", "2002"]),
        ({"header": False}, "2001,2002\n1,2\n", [[2001, 2002], [1, 2]], None),
        ({"delimiter": " "}, "a b\n1 2\n", [[1, 2]], ["a", "b"]),
        ({"delimiter": r"\t"}, "1\t2\n", [[1, 2]], None),
        ({"columns": ["c", "a"]}, "a,b,c\n1,x,3\n4,y,6\n", [[3, 1], [6, 4]], ["c", "a"]),
        ({"columns": ["b", "a"]}, "a,b\n1,2\n", [[2, 1]], ["b", "a"]),
        ({"columns": ["c"]}, 'a,b,c\n1,"x, y",3\n', [[3]], ["c"]),
        ({"columns": ["2", "0"]}, "1,2,3\n", [[3, 1]], None),
    ],
)
def test_csv_options_override_detection(tmp_path, options, content, expected, names):
    np.testing.assert_array_equal(ingest_text(tmp_path, content, **options), expected)
    assert feature_names(tmp_path / "x.zarr") == names


@pytest.mark.parametrize("dtype", ["float64", "int8"])
def test_booleans_are_numbers_in_csv_as_in_parquet(tmp_path, dtype):
    frame = pd.DataFrame({"a": [True, False], "b": [3, 4], "c": [False, True]})
    text, binary = tmp_path / "x.csv", tmp_path / "x.parquet"
    frame.to_csv(text, index=False)
    frame.to_parquet(binary)
    for source in (text, binary):
        ingest(source, tmp_path / "x.zarr", labels="c", dtype=dtype, overwrite=True, progress=quiet)
        np.testing.assert_array_equal(stored(tmp_path / "x.zarr"), [[1, 3], [0, 4]])
    assert ingest_text(tmp_path, "1,True\n2,FALSE\n", "y.csv", overwrite=True).tolist() == [[1, 1], [2, 0]]


@pytest.mark.parametrize(
    ("name", "delimiter"), [("x.tsv", "\t"), ("x.csv.gz", ","), ("x.tsv.gz", "\t"), ("X.CSV", ",")]
)
def test_csv_with_other_suffixes(tmp_path, matrix, name, delimiter):
    content = "\n".join(delimiter.join(map(repr, row)) for row in matrix.tolist()).encode()
    content = gzip.compress(content) if name.endswith(".gz") else content
    np.testing.assert_array_equal(ingest_text(tmp_path, content, name), matrix)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
def test_csv_is_read_as_another_type(tmp_path, dtype):
    found = ingest_text(tmp_path, "a,b\n1,2\n\n3, 4 \n", dtype=dtype)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, [[1, 2], [3, 4]])


def test_long_integers_stay_exact(tmp_path):
    assert ingest_text(tmp_path, f"{2**63 - 1}\n", dtype="int64")[0, 0] == 2**63 - 1


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("a,b\n1,2\n3\n", {}, r"x\.csv: line 3 has 1 fields where the first line has 2"),
        ("a,b\n1,2\n", {"exclude": ["*"]}, r"x\.csv: excluding '\*' leaves no column; it has 'a', 'b'"),
        ("1,2\n\n3,4,5\n", {}, r"x\.csv: line 3 has 3 fields where the first line has 2"),
        ("a,b,c\n1,2,3\n1,2\n", {"columns": ["a"]}, "line 3 has 2 fields where the first line has 3"),
        ("a,b\n1,2\n3,four\n", {}, r"x\.csv: line 3, column 1 \('b'\): 'four' cannot be read as float64"),
        ("1,2\n\n\n3,1_000\n", {}, "line 4, column 1: '1_000' cannot be read as float64"),
        ('a,b\n1,"1,000"\n', {}, r"line 2, column 1 \('b'\): '1,000' cannot be read"),
        ('a\n"1\n2"\n', {}, "cannot be read as float64"),
        ("a\n1\n" + "z" * 99 + "\n", {}, "line 3, column 0 .* 'z{40}...' cannot"),
        ("a\n1.5\n", {"dtype": "int32"}, r"line 2, column 0 \('a'\): '1.5' cannot be read as int32"),
        ("a,b\n1,\n", {"dtype": "int32"}, r"line 2, column 1 \('b'\): '' cannot be read as int32"),
        ("a\n256\n", {"dtype": "uint8"}, "'256' cannot be read as uint8"),
        ("a\n1\n1e39\n", {"dtype": "float32"}, "1e.39 at row 1, column 0 is out of range for float32"),
        ("a,b\n1,2\n", {"columns": ["c"]}, "has no column 'c'; it has 'a', 'b'"),
        ("a,a\n1,2\n", {"columns": ["a"]}, "has 2 columns named 'a'"),
        ("a,b\n", {}, "has no rows"),
        ("\n\n", {}, "has no rows"),
        ("", {}, "is empty"),
        (b"Gr\xf6\xdfe\n1\n", {}, "is not UTF-8 text"),
        ('a\n"' + "1" * 200_000, {}, "cannot be split into fields"),
    ],
)
def test_invalid_csv_is_refused(tmp_path, content, options, message):
    with pytest.raises(DataError, match=message):
        ingest_text(tmp_path, content, **options)
    assert not (tmp_path / "x.zarr").exists()


@pytest.mark.parametrize("damage", [slice(None, -20), slice(5, None)])
def test_a_damaged_gzip_is_refused(tmp_path, matrix, damage):
    content = gzip.compress("\n".join(map(str, matrix.ravel().tolist())).encode())
    with pytest.raises(DataError, match=r"x\.csv\.gz: cannot be decompressed"):
        ingest_text(tmp_path, content[damage], "x.csv.gz")


@pytest.mark.parametrize("delimiter", ["", "ab", '"', "\n"])
def test_an_invalid_delimiter_is_refused(tmp_path, delimiter):
    with pytest.raises(ConfigError, match="must be a single character"):
        ingest_text(tmp_path, "1\n", delimiter=delimiter)


def many_lines(bad: str | None = None) -> str:
    """Return about 6 MB of numbers, more than one batch, optionally with an invalid last line."""
    lines = [",".join([f"{i}.25"] * 100) for i in range(8000)]
    lines[5000] = "," * 99
    return "\n".join(["", *lines, *([bad] if bad else [])])


def test_csv_longer_than_a_batch_is_read(tmp_path):
    found = ingest_text(tmp_path, many_lines(), chunk_rows=3000)
    expected = np.repeat(np.arange(8000)[:, None] + 0.25, 100, axis=1)
    expected[5000] = np.nan
    np.testing.assert_array_equal(found, expected)
    assert zarr.open_array(tmp_path / "x.zarr/X").chunks == (3000, 100)


def test_lines_are_counted_across_batches(tmp_path):
    with pytest.raises(DataError, match="line 8002 has 2 fields"):
        ingest_text(tmp_path, many_lines("1,2"))


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    values=hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6)),
    delimiter=st.sampled_from(",;\t|"),
    quote=st.sampled_from(["", '"']),
    end=st.sampled_from(["\n", "\r\n"]),
    data=st.data(),
)
def test_every_float_is_read_exactly(tmp_path, values, delimiter, quote, end, data):
    chunk_rows = data.draw(st.integers(1, len(values)))
    lines = [delimiter.join(f"{quote}{x!r}{quote}" for x in row) for row in values.tolist()]
    source = text_file(tmp_path / "x.csv", end.join(lines) + end)
    ingest(source, tmp_path / "x.zarr", chunk_rows=chunk_rows, overwrite=True, progress=quiet)
    np.testing.assert_array_equal(stored(tmp_path / "x.zarr"), values)


# Parquet


def parquet(path: Path, **columns) -> Path:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=4)
    return path


def ingest_parquet(tmp_path: Path, source: Path, **options) -> np.ndarray:
    ingest(source, tmp_path / "x.zarr", progress=quiet, **options)
    return stored(tmp_path / "x.zarr")


def test_parquet_is_read(tmp_path, matrix):
    source = parquet(tmp_path / "x.parquet", **{f"f{i}": matrix[:, i] for i in range(5)})
    np.testing.assert_array_equal(ingest_parquet(tmp_path, source, chunk_rows=10), matrix)
    assert feature_names(tmp_path / "x.zarr") == ["f0", "f1", "f2", "f3", "f4"]


def test_parts_are_read_in_the_order_of_their_numbers(tmp_path):
    for i in (10, 2, 1, 0):
        parquet(tmp_path / f"parts/part.{i}.parquet", a=[float(i)] * 3)
    (tmp_path / "parts/_SUCCESS").touch()
    found = ingest_parquet(tmp_path, tmp_path / "parts", chunk_rows=5)
    np.testing.assert_array_equal(found[:, 0], np.repeat([0.0, 1.0, 2.0, 10.0], 3))


@pytest.mark.parametrize(
    ("columns", "dtype"),
    [
        ({"a": pa.array([1, 2], pa.int8()), "b": pa.array([3, 4], pa.int32())}, "int32"),
        ({"a": pa.array([1, 2], pa.int8()), "b": pa.array([0.5, 4], pa.float32())}, "float32"),
        ({"a": pa.array([True, False]), "b": pa.array([3, 4], pa.uint16())}, "uint16"),
        ({"a": pa.array([True, False])}, "bool"),
        ({"a": pa.array([1, None], pa.int32())}, "float64"),
        ({"a": pa.array([True, None])}, "float64"),
        ({"a": pa.array([0.5, None], pa.float32()), "b": pa.array([True, None])}, "float32"),
        ({"a": pa.array([Decimal("1.25"), None], pa.decimal128(6, 2))}, "float64"),
    ],
)
@pytest.mark.parametrize("statistics", [True, False])
def test_parquet_of_mixed_types_and_nulls_is_read(tmp_path, columns, dtype, statistics):
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", write_statistics=statistics)
    found = ingest_parquet(tmp_path, tmp_path / "x.parquet")
    expected = [
        [np.nan if x is None else float(x) for x in column.to_pylist()] for column in columns.values()
    ]
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(float), np.transpose(expected))


def test_parquet_columns_are_read_in_the_requested_order(tmp_path):
    source = parquet(tmp_path / "x.parquet", id=["p", "q"], a=[1.0, 2.0], b=[3.0, 4.0])
    np.testing.assert_array_equal(ingest_parquet(tmp_path, source, columns=["b", "a"]), [[3, 1], [4, 2]])
    assert feature_names(tmp_path / "x.zarr") == ["b", "a"]


INDICES = {
    "numbers": pd.Index([7, 8]),
    "numbers with a name": pd.Index([7, 8], name="site"),
    "text": pd.Index(["p", "q"]),
    "dates": pd.date_range("2026-01-01", periods=2),
    "several levels": pd.MultiIndex.from_tuples([(0, "p"), (0, "q")]),
    "several levels with names": pd.MultiIndex.from_tuples([(0, "p"), (0, "q")], names=["day", "hour"]),
}


@pytest.mark.parametrize(
    ("index", "suffix"),
    # A CSV file does not mark named columns as an index.
    [
        (index, suffix)
        for index in INDICES
        for suffix in ("csv", "parquet")
        if suffix != "csv" or "name" not in index
    ],
)
def test_the_index_of_a_data_frame_is_not_a_feature(tmp_path, index, suffix):
    frame = pd.DataFrame({"a": [1.0, 2.0]}, index=INDICES[index])
    source = tmp_path / f"x.{suffix}"
    frame.to_csv(source) if suffix == "csv" else frame.to_parquet(source)
    report = ingest(source, tmp_path / "x.zarr", progress=quiet)
    np.testing.assert_array_equal(stored(tmp_path / "x.zarr"), [[1], [2]])
    assert len(report.left_out) == frame.index.nlevels


def test_one_level_of_an_index_becomes_labels_and_the_others_are_left_out(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0]}, index=INDICES["several levels with names"])
    frame.to_parquet(tmp_path / "x.parquet")
    report = ingest(tmp_path / "x.parquet", tmp_path / "x.zarr", labels="hour", progress=quiet)
    assert (report.n_cols, report.left_out) == (1, ("day",))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (
            {"id": ["p"], "a": [1.0]},
            {},
            "column 'id' holds string, not numbers; leave it out with `--exclude`",
        ),
        ({"a": [[1.0, 2.0]]}, {}, "column 'a' holds list<.*>, not numbers"),
        ({"a": [1.0]}, {"columns": ["b"]}, "has no column 'b'; it has 'a'"),
        ({"a": pa.array([], pa.float64())}, {}, "has no rows"),
        ({}, {}, "has no columns"),
        ({"a": pa.array([1, None])}, {"dtype": "int32"}, "missing values .* which int32 cannot hold"),
    ],
)
def test_invalid_parquet_is_refused(tmp_path, columns, options, message):
    with pytest.raises(DataError, match=message):
        ingest_parquet(tmp_path, parquet(tmp_path / "x.parquet", **columns), **options)
    assert not (tmp_path / "x.zarr").exists()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": ["text"]}, r"b\.parquet: column 'a' is double in a\.parquet, but here there is string"),
        ({"b": [1.0]}, r"b\.parquet: column 'a' is double in a\.parquet, but here there is no such column"),
    ],
)
def test_parts_with_different_columns_are_refused(tmp_path, columns, message):
    parquet(tmp_path / "parts/a.parquet", a=[1.0])
    parquet(tmp_path / "parts/b.parquet", **columns)
    with pytest.raises(DataError, match=message):
        ingest_parquet(tmp_path, tmp_path / "parts")


def test_directories_without_part_files_are_refused(tmp_path):
    (tmp_path / "parts").mkdir()
    with pytest.raises(DataError, match="directory without Parquet files"):
        ingest_parquet(tmp_path, tmp_path / "parts")
    (tmp_path / "parts/year=2001").mkdir()
    parquet(tmp_path / "parts/year=2001/a.parquet", a=[1.0])
    with pytest.raises(DataError, match="partitioned into directories such as 'year=2001'"):
        ingest_parquet(tmp_path, tmp_path / "parts")


def test_a_truncated_part_is_named(tmp_path):
    parquet(tmp_path / "parts/a.parquet", a=[1.0])
    text_file(tmp_path / "parts/b.parquet", (tmp_path / "parts/a.parquet").read_bytes()[:-9])
    with pytest.raises(DataError, match=r"b\.parquet: cannot be read as Parquet"):
        ingest_parquet(tmp_path, tmp_path / "parts")


# HDF5


def hdf5(path: Path, chunks=None, **datasets) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in datasets.items():
            file.create_dataset(name.replace("__", "/"), data=values, chunks=chunks)
    return path


@pytest.mark.parametrize("chunks", [None, True, (7, 5), (1, 5), (23, 1), (4, 2)])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<i4"])
def test_hdf5_of_any_chunks_is_read(tmp_path, matrix, chunks, dtype):
    values = (100 * matrix).astype(dtype)
    source = hdf5(tmp_path / "x.h5", chunks, X=values)
    ingest(source, tmp_path / "x.zarr", chunk_rows=10, progress=quiet)
    np.testing.assert_array_equal(stored(tmp_path / "x.zarr"), values)


def test_chunks_are_multiples_of_those_of_the_hdf5_file(tmp_path):
    values = np.arange(3_000_000, dtype=np.float64).reshape(-1, 2)
    report = ingest(hdf5(tmp_path / "x.h5", (1000, 1), X=values), tmp_path / "x.zarr", progress=quiet)
    assert report.chunks == (2**24 // 16 // 1000 * 1000, 2)
    np.testing.assert_array_equal(stored(tmp_path / "x.zarr"), values)


@pytest.mark.parametrize("chunks", [None, (1, 2, 3), (4, 2, 1)])
def test_hdf5_of_many_dimensions_keeps_its_shape(tmp_path, chunks):
    values = np.arange(24.0).reshape(4, 2, 3)
    report = ingest(hdf5(tmp_path / "x.hdf5", chunks, X=values), tmp_path / "x.zarr", progress=quiet)
    assert (report.n_rows, report.n_cols) == (4, 6)
    np.testing.assert_array_equal(stored(tmp_path / "x.zarr"), values)
    np.testing.assert_array_equal(xr.open_zarr(tmp_path / "x.zarr")["X"].dims, ["sample", "axis_1", "axis_2"])


def test_an_hdf5_dataset_is_read_by_name(tmp_path, matrix):
    source = hdf5(tmp_path / "x.h5", a=matrix, group__b=2 * matrix)
    ingest(source, tmp_path / "x.zarr", dataset="group/b", progress=quiet)
    np.testing.assert_array_equal(stored(tmp_path / "x.zarr"), 2 * matrix)


@pytest.mark.parametrize(
    ("datasets", "name", "message"),
    [
        ({"a": np.ones((2, 3)), "g__b": np.ones(4)}, None, r"has 'a' \(2 x 3 float64\), 'g/b' \(4 float64\)"),
        ({}, None, "name the dataset .* none"),
        ({"g__b": np.ones((4, 2))}, "c", r"has no dataset 'c'; it has 'g/b' \(4 x 2 float64\)"),
        ({"g__b": np.ones((4, 2))}, "g", "has no dataset 'g'"),
        ({"a": np.array([b"x", b"y"])}, "a", "matrix of real numbers"),
        ({"a": np.ones((0, 2))}, "a", "is empty, of shape"),
        ({"a": 3.0}, "a", "a single number"),
    ],
)
def test_invalid_hdf5_is_refused(tmp_path, datasets, name, message):
    with pytest.raises(DataError, match=message):
        ingest(hdf5(tmp_path / "x.h5", **datasets), tmp_path / "x.zarr", dataset=name, progress=quiet)


def test_a_damaged_hdf5_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"x\.h5: cannot be read as HDF5"):
        ingest(text_file(tmp_path / "x.h5", "not this"), tmp_path / "x.zarr", progress=quiet)


# Sources and destinations


@pytest.mark.parametrize(
    ("extra", "package", "name"), [("parquet", "pyarrow", "x.parquet"), ("hdf5", "h5py", "x.h5")]
)
def test_a_missing_extra_is_named(tmp_path, monkeypatch, extra, package, name):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"streamdr.data.ingest.{extra}", raising=False)
    with pytest.raises(DataError) as caught:
        ingest(text_file(tmp_path / name, "x"), tmp_path / "x.zarr", progress=quiet)
    assert f"pip install 'streamdr[{extra}]'" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "x.xlsx",
            r"x\.xlsx: this format cannot be ingested; supported are: \.npy, \.csv, .*\.parquet, .*\.h5",
        ),
        ("x.npz", r"numpy\.save"),
        ("x.zarr", "is a zarr store already"),
        ("gone.csv", "no such file"),
    ],
)
def test_other_sources_are_refused(tmp_path, name, message):
    if name != "gone.csv":
        text_file(tmp_path / name, "x")
    with pytest.raises(DataError, match=message):
        ingest(tmp_path / name, tmp_path / "out.zarr", progress=quiet)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("x.npy", {"columns": ["a"]}),
        ("x.npy", {"header": True}),
        ("x.csv", {"dataset": "a"}),
        ("x.parquet", {"delimiter": ","}),
        ("x.h5", {"columns": ["a"]}),
    ],
)
def test_options_of_other_formats_are_refused(tmp_path, name, option):
    with pytest.raises(ConfigError, match=f"`{next(iter(option))}` has no meaning"):
        ingest(text_file(tmp_path / name, "x"), tmp_path / "x.zarr", progress=quiet, **option)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"dtype": "complex64"}, "dtype is 'complex64', but must be one of float16"),
        ({"columns": []}, "columns is empty"),
        ({"chunk_rows": 0}, "chunk_rows is 0"),
        ({"chunk_rows": 10**12}, "chunk_rows is 1,000,000,000,000"),
        ({"chunk_rows": 2**22}, "GB of memory at 20 columns; choose at most 3,355,443"),
    ],
)
def test_invalid_options_are_refused(tmp_path, option, message):
    with pytest.raises(ConfigError, match=message):
        ingest_text(tmp_path, ",".join("1" * 20), **option)


def listing(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_an_existing_store_is_kept_without_overwrite(tmp_path):
    ingest_text(tmp_path, "1\n")
    source = text_file(tmp_path / "x.csv", "2\n3\n")
    with pytest.raises(StoreError, match=r"x\.zarr: exists"):
        ingest(source, tmp_path / "x.zarr", progress=quiet)
    np.testing.assert_array_equal(stored(tmp_path / "x.zarr"), [[1]])
    ingest(source, tmp_path / "x.zarr", overwrite=True, progress=quiet)
    np.testing.assert_array_equal(stored(tmp_path / "x.zarr"), [[2], [3]])
    assert listing(tmp_path) == ["x.csv", "x.zarr"]


def test_a_store_that_streamdr_did_not_create_is_never_overwritten(tmp_path):
    zarr.create_array(tmp_path / "x.zarr", shape=(2,), dtype="f8")
    with pytest.raises(StoreError, match="never overwritten"):
        ingest_text(tmp_path, "1\n", overwrite=True)


def test_a_destination_inside_the_source_is_refused(tmp_path):
    parquet(tmp_path / "parts/a.parquet", a=[1.0])
    with pytest.raises(StoreError, match="inside the input"):
        ingest(tmp_path / "parts", tmp_path / "parts/x.zarr", progress=quiet)


def test_a_failure_leaves_nothing_behind(tmp_path):
    with pytest.raises(DataError):
        ingest_text(tmp_path, "1\n2\n3\nfour\n", chunk_rows=1, header=False)
    assert listing(tmp_path) == ["x.csv"]


@pytest.fixture(params=["x.npy", "x.csv", "x.csv.gz", "x.parquet", "x.h5"])
def any_source(request, tmp_path, matrix) -> tuple[Path, int, str]:
    """A file of each format, with its expected progress."""
    path = tmp_path / request.param
    content = "\n".join(",".join(map(repr, row)) for row in matrix.tolist())
    match request.param:
        case "x.npy":
            np.save(path, matrix)
        case "x.csv":
            text_file(path, content)
            return path, path.stat().st_size, "bytes"
        case "x.csv.gz":
            text_file(path, gzip.compress(content.encode()))
            return path, path.stat().st_size, "bytes"
        case "x.parquet":
            parquet(path, **{f"f{i}": matrix[:, i] for i in range(5)})
        case "x.h5":
            hdf5(path, X=matrix)
    return path, 23, "rows"


def test_progress_is_complete(tmp_path, any_source):
    source, total, unit = any_source
    progress = Recorder()
    ingest(source, tmp_path / "out.zarr", progress=progress)
    assert (progress.done, progress.total, progress.unit) == (total, total, unit)
    assert progress.finished == 1


def test_an_interrupt_leaves_nothing_behind(tmp_path, any_source):
    progress = Recorder(max_calls=0)
    with pytest.raises(KeyboardInterrupt):
        ingest(any_source[0], tmp_path / "out.zarr", chunk_rows=1, progress=progress)
    assert progress.finished == 1
    assert listing(tmp_path) == [any_source[0].name]


def test_a_full_disk_is_reported(tmp_path, any_source):
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from streamdr.errors import StoreError\n"
        "from streamdr.data.ingest import ingest; from streamdr.core.progress import Silent\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))\n"
        "try: ingest(Path(sys.argv[1]), Path(sys.argv[2]), progress=Silent())\n"
        "except StoreError as error: sys.exit(str(error))"
    )
    command = [sys.executable, "-c", script, str(any_source[0]), str(tmp_path / "out.zarr")]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 1
    assert "out.zarr: cannot be written: File too large; free some space" in run.stderr
    assert listing(tmp_path) == [any_source[0].name]
