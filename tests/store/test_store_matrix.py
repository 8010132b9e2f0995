"""Ingested data is stored in chunks of about 16 MB, by rows or columns, aligned with those of its file."""

from __future__ import annotations

import math

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdr.core.progress import Silent
from streamdr.errors import ConfigError, DataError
from streamdr.store.arrays import ArrayLayout
from streamdr.store.matrix import RowWriter, create_matrix, fill, plan_layout

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
MB = 2**20


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [
        ((400_000, 1024), (4096, 1024)),  # tall: whole rows
        ((100, 10), (100, 10)),  # small: one chunk
        ((500, 2_000_000), (500, 8388)),  # wide: whole columns
        ((5_000_000, 5_000_000), (1, 5_000_000)),  # a row of 20 MB is a chunk
        ((10**8, 10**8), (1, 2**22)),  # a row of 400 MB is divided
        ((10**8,), (2**22,)),
        ((10**6, 64, 64), (1024, 64, 64)),
        ((500, 1000, 2000), (500, 4, 2000)),  # wide, of many dimensions
        ((50_000, 2**20, 2**10), (4096, 1, 1024)),  # neither whole rows nor whole columns
    ],
)
def test_chunks_by_shape(shape, chunks):
    layout = plan_layout(shape, FLOAT32)
    assert layout.chunks == chunks
    assert math.prod(layout.chunks) * 4 <= 64 * MB


@pytest.mark.parametrize(
    ("shape", "grain", "chunks"),
    [
        ((400_000, 1024), (1000, 32), (4000, 1024)),  # the largest multiple in 16 MB
        ((400_000, 1024), (5000, 1), (5000, 1024)),  # one of the file's chunks is more than that
        ((400_000, 1024), (100_000, 1), (4096, 1024)),  # too tall to be aligned with
        ((500, 2_000_000), (500, 1000), (500, 8000)),
        ((500, 2_000_000), (1, 2_000_000), (67, 62601)),  # stored by rows: tiles
        ((3000, 10), (1000, 10), (3000, 10)),
    ],
)
def test_chunks_are_aligned_with_those_of_the_file(shape, grain, chunks):
    assert plan_layout(shape, FLOAT32, grain=grain).chunks == chunks


@pytest.mark.parametrize(
    ("shape", "rows", "chunks"),
    [
        ((1000, 10), 300, (300, 10)),
        ((100, 10), 300, (100, 10)),
        ((500, 2_000_000), 100, (100, 2**22 // 100)),  # 100 whole rows would be 800 MB
    ],
)
def test_chunks_with_a_given_number_of_rows(shape, rows, chunks):
    assert plan_layout(shape, FLOAT32, chunk_rows=rows).chunks == chunks


@pytest.mark.parametrize("rows", [0, -1, 2**24 + 1])
def test_impossible_chunk_rows(rows):
    with pytest.raises(ConfigError, match="must be from 1 to 16,777,216"):
        plan_layout((1000, 10), FLOAT32, chunk_rows=rows)


@given(
    shape=st.lists(st.integers(1, 10**7), min_size=1, max_size=4).map(tuple),
    dtype=st.sampled_from(["u1", "f4", "f8"]).map(np.dtype),
    data=st.data(),
)
def test_chunks_are_never_too_large_nor_needlessly_small(shape, dtype, data):
    grain = data.draw(st.none() | st.tuples(*(st.integers(1, n) for n in shape)))
    chunks = plan_layout(shape, dtype, grain=grain).chunks
    assert all(1 <= chunk <= n for chunk, n in zip(chunks, shape, strict=True))
    size, total = math.prod(chunks) * dtype.itemsize, math.prod(shape) * dtype.itemsize
    assert size <= 64 * MB
    assert size >= min(total, 4 * MB)


class Recorder(Silent):
    """Records the calls."""

    def start(self, begun):
        self.total, self.unit, self.nbytes = begun.total, begun.unit, begun.total * begun.bytes_per_row
        self.done, self.finished = 0, 0

    def advance(self, rows):
        self.done += rows

    def finish(self):
        self.finished += 1


@pytest.mark.parametrize(
    ("shape", "chunks", "total", "unit"),
    [
        ((7,), (3,), 7, "rows"),
        ((7, 9), (3, 9), 7, "rows"),
        ((7, 9), (7, 4), 9, "columns"),
        ((7, 9), (3, 4), 7, "rows"),
        ((7, 9), (7, 9), 7, "rows"),
        ((2, 6, 3), (2, 4, 2), 18, "columns"),
        ((5, 6, 3), (2, 4, 2), 5, "rows"),
    ],
)
def test_fill_writes_every_chunk_and_counts_each_row_or_column_once(tmp_path, shape, chunks, total, unit):
    values = np.random.default_rng(0).standard_normal(shape)
    layout = ArrayLayout(shape, chunks, FLOAT64, ("sample", "feature", "axis_2")[: len(shape)])
    array, progress = create_matrix(tmp_path, layout), Recorder()
    fill(array, layout, lambda region: values[region], "Filling", progress)
    np.testing.assert_array_equal(array[:], values)
    assert (progress.done, progress.total, progress.unit) == (total, total, unit)
    assert progress.nbytes == pytest.approx(values.nbytes)
    assert progress.finished == 1


def test_fill_stops_at_the_first_error(tmp_path):
    def values(region):
        if region[0].start >= 100:
            raise DataError("row 100 is unreadable")
        return np.zeros((10, 2))

    layout = ArrayLayout((10_000, 2), (10, 2), FLOAT64, ("sample", "feature"))
    progress = Recorder()
    with pytest.raises(DataError, match="row 100"):
        fill(create_matrix(tmp_path, layout), layout, values, "Filling", progress)
    assert (progress.done, progress.finished) == (100, 1)


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(0, 7), max_size=8), chunk_rows=st.integers(1, 9))
def test_rows_may_be_appended_in_pieces_of_any_length(tmp_path_factory, lengths, chunk_rows):
    group = tmp_path_factory.mktemp("group")
    values = np.random.default_rng(0).standard_normal((sum(lengths), 3))
    writer = RowWriter(group, 3, FLOAT64, chunk_rows=chunk_rows)
    for piece in np.split(values, np.cumsum(lengths)):
        writer.append(piece)
    writer.finish()
    assert writer.n_rows == len(values)
    if len(values):
        array = zarr.open_array(group / "X", mode="r")
        assert array.chunks == (min(chunk_rows, len(values)), 3)
        np.testing.assert_array_equal(array[:], values)
