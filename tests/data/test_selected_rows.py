"""Rows that satisfy conditions: the same numbers as indexing with a boolean array."""

import pickle

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

import streamdr
from streamdr.core.blocks import Span
from streamdr.data.row_conditions import select_rows
from streamdr.data.selected_rows import RowMask
from streamdr.errors import DataError, ParameterError


@pytest.fixture
def cells(tmp_path):
    """A store of 1,000 rows with coordinates of numbers, text and times, in ragged chunks."""
    rng = np.random.default_rng(0)
    n = 1000
    data = xr.Dataset(
        {"x": (("time", "gene"), rng.normal(size=(n, 4)).astype(np.float32))},
        coords={
            "time": pd.date_range("2000-01-01", periods=n),
            "kind": ("time", rng.choice(["T", "B", "doublet"], n)),
            "genes": ("time", rng.integers(0, 500, n)),
            "gene": list("abcd"),
        },
    )
    path = tmp_path / "cells.zarr"
    data.to_zarr(path, encoding={"x": {"chunks": (37, 4)}})
    return streamdr.open_source(path, variable="x"), data


def rows_of(source):
    return source.read(Span(0, source.spec.n_rows), Span(0, source.spec.n_cols))


@pytest.mark.parametrize(
    ("where", "keep"),
    [
        ({"genes": ">= 200"}, lambda d: d.genes >= 200),
        ({"genes": "> 200 and <= 300"}, lambda d: (d.genes > 200) & (d.genes <= 300)),
        ({"genes": 7}, lambda d: d.genes == 7),
        ({"genes": [7, 8, 9]}, lambda d: d.genes.isin([7, 8, 9])),
        ({"kind": "!= doublet"}, lambda d: d.kind != "doublet"),
        ({"kind": "T"}, lambda d: d.kind == "T"),
        ({"kind": ["T", "B"], "genes": "< 100"}, lambda d: d.kind.isin(["T", "B"]) & (d.genes < 100)),
        ({"time": ">= 2001"}, lambda d: d.time >= np.datetime64("2001-01-01")),
        ({"time": "< 2000-03 and > 2000-01"}, lambda d: (d.time.dt.year == 2000) & (d.time.dt.month == 2)),
        ({"b": "> 0"}, lambda d: d.x[:, 1] > 0),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_condition_keeps_the_rows_that_indexing_keeps(cells, where, keep):
    source, data = cells
    if "b" in where:
        source.feature_names = tuple("abcd")
    selected, flags = select_rows(source, where), keep(data).values
    np.testing.assert_array_equal(rows_of(selected), data.x.values[flags])
    end = selected.spec.n_rows
    np.testing.assert_array_equal(
        selected.read(Span(end // 2, end), Span(1, 3)), data.x.values[flags][end // 2 :, 1:3]
    )
    kinds = next(one for one in selected.sample_coords if one.name == "kind")
    assert rows_of(kinds.values)[:, 0].tolist() == data.kind.values[flags].tolist()


def test_a_fit_to_selected_rows_is_that_of_these_rows(cells):
    source, data = cells
    selected = pickle.loads(pickle.dumps(select_rows(source, {"genes": ">= 250"})))
    model = streamdr.PCA(2).fit(selected)
    rows = data.x.values[data.genes.values >= 250].astype(float)
    np.testing.assert_allclose(model.mean_, rows.mean(0), atol=1e-6)
    expected = np.linalg.eigvalsh(np.cov(rows.T))[::-1][:2]
    np.testing.assert_allclose(model.explained_variance_, expected, rtol=1e-5)


def test_a_mask_and_weights_and_labels_go_with_their_rows():
    rng = np.random.default_rng(1)
    rows, weights, labels = rng.normal(size=(99, 3)), rng.random(99), rng.integers(0, 2, 99)
    keep = rng.random(99) < 0.5
    source = streamdr.open_source(rows, weights=weights, labels=labels)
    selected = select_rows(source, {}, streamdr.open_source(keep[:, None]))
    block = selected.block(Span(0, len(rows[keep])))
    np.testing.assert_array_equal(block.values, rows[keep])
    np.testing.assert_array_equal(block.weights, weights[keep])
    np.testing.assert_array_equal(block.labels, labels[keep])


def test_a_missing_value_satisfies_no_condition_but_inequality():
    source = streamdr.open_source(np.array([[1.0], [np.nan], [3.0]]))
    source.feature_names = ("a",)
    assert select_rows(source, {"a": "> 0"}).spec.n_rows == 2
    assert select_rows(source, {"a": "<= 9"}).spec.n_rows == 2
    assert select_rows(source, {"a": "!= 1"}).spec.n_rows == 2


def test_a_bad_value_is_named_by_its_row_in_the_file(cells):
    rows = np.arange(40.0).reshape(20, 2)
    rows[13, 0] = np.inf
    source = streamdr.open_source(rows)
    source.feature_names = ("a", "b")
    with pytest.raises(DataError, match="inf at row 13, column 0"):
        streamdr.PCA(1).fit(select_rows(source, {"b": "> 20"}))


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"gene": "> 3"}, "no coordinate .* called 'gene' .*'genes'"),
        ({"genes": ">= many"}, "genes: 'many' is not a number"),
        ({"genes": ">= 3 and many"}, "genes: 'many' is not a comparison"),
        ({"time": ">= soon"}, "soon"),
        ({"genes": "> 10000"}, "none of the 1000 rows satisfies genes > 10000"),
    ],
)
def test_an_impossible_condition_is_refused(cells, where, message):
    with pytest.raises((DataError, ParameterError), match=message):
        select_rows(cells[0], where)


