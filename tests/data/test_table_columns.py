"""Columns of tables by name and pattern; folders of Parquet files."""

from __future__ import annotations

from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from streamdr import PCA
from streamdr.core.blocks import Span
from streamdr.data import open_source
from streamdr.data.source import Source
from streamdr.data.table_columns import OptionalColumn, chosen_columns
from streamdr.errors import DataError, InputError, ParameterError

NAMES = ["g_a", "g_b", "other", "g_text", "kind", "a[1]"]


def table(n: int = 20, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 6))
    frame = pd.DataFrame(values, columns=NAMES)
    frame["g_text"] = [f"t{i}" for i in range(n)]
    frame["kind"] = rng.integers(0, 2, n)
    return frame


def everything(source: Source) -> np.ndarray:
    return source.read(Span(0, source.spec.n_rows), Span(0, source.spec.n_cols))


@pytest.fixture
def file(tmp_path) -> Path:
    table().to_parquet(tmp_path / "x.parquet", row_group_size=7)
    return tmp_path / "x.parquet"


HELD = {
    "parquet": lambda frame, path: path,
    "text": lambda frame, path: str(path),
    "pandas": lambda frame, path: frame,
    "polars": lambda frame, path: pl.from_pandas(frame),
    "dask": lambda frame, path: dd.from_pandas(frame, npartitions=3),
}


@pytest.mark.parametrize("hold", HELD.values(), ids=HELD)
@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("other", ["other"]),
        (["other", "g_a"], ["g_a", "other"]),
        ("g_*", ["g_a", "g_b"]),
        (["*", "kind"], ["g_a", "g_b", "other", "kind", "a[1]"]),
        (["a[1]", "g_?"], ["g_a", "g_b", "a[1]"]),
    ],
)
def test_columns_are_chosen_in_their_order(hold, columns, expected, file):
    source = open_source(hold(table(), file), columns=columns)
    assert source.feature_names == tuple(expected)
    np.testing.assert_array_equal(everything(source), table()[expected])


@pytest.mark.parametrize("hold", HELD.values(), ids=HELD)
def test_the_column_of_labels_comes_along(hold, file):
    source = open_source(hold(table(), file), columns="g_*", label_column="kind")
    assert source.feature_names == ("g_a", "g_b")
    labels = source.block(Span(0, 20)).labels
    np.testing.assert_array_equal(labels, table()["kind"])


@pytest.mark.parametrize("hold", HELD.values(), ids=HELD)
def test_columns_that_cannot_be_chosen_are_named(hold, file):
    given = hold(table(), file)
    with pytest.raises(InputError, match=r"columns: .*has no column 'g_aa', but 'g_a'"):
        open_source(given, columns=["g_aa"])
    with pytest.raises(InputError, match=r"columns: .*no column of numbers matches 'g_t\*'; it has 'g_a'"):
        open_source(given, columns=["g_t*"])
    with pytest.raises(DataError, match="'g_text' holds something else than numbers; choose others"):
        open_source(given, columns=["g_a", "g_text"])
    with pytest.raises(DataError, match="column 'g_text'"):
        open_source(given)


def test_columns_are_for_tables(tmp_path):
    zarr.create_array(tmp_path / "x.zarr", data=np.eye(4))
    for given in (np.eye(4), tmp_path / "x.zarr", str(tmp_path / "x.zarr")):
        with pytest.raises(InputError, match=r"columns: .* is neither Parquet nor a data frame"):
            open_source(given, columns="a")
    with pytest.raises(ParameterError, match="is no list of names and patterns"):
        open_source(table(), columns=[])


def test_a_column_that_may_be_missing_is_left_out():
    assert chosen_columns(["a", "b"], [True, True], ["a", OptionalColumn("y")], "x") == [0]
    assert chosen_columns(["a", "b"], [True, True], ["a", OptionalColumn("b")], "x") == [0, 1]


def test_missing_values_are_nan(tmp_path):
    data = pa.table({"i": pa.array([1, None, 3]), "b": pa.array([True, None, False]), "f": [1.0, 2.0, None]})
    pq.write_table(data, tmp_path / "x.parquet")
    found = everything(open_source(tmp_path / "x.parquet"))
    np.testing.assert_array_equal(found, [[1, 1, 1], [np.nan, np.nan, 2], [3, 0, np.nan]])


@pytest.fixture
def folder(tmp_path) -> Path:
    place = tmp_path / "rows"
    for name, seed in (("year=2019/part-2", 1), ("year=2019/part-10", 2), ("year=2020/part-1", 3)):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        table(9, seed).to_parquet(place / f"{name}.parquet")
    (place / "_metadata").write_bytes(b"not a table")
    (place / "year=2019" / "_SUCCESS").touch()
    (place / ".hidden.parquet").write_bytes(b"not a table")
    return place


def test_a_folder_of_files_is_one_table(folder):
    source = open_source(folder, columns="g_*")
    expected = pd.concat([table(9, seed) for seed in (1, 2, 3)])[["g_a", "g_b"]]
    np.testing.assert_array_equal(everything(source), expected)
    assert source.name == str(folder)
    assert [Path(name).stem for name, _ in source.part_ends] == ["part-2", "part-10", "part-1"]
    np.testing.assert_array_equal(everything(open_source(f"{folder}/*/*.parquet", columns="g_*")), expected)
    pca = PCA(2).fit(source)
    np.testing.assert_allclose(pca.mean_, expected.mean(), rtol=1e-12)


def test_a_file_that_is_added_to_a_folder_is_appended_rows(folder):
    before = open_source(folder, columns="g_*").snapshot()
    table(9, 4).to_parquet(folder / "year=2021.parquet")
    after = open_source(folder, columns="g_*")
    assert after.spec.n_rows == 36
    assert after.snapshot().digest(27) == before.digest(27)


@pytest.mark.parametrize("names", [["g_a", "renamed"], ["g_a"]])
def test_a_file_with_other_columns_is_named(folder, names):
    table(9, 5).iloc[:, : len(names)].set_axis(names, axis=1).to_parquet(folder / "z.parquet")
    with pytest.raises(DataError, match=r"z\.parquet: has no column 'g_b'"):
        open_source(folder, columns=["g_a", "g_b"])
    with pytest.raises(DataError, match=r"z\.parquet: column 1 is no column, and 'g_b' in .*part-2\.parquet"):
        open_source(folder, columns=["g_*"])


def test_files_without_rows_are_left_out(folder):
    before = open_source(folder, columns="g_*")
    table(9, 1).iloc[:0].to_parquet(folder / "a.parquet")
    after = open_source(folder, columns="g_*")
    np.testing.assert_array_equal(everything(after), everything(before))
    assert after.snapshot().digest(27) == before.snapshot().digest(27)
    with pytest.raises(DataError, match=r"none of its 1 files has rows; there is nothing to fit"):
        open_source(f"{folder}/*.parquet", columns="g_*")


def test_a_pattern_may_match_folders_of_tables(folder):
    found = open_source(f"{folder}/year=*", columns="g_*")
    np.testing.assert_array_equal(everything(found), everything(open_source(folder, columns="g_*")))
    with pytest.raises(InputError, match="no column 'year': values in names of folders are not columns"):
        open_source(folder, columns=["g_*", "year"])


def test_a_folder_without_tables_is_no_table(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty"):
        open_source(tmp_path / "empty")
    zarr.create_array(tmp_path / "x.zarr", data=np.eye(4))
    table().to_parquet(tmp_path / "x.zarr" / "beside.parquet")
    assert open_source(tmp_path / "x.zarr").spec.n_cols == 4
