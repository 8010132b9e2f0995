"""Parquet files as input: row groups are chunks, and columns that are no numbers are named."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fits import bits, fit, stored

from streamdr.core.blocks import Span
from streamdr.data.concatenated import ConcatenatedSource
from streamdr.data.ordering import ordered
from streamdr.data.parquet import ParquetSource
from streamdr.errors import DataError
from streamdr.methods.pca import PCA

VALUES = np.random.default_rng(0).standard_normal((57, 4))
NAMES = ("a", "b", "c.d", "e")


def table(values=VALUES, names=NAMES):
    return pa.table({name: values[:, i] for i, name in enumerate(names)})


def written(path, data=None, **options):
    pq.write_table(table() if data is None else data, path, **{"row_group_size": 10, **options})
    return path


def everything(source):
    return source.read(Span(0, source.spec.n_rows), Span(0, source.spec.n_cols))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    "options", [{}, {"compression": "zstd"}, {"use_dictionary": True, "row_group_size": 57}]
)
def test_every_region_is_read(dtype, options, tmp_path):
    values = VALUES.astype(dtype)
    source = ParquetSource(written(tmp_path / "x.parquet", table(values), **options))
    assert (source.spec.n_rows, source.spec.n_cols, source.spec.dtype) == (57, 4, np.dtype(dtype))
    assert source.chunks == (options.get("row_group_size", 10), 1)
    assert source.feature_names == NAMES
    source.validate()
    rng = np.random.default_rng(1)
    for _ in range(40):
        a, b = sorted(rng.choice(58, 2, replace=False))
        c, d = sorted(rng.choice(5, 2, replace=False))
        for read in (source.read, source.read_scratch):
            assert np.array_equal(read(Span(a, b), Span(c, d)), values[a:b, c:d])


def test_row_groups_are_read_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("streamdr.data.parquet._BATCH_BYTES", 4 * 8 * 7)
    source = ParquetSource(written(tmp_path / "x.parquet", row_group_size=25))
    assert np.array_equal(everything(source), VALUES)
    assert np.array_equal(source.read(Span(20, 40), Span(0, 4)), VALUES[20:40])


def test_row_groups_may_differ_in_length_or_be_empty(tmp_path):
    with pq.ParquetWriter(tmp_path / "x.parquet", table().schema) as writer:
        for a, b in ((0, 0), (0, 5), (5, 30), (30, 30), (30, 31), (31, 57)):
            writer.write_table(table(VALUES[a:b]))
    source = ParquetSource(tmp_path / "x.parquet")
    assert source.chunks[0] == 5
    assert np.array_equal(everything(source), VALUES)
    assert np.array_equal(source.read(Span(29, 33), Span(0, 4)), VALUES[29:33])


def test_numbers_of_every_type_become_floats(tmp_path):
    data = pa.table(
        {
            "int": pa.array([1, None, 3], pa.int16()),
            "flag": pa.array([True, False, None]),
            "money": pa.array([Decimal("1.5"), None, Decimal("-2.25")], pa.decimal128(10, 2)),
            "single": pa.array([0.5, None, np.nan], pa.float32()),
            "large": pa.array([2**53, 1, None], pa.uint64()),
        }
    )
    source = ParquetSource(written(tmp_path / "x.parquet", data))
    nan = np.nan
    expected = [[1, 1, 1.5, 0.5, 2**53], [nan, 0, nan, nan, 1], [3, nan, -2.25, nan, nan]]
    assert source.spec.dtype == np.float64
    assert np.array_equal(everything(source), np.array(expected), equal_nan=True)


@pytest.mark.parametrize("solver", ["covariance", "gram", "krylov"])
def test_a_fit_has_the_bits_of_a_store_with_these_chunks(solver, tmp_path, small_blocks):
    values = np.random.default_rng(2).standard_normal((300, 12)).astype("f4")
    names = [f"c{i}" for i in range(12)]
    source = ParquetSource(written(tmp_path / "x.parquet", table(values, names)))
    one = stored(tmp_path / "x.zarr", values, (10, 1))
    method = PCA(3, solver=solver)
    assert bits(fit(method, source).model) == bits(fit(method, one).model)


def test_it_is_read_by_many_threads_and_by_other_processes(tmp_path):
    source = ParquetSource(written(tmp_path / "x.parquet"))
    data = pickle.dumps(source)
    assert len(data) < 2000
    again = pickle.loads(data)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: again.read(Span(n % 57, n % 57 + 1), Span(0, 4)), range(200)))
    assert all(np.array_equal(row[0], VALUES[n % 57]) for n, row in enumerate(found))


def test_times_in_the_index_are_the_coordinate_of_the_rows(tmp_path):
    files = []
    for year in (2001, 2000):
        times = pd.date_range(f"{year}-03-01", periods=3, freq="h", name="when")
        pd.DataFrame({"x": [1.0, 2, 3], "y": 4.0}, index=times).to_parquet(
            tmp_path / f"{2010 - year}.parquet"
        )
        files.append(ParquetSource(tmp_path / f"{2010 - year}.parquet"))
    source = ConcatenatedSource(ordered(files), "*.parquet")
    assert source.feature_names == ("x", "y")
    assert source.sample_dims == ("when",)
    (when,) = source.sample_coords
    times = everything(when.values)[:, 0].astype("M8[ns]" if "nano" in when.attributes["units"] else "M8[us]")
    assert times.astype("M8[h]").astype(str).tolist() == [
        f"{year}-03-01T0{hour}" for year in (2000, 2001) for hour in range(3)
    ]


def test_an_index_of_another_kind_is_left_out(tmp_path):
    pd.DataFrame({"x": [1.0, 2, 3]}, index=list("abc")).to_parquet(tmp_path / "x.parquet")
    source = ParquetSource(tmp_path / "x.parquet")
    assert (source.feature_names, source.sample_coords) == (("x",), ())


def test_files_of_polars_are_read(tmp_path):
    pl.DataFrame({"x": [1, 2, None], "y": [0.5, 1.5, 2.5]}).write_parquet(tmp_path / "x.parquet")
    expected = [[1, 0.5], [2, 1.5], [np.nan, 2.5]]
    assert np.array_equal(everything(ParquetSource(tmp_path / "x.parquet")), expected, equal_nan=True)


def test_files_one_after_another_are_one_source(tmp_path):
    parts = [
        ParquetSource(written(tmp_path / f"{n}.parquet", table(VALUES[a:b])))
        for n, (a, b) in enumerate(((0, 23), (23, 24), (24, 57)))
    ]
    source = ConcatenatedSource(parts, "*.parquet")
    assert np.array_equal(everything(source), VALUES)
    assert source.feature_names == NAMES
    few = ConcatenatedSource(parts[:2], "*.parquet").snapshot()
    assert [source.snapshot().digest(rows) for rows in (5, 23, 24)] == [
        few.digest(rows) for rows in (5, 23, 24)
    ]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a", "b", "x", "e"), r"2.parquet: column 2 is 'x', and 'c.d' in .*1.parquet; write all files with"),
        (("a", "b", "c.d"), r"2.parquet: column 3 is no column, and 'e' in .*1.parquet"),
        (("b", "a", "c.d", "e"), r"2.parquet: column 0 is 'b', and 'a' in"),
    ],
)
def test_columns_that_differ_from_the_first_file_are_named(names, message, tmp_path):
    parts = [
        ParquetSource(written(tmp_path / "1.parquet")),
        ParquetSource(written(tmp_path / "2.parquet", table(names=names))),
    ]
    with pytest.raises(DataError, match=message):
        ConcatenatedSource(parts, "*.parquet")


def test_columns_that_are_no_numbers_are_named(tmp_path):
    data = pa.table({"x": [1.0], "name": ["a"], "list": [[1, 2]], "day": [pd.Timestamp("2000-01-01")]})
    message = r"x.parquet: the columns 'name', 'list', 'day' hold something else than numbers; choose columns"
    with pytest.raises(DataError, match=message):
        ParquetSource(written(tmp_path / "x.parquet", data))
    with pytest.raises(DataError, match=r"the column 'name' holds something .*input\.columns in a"):
        ParquetSource(written(tmp_path / "x.parquet", data.select(["x", "name"])))
    assert ParquetSource(written(tmp_path / "x.parquet", data), ["x"]).feature_names == ("x",)


def test_files_without_rows_or_columns_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"x.parquet: has no rows; there is nothing to fit"):
        ParquetSource(written(tmp_path / "x.parquet", table(VALUES[:0])))
    with pytest.raises(DataError, match=r"x.parquet: has no columns; check that this is the right file"):
        ParquetSource(written(tmp_path / "x.parquet", pa.table({})))
    twice = pa.Table.from_arrays([pa.array([1.0])] * 2, names=["a", "a"])
    with pytest.raises(DataError, match=r"x.parquet: 2 of its columns are called 'a'; give each a different"):
        ParquetSource(written(tmp_path / "x.parquet", twice))


def test_a_time_that_is_missing_is_refused(tmp_path):
    times = pd.DatetimeIndex(["2000-01-01", None, "2000-01-03"], name="time")
    pd.DataFrame({"x": [1.0, 2, 3]}, index=times).to_parquet(tmp_path / "x.parquet")
    part = ParquetSource(tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x.parquet, column 'time': a time is missing; give each row one"):
        ordered([part])


def test_files_that_are_no_parquet_are_refused(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and nothing else, but for the end: PAR1")
    with pytest.raises(DataError, match=r"x.parquet: cannot be read as Parquet .*; was it copied whole\?"):
        ParquetSource(tmp_path / "x.parquet")
    os.mkfifo(tmp_path / "pipe.parquet")
    with pytest.raises(DataError, match=r"pipe.parquet: .*named pipe"):
        ParquetSource(tmp_path / "pipe.parquet")
    with pytest.raises(DataError, match=r"none.parquet: .*No such file"):
        ParquetSource(tmp_path / "none.parquet")


def test_a_damaged_page_is_an_error(tmp_path):
    path = written(tmp_path / "x.parquet", compression="zstd", use_dictionary=False)
    source = ParquetSource(path)
    start = pq.read_metadata(path).row_group(2).column(1).data_page_offset
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(start)
        file.write(b"\xff" * 40)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert np.array_equal(source.read(Span(0, 20), Span(0, 4)), VALUES[:20])
    with pytest.raises(DataError, match=r"x.parquet: cannot be read as Parquet"):
        source.read(Span(20, 30), Span(0, 4))


def test_a_file_that_was_replaced_is_not_read_as_before(tmp_path):
    source = ParquetSource(written(tmp_path / "x.parquet"))
    before = source.fingerprint()
    written(tmp_path / "x.parquet", table(VALUES[::-1][:50]))
    assert source.fingerprint() != before
    with pytest.raises(DataError, match=r"x.parquet: has changed since it was opened; run again"):
        everything(source)
