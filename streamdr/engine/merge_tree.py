"""The order in which segments are merged.

It depends only on the layout of the data, not on the number or kind of workers. So the sums have the same
bits on one thread, on eight, and on a cluster, and appended rows continue the same sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from streamdr.core.blocks import Span
from streamdr.engine.partition import Partition

RUN = 4
RADIX = 16

T = TypeVar("T")


@dataclass(frozen=True)
class Work(Generic[T]):
    """The lines of one task: whole segments, or a part of the last one, or the new lines of that part."""

    spans: list[Span]
    """The segments. Each is folded separately, and then they are merged."""
    continues: T | None = None
    """The state of the (only) segment before these lines, if it was folded in part."""

    @property
    def lines(self) -> int:
        """The number of lines to read."""
        return sum(len(span) for span in self.spans)


@dataclass
class MergeTree(Generic[T]):
    """Finished segments, merged like the digits of a number carry.

    Four segments make a run, sixteen runs make a longer one, and so on. A digit holds one merged value, so
    one value per level is kept. A run is short enough to be one task, which is useful on a cluster, where
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

    def work(self, run: int) -> list[Work[T]]:
        """Return the remaining work in order: single segments, or `run` of them where a whole run begins.

        `take` must receive the results in the same order. The parts of a shorter input are reused.
        """
        return list(self._work(run))

    def _work(self, run: int) -> Iterator[Work[T]]:
        number = self.count
        known: dict[int, tuple[Span, T]] = {part.start: (part, value) for part, value in self.tail}
        self.tail = []
        if number < self.partition.whole and number * self.partition.segment_lines in known:
            part, value = known[number * self.partition.segment_lines]
            if part.stop % self.partition.unit(part.stop) == 0:
                yield Work([Span(part.stop, self.partition.span(number).stop)], value)
                number += 1
        while number < self.partition.whole:
            together = run if number % run == 0 and number + run <= self.partition.whole else 1
            yield Work([self.partition.span(n) for n in range(number, number + together)])
            number += together
        for part in self.partition.tail():
            old = known.get(part.start)
            if old is None or not self._begins(old[0], part):
                yield Work([part])
            elif old[0] == part:
                self.tail.append(old)
            else:
                yield Work([Span(old[0].stop, part.stop)], old[1])

    def take(self, work: Work[T], value: T) -> None:
        """Add the result of the next work: of whole segments, or of a part of the last one."""
        stop = work.spans[-1].stop
        if stop <= self.partition.whole * self.partition.segment_lines:
            self._push(value, level=1 if len(work.spans) > 1 else 0)
        else:
            part = next(part for part in self.partition.tail() if part.stop == stop)
            self.tail.append((part, value))

    def total(self) -> T:
        """Return everything merged, earlier segments first."""
        values = [digit[1] for digit in reversed(self.digits) if digit is not None]
        values += [value for _, value in self.tail]
        total = values[0]
        for value in values[1:]:
            total = self.merge(total, value)
        return total

    def _begins(self, old: Span, part: Span) -> bool:
        """Return whether an earlier part of the last segment is a prefix of its present part."""
        if old.stop >= part.stop:
            return old == part
        return old.stop % self.partition.finest == 0 and old.stop % self.partition.unit(old.stop) == 0

    def _push(self, value: T, level: int) -> None:
        """Add the next whole segment, or (level 1) the next run, if no segment of it was added before."""
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
    """Return the number of segments that these digits stand for, lowest first."""
    return sum(
        count * (1 if level == 0 else RUN * RADIX ** (level - 1)) for level, count in enumerate(counts)
    )
