"""Chunk grids: which chunks a region overlaps, their keys and their bounds."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

from streamdr.data.layout import Region


class Overlap(NamedTuple):
    """The intersection of a chunk and a region."""

    coords: tuple[int, ...]
    within: Region
    """The intersection, relative to the origin of the chunk."""
    target: Region
    """The intersection, relative to the origin of the region."""


def overlaps(edges: Sequence[Sequence[int]], region: Region) -> Iterator[Overlap]:
    """Yield the chunks that a region overlaps, in C order. `edges` are chunk boundaries along each axis."""
    axes = [list(_along(edge, piece)) for edge, piece in zip(edges, region, strict=True)]
    for pieces in product(*axes):
        yield Overlap(
            tuple(index for index, _, _ in pieces),
            tuple(within for _, within, _ in pieces),
            tuple(target for _, _, target in pieces),
        )


def _along(edges: Sequence[int], piece: slice) -> Iterator[tuple[int, slice, slice]]:
    """Yield the overlaps along one axis: the index of the chunk, and the slices within chunk and region."""
    first = bisect_right(edges, piece.start) - 1
    last = bisect_right(edges, piece.stop - 1)
    for index, (low, high) in enumerate(pairwise(edges[first : last + 1]), first):
        start, stop = max(low, piece.start), min(high, piece.stop)
        if start < stop:
            yield index, slice(start - low, stop - low), slice(start - piece.start, stop - piece.start)


@dataclass(frozen=True)
class ChunkGrid:
    """An array divided into chunks of one shape. The last chunks may extend beyond the array."""

    shape: tuple[int, ...]
    chunk: tuple[int, ...]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The number of chunks along each axis."""
        return tuple(-(-length // c) for length, c in zip(self.shape, self.chunk, strict=True))

    @cached_property
    def n_chunks(self) -> int:
        """The number of chunks."""
        return prod(self.counts)

    @cached_property
    def edges(self) -> tuple[range, ...]:
        """The chunk boundaries along each axis."""
        return tuple(range(0, n * c + 1, c) for n, c in zip(self.counts, self.chunk, strict=True))

    def overlaps(self, region: Region) -> Iterator[Overlap]:
        """Yield the chunks that a region overlaps."""
        return overlaps(self.edges, region)

    def bounds(self, coords: Sequence[int]) -> Region:
        """Return the part of the array that a chunk covers."""
        return tuple(
            slice(i * c, min((i + 1) * c, length))
            for i, c, length in zip(coords, self.chunk, self.shape, strict=True)
        )

    def number(self, coords: Sequence[int]) -> int | None:
        """Return the number of a chunk in C order, or None if it is outside the array."""
        flat = 0
        for i, count in zip(coords, self.counts, strict=True):
            if i >= count:
                return None
            flat = flat * count + i
        return flat

    def coords(self, number: int) -> tuple[int, ...]:
        """Return the coordinates of the chunk with this number in C order."""
        coords = []
        for count in reversed(self.counts):
            number, i = divmod(number, count)
            coords.append(i)
        return tuple(reversed(coords))


@dataclass(frozen=True)
class KeyEncoding:
    """How the coordinates of a chunk are encoded as a key, such as `c/3/0` or `3.0`."""

    prefix: str
    separator: str

    def key(self, coords: Sequence[int]) -> str:
        """Return the key of a chunk."""
        return self.separator.join([*([self.prefix] if self.prefix else []), *map(str, coords)])

    def reader(self, grid: ChunkGrid) -> Callable[[str], int | None]:
        """Return a function from the key of a chunk to its number, and from any other text to None."""
        # "3" is the key of a chunk, "03" is not.
        position = "(0|[1-9][0-9]{0,18})"
        parts = [*([re.escape(self.prefix)] if self.prefix else []), *[position] * len(grid.shape)]
        match = re.compile(re.escape(self.separator).join(parts)).fullmatch

        def number(key: str) -> int | None:
            found = match(key)
            return None if found is None else grid.number([int(part) for part in found.groups()])

        return number
