"""Missing chunks of an array. zarr silently reads them as fill values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamdr.data.layout import Region
from streamdr.data.zarr.grid import ChunkGrid
from streamdr.data.zarr.metadata import ArrayMetadata
from streamdr.data.zarr.shards import ABSENT, ShardIndex
from streamdr.data.zarr.stores import Node
from streamdr.errors import DataError


@dataclass(frozen=True)
class Missing:
    """The first missing chunk, the number of missing chunks, and the number of all chunks."""

    chunk: str
    region: Region
    count: int
    total: int


@dataclass(frozen=True)
class Present:
    """The result of a listing: the numbers of stored and of expected chunks, and the first that is absent.

    Attributes
    ----------
    unwritten_along : int or None
        If it is an axis, a tile of the other axes of which no chunk is stored along it was left out on
        purpose: all its values are missing, as those of land are.
    """

    count: int
    expected: int
    first_absent: int
    unwritten_along: int | None = None

    @classmethod
    def of(cls, numbers: NDArray[np.int64], grid: ChunkGrid, unwritten_along: int | None = None) -> Present:
        """Return the result, given the sorted numbers of the stored chunks."""
        if unwritten_along is None or not len(numbers):
            gaps = np.flatnonzero(numbers != np.arange(len(numbers)))
            first = int(gaps[0]) if len(gaps) else len(numbers)
            return cls(len(numbers), grid.n_chunks, first, unwritten_along)
        tiles, lines = _tiles(numbers, grid, unwritten_along)
        order = np.lexsort((lines, tiles))
        tiles, lines = tiles[order], lines[order]
        _, starts, sizes = np.unique(tiles, return_index=True, return_counts=True)
        n_lines = grid.counts[unwritten_along]
        expected = len(starts) * n_lines
        if len(numbers) == expected:
            return cls(expected, expected, -1, unwritten_along)
        ranks = np.arange(len(lines)) - np.repeat(starts, sizes)
        # In each tile, the first line that is not stored: where lines and ranks part, or after the last.
        parted = np.where(lines != ranks, ranks, n_lines)
        gaps = np.minimum(np.minimum.reduceat(parted, starts), sizes)
        short = sizes < n_lines
        absent = _numbers(tiles[starts][short], gaps[short], grid, unwritten_along)
        return cls(len(numbers), expected, int(absent.min()), unwritten_along)


def _tiles(
    numbers: NDArray[np.int64], grid: ChunkGrid, axis: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of the tile of each chunk, and its position along an axis."""
    inner = prod(grid.counts[axis + 1 :])
    outer, rest = np.divmod(numbers, inner * grid.counts[axis])
    return outer * inner + rest % inner, rest // inner


def _numbers(
    tiles: NDArray[np.int64], lines: NDArray[np.int64], grid: ChunkGrid, axis: int
) -> NDArray[np.int64]:
    """Return the numbers of chunks, given their tiles and positions: the inverse of `_tiles`."""
    inner = prod(grid.counts[axis + 1 :])
    outer, within = np.divmod(tiles, inner)
    return (outer * grid.counts[axis] + lines) * inner + within


def find_missing(node: Node, metadata: ArrayMetadata, present: Present) -> Missing | None:
    """Return the missing chunks of an array: missing files, or else chunks that are missing in shards."""
    grid = metadata.grid
    if present.count < present.expected:
        coords, absent = grid.coords(present.first_absent), present.expected - present.count
        return Missing(metadata.keys.key(coords), grid.bounds(coords), absent, present.expected)
    if metadata.sharding is None:
        return None
    if present.unwritten_along is None:
        return _find_missing_in_shards(node, metadata)
    numbers = node.stored_chunks(metadata.grid, metadata.keys).numbers
    return _find_partly_missing_in_shards(node, metadata, numbers, present.unwritten_along)


def _find_partly_missing_in_shards(
    node: Node, metadata: ArrayMetadata, numbers: NDArray[np.int64], axis: int
) -> Missing | None:
    """Return the chunks that are missing in shards, but for those of which none along an axis is stored."""
    index, grid = _readable_index(node, metadata), metadata.grid
    shards, _ = _tiles(numbers, grid, axis)
    count, total, first = 0, 0, None
    for tile in np.unique(shards):
        stored = {}
        for number in numbers[shards == tile].tolist():
            coords = grid.coords(number)
            offsets = _offsets(node, metadata.keys.key(coords), index)[_needed(index, grid.bounds(coords))]
            stored[coords] = offsets != ABSENT
        anywhere = np.logical_or.reduce([found.any(axis=axis, keepdims=True) for found in stored.values()])
        for coords, found in stored.items():
            absent = np.argwhere(~found & anywhere)
            total += int(np.broadcast_to(anywhere, found.shape).sum())
            count += len(absent)
            if first is None and len(absent):
                first = _located(index, grid.bounds(coords), metadata.keys.key(coords), absent[0])
    return None if first is None else Missing(*first, count, total)


def _readable_index(node: Node, metadata: ArrayMetadata) -> ShardIndex:
    """Return the index of shards, or refuse shards that do not show which of their chunks are missing."""
    index = ShardIndex.of(metadata)
    if index is None:
        raise DataError(
            f"{node.name}: its shards are encoded in a way that does not show which of their chunks are "
            "missing; set allow_missing_chunks to read it anyway"
        )
    return index


def _needed(index: ShardIndex, bounds: Region) -> Region:
    """Return the part of the index of a shard that belongs to chunks within the array."""
    inner = index.grid.chunk
    return tuple(slice(0, -(-(b.stop - b.start) // c)) for b, c in zip(bounds, inner, strict=True))


def _located(index: ShardIndex, bounds: Region, key: str, inside: Iterable[Any]) -> tuple[str, Region]:
    """Return the name and the region of a chunk in a shard."""
    position = tuple(int(i) for i in inside)
    region = tuple(
        slice(b.start + i * c, min(b.start + (i + 1) * c, b.stop))
        for b, i, c in zip(bounds, position, index.grid.chunk, strict=True)
    )
    return f"{position} of shard {key}", region


def _find_missing_in_shards(node: Node, metadata: ArrayMetadata) -> Missing | None:
    """Return the chunks that are missing in the indexes of shards."""
    index = _readable_index(node, metadata)
    first, count, total = None, 0, 0
    for number in range(metadata.grid.n_chunks):
        coords = metadata.grid.coords(number)
        key, bounds = metadata.keys.key(coords), metadata.grid.bounds(coords)
        needed = _needed(index, bounds)
        absent = np.argwhere(_offsets(node, key, index)[needed] == ABSENT)
        total += int(np.prod([piece.stop for piece in needed]))
        count += len(absent)
        if first is None and len(absent):
            first = _located(index, bounds, key, absent[0])
    return None if first is None else Missing(*first, count, total)


def _offsets(node: Node, key: str, index: ShardIndex) -> NDArray[np.uint64]:
    """Return the offsets in the index of a shard."""
    try:
        with node.parts(key) as part:
            if part is None:
                raise FileNotFoundError("it was deleted after it was listed")
            return index.read(part)[..., 0]
    except (OSError, ValueError) as error:
        raise DataError(f"{node.name}: shard {key} cannot be read: {error}") from error
