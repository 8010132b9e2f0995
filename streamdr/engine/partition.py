"""The partition of a pass into blocks and segments.

It depends only on the layout of the data, not on the number or kind of workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from streamdr.core import blocks
from streamdr.core.blocks import Axis, MatrixSpec, Span

GROWTH = 16
_COLUMNS_PER_VALUE, _MOST_ROW_VALUES, _VALUE_BYTES = 16, 256, 12
"""The nominal density of sparse rows, and the most values of one, since wide rows are emptier; and the bytes
of a value in double precision with its column."""


@dataclass(frozen=True)
class Partition:
    """Consecutive blocks of lines (rows or columns), made of whole chunks, and segments of blocks.

    Blocks grow: none is longer than a sixteenth of the lines before it, until they are `block` lines long.
    The lines after the last whole block are divided into whole grains of a sixteenth of a block, then of a
    sixteenth of that, and so on, and the rest. Appended lines continue where one of these ends. Only the rest
    is read again, and grains that become part of larger ones, which is always a small part of the lines.

    The number of chunks in a block or a grain is a power of two, so that each ends where a smaller one ends.
    """

    axis: Axis
    length: int
    chunk: int
    block: int
    segment: int
    """The number of whole blocks in a segment."""
    finest: int
    """The number of lines in the smallest grain."""

    def __len__(self) -> int:
        """Return the number of tasks: whole segments, and the parts of the last one."""
        return self.whole + len(self.tail())

    @property
    def whole(self) -> int:
        """The number of whole segments, which do not change if lines are appended."""
        return self.length // self.segment_lines

    @property
    def segment_lines(self) -> int:
        """The number of lines in a whole segment."""
        return self.block * self.segment

    @property
    def longest(self) -> int:
        """The number of lines in the longest block, which is shorter than `block` if there are few lines."""
        return min(self._block_at(self.length), self.length)

    def span(self, number: int) -> Span:
        """Return the lines of a whole segment."""
        return Span(number * self.segment_lines, (number + 1) * self.segment_lines)

    def tail(self) -> list[Span]:
        """Return the parts after the whole segments: whole blocks, whole grains, the rest; none is empty."""
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
        """Return the blocks in which the lines of a segment, or of a part of the last one, are read."""
        found, start = [], span.start
        while start < span.stop:
            stop = min(start + self.unit(start), span.stop)
            found.append(Span(start, stop))
            start = stop
        return found

    def unit(self, line: int) -> int:
        """Return the length of the block or grain that begins at a line."""
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
        """Return the length that a block at this line has, if there are enough lines."""
        grown = line // (GROWTH * self.chunk)
        chunks = 1 << max(0, grown.bit_length() - 1)
        return min(max(chunks * self.chunk, self.finest), self.block)

    def _last_block(self) -> int:
        """Return the line at which the last whole block ends."""
        return self.length - self.length % self._block_at(self.length)


def partition(
    data: MatrixSpec,
    chunks: tuple[int, int],
    axis: Axis,
    accumulator_bytes: int,
    cost_factor: int = 1,
    *,
    sparse: bool = False,
) -> Partition:
    """Return the partition of a pass into whole chunks.

    Adding the product of a block to an accumulator costs time in proportion to the size of the accumulator.
    So wide data gets larger blocks, and a segment reads several times the size of its accumulator. If a
    value costs `cost_factor` times as much as usual, blocks are smaller by that factor, so that tasks take
    about the same time. Sparse rows count with a nominal density: how many values are stored changes when
    rows are appended.
    """
    lines = chunks[0 if axis == "rows" else 1]
    line_bytes = (_sparse_bytes(data) if sparse else data.line_bytes(axis)) * cost_factor
    chunk_bytes = lines * line_bytes
    target = min(max(blocks.BLOCK_BYTES, accumulator_bytes), blocks.LARGEST_BLOCK_BYTES)
    block = _power_of_two(target // chunk_bytes)
    finest = min(_power_of_two(accumulator_bytes // (4 * chunk_bytes)), block)
    segment = max(1, max(blocks.SEGMENT_BYTES, 4 * accumulator_bytes) // (block * chunk_bytes))
    return Partition(axis, data.length(axis), lines, block * lines, segment, finest * lines)


def column_tiles(data: MatrixSpec, chunks: tuple[int, int], n_rows: int) -> list[Span]:
    """Return the columns that are read together where they may be read apart: whole chunks of columns.

    All of them, unless so many rows are a block that is too long, as those of a tall chunk are.
    """
    height = n_rows * data.working.itemsize
    if height * data.n_cols <= blocks.LARGEST_BLOCK_BYTES:
        return [Span(0, data.n_cols)]
    width = chunks[1] * max(1, blocks.BLOCK_BYTES // (height * chunks[1]))
    return list(Span(0, data.n_cols).split(width))


def _sparse_bytes(data: MatrixSpec) -> int:
    """Return the nominal bytes of a sparse row."""
    return min(-(-data.n_cols // _COLUMNS_PER_VALUE), _MOST_ROW_VALUES) * _VALUE_BYTES


def _power_of_two(number: int) -> int:
    """Return the largest power of two that is not larger than `number`, and at least 1."""
    return 1 << max(0, number.bit_length() - 1)
