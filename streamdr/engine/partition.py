"""How a pass is cut into blocks and segments.

This follows from the data's layout alone, never from who computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from streamdr.core import blocks
from streamdr.core.blocks import Axis, MatrixSpec, Span

GROWTH = 16


@dataclass(frozen=True)
class Partition:
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


def partition(
    data: MatrixSpec, chunks: tuple[int, int], axis: Axis, accumulator_bytes: int, cost_factor: int = 1
) -> Partition:
    """Cut a pass along whole chunks, with blocks large enough to outweigh the accumulator's upkeep.

    Adding a block's product to a large accumulator costs as much as the accumulator is long, so wide
    data gets larger blocks; and a segment reads several times what its accumulator weighs. Where
    a value costs `cost_factor` times as much to read as usual, blocks are smaller by that factor, so that
    tasks take about as long.
    """
    lines, line_bytes = chunks[0 if axis == "rows" else 1], data.line_bytes(axis) * cost_factor
    chunk_bytes = lines * line_bytes
    target = min(max(blocks.BLOCK_BYTES, accumulator_bytes), blocks.LARGEST_BLOCK_BYTES)
    block = _power_of_two(target // chunk_bytes)
    finest = min(_power_of_two(accumulator_bytes // (4 * chunk_bytes)), block)
    segment = max(1, max(blocks.SEGMENT_BYTES, 4 * accumulator_bytes) // (block * chunk_bytes))
    return Partition(axis, data.length(axis), lines, block * lines, segment, finest * lines)


def _power_of_two(number: int) -> int:
    """The largest one that is not larger, and at least 1."""
    return 1 << max(0, number.bit_length() - 1)
