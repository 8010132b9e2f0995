"""How a pass is cut into blocks and segments, and the order in which segments merge.

Both follow from the data's layout alone, never from who computes: so the sums are the same bits on one
thread, on eight, and on a cluster, and rows that are appended continue the same sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from streamdr.blocks import Axis, MatrixSpec, Span

MIB = 1 << 20
BLOCK_BYTES = 16 * MIB
LARGEST_BLOCK_BYTES = 64 * MIB
SEGMENT_BYTES = 32 * MIB
RUN = 4
RADIX = 16

T = TypeVar("T")


@dataclass(frozen=True)
class Cut:
    """Consecutive blocks of `block` lines (rows or columns), `segment` of them to a task."""

    axis: Axis
    length: int
    block: int
    segment: int

    def __len__(self) -> int:
        """How many segments there are."""
        return math.ceil(self.length / self.segment_lines)

    @property
    def segment_lines(self) -> int:
        """How many lines a full segment holds."""
        return self.block * self.segment

    def span(self, number: int) -> Span:
        """The lines of one segment."""
        start = number * self.segment_lines
        return Span(start, min(start + self.segment_lines, self.length))

    def blocks(self, number: int) -> Sequence[Span]:
        """The blocks of one segment."""
        return list(self.span(number).split(self.block))

    def tasks(self, first: int, run: int) -> Iterator[range]:
        """The segments from `first` on, one by one, or by `run` of them where a run begins and is full."""
        number = first
        while number < len(self):
            whole = number % run == 0 and number + run <= len(self) and self.is_full(number + run - 1)
            task = range(number, number + (run if whole else 1))
            yield task
            number = task.stop

    def is_full(self, number: int) -> bool:
        """Whether a segment would stay as it is if more lines were appended."""
        return len(self.span(number)) == self.segment_lines


def cut(data: MatrixSpec, chunks: tuple[int, int], axis: Axis, accumulator_bytes: int) -> Cut:
    """Cut a pass along whole chunks, with blocks large enough to outweigh the accumulator's upkeep.

    Adding a block's product to a large accumulator costs as much as the accumulator is long, so wide
    data gets larger blocks; and a segment reads several times what its accumulator weighs.
    """
    lines, line_bytes = chunks[0 if axis == "rows" else 1], data.line_bytes(axis)
    target = min(max(BLOCK_BYTES, accumulator_bytes), LARGEST_BLOCK_BYTES)
    block = lines * max(1, target // (lines * line_bytes))
    segment_bytes = max(SEGMENT_BYTES, 4 * accumulator_bytes)
    segment = max(1, segment_bytes // (block * line_bytes))
    return Cut(axis, data.length(axis), block, segment)


@dataclass
class Counter(Generic[T]):
    """Finished segments, merged as the digits of their number carry.

    Four segments make a run, sixteen runs a longer one, sixteen of those a longer one yet. A digit holds
    one merged value: what is kept is one value a level. A run is short enough to be one task, where results
    are far apart and merging is dear. The last segment, when it is not full, stays apart (`tail`), so that
    appended rows can replace it and continue the same sum.
    """

    merge: Callable[[T, T], T]
    digits: list[tuple[int, T] | None] = field(default_factory=list)
    tail: T | None = None

    @property
    def count(self) -> int:
        """How many segments were pushed."""
        full = sum(digit[0] * _place(level) for level, digit in enumerate(self.digits) if digit)
        return full + int(self.tail is not None)

    def push(self, value: T, level: int = 0) -> None:
        """Take the next full segment, or (level 1) the next run, when no segment of it was taken before."""
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

    def total(self) -> T:
        """Everything merged, earlier segments first."""
        values = [digit[1] for digit in reversed(self.digits) if digit is not None]
        if self.tail is not None:
            values.append(self.tail)
        total = values[0]
        for value in values[1:]:
            total = self.merge(total, value)
        return total


def _place(level: int) -> int:
    """How many segments one unit of a digit stands for."""
    return 1 if level == 0 else RUN * int(RADIX ** (level - 1))
