"""How a pass is cut into blocks and segments, and the order in which segments merge.

Both follow from the data's layout alone, never from who computes: so the sums are the same bits on one
thread, on eight, and on a cluster, and rows that are appended continue the same sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Generic, TypeVar

from streamdr.blocks import Axis, MatrixSpec, Span

MIB = 1 << 20
BLOCK_BYTES = 16 * MIB
LARGEST_BLOCK_BYTES = 64 * MIB
SEGMENT_BYTES = 32 * MIB
GROWTH = 16
RUN = 4
RADIX = 16

T = TypeVar("T")


@dataclass(frozen=True)
class Cut:
    """Consecutive blocks of lines (rows or columns), whole chunks each, and segments of them, one to a task.

    Blocks grow: none is longer than a sixteenth of what is before it, until they are `block` lines long. What
    is left after the last whole block is cut into whole grains of a sixteenth of a block, of a sixteenth of
    that, and so on, and the rest. Lines that are appended later go on where one of these ends: only the rest
    is read again, and grains when they have become larger ones, which is never much of the whole.

    Chunks to a block or a grain are powers of two, so that each ends where a smaller one does.
    """

    axis: Axis
    length: int
    chunk: int
    block: int
    segment: int
    """How many whole blocks a segment has."""
    finest: int
    """How many lines the smallest grain has."""

    def __len__(self) -> int:
        """How many tasks there are: whole segments, and the parts of the last one."""
        return self.whole + len(self.tail())

    @property
    def whole(self) -> int:
        """How many segments are whole, and stay as they are if more lines are appended."""
        return self.length // self.segment_lines

    @property
    def segment_lines(self) -> int:
        """How many lines a whole segment holds."""
        return self.block * self.segment

    @property
    def longest(self) -> int:
        """How many lines the longest block has: blocks grow, and lines may be too few for whole ones."""
        return min(self._block_at(self.length), self.length)

    def span(self, number: int) -> Span:
        """The lines of a whole segment."""
        return Span(number * self.segment_lines, (number + 1) * self.segment_lines)

    def tail(self) -> list[Span]:
        """What is left after the whole segments: whole blocks, whole grains, the rest; none of them empty."""
        start = self.whole * self.segment_lines
        last = self._last_block()
        bounds = [start, last]
        grain = self._block_at(last)
        while grain > self.finest:
            grain = max(grain // GROWTH, self.finest)
            bounds.append(self.length - self.length % grain)
        bounds.append(self.length)
        return [Span(a, b) for a, b in pairwise(bounds) if a < b]

    def blocks(self, span: Span) -> list[Span]:
        """The blocks in which the lines of a segment, or of a part of the last one, are read."""
        found, start = [], span.start
        while start < span.stop:
            stop = min(start + self.unit(start), span.stop)
            found.append(Span(start, stop))
            start = stop
        return found

    def unit(self, line: int) -> int:
        """How many lines are read at a time, from this one on."""
        block = self._block_at(line)
        if line < self._last_block():
            return block
        grain = block
        while grain > self.finest:
            grain = max(grain // GROWTH, self.finest)
            if line < self.length - self.length % grain:
                return grain
        return self.length - line

    def _block_at(self, line: int) -> int:
        """How long the block at a line is, or would be if there were as many lines."""
        grown = line // (GROWTH * self.chunk)
        chunks = 1 << max(0, grown.bit_length() - 1)
        return min(max(chunks * self.chunk, self.finest), self.block)

    def _last_block(self) -> int:
        """Where the last whole block ends."""
        return self.length - self.length % self._block_at(self.length)


def cut(
    data: MatrixSpec, chunks: tuple[int, int], axis: Axis, accumulator_bytes: int, labour: int = 1
) -> Cut:
    """Cut a pass along whole chunks, with blocks large enough to outweigh the accumulator's upkeep.

    Adding a block's product to a large accumulator costs as much as the accumulator is long, so wide
    data gets larger blocks; and a segment reads several times what its accumulator weighs. A value that is
    so many times the usual `labour` counts as so many: tasks take about as long, whatever is done in them.
    """
    lines, line_bytes = chunks[0 if axis == "rows" else 1], data.line_bytes(axis) * labour
    chunk_bytes = lines * line_bytes
    target = min(max(BLOCK_BYTES, accumulator_bytes), LARGEST_BLOCK_BYTES)
    block = _power_of_two(target // chunk_bytes)
    finest = min(_power_of_two(accumulator_bytes // (4 * chunk_bytes)), block)
    segment = max(1, max(SEGMENT_BYTES, 4 * accumulator_bytes) // (block * chunk_bytes))
    return Cut(axis, data.length(axis), lines, block * lines, segment, finest * lines)


def _power_of_two(number: int) -> int:
    """The largest one that is not larger, and at least 1."""
    return 1 << max(0, number.bit_length() - 1)


@dataclass(frozen=True)
class Work(Generic[T]):
    """Lines for one task: whole segments, or a part of the last one, all or what is new of it."""

    spans: list[Span]
    """The segments, each to be folded on its own and then merged."""
    continues: T | None = None
    """What was folded of the (one) segment before these lines."""

    @property
    def lines(self) -> int:
        """How many lines there are to be read."""
        return sum(len(span) for span in self.spans)


@dataclass
class Tally(Generic[T]):
    """Finished segments, merged as the digits of their number carry.

    Four segments make a run, sixteen runs a longer one, sixteen of those a longer one yet. A digit holds
    one merged value: what is kept is one value a level. A run is short enough to be one task, where results
    are far apart and merging is dear. The parts of the last segment stay apart, so that appended lines
    can continue or replace them.
    """

    cut: Cut
    merge: Callable[[T, T], T]
    digits: list[tuple[int, T] | None] = field(default_factory=list)
    tail: list[tuple[Span, T]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many whole segments were taken."""
        return segments_in([digit[0] if digit else 0 for digit in self.digits])

    @property
    def lines(self) -> int:
        """How many lines were taken, from the first one on."""
        return self.tail[-1][0].stop if self.tail else self.count * self.cut.segment_lines

    def work(self, run: int) -> list[Work[T]]:
        """What is left to do, in order: segments one by one, or by `run` where a run begins and is whole.

        `take` must be told of each in the same order. What was tallied of a shorter input is used as far
        as it goes.
        """
        return list(self._work(run))

    def _work(self, run: int) -> Iterator[Work[T]]:
        number = self.count
        known: dict[int, tuple[Span, T]] = {part.start: (part, value) for part, value in self.tail}
        self.tail = []
        if number < self.cut.whole and number * self.cut.segment_lines in known:
            part, value = known[number * self.cut.segment_lines]
            if part.stop % self.cut.unit(part.stop) == 0:
                yield Work([Span(part.stop, self.cut.span(number).stop)], value)
                number += 1
        while number < self.cut.whole:
            together = run if number % run == 0 and number + run <= self.cut.whole else 1
            yield Work([self.cut.span(n) for n in range(number, number + together)])
            number += together
        for part in self.cut.tail():
            old = known.get(part.start)
            if old is None or not self._begins(old[0], part):
                yield Work([part])
            elif old[0] == part:
                self.tail.append(old)
            else:
                yield Work([Span(old[0].stop, part.stop)], old[1])

    def take(self, work: Work[T], value: T) -> None:
        """Take the value of the next work: of whole segments, or of a part of the last one."""
        stop = work.spans[-1].stop
        if stop <= self.cut.whole * self.cut.segment_lines:
            self._push(value, level=1 if len(work.spans) > 1 else 0)
        else:
            part = next(part for part in self.cut.tail() if part.stop == stop)
            self.tail.append((part, value))

    def total(self) -> T:
        """Everything merged, earlier segments first."""
        values = [digit[1] for digit in reversed(self.digits) if digit is not None]
        values += [value for _, value in self.tail]
        total = values[0]
        for value in values[1:]:
            total = self.merge(total, value)
        return total

    def _begins(self, old: Span, part: Span) -> bool:
        """Whether a part of the last segment that was folded before is a beginning of what it is now."""
        if old.stop >= part.stop:
            return old == part
        return old.stop % self.cut.finest == 0 and old.stop % self.cut.unit(old.stop) == 0

    def _push(self, value: T, level: int) -> None:
        """Take the next whole segment, or (level 1) the next run, when no segment of it was taken before."""
        while True:
            while level >= len(self.digits):
                self.digits.append(None)
            digit = self.digits[level]
            if digit is None:
                self.digits[level] = (1, value)
                return
            count, earlier = digit
            value = self.merge(earlier, value)
            if count + 1 < (RUN if level == 0 else RADIX):
                self.digits[level] = (count + 1, value)
                return
            self.digits[level] = None
            level += 1


def segments_in(counts: Sequence[int]) -> int:
    """The number that has these digits, lowest first."""
    return sum(
        count * (1 if level == 0 else RUN * RADIX ** (level - 1)) for level, count in enumerate(counts)
    )
