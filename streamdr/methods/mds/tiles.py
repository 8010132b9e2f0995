"""Runs of rows whose distances to all points stay in cache."""

from __future__ import annotations

from collections.abc import Iterator

TILE_BYTES = 1 << 20


def tile_rows(n_points: int) -> int:
    """The number of rows of a tile."""
    return max(1, TILE_BYTES // (8 * max(1, n_points)))


def row_tiles(n_rows: int, n_points: int) -> Iterator[slice]:
    """Slices of `n_rows` rows, tile by tile."""
    step = tile_rows(n_points)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))
