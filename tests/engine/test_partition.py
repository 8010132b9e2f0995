"""The partition depends on the layout only, and the merge tree merges in a fixed order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdr.core.blocks import LARGEST_BLOCK_BYTES, MatrixSpec, Span
from streamdr.engine.merge_tree import LONG_RUN, RADIX, RUN, MergeTree, carry
from streamdr.engine.partition import Partition, partition

SPEC = MatrixSpec(400_000, 1024, np.dtype(np.float32))


def test_blocks_are_whole_chunks_of_about_16_mb():
    assert partition(SPEC, (4096, 1024), "rows", 8 << 20).block == 4096
    assert partition(SPEC, (100, 1024), "rows", 8 << 20).block == 3200
    assert partition(SPEC, (100_000, 1024), "rows", 8 << 20).block == 100_000, "a chunk is never read twice"


def test_large_accumulators_get_larger_blocks_and_longer_segments():
    small, large = (partition(SPEC, (1, 1), "rows", held) for held in (1 << 10, 1 << 30))
    assert large.block * 4096 <= LARGEST_BLOCK_BYTES < large.block * 4096 * 2
    assert large.segment_lines * 4096 >= 2 << 30
    assert small.block < large.block


def test_blocks_of_wide_sparse_rows_have_many_rows():
    """In short blocks of wide and empty rows, adding to a large accumulator would take most of the time."""

    def block(n_cols):
        spec = MatrixSpec(10**6, n_cols, np.dtype("f4"), density=0.01)
        return partition(spec, (1, n_cols), "rows", 8 * 60 * n_cols, sparse=True).block

    assert [block(n_cols) for n_cols in (200, 2_000, 4_096, 30_000, 200_000)] == [
        65536,
        8192,
        4096,
        4096,
        16384,
    ]


@pytest.mark.parametrize("rows", [1, 4095, 4096, 8192, 100_001])
@pytest.mark.parametrize("chunk", [4096, 100])
def test_segments_cover_every_row_once(rows, chunk):
    parts = partition(MatrixSpec(rows, 1024, np.dtype("f4")), (chunk, 1024), "rows", 0)
    stretches = [parts.span(number) for number in range(parts.whole)] + parts.tail()
    assert len(parts) == len(stretches)
    spans = [block for stretch in stretches for block in parts.blocks(stretch)]
    assert spans[0].start == 0
    assert spans[-1].stop == rows
    assert all(earlier.stop == later.start for earlier, later in itertools.pairwise(spans))
    assert all(span.start % chunk == 0 for span in spans), "a chunk is never read twice"


def test_appended_rows_do_not_change_whole_segments():
    few, many = (
        partition(MatrixSpec(rows, 64, np.dtype("f4")), (100, 64), "rows", 0) for rows in (10**6, 10**7)
    )
    assert few.whole
    assert all(few.span(number) == many.span(number) for number in range(few.whole))


def test_no_block_is_longer_than_a_sixteenth_of_the_lines_before_it():
    parts = partition(MatrixSpec(10**6, 20, np.dtype("f4")), (10, 20), "rows", 3200)
    stretches = [parts.span(number) for number in range(parts.whole)] + parts.tail()
    blocks = [block for stretch in stretches for block in parts.blocks(stretch)]
    assert all(len(block) <= max(10, block.start / 16) for block in blocks)
    assert len(blocks) < 300
    assert {len(block) for block in blocks} >= {10, 20, 40, 10 << 12}


def test_a_large_accumulator_gets_larger_grains():
    parts = partition(SPEC, (100, 1024), "rows", 8 << 20)
    assert parts.finest == 400, "a quarter of the size of the accumulator"
    heavy = partition(SPEC, (100, 1024), "rows", 1 << 30)
    assert heavy.finest == heavy.block


def test_the_last_lines_need_few_reads_however_small_the_chunks():
    parts = partition(MatrixSpec(7_654_321, 20, np.dtype("f4")), (1, 20), "rows", 3200)
    reads = [block for part in parts.tail() for block in parts.blocks(part)]
    assert len(reads) < 100


def paired(earlier, later):
    return f"({earlier}, {later})"


def folded(parts, work):
    """Return the result of a task as a text of its computation: equal texts mean equal bits."""
    state, digits = work.continues or "", []
    for span in work.spans:
        for block in parts.blocks(span):
            state += f"{block.start}-{block.stop} "
        carry(digits, state, 0, paired)
        state = ""
    (total,) = (digit[1] for digit in digits if digit)
    return total


def finished(parts, run, known=((), ()), long_runs=0):
    tree = MergeTree[str](parts, paired)
    tree.digits, tree.tail = list(known[0]), list(known[1])
    work = tree.work(run, long_runs)
    for piece in work:
        tree.take(piece, folded(parts, piece))
        assert len(tree.digits) <= 2 + np.log(tree.count + 1) / np.log(RADIX), "one value per level"
    return tree, sum(piece.lines for piece in work)


powers = st.integers(0, 5).map(lambda power: 2**power)
layouts = st.tuples(st.integers(1, 4), powers, powers, st.integers(1, 4))


def parts_of(layout, rows):
    chunk, block, finest, segment = layout
    return Partition("rows", rows, chunk, block * chunk, segment, min(finest, block) * chunk)


@given(layouts, st.integers(1, 900))
def test_runs_of_segments_merge_in_the_same_order_as_single_segments(layout, rows):
    parts = parts_of(layout, rows)
    (alone, read), (by_runs, _) = finished(parts, 1), finished(parts, RUN)
    assert by_runs.total() == alone.total()
    by_long_runs, _ = finished(parts, RUN, long_runs=1)
    assert by_long_runs.total() == alone.total()
    assert alone.count == parts.whole
    assert alone.lines == read == rows


@given(layouts, st.integers(1, 600), st.integers(0, 300), st.integers(0, 5), st.sampled_from([1, RUN]))
def test_appended_rows_continue_the_same_sum(layout, rows, added, parts_kept, run):
    """However many parts of the last segment were saved, the result is that of reading everything."""
    before, _ = finished(parts_of(layout, rows), run)
    chunk = layout[0]
    same = [part for part in before.tail if part[0].stop % chunk == 0 or not added][:parts_kept]
    after, read = finished(parts_of(layout, rows + added), run, (before.digits, same))
    everything, _ = finished(parts_of(layout, rows + added), 1)
    assert after.total() == everything.total()
    if parts_kept == 5:
        again = max(rows / 16, parts_of(layout, rows).finest)
        assert read <= added + 2 * again, "only incomplete parts are read again, and they are small"


@given(st.integers(0, 20 * LONG_RUN), st.integers(0, 5), st.integers(0, 3 * LONG_RUN))
def test_long_runs_leave_enough_work_to_share(segments, long_runs, already):
    parts = Partition("rows", segments, 1, 1, 1, 1)
    before, _ = finished(Partition("rows", min(already, segments), 1, 1, 1, 1), 1)
    tree = MergeTree[str](parts, paired, digits=list(before.digits))
    left = segments - tree.count
    for piece in tree.work(RUN, long_runs):
        if piece.segments == LONG_RUN:
            assert piece.span.start % LONG_RUN == 0
            assert long_runs
            assert left >= long_runs * LONG_RUN
        left -= piece.lines
    continued, _ = finished(parts, RUN, (before.digits, ()), long_runs)
    assert segments == 0 or continued.total() == finished(parts, 1)[0].total()


def test_spans_split():
    assert list(Span(2, 9).split(3)) == [Span(2, 5), Span(5, 8), Span(8, 9)]
    assert list(Span(4, 4).split(3)) == []
