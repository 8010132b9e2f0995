"""Missing chunks of an array. zarr silently reads them as fill values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamdr.data.layout import Region
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
    """The result of a listing: the number of stored chunks, and the first chunk that is not stored."""

    count: int
    first_absent: int

    @classmethod
    def of(cls, numbers: NDArray[np.int64]) -> Present:
        """Return the result, given the sorted numbers of the stored chunks."""
        gaps = np.flatnonzero(numbers != np.arange(len(numbers)))
        return cls(len(numbers), int(gaps[0]) if len(gaps) else len(numbers))


def present_chunks(node: Node, metadata: ArrayMetadata) -> NDArray[np.int64]:
    """Return the numbers, in C order, of the stored chunks (or shards): eight bytes per file."""
    grid = metadata.grid
    parsed = (metadata.keys.coords(key, len(grid.shape)) for key in node.list_keys())
    found = (grid.number(coords) for coords in parsed if coords is not None)
    return np.unique(np.fromiter((number for number in found if number is not None), np.int64))


def find_missing(node: Node, metadata: ArrayMetadata, present: Present) -> Missing | None:
    """Return the missing chunks of an array: missing files, or else chunks that are missing in shards."""
    grid = metadata.grid
    if present.count < grid.n_chunks:
        coords = grid.coords(present.first_absent)
        return Missing(
            metadata.keys.key(coords), grid.bounds(coords), grid.n_chunks - present.count, grid.n_chunks
        )
    return None if metadata.sharding is None else _find_missing_in_shards(node, metadata)


def _find_missing_in_shards(node: Node, metadata: ArrayMetadata) -> Missing | None:
    """Return the chunks that are missing in the indexes of shards."""
    index = ShardIndex.of(metadata)
    if index is None:
        raise DataError(
            f"{node.name}: its shards are encoded in a way that does not show which of their chunks are "
            "missing; set allow_missing_chunks to read it anyway"
        )
    first, count, total = None, 0, 0
    inner = index.grid.chunk
    for number in range(metadata.grid.n_chunks):
        coords = metadata.grid.coords(number)
        key, bounds = metadata.keys.key(coords), metadata.grid.bounds(coords)
        needed = tuple(slice(0, -(-(b.stop - b.start) // c)) for b, c in zip(bounds, inner, strict=True))
        absent = np.argwhere(_offsets(node, key, index)[needed] == ABSENT)
        total += int(np.prod([piece.stop for piece in needed]))
        count += len(absent)
        if first is None and len(absent):
            inside = tuple(int(i) for i in absent[0])
            region = tuple(
                slice(b.start + i * c, min(b.start + (i + 1) * c, b.stop))
                for b, i, c in zip(bounds, inside, inner, strict=True)
            )
            first = f"{inside} of shard {key}", region
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
