"""A part of the rows is like all of them, and says of each where it stands in the whole."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdr.blocks import Part, Span
from streamdr.errors import DataError, MissingValuesError
from streamdr.sources import open_source
from streamdr.sources.part import PartSource


@settings(max_examples=60)
@given(st.data(), st.integers(1, 150), st.integers(1, 40), st.sampled_from([8, 4000, 10**6]))
def test_the_parts_have_every_row_once(data, n_rows, chunk, row_bytes):
    of = data.draw(st.integers(1, n_rows))
    parts = [Part(number, of).bands(n_rows, chunk, row_bytes) for number in range(of)]
    assert all(parts), "none is empty"
    bands = sorted(band for part in parts for band in part)
    assert bands[0].start == 0
    assert bands[-1].stop == n_rows
    assert all(one.stop == other.start for one, other in pairwise(bands))
    assert len({len(band) for band in bands[:-1]}) <= 1, "all are of one length, but for the last"
    sizes = [sum(map(len, part)) for part in parts]
    assert max(sizes) - min(sizes) <= len(bands[0]), "none has more than a band more than another"
    if chunk * of <= n_rows:
        assert all(band.start % chunk == 0 for band in bands), "bands are whole chunks"


def test_bands_are_spread_over_all_rows():
    for number in range(16):
        bands = Part(number, 16).bands(100_000, 10, 800)
        assert len(bands) >= 8
        middle = np.mean([(band.start + band.stop) / 2 for band in bands])
        assert 0.4 < middle / 100_000 < 0.6


def test_bands_are_as_long_as_a_good_read_where_there_are_rows_enough():
    assert len(Part(0, 16).bands(10**8, 10, 1000)[0]) == 1040, "whole chunks, a megabyte at most"
    assert len(Part(0, 2).bands(20, 100, 1000)[0]) == 10, "parts share a chunk if there are too few"


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(203, 5))


def stored(place, rows, chunks=(10, 3), dtype="f8"):
    array = zarr.create_array(place, shape=rows.shape, chunks=chunks, dtype=dtype)
    array[:] = rows
    return place


def numbers(part, n_rows, chunk, row_bytes):
    bands = part.bands(n_rows, chunk, row_bytes)
    return np.concatenate([np.arange(band.start, band.stop) for band in bands])


@pytest.mark.parametrize(
    ("chunks", "dtype"), [((10, 3), "f8"), ((1, 5), "f4"), ((203, 5), "u1"), ((50, 5), "f8")]
)
@pytest.mark.parametrize("part", [Part(0, 4), Part(3, 4), Part(0, 1), Part(6, 7)])
def test_blocks_are_the_rows_of_the_part(tmp_path, rows, chunks, part, dtype):
    values = (rows * 10 + 100).astype(dtype)
    source = PartSource(open_source(stored(tmp_path / "x.zarr", values, chunks, dtype)), part)
    mine = numbers(part, 203, chunks[0], source.spec.line_bytes("rows"))
    assert source.spec.n_rows == len(mine)
    everything = Span(0, 5)
    for span in (Span(0, len(mine)), Span(0, 1), Span(3, 17), Span(len(mine) - 1, len(mine)), Span(9, 10)):
        wanted = values[mine[span.slice]]
        np.testing.assert_array_equal(source.read(span, everything), wanted)
        np.testing.assert_array_equal(source.borrow(span, Span(1, 4)), wanted[:, 1:4])
        for block in (source.block(span), source.loan(span)):
            np.testing.assert_array_equal(block.values, wanted)
            np.testing.assert_array_equal(block.numbers, mine[span.slice])
            assert block.values.dtype == source.spec.working


def test_weights_are_those_of_the_rows(tmp_path, rows):
    weights = np.arange(203.0)
    source = PartSource(open_source(stored(tmp_path / "x.zarr", rows), weights=weights), Part(1, 3))
    mine = numbers(Part(1, 3), 203, 10, 40)
    np.testing.assert_array_equal(source.block(Span(5, 40)).weights, weights[mine[5:40]])
    np.testing.assert_array_equal(source.loan(Span(5, 40)).weights, weights[mine[5:40]])


def test_it_travels_to_another_process(tmp_path, rows):
    source = PartSource(open_source(stored(tmp_path / "x.zarr", rows)), Part(1, 3))
    there = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(there.block(Span(0, 9)).values, source.block(Span(0, 9)).values)
    assert there.identity == source.identity


@pytest.mark.parametrize(("value", "holes"), [(np.inf, False), (-np.inf, True), (np.nan, False)])
def test_errors_name_the_row_of_the_whole(tmp_path, rows, value, holes):
    part = Part(2, 3)
    mine = numbers(part, 203, 10, 40)
    bad = int(mine[37])
    rows[bad, 3] = value
    source = PartSource(open_source(stored(tmp_path / "x.zarr", rows)), part)
    error = MissingValuesError if np.isnan(value) else DataError
    with pytest.raises(error, match=f"x.zarr: {value} at row {bad}, column 3"):
        source.block(Span(30, 40), holes=holes)
    with pytest.raises(error, match=f"{value} at row {bad}, column 3"):
        source.loan(Span(30, 40), holes=holes).suspect()
    source.block(Span(0, 37), holes=holes)


def test_holes_are_let_through_where_they_may_be(tmp_path, rows):
    part = Part(0, 3)
    rows[numbers(part, 203, 10, 40)[4], 2] = np.nan
    source = PartSource(open_source(stored(tmp_path / "x.zarr", rows)), part)
    assert np.isnan(source.block(Span(0, 9), holes=True).values[4, 2])


def test_parts_are_told_apart_by_their_identity(tmp_path, rows):
    whole = open_source(stored(tmp_path / "x.zarr", rows))
    names = {PartSource(whole, Part(number, of)).identity for number, of in ((0, 3), (1, 3), (0, 4), (0, 1))}
    assert len({*names, whole.identity}) == 5


def test_a_digest_is_of_the_rows_up_to_where_the_part_ends(tmp_path, rows):
    """Rows that come later do not change it; those before do, be they of this part or not."""
    place = stored(tmp_path / "x.zarr", rows, chunks=(10, 5))
    part = Part(1, 20)  # its one band is a chunk: rows 10 to 19

    def digest(length):
        return PartSource(open_source(place), part).snapshot().digest(length)

    before = digest(10)
    array = zarr.open_array(place, mode="r+")
    array[25] = 1.0
    assert digest(10) == before
    array[15] = 1.0
    changed = digest(10)
    assert changed != before
    array[5] = 1.0
    assert digest(10) != changed
