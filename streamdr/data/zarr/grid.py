"""Arithmetic of chunks: which of them a region touches, what they are called, what they cover."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

from streamdr.data.layout import Region


class Overlap(NamedTuple):
    """The part that a chunk and a region share."""

    coords: tuple[int, ...]
    within: Region
    """The part, counted from the chunk's corner."""
    target: Region
    """The part, counted from the region's corner."""


def overlaps(edges: Sequence[Sequence[int]], region: Region) -> Iterator[Overlap]:
    """The chunks that a region touches, in C order; `edges` are where chunks begin, and the end, by axis."""
    axes = [list(_along(edge, piece)) for edge, piece in zip(edges, region, strict=True)]
    for pieces in product(*axes):
        yield Overlap(
            tuple(index for index, _, _ in pieces),
            tuple(within for _, within, _ in pieces),
            tuple(target for _, _, target in pieces),
        )


def _along(edges: Sequence[int], piece: slice) -> Iterator[tuple[int, slice, slice]]:
    first = bisect_right(edges, piece.start) - 1
    last = bisect_right(edges, piece.stop - 1)
    for index, (low, high) in enumerate(pairwise(edges[first : last + 1]), first):
        start, stop = max(low, piece.start), min(high, piece.stop)
        if start < stop:
            yield index, slice(start - low, stop - low), slice(start - piece.start, stop - piece.start)


@dataclass(frozen=True)
class ChunkGrid:
    """An array cut into chunks of one shape, the last ones reaching beyond it."""

    shape: tuple[int, ...]
    chunk: tuple[int, ...]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many chunks there are along each axis."""
        return tuple(-(-length // c) for length, c in zip(self.shape, self.chunk, strict=True))

    @cached_property
    def n_chunks(self) -> int:
        """How many chunks there are."""
        return prod(self.counts)

    @cached_property
    def edges(self) -> tuple[range, ...]:
        """Where chunks begin and end along each axis."""
        return tuple(range(0, n * c + 1, c) for n, c in zip(self.counts, self.chunk, strict=True))

    def overlaps(self, region: Region) -> Iterator[Overlap]:
        """The chunks that a region touches."""
        return overlaps(self.edges, region)

    def bounds(self, coords: Sequence[int]) -> Region:
        """The box that a chunk fills inside the array."""
        return tuple(
            slice(i * c, min((i + 1) * c, length))
            for i, c, length in zip(coords, self.chunk, self.shape, strict=True)
        )

    def number(self, coords: Sequence[int]) -> int | None:
        """The chunk's place in C order, or None when it lies outside."""
        flat = 0
        for i, count in zip(coords, self.counts, strict=True):
            if i >= count:
                return None
            flat = flat * count + i
        return flat

    def coords(self, number: int) -> tuple[int, ...]:
        """The chunk at this place in C order."""
        coords = []
        for count in reversed(self.counts):
            number, i = divmod(number, count)
            coords.append(i)
        return tuple(reversed(coords))


@dataclass(frozen=True)
class KeyEncoding:
    """How a chunk's coordinates become the name it is stored under: `c/3/0`, `3.0` and the like."""

    prefix: str
    separator: str

    def key(self, coords: Sequence[int]) -> str:
        """The name of a chunk."""
        return self.separator.join([*([self.prefix] if self.prefix else []), *map(str, coords)])

    def coords(self, key: str, ndim: int) -> tuple[int, ...] | None:
        """The chunk of this name, or None when no chunk is called so."""
        parts = key.split(self.separator)
        if self.prefix:
            if parts[0] != self.prefix:
                return None
            del parts[0]
        if len(parts) != ndim or not all(part.isdecimal() for part in parts):
            return None
        coords = tuple(map(int, parts))
        # Of "03" and "3" only one is the name of a chunk.
        return coords if all(map(str.__eq__, map(str, coords), parts)) else None