def test_appended_rows_leave_the_digest_of_the_first_as_it_was(tmp_path):
    rows = np.arange(60.0).reshape(30, 2)
    stored = zarr.create_array(tmp_path / "x.zarr", shape=(20, 2), chunks=(10, 2), dtype=float)
    stored[:] = rows[:20]
    before = select_rows(opened(tmp_path), {"a": ">= 10"})
    stored.resize((30, 2))
    stored[20:] = rows[20:]
    after = select_rows(opened(tmp_path), {"a": ">= 10"})
    assert (before.spec.n_rows, after.spec.n_rows) == (15, 25)
    assert before.snapshot().digest(15) == after.snapshot().digest(15)
    assert before.snapshot().digest(15) != select_rows(opened(tmp_path), {"a": ">= 8"}).snapshot().digest(15)
    assert before.identity == after.identity


def opened(folder):
    source = streamdr.open_source(folder / "x.zarr")
    source.feature_names = ("a", "b")
    return source


@pytest.mark.parametrize("share", [0.0005, 0.3, 1.0])
@pytest.mark.parametrize("n_rows", [1, 4095, 4096, 4097, 20001])
def test_the_mask_knows_the_numbers_of_its_rows(n_rows, share):
    flags = np.random.default_rng(n_rows).random(n_rows) < share
    mask = RowMask(n_rows, (flags[at : at + 800] for at in range(0, n_rows, 800)))
    numbers = np.flatnonzero(flags)
    assert len(mask) == len(numbers)
    for start, stop in [(0, len(numbers)), (len(numbers) // 3, len(numbers) // 2), (0, min(1, len(numbers)))]:
        np.testing.assert_array_equal(mask.numbers(Span(start, stop)), numbers[start:stop])
    for rows in (0, n_rows // 2, n_rows):
        assert mask.count(rows) == np.count_nonzero(flags[:rows])


def test_open_source_selects_rows_by_conditions_and_a_mask_with_their_weights_and_labels(cells):
    source, data = cells
    flags = np.arange(1000) % 3 > 0
    weights, labels = np.arange(1000.0), np.arange(1000) % 7
    chosen = streamdr.open_source(
        source, weights=weights, labels=labels, where={"genes": ">= 200"}, row_mask=flags
    )
    keep = flags & (data.genes.values >= 200)
    np.testing.assert_array_equal(rows_of(chosen), data.x.values[keep])
    block = chosen.block(Span(0, chosen.spec.n_rows))
    np.testing.assert_array_equal(block.weights, weights[keep])
    np.testing.assert_array_equal(block.labels, labels[keep])
    assert streamdr.open_source(source).spec.n_rows == 1000


def test_labels_that_are_a_column_go_with_the_selected_rows():
    rows = np.arange(60.0).reshape(20, 3)
    chosen = streamdr.open_source(rows, label_column=1, row_mask=np.arange(20) % 2)
    np.testing.assert_array_equal(chosen.block(Span(0, 10)).labels, rows[1::2, 1])
    np.testing.assert_array_equal(chosen.scratch_block(Span(3, 7)).labels, rows[7:14:2, 1])
    assert chosen.unlabelled().block(Span(0, 10)).labels is None


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.ones(7), "row_mask: .*7 x 1 values for the 1000 rows"),
        (np.zeros(1000), "none of the 1000 rows"),
        ("nowhere.zarr", "row_mask: nowhere.zarr: no such file"),
    ],
)
def test_a_mask_that_selects_nothing_or_does_not_fit_is_an_error(cells, mask, message):
    with pytest.raises((DataError, ParameterError), match=message):
        streamdr.open_source(cells[0], row_mask=mask)


def test_a_chunk_of_a_mask_that_is_missing_is_an_error(cells, tmp_path):
    zarr.create_array(tmp_path / "mask.zarr", data=np.arange(1000) < 500, chunks=(100,))
    with pytest.raises(DataError, match="write_empty_chunks"):
        streamdr.open_source(cells[0], row_mask=tmp_path / "mask.zarr")
