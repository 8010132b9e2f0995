"""Labels are read with their rows, from an array beside the data or from a column of the data."""

from __future__ import annotations

import pickle

import dask.array as da
import numpy as np
import pytest
import zarr
from narrowing import present

from streamdr.core.blocks import Part, Span
from streamdr.data import open_source
from streamdr.data.row_subset import RowSubset
from streamdr.errors import DataError, ParameterError

N, D = 50, 4
DATA = np.random.default_rng(0).normal(size=(N, D))
NUMBERS = np.arange(N) % 3
WORDS = np.array(["ash", "birch", "mountain ash"])[NUMBERS]


def stored(path, values, chunks, **attributes):
    array = zarr.create_array(
        path, shape=values.shape, chunks=chunks, dtype=values.dtype, attributes=attributes
    )
    array[...] = values
    return path


@pytest.fixture
def data(tmp_path):
    return stored(tmp_path / "x.zarr", DATA, (7, 2))


def labels_as(kind, tmp_path):
    if kind == "numpy":
        return NUMBERS
    if kind == "list":
        return NUMBERS.tolist()
    if kind == "column":
        return NUMBERS[:, None]
    if kind == "dask":
        return da.from_array(NUMBERS, chunks=11)
    if kind == "zarr":
        return str(stored(tmp_path / "y.zarr", NUMBERS, (9,)))
    if kind == "words":
        return WORDS
    if kind == "objects":
        return WORDS.astype(object)
    if kind == "stored words":
        return str(stored(tmp_path / "words.zarr", WORDS, (9,)))
    array = zarr.create_array(tmp_path / "long.zarr", shape=(N,), chunks=(9,), dtype="string")
    array[...] = WORDS.astype(object)
    return tmp_path / "long.zarr"


NUMERIC = ("numpy", "list", "column", "dask", "zarr")
TEXTUAL = ("words", "objects", "stored words", "stored strings")


@pytest.mark.parametrize("kind", NUMERIC + TEXTUAL)
def test_labels_of_any_kind_are_read_with_their_rows(kind, data, tmp_path):
    source = open_source(data, labels=labels_as(kind, tmp_path))
    expected = NUMBERS if kind in NUMERIC else WORDS
    assert (present(source.spec.labels).kind == "U") == (kind in TEXTUAL)
    for reopened in (source, pickle.loads(pickle.dumps(source))):
        for block in (reopened.block(Span(5, 23)), reopened.scratch_block(Span(5, 23))):
            np.testing.assert_array_equal(block.labels, expected[5:23])
            dtype = present(block.labels).dtype
            assert dtype == np.float64 or dtype.kind == "U"
            np.testing.assert_array_equal(block.values, DATA[5:23])


@pytest.mark.parametrize("column", [0, 2, 3, -1, "c"])
def test_a_column_of_the_data_may_be_the_labels(column, tmp_path):
    path = stored(tmp_path / "x.zarr", DATA, (7, 3), feature_names=["a", "b", "c", "d"])
    source = open_source(path, label_column=column)
    number = 2 if column == "c" else column % D
    rest = np.delete(DATA, number, axis=1)
    assert source.spec.n_cols == D - 1
    assert source.feature_names == tuple(np.delete(["a", "b", "c", "d"], number))
    for block in (source.block(Span(3, 20)), source.scratch_block(Span(3, 20))):
        np.testing.assert_array_equal(block.values, rest[3:20])
        np.testing.assert_array_equal(block.labels, DATA[3:20, number])
    np.testing.assert_array_equal(source.block(Span(1, 3), "columns").values, rest[:, 1:3])
    np.testing.assert_array_equal(source.read(Span(0, 9), Span(1, 2)), rest[:9, 1:2])
    assert source.unlabelled().scratch_block(Span(0, 5)).labels is None


@pytest.mark.parametrize("kind", ["zarr", "stored words"])
@pytest.mark.parametrize("part", [Part(1, 3), Part(0, 3, rest=True)])
def test_a_part_has_the_labels_of_its_rows(kind, part, data, tmp_path):
    source = RowSubset(open_source(data, labels=labels_as(kind, tmp_path)), part)
    expected = NUMBERS if kind == "zarr" else WORDS
    for block in (source.block(Span(2, 9)), source.scratch_block(Span(2, 9))):
        np.testing.assert_array_equal(block.labels, expected[block.numbers])


def test_a_part_has_the_labels_of_its_rows_in_a_label_column(data):
    source = RowSubset(open_source(data, label_column=1), Part(1, 3))
    block = source.scratch_block(Span(0, 10))
    np.testing.assert_array_equal(block.labels, DATA[block.numbers, 1])


def test_labels_of_another_length_are_refused(data):
    with pytest.raises(DataError, match=r"labels: 49 labels for the 50 rows of .*; one label per row"):
        open_source(data, labels=NUMBERS[1:])
    with pytest.raises(DataError, match="50 x 2 labels for the 50 rows"):
        open_source(data, labels=DATA[:, :2])
    with pytest.raises(ParameterError, match="one label each"):
        open_source(data, labels=NUMBERS, label_column=1)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_non_finite_label_is_located(value, data):
    labels = NUMBERS.astype(float)
    labels[[17, 19]] = value
    source = open_source(data, labels=labels)
    with pytest.raises(
        DataError, match=rf"labels: row 17 has the label {value} \(2 such labels in rows 10-29\)"
    ):
        source.block(Span(10, 30))
    with pytest.raises(DataError, match="row 17"):
        source.scratch_block(Span(10, 30))


def test_a_missing_value_in_a_label_column_is_located(tmp_path):
    values = DATA.copy()
    values[31, 2] = np.nan
    source = open_source(stored(tmp_path / "x.zarr", values, (7, 3)), label_column=2)
    with pytest.raises(DataError, match="row 31 has the label nan"):
        source.scratch_block(Span(28, 35), allow_nan=True)


@pytest.mark.parametrize(
    ("column", "message"),
    [(4, "no column 4 among 4"), (-5, "no column -5"), ("c", "columns have no names")],
)
def test_a_label_column_that_does_not_exist_is_refused(column, message, data):
    with pytest.raises(ParameterError, match=message):
        open_source(data, label_column=column)


def test_text_mixed_with_numbers_is_refused(data):
    mixed = WORDS.astype(object)
    mixed[3] = 5
    with pytest.raises(DataError, match="5 is among labels that are text"):
        open_source(data, labels=mixed)


@pytest.mark.parametrize("kind", ["zarr", "stored words", "stored strings"])
def test_the_fingerprint_depends_on_labels_and_digests_of_earlier_rows_do_not_change(kind, data, tmp_path):
    path = labels_as(kind, tmp_path)
    before = open_source(data, labels=path)
    beginning, whole = before.snapshot().digest(36), before.fingerprint()
    array = zarr.open_array(path, mode="r+")
    first = array[0]
    array[49] = array[48]
    after = open_source(data, labels=path)
    assert after.fingerprint() != whole
    assert after.snapshot().digest(36) == beginning
    array[0] = array[1]
    assert open_source(data, labels=path).snapshot().digest(36) != beginning
    assert first != array[0]
