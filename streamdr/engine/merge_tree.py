"""The order in which segments are merged.

It depends only on the layout of the data, not on the number or kind of workers. So the sums have the same
bits on one thread, on eight, and on a cluster, and appended rows continue the same sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Generic, TypeVar

from streamdr.core.blocks import Span
from streamdr.engine.partition import Partition

RUN = 4
RADIX = 16
LONG_RUN = RUN * RADIX

_LEVELS = {1: 0, RUN: 1, LONG_RUN: 2}
"""The level of the tree to which the result of so many segments is added."""

T = TypeVar("T")


@dataclass(frozen=True)
class Work(Generic[T]):
    """The lines of one task: whole segments, or a part of the last one, or the new lines of that part."""

    span: Span
    segments: int = 1
    """The number of segments. Each is folded separately, and then they are merged."""
    continues: T | None = None
    """The state of the (only) segment before these lines, if it was folded in part."""

    @property
    def lines(self) -> int:
        """The number of lines to read."""
        return len(self.span)

    @property
    def spans(self) -> list[Span]:
        """The segments."""
        return list(self.span.split(len(self.span) // self.segments))


@dataclass
class MergeTree(Generic[T]):
    """Finished segments, merged like the digits of a number carry.

    Four segments make a run, sixteen runs make a longer one, and so on. A digit holds one merged value, so
    one value per level is kept. A run, or a longer one, may be one task, which is useful on a cluster, where
    moving results is expensive. The parts of the last segment stay separate, so that appended lines can
    continue or replace them.
    """

    partition: Partition
    merge: Callable[[T, T], T]
    digits: list[tuple[int, T] | None] = field(default_factory=list)
    tail: list[tuple[Span, T]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of whole segments that were merged."""
        return segments_in([digit[0] if digit else 0 for digit in self.digits])

    @property
    def ends(self) -> list[int]:
        """The line at which each digit that is not zero ends, lowest digit first."""
        counts = [digit[0] if digit else 0 for digit in self.digits]
        # A digit follows all higher ones.
        above = [[0] * level + counts[level:] for level, count in enumerate(counts) if count]
        return [segments_in(digits) * self.partition.segment_lines for digits in above]

    @property
    def lines(self) -> int:
        """The number of lines that were folded, from the first one on."""
        return self.tail[-1][0].stop if self.tail else self.count * self.partition.segment_lines

    def work(self, run: int, long_runs: int = 0) -> list[Work[T]]:
        """Return the remaining work in order: single segments, or `run` of them where a whole run begins.

        A task is a long run while at least `long_runs` of them remain; 0 stands for never. `take` must
        receive the results in the same order. The parts of a shorter input are reused.
        """
        return list(self._work(run, long_runs))

    def _work(self, run: int, long_runs: int) -> Iterator[Work[T]]:
        number = self.count
        known: dict[int, tuple[Span, T]] = {part.start: (part, value) for part, value in self.tail}
        self.tail = []
        if number < self.partition.whole and number * self.partition.segment_lines in known:
            part, value = known[number * self.partition.segment_lines]
            if part.stop % self.partition.unit(part.stop) == 0:
                yield Work(Span(part.stop, self.partition.span(number).stop), continues=value)
                number += 1
        while number < self.partition.whole:
            left = self.partition.whole - number
            together = run if number % run == 0 and run <= left else 1
            if long_runs and number % LONG_RUN == 0 and long_runs * LONG_RUN <= left:
                together = LONG_RUN
            last = self.partition.span(number + together - 1)
            yield Work(Span(self.partition.span(number).start, last.stop), together)
            number += together
        for part in self.partition.tail():
            old = known.get(part.start)
            if old is None or not self._begins(old[0], part):
                yield Work(part)
            elif old[0] == part:
                self.tail.append(old)
            else:
                yield Work(Span(old[0].stop, part.stop), continues=old[1])

    def take(self, work: Work[T], value: T) -> None:
        """Add the result of the next work: of whole segments, or of a part of the last one."""
        stop = work.span.stop
        if stop <= self.partition.whole * self.partition.segment_lines:
            carry(self.digits, value, _LEVELS[work.segments], self.merge)
        else:
            part = next(part for part in self.partition.tail() if part.stop == stop)
            self.tail.append((part, value))

    def total(self) -> T:
        """Return everything merged, earlier segments first."""
        values = [digit[1] for digit in reversed(self.digits) if digit is not None]
        values += [value for _, value in self.tail]
        return reduce(self.merge, values)

    def _begins(self, old: Span, part: Span) -> bool:
        """Return whether an earlier part of the last segment is a prefix of its present part."""
        if old.stop >= part.stop:
            return old == part
        return old.stop % self.partition.finest == 0 and old.stop % self.partition.unit(old.stop) == 0


def carry(digits: list[tuple[int, T] | None], value: T, level: int, merge: Callable[[T, T], T]) -> None:
    """Add the next segment (level 0), run (1) or long run (2), if no part of it was added before."""
    while True:
        while level >= len(digits):
            digits.append(None)
        digit = digits[level]
        if digit is None:
            digits[level] = (1, value)
            return
        count, earlier = digit
        value = merge(earlier, value)
        if count + 1 < (RUN if level == 0 else RADIX):
            digits[level] = (count + 1, value)
            return
        digits[level] = None
        level += 1


def segments_in(counts: Sequence[int]) -> int:
    """Return the number of segments that these digits stand for, lowest first."""
    return sum(
        count * (1 if level == 0 else RUN * RADIX ** (level - 1)) for level, count in enumerate(counts)
    )
