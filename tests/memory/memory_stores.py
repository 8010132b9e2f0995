"""Stores of every shape: fast to write, because they repeat the values of one block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import zarr
from scipy.spatial.distance import cdist
from zarr.codecs import BloscCodec


@dataclass(frozen=True)
class Layout:
    """A matrix and how it is stored."""

    shape: tuple[int, int]
    chunks: tuple[int, int]
    dtype: str = "f4"
    missing: bool = False
    """Whether a tenth of the values are missing: NaN, or -1 where there is no NaN."""
    pairs: Literal["distances", "products"] | None = None
    """Whether it holds the distances between points, or their products."""
    shards: tuple[int, int] | None = None
    land: bool = False
    """Whether every third column is never observed; the others have weights."""
    rank: int = 8
    """The number of directions in which values vary more than the noise."""
    sparse: Literal["csr", "csc"] | None = None
    """How a sparse matrix is stored. A twentieth of its values are, in chunks of as many as `chunks` has."""


STORES = {
    "tall": Layout((120_000, 128), (8192, 128)),
    "tall bytes": Layout((300_000, 128), (32_768, 128), "u1"),
    "tall columns": Layout((60_000, 512), (20_000, 64), "f2"),
    "tall doubles": Layout((60_000, 128), (4096, 128), "f8"),
    "tall missing": Layout((60_000, 256), (8192, 256), "f4", missing=True),
    "tall byte missing": Layout((120_000, 128), (32_768, 128), "i1", missing=True),
    "wide": Layout((300, 120_000), (300, 4096)),
    "wide bytes": Layout((500, 100_000), (500, 2000), "i1"),
    "wide rows": Layout((400, 100_000), (8, 100_000), "f2"),
    "wide missing": Layout((300, 60_000), (300, 4096), "f4", missing=True),
    "wide byte missing": Layout((500, 100_000), (500, 2000), "i1", missing=True),
    "both": Layout((12_000, 3_000), (1000, 500)),
    "both bytes": Layout((20_000, 2_000), (5_000, 250), "u1"),
    "both shorts": Layout((12_000, 3_000), (12_000, 100), "i2"),
    "both missing": Layout((8_000, 2_500), (2_000, 500), "f4", missing=True),
    "both half missing": Layout((8_000, 2_500), (500, 2_500), "f2", missing=True),
    "tall shards": Layout((120_000, 96), (1_000, 32), "i2", shards=(40_000, 96)),
    "both shards": Layout((12_000, 2_000), (250, 100), "f2", shards=(3_000, 1_000)),
    "tall land": Layout((120_000, 256), (8192, 256), land=True),
    "wide land": Layout((300, 120_000), (300, 4096), "f2", land=True),
    "both land": Layout((12_000, 3_000), (1000, 500), land=True),
    "sparse wide": Layout((4_000, 50_000), (512, 512), "f4", sparse="csr"),
    "sparse both": Layout((100_000, 2_000), (1024, 1024), "i4", sparse="csr"),
    "sparse columns": Layout((100_000, 2_000), (1024, 1024), "f4", sparse="csc"),
    "few": Layout((2_500, 1_000), (500, 250), "f4"),
    "few bytes": Layout((2_500, 2_000), (2_500, 100), "u1"),
    "few wide": Layout((1_200, 20_000), (300, 5_000), "f2"),
    "wide few": Layout((500, 2_500), (125, 500), "f2"),
    "few tall": Layout((4_000, 32), (1000, 32), "f4"),
    "distances": Layout((3_000, 3_000), (500, 500), "f4", pairs="distances"),
    "distance bytes": Layout((4_000, 4_000), (4_000, 200), "u1", pairs="distances"),
    "products": Layout((2_500, 2_500), (500, 2_500), "f4", pairs="products"),
    # Chunks as large as the largest blocks. With smaller chunks, blocks are small at first and grow.
    "large tall": Layout((150_000, 256), (16_384, 256)),
    "four times as tall": Layout((600_000, 256), (16_384, 256)),
    "four times as wide": Layout((300, 480_000), (300, 4096)),
    "square chunks": Layout((40_000, 1024), (1024, 512)),
    "small chunks": Layout((60_000, 512), (500, 512)),
    "large chunks": Layout((60_000, 512), (30_000, 512)),
    "large tall missing": Layout((50_000, 256), (16_384, 256), missing=True),
    "large chunks missing": Layout((24_000, 512), (12_000, 512), missing=True),
    "many features missing": Layout((2000, 1500), (500, 1500), missing=True),
    "less wide missing": Layout((300, 40_000), (300, 4096), missing=True),
    "wide whole rows": Layout((300, 40_000), (100, 40_000)),
    "narrow bytes": Layout((1_000_000, 8), (65_536, 8), "u1"),
    "16 columns": Layout((8_000, 16), (4096, 16)),
    "few 16 columns": Layout((1500, 16), (500, 16)),
    "32 columns": Layout((60_000, 32), (8192, 32)),
    "64 columns": Layout((60_000, 64), (8192, 64)),
    "noise": Layout((60_000, 64), (8192, 64), rank=0),
    "few 64 columns": Layout((2500, 64), (1000, 64)),
    "more 64 columns": Layout((3500, 64), (1000, 64)),
    "100 columns": Layout((60_000, 100), (8192, 100)),
    "200 columns": Layout((100_000, 200), (5_000, 50)),
    "3000 columns": Layout((3000, 3000), (500, 1000)),
    "few distances": Layout((2000, 2000), (250, 2000), "f8", pairs="distances"),
    "distances beyond the limit": Layout((8_300, 8_300), (200, 8_300), "f8", pairs="distances"),
    "many distances": Layout((8_000, 8_000), (250, 8_000), "u2", pairs="distances"),
}


def options(name: str) -> dict:
    """The options to open a store: the number that stands for a missing value, where there is no NaN."""
    layout = STORES[name]
    return {"missing_value": -1} if layout.missing and layout.dtype[0] == "i" else {}


def make(path, name: str):
    """Write a store."""
    layout = STORES[name]
    if layout.sparse is not None:
        return make_sparse(path, layout)
    array = zarr.create_array(
        path,
        shape=layout.shape,
        chunks=layout.chunks,
        shards=layout.shards,
        dtype=layout.dtype,
        compressors=BloscCodec(cname="lz4", clevel=1),
    )
    rng = np.random.default_rng(0)
    rows, cols = layout.shards or layout.chunks
    if layout.pairs is not None:
        points = rng.standard_normal((layout.shape[0], 3))
        for row in range(0, layout.shape[0], rows):
            here = slice(row, row + rows)
            if layout.pairs == "products":
                array[here] = points[here] @ points.T
                continue
            values = cdist(points[here], points)
            array[here] = values if layout.dtype[0] == "f" else np.rint(20 * values)
        return path
    rank = layout.rank
    piece = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, cols))
    piece += rng.standard_normal((rows, cols))
    if layout.dtype[0] != "f":
        piece = np.clip(np.rint(12 * piece + (50 if layout.missing else 60)), 0, 127)
    if layout.missing:
        piece[rng.random((rows, cols)) < 0.1] = np.nan if layout.dtype[0] == "f" else -1
    if layout.land:
        piece[:, ::3] = np.nan
    piece = piece.astype(layout.dtype)
    for row in range(0, layout.shape[0], rows):
        for column in range(0, layout.shape[1], cols):
            turned = np.roll(piece, column // cols, axis=0)
            array[row : row + rows, column : column + cols] = turned[
                : layout.shape[0] - row, : layout.shape[1] - column
            ]
    return path


def make_sparse(path, layout: Layout):
    """Write a sparse matrix. The values of a few lines are repeated."""
    n_lines, n_across = layout.shape if layout.sparse == "csr" else layout.shape[::-1]
    rng = np.random.default_rng(0)
    stored = n_across // 20
    lines = np.stack([np.sort(rng.permutation(n_across)[:stored]) for _ in range(50)]).astype("i4")
    values = (1 + rng.poisson(2, lines.shape)).astype(layout.dtype)
    values[:, : stored // 2] *= 1 + np.arange(50, dtype=layout.dtype)[:, None] % 5
    group = zarr.create_group(
        path, attributes={"encoding-type": f"{layout.sparse}_matrix", "shape": list(layout.shape)}
    )
    repeats = -(-n_lines // len(lines))
    arrays = {
        "data": np.tile(values, (repeats, 1))[:n_lines].ravel(),
        "indices": np.tile(lines, (repeats, 1))[:n_lines].ravel(),
        "indptr": np.arange(n_lines + 1, dtype="i8") * stored,
    }
    for name, array in arrays.items():
        chunk = (layout.chunks[0] * layout.chunks[1],)
        group.create_array(name, shape=array.shape, chunks=chunk, dtype=array.dtype)[...] = array
    return path


def make_feature_weights(path, n_cols: int):
    """Write one weight per column."""
    array = zarr.create_array(path, shape=(n_cols,), chunks=(n_cols,), dtype="f8")
    array[:] = np.linspace(0.1, 1.0, n_cols)
    return path


def make_labels(path, n_rows: int, kind: str):
    """Write one label (or weight) per row: one of ten numbers, or any number."""
    rng = np.random.default_rng(1)
    values = rng.integers(0, 10, n_rows) if kind == "classes" else rng.standard_normal(n_rows)
    array = zarr.create_array(path, shape=(n_rows,), chunks=(min(n_rows, 50_000),), dtype=values.dtype)
    array[:] = values
    return path
