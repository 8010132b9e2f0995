"""The cut follows the layout alone; the counter merges in one order, whoever delivers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdr.blocks import MatrixSpec, Span
from streamdr.segments import LARGEST_BLOCK_BYTES, RADIX, RUN, Counter, Cut, cut

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
        assert len(counter.digits) <= 2 + np.log(number + 1) / np.log(RADIX)
    if ragged:
        counter.tail = (count,)
    assert counter.count == count + ragged
    assert counter.total() == tuple(range(count + ragged))


@given(st.integers(1, 300), st.integers(0, 300), st.booleans())
def test_runs_merge_as_their_segments_do(count, first, ragged):
    """Nested lists remember how they were merged: a run as one task must give the same nesting."""

    def merge(earlier, later):
        return [earlier, later]

    lines = count * 8 - (3 if ragged else 0)
    parts = Cut("rows", lines, block=8, segment=1)
    first = min(first, len(parts) - 1)
    one_by_one, by_runs = Counter[object](merge), Counter[object](merge)
    for number in range(first):
        one_by_one.push(number)
        by_runs.push(number)
    for number in range(first, len(parts)):
        if parts.is_full(number):
            one_by_one.push(number)
        else:
            one_by_one.tail = number
    for task in parts.tasks(first, RUN):
        if len(task) > 1:
            by_runs.push([[[task[0], task[1]], task[2]], task[3]], level=1)
        elif parts.is_full(task[0]):
            by_runs.push(task[0])
        else:
            by_runs.tail = task[0]
    assert by_runs.digits == one_by_one.digits
    assert by_runs.count == one_by_one.count == len(parts)


def test_spans_split():
    assert list(Span(2, 9).split(3)) == [Span(2, 5), Span(5, 8), Span(8, 9)]
    assert list(Span(4, 4).split(3)) == []
