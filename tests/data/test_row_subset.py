"""A part of the rows is representative of all rows, and has the row numbers of the whole matrix."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import zarr
from fits import StopAfter, bits, stored
from hypothesis import given, settings
from hypothesis import strategies as st
from narrowing import checked

from streamdr.core.blocks import Part, Span
from streamdr.core.execution import Execution
from streamdr.core.method import Pass, in_memory
from streamdr.data import open_source
from streamdr.data.row_subset import RowSubset
from streamdr.engine import fitting
from streamdr.engine.read_estimates import estimate_fit_reads
from streamdr.errors import DataError, Interrupted, MissingValuesError
from streamdr.methods.pca import PCA
from streamdr.methods.pca.model import PCAModel
from streamdr.statistics.moments import Moments

RESTS = [Part(0, 2, rest=True), Part(0, 4, rest=True), Part(3, 4, rest=True), Part(100, 203, rest=True)]


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
    assert len({len(band) for band in bands[:-1]}) <= 1, "all but the last have the same length"
    sizes = [sum(map(len, part)) for part in parts]
    assert max(sizes) - min(sizes) <= len(bands[0]), "sizes differ by at most one band"
    if chunk * of <= n_rows:
        assert all(band.start % chunk == 0 for band in bands), "bands are whole chunks"


@settings(max_examples=60)
@given(st.data(), st.integers(2, 150), st.integers(1, 40), st.sampled_from([8, 4000, 10**6]))
def test_a_part_and_its_rest_have_every_row_once(data, n_rows, chunk, row_bytes):
    of = data.draw(st.integers(2, n_rows))
    number = data.draw(st.integers(0, of - 1))
    part, rest = Part(number, of), Part(number, of, rest=True)
    both = [numbers(each, n_rows, chunk, row_bytes) for each in (part, rest)]
    assert all(len(each) and (np.diff(each) > 0).all() for each in both), "each in order, and none empty"
    np.testing.assert_array_equal(np.sort(np.concatenate(both)), np.arange(n_rows))
    bands = rest.bands(n_rows, chunk, row_bytes)
    assert len({len(band) for band in bands[:-1]}) <= 1, "all but the last have the same length"
    assert len(bands[-1]) <= len(bands[0])
    others = [Part(n, of).bands(n_rows, chunk, row_bytes) for n in range(of) if n != number]
    assert bands == sorted(band for other in others for band in other), (
        "these are the bands of the other parts"
    )


def test_the_only_part_has_no_rest():
    with pytest.raises(ValueError, match="there is no rest"):
        Part(0, 1, rest=True)


def test_bands_are_spread_over_all_rows():
    for number in range(16):
        bands = Part(number, 16).bands(100_000, 10, 800)
        assert len(bands) >= 8
        middle = np.mean([(band.start + band.stop) / 2 for band in bands])
        assert 0.4 < middle / 100_000 < 0.6


def test_bands_have_a_good_read_size_if_there_are_enough_rows():
    assert len(Part(0, 16).bands(10**8, 10, 1000)[0]) == 1040, "whole chunks, a megabyte at most"
    assert len(Part(0, 2).bands(20, 100, 1000)[0]) == 10, "parts share a chunk if there are too few"


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(203, 5))


def numbers(part, n_rows, chunk, row_bytes):
    bands = part.bands(n_rows, chunk, row_bytes)
    return np.concatenate([np.arange(band.start, band.stop) for band in bands])


@pytest.mark.parametrize(
    ("chunks", "dtype"), [((10, 3), "f8"), ((1, 5), "f4"), ((203, 5), "u1"), ((50, 5), "f8")]
)
@pytest.mark.parametrize("part", [*(Part(0, 4), Part(3, 4), Part(0, 1), Part(6, 7)), *RESTS])
def test_blocks_are_the_rows_of_the_part(tmp_path, rows, chunks, part, dtype):
    values = (rows * 10 + 100).astype(dtype)
    source = RowSubset(open_source(stored(tmp_path / "x.zarr", values.astype(dtype), chunks)), part)
    row_numbers = numbers(part, 203, chunks[0], source.spec.line_bytes("rows"))
    assert source.spec.n_rows == len(row_numbers)
    everything = Span(0, 5)
    for span in (
        Span(0, len(row_numbers)),
        Span(0, 1),
        Span(3, 17),
        Span(len(row_numbers) - 1, len(row_numbers)),
        Span(9, 10),
    ):
        wanted = values[row_numbers[span.slice]]
        np.testing.assert_array_equal(source.read(span, everything), wanted)
        np.testing.assert_array_equal(source.read_scratch(span, Span(1, 4)), wanted[:, 1:4])
        for block in (source.block(span), source.scratch_block(span)):
            np.testing.assert_array_equal(block.values, wanted)
            np.testing.assert_array_equal(block.numbers, row_numbers[span.slice])
            assert block.values.dtype == source.spec.working


@pytest.mark.parametrize("good_read", [1, 24, 60, 10_000])
@pytest.mark.parametrize("part", [Part(0, 1), *RESTS])
def test_adjacent_bands_are_read_together_up_to_a_good_read_size(
    tmp_path, rows, part, good_read, monkeypatch
):
    monkeypatch.setattr("streamdr.data.row_subset.GOOD_READ_BYTES", good_read * 40)
    whole = open_source(stored(tmp_path / "x.zarr", rows, (5, 5)))
    source = RowSubset(whole, part)
    row_numbers, band = numbers(part, 203, 5, 40), part.band(203, 5, 40)
    read, requested = whole.read_scratch, []

    def recording(piece, cols):
        requested.append(piece)
        return read(piece, cols)

    monkeypatch.setattr(whole, "read_scratch", recording)
    span = Span(2, len(row_numbers) - 1)
    block = source.scratch_block(span)
    np.testing.assert_array_equal(block.values, rows[row_numbers[span.slice]])
    np.testing.assert_array_equal(block.numbers, row_numbers[span.slice])
    assert max(map(len, requested)) <= max(good_read, band)
    separate = [one.stop < other.start or len(one) + band > good_read for one, other in pairwise(requested)]
    assert all(separate[1:-1]), "reads are not adjacent, or long enough"


@pytest.mark.parametrize("part", [Part(1, 3), Part(1, 3, rest=True)])
def test_weights_belong_to_the_rows(tmp_path, rows, part):
    weights = np.arange(203.0)
    source = RowSubset(open_source(stored(tmp_path / "x.zarr", rows, (10, 3)), weights=weights), part)
    row_numbers = numbers(part, 203, 10, 40)
    np.testing.assert_array_equal(source.block(Span(5, 40)).weights, weights[row_numbers[5:40]])
    np.testing.assert_array_equal(source.scratch_block(Span(5, 40)).weights, weights[row_numbers[5:40]])


@pytest.mark.parametrize("part", [Part(1, 3), Part(1, 3, rest=True)])
def test_it_can_be_pickled(tmp_path, rows, part):
    source = RowSubset(open_source(stored(tmp_path / "x.zarr", rows, (10, 3))), part)
    copy = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(copy.block(Span(0, 9)).values, source.block(Span(0, 9)).values)
    assert copy.identity == source.identity


@pytest.mark.parametrize("part", [Part(2, 3), Part(2, 3, rest=True)])
@pytest.mark.parametrize(("value", "allow_nan"), [(np.inf, False), (-np.inf, True), (np.nan, False)])
def test_errors_name_the_row_of_the_whole(tmp_path, rows, value, allow_nan, part):
    row_numbers = numbers(part, 203, 10, 40)
    bad = int(row_numbers[37])
    rows[bad, 3] = value
    source = RowSubset(open_source(stored(tmp_path / "x.zarr", rows, (10, 3))), part)
    error = MissingValuesError if np.isnan(value) else DataError
    with pytest.raises(error, match=f"x.zarr: {value} at row {bad}, column 3"):
        source.block(Span(30, 40), allow_nan=allow_nan)
    with pytest.raises(error, match=f"{value} at row {bad}, column 3"):
        source.scratch_block(Span(30, 40), allow_nan=allow_nan).locate_nonfinite()
    source.block(Span(0, 37), allow_nan=allow_nan)


@pytest.mark.parametrize("part", [Part(0, 3), Part(0, 3, rest=True)])
def test_missing_values_are_kept_if_they_are_allowed(tmp_path, rows, part):
    rows[numbers(part, 203, 10, 40)[4], 2] = np.nan
    source = RowSubset(open_source(stored(tmp_path / "x.zarr", rows, (10, 3))), part)
    assert np.isnan(source.block(Span(0, 9), allow_nan=True).values[4, 2])


def test_parts_have_different_identities(tmp_path, rows):
    whole = open_source(stored(tmp_path / "x.zarr", rows, (10, 3)))
    parts = [Part(0, 3), Part(1, 3), Part(0, 4), Part(0, 1), Part(0, 2), Part(1, 2), *RESTS]
    names = {RowSubset(whole, part).identity for part in parts}
    assert len({*names, whole.identity}) == 11


def test_a_digest_covers_the_rows_up_to_the_end_of_the_part(tmp_path, rows):
    """Later rows do not change it. Earlier rows do, even if they do not belong to this part."""
    path = stored(tmp_path / "x.zarr", rows, chunks=(10, 5))
    part = Part(1, 20)  # its one band is a chunk: rows 10 to 19

    def digest(length):
        return RowSubset(open_source(path), part).snapshot().digest(length)

    before = digest(10)
    array = zarr.open_array(path, mode="r+")
    array[25] = 1.0
    assert digest(10) == before
    array[15] = 1.0
    changed = digest(10)
    assert changed != before
    array[5] = 1.0
    assert digest(10) != changed


def test_a_digest_of_the_rest_covers_the_rows_up_to_its_end(tmp_path, rows):
    path = stored(tmp_path / "x.zarr", rows, chunks=(10, 5))
    part = Part(0, 20, rest=True)  # rows 10 to 199

    def digest(length):
        return RowSubset(open_source(path), part).snapshot().digest(length)

    before, whole = digest(10), digest(190)
    array = zarr.open_array(path, mode="r+")
    array[25] = 1.0
    assert digest(10) == before, "a row that comes later"
    assert digest(190) != whole


@dataclass(kw_only=True)
class SampleThenRest(PCA):
    """PCA that reads the data once in two passes: a part, then all other rows."""

    parts: int = 4

    def passes(self, data, start=None):
        moments = Moments(data.n_cols)
        sample = yield Pass(moments, label="a sample", part=Part(1, self.parts))
        others = yield Pass(moments, label="the rest", part=Part(1, self.parts, rest=True))
        sample.merge(others)
        given = PCA(self.n_components, solver="covariance").passes(data)
        next(given)
        try:
            given.send(sample)
        except StopIteration as finished:
            return finished.value


@pytest.fixture
def small_blocks(blocks_of):
    blocks_of(1 << 10)


METHOD = SampleThenRest(3, solver="covariance")
BYTES = 203 * 5 * 8


@pytest.mark.usefixtures("small_blocks")
def test_a_part_and_the_rest_read_the_data_once(tmp_path, rows):
    path, weights = stored(tmp_path / "x.zarr", rows, (10, 3)), np.arange(203.0)
    fitted = fitting.fit(METHOD, open_source(path, weights=weights), Execution(workers=2))
    assert fitted.bytes_read == BYTES
    model = checked(PCAModel, fitted.model)
    plain = fitting.fit(PCA(3, solver="covariance"), open_source(path, weights=weights), Execution())
    np.testing.assert_allclose(model.components, checked(PCAModel, plain.model).components, atol=1e-12)
    direct = checked(PCAModel, in_memory(METHOD, rows, weights))
    np.testing.assert_allclose(model.components, direct.components, atol=1e-12)
    np.testing.assert_allclose(model.mean, direct.mean, rtol=1e-12)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("after", [1, 40, 60, 150, 190])
def test_an_interrupted_rest_resumes(tmp_path, rows, after):
    source, stopper = open_source(stored(tmp_path / "x.zarr", rows, (10, 3))), StopAfter(after)
    settings = Execution(workers=1, ledger=tmp_path / "ledger", checkpoint_seconds=0.0)
    with pytest.raises(Interrupted):
        fitting.fit(METHOD, source, settings, progress=stopper, stop=stopper.stop)
    left, most = estimate_fit_reads(METHOD, source, settings)
    assert 0 < left == most <= BYTES - 40 * after
    again = fitting.fit(METHOD, source, settings)
    assert again.bytes_read == left
    assert bits(again.model) == bits(fitting.fit(METHOD, source, Execution()).model)
    assert estimate_fit_reads(METHOD, source, settings) == (0, 0)
    assert fitting.fit(METHOD, source, settings).bytes_read == 0
    other = SampleThenRest(3, solver="covariance", parts=5)
    assert fitting.fit(other, source, settings).bytes_read == BYTES, "other parts, other keys"


@pytest.mark.usefixtures("small_blocks")
def test_a_rest_continues_with_appended_rows(tmp_path, rows):
    path = stored(tmp_path / "x.zarr", rows, chunks=(10, 5))
    settings = Execution(workers=1, ledger=tmp_path / "ledger")
    fitting.fit(METHOD, open_source(path), settings)
    array = zarr.open_array(path, mode="r+")
    array.resize((250, 5))
    array[203:] = rows[:47]
    again = fitting.fit(METHOD, open_source(path), settings)
    assert again.bytes_read < BYTES / 2
    fresh = fitting.fit(METHOD, open_source(path), Execution())
    assert bits(again.model) == bits(fresh.model)
