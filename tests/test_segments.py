"""The cut follows the layout alone; the counter merges in one order, whoever delivers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdr.blocks import MatrixSpec, Span
from streamdr.segments import LARGEST_BLOCK_BYTES, RADIX, Counter, cut

SPEC = MatrixSpec(400_000, 1024, np.dtype(np.float32))


def test_blocks_are_whole_chunks_of_about_16_mb():
    assert cut(SPEC, (4096, 1024), "rows", 8 << 20).block == 4096
    assert cut(SPEC, (100, 1024), "rows", 8 << 20).block == 4000
    assert cut(SPEC, (100_000, 1024), "rows", 8 << 20).block == 100_000, "a chunk is never read twice"


def test_large_accumulators_get_larger_blocks_and_longer_segments():
    small, large = (cut(SPEC, (1, 1), "rows", held) for held in (1 << 10, 1 << 30))
    assert large.block * 4096 <= LARGEST_BLOCK_BYTES < large.block * 4096 * 2
    assert large.segment_lines * 4096 >= 2 << 30
    assert small.block < large.block


@pytest.mark.parametrize("rows", [1, 4095, 4096, 8192, 100_001])
def test_segments_cover_every_row_once(rows):
    parts = cut(MatrixSpec(rows, 1024, np.dtype("f4")), (4096, 1024), "rows", 0)
    spans = [span for number in range(len(parts)) for span in parts.blocks(number)]
    assert spans[0].start == 0
    assert spans[-1].stop == rows
    assert all(earlier.stop == later.start for earlier, later in itertools.pairwise(spans))


def test_more_rows_leave_the_full_segments_as_they_are():
    few, many = (cut(MatrixSpec(rows, 64, np.dtype("f4")), (100, 64), "rows", 0) for rows in (10**6, 10**7))
    full = [number for number in range(len(few)) if few.is_full(number)]
    assert full
    assert all(few.blocks(number) == many.blocks(number) for number in full)


@given(st.integers(1, 700), st.booleans())
def test_counter_keeps_the_order_and_one_value_a_level(count, ragged):
    counter = Counter[tuple](lambda earlier, later: earlier + later)
    for number in range(count):
        counter.push((number,))
        assert (
            sum(digit is not None for digit in counter.digits)
            <= 1 + np.log(number + 1) / np.log(RADIX) + 1e-9
        )
    if ragged:
        counter.tail = (count,)
    assert counter.count == count + ragged
    assert counter.total() == tuple(range(count + ragged))


def test_spans_split():
    assert list(Span(2, 9).split(3)) == [Span(2, 5), Span(5, 8), Span(8, 9)]
    assert list(Span(4, 4).split(3)) == []
