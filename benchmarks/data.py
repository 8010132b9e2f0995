"""The stores that the benchmarks read. They are made once and kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zarr
from rich.progress import track
from zarr.codecs import BloscCodec

from benchmarks.cosine import CosineMatrix

LATENT = 64

Fill = Callable[[slice, slice], np.ndarray]
"""Returns the values of one chunk; called in order."""


def chunk_slices(shape: tuple[int, ...], chunks: tuple[int, ...]) -> list[tuple[slice, slice]]:
    """Return the rows and columns of each chunk in storage order."""
    rows, cols = (
        [slice(i, min(i + c, n)) for i in range(0, n, c)] for n, c in zip(shape, chunks, strict=True)
    )
    return [(r, c) for r in rows for c in cols]


def build(path: Path, shape: tuple[int, int], chunks: tuple[int, int], fill: Fill, dtype: str = "f4") -> Path:
    """Write a store chunk by chunk, unless it exists; it appears under its name when complete."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    array = zarr.create_array(
        partial, shape=shape, chunks=chunks, dtype=dtype, compressors=BloscCodec(cname="lz4"), overwrite=True
    )
    for rows, cols in track(chunk_slices(shape, chunks), description=path.name):
        array[rows, cols] = fill(rows, cols)
    os.rename(partial, path)
    return path


def tall(folder: Path, rows: int, cols: int, *, offset: float = 1.0) -> Path:
    """Make many rows, `offset` standard deviations from zero: 64 directions above a noise floor."""
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((LATENT, cols)) / np.sqrt(np.arange(1, LATENT + 1))[:, None]
    deviation = np.sqrt((loadings**2).sum(axis=0) + 0.01)
    mean = offset * deviation * rng.uniform(0.5, 1.5, cols) * rng.choice([-1.0, 1.0], cols)
    loadings = loadings.astype("f4")

    def fill(r: slice, c: slice) -> np.ndarray:
        n = r.stop - r.start
        scores = rng.standard_normal((n, LATENT), dtype="f4")
        return scores @ loadings + np.float32(0.1) * rng.standard_normal((n, cols), dtype="f4") + mean

    return build(folder / f"tall-{rows}x{cols}-offset{offset:g}.zarr", (rows, cols), (4096, cols), fill)


def repeated(store: Path, times: int) -> Path:
    """Make a store of several times the rows out of links to the chunks of another."""
    array = zarr.open_array(store, mode="r")
    rows, cols = array.shape
    height = array.chunks[0]
    path = store.with_name(f"{store.stem}-times{times}.zarr")
    if path.exists():
        return path
    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    zarr.create_array(
        partial,
        shape=(times * rows, cols),
        chunks=array.chunks,
        dtype=array.dtype,
        compressors=BloscCodec(cname="lz4"),
    )
    whole = max(rows // height, 1)
    for chunk in range(-(-times * rows // height)):
        target = partial / "c" / str(chunk) / "0"
        target.parent.mkdir(parents=True)
        target.hardlink_to(store / "c" / str(chunk % whole) / "0")
    os.rename(partial, path)
    return path


def curved(folder: Path, rows: int, cols: int, dtype: str = "f4") -> Path:
    """Make rows on a curved surface of five dimensions, and a little noise: columns of unit variance."""
    rng = np.random.default_rng(5)
    slopes = 0.5 * rng.standard_normal((5, cols))
    phases = rng.uniform(0, 2 * np.pi, cols)

    def fill(r: slice, c: slice) -> np.ndarray:
        n = r.stop - r.start
        noise = 0.1 * rng.standard_normal((n, cols))
        return np.sqrt(2) * np.sin(rng.standard_normal((n, 5)) @ slopes + phases) + noise

    path = folder / f"curved-{rows}x{cols}-{dtype}.zarr"
    return build(path, (rows, cols), (4096, cols), fill, dtype)


def unequal_clusters(folder: Path, rows: int, cols: int, *, small: int, share: float) -> Path:
    """Make one large cluster, and many small ones far from it that have `share` of the rows together."""
    rng = np.random.default_rng(6)
    centres = 10 * rng.standard_normal((small + 1, cols))
    chances = np.r_[1 - share, np.full(small, share / small)]

    def fill(r: slice, c: slice) -> np.ndarray:
        n = r.stop - r.start
        return centres[rng.choice(small + 1, n, p=chances)] + 0.3 * rng.standard_normal((n, cols))

    path = folder / f"clusters-{rows}x{cols}-{small}small{share:g}.zarr"
    return build(path, (rows, cols), (4096, cols), fill)


def clusters(folder: Path, rows: int, cols: int, number: int) -> Path:
    """Make clusters of about equally many rows, with a quarter of the standard deviation of their centres."""
    rng = np.random.default_rng(10)
    centres = 2 * rng.standard_normal((number, cols))

    def fill(r: slice, c: slice) -> np.ndarray:
        n = r.stop - r.start
        return centres[rng.integers(number, size=n)] + 0.5 * rng.standard_normal((n, cols))

    return build(folder / f"equal-clusters-{rows}x{cols}-{number}.zarr", (rows, cols), (4096, cols), fill)


def digits(folder: Path) -> Path:
    """Write scikit-learn's 1,797 handwritten digits of 8 x 8 pixels."""
    from sklearn.datasets import load_digits

    rows = load_digits().data
    return build(folder / "digits.zarr", rows.shape, (256, rows.shape[1]), lambda r, c: rows[r, c])


def related(folder: Path, rows: int, cols: int) -> Path:
    """Make correlated columns: a common part of 20 dimensions, and independent noise of the same variance."""
    rng = np.random.default_rng(7)
    loadings = (rng.standard_normal((20, cols)) / np.sqrt(20)).astype("f4")

    def fill(r: slice, c: slice) -> np.ndarray:
        n = r.stop - r.start
        common = rng.standard_normal((n, 20), dtype="f4") @ loadings
        return common + rng.standard_normal((n, cols), dtype="f4") + np.float32(3)

    return build(folder / f"related-{rows}x{cols}.zarr", (rows, cols), (4096, cols), fill)


Labeller = Callable[[np.ndarray], np.ndarray]
"""Returns the labels of the rows of one chunk; called in order."""


def labels(store: Path, name: str, dtype: str, of: Labeller) -> Path:
    """Write one label per row beside a store, unless they exist."""
    path = store.with_name(f"{store.stem}.{name}.zarr")
    if path.exists():
        return path
    array = zarr.open_array(store, mode="r")
    spans = chunk_slices(array.shape, (array.chunks[0], array.shape[1]))
    found = np.concatenate([of(np.asarray(array[span])) for span in track(spans, description=path.name)])
    partial = path.with_name(path.name + ".partial")
    zarr.create_array(partial, data=found.astype(dtype), chunks=(65536,), overwrite=True)
    os.rename(partial, path)
    return path


def classes(store: Path, number: int) -> Path:
    """Label each row by the largest of `number` random projections plus noise: classes overlap."""
    array = zarr.open_array(store, mode="r")
    first = np.asarray(array[: array.chunks[0]])
    rng = np.random.default_rng(8)
    directions = rng.standard_normal((array.shape[1], number), dtype="f4")
    mean, deviation = first.mean(axis=0), ((first - first.mean(axis=0)) @ directions).std()

    def of(rows: np.ndarray) -> np.ndarray:
        noise = deviation * rng.standard_normal((len(rows), number), dtype="f4")
        return ((rows - mean) @ directions + noise).argmax(axis=1)

    return labels(store, f"classes{number}", "i4", of)


def target(store: Path) -> Path:
    """Label each row by a weighted sum of a fifth of its columns, with decreasing weights, and noise."""
    cols = zarr.open_array(store, mode="r").shape[1]
    rng = np.random.default_rng(9)
    some = rng.permutation(cols)[: cols // 5]
    slopes = (rng.choice([-1.0, 1.0], len(some)) / np.sqrt(1 + np.arange(len(some)))).astype("f4")

    def of(rows: np.ndarray) -> np.ndarray:
        return rows[:, some] @ slopes + 2 * rng.standard_normal(len(rows), dtype="f4")

    return labels(store, "target", "f4", of)


def wide(folder: Path, rows: int, cols: int) -> Path:
    """Make few rows of very many columns: 64 directions above a noise floor, a mean for every column."""
    rng = np.random.default_rng(1)
    scores = rng.standard_normal((rows, LATENT)) / np.sqrt(np.arange(1, LATENT + 1))
    scores = scores.astype("f4")

    def fill(r: slice, c: slice) -> np.ndarray:
        n = c.stop - c.start
        signal = scores @ rng.standard_normal((LATENT, n), dtype="f4")
        noise = np.float32(0.1) * rng.standard_normal((rows, n), dtype="f4")
        return signal + noise + rng.standard_normal(n, dtype="f4")

    return build(folder / f"wide-{rows}x{cols}.zarr", (rows, cols), (rows, 8192), fill)


def slow_decay(folder: Path, matrix: CosineMatrix) -> Path:
    """Make a large matrix whose spectrum decays like 1/i and whose principal subspaces are known exactly."""
    shape = (matrix.rows, matrix.cols)
    path = folder / f"slow-decay-{matrix.rows}x{matrix.cols}.zarr"
    return build(path, shape, (200, matrix.cols), lambda r, c: matrix.block(r))


def with_zeros(folder: Path, rows: int, cols: int, share: float) -> Path:
    """Make rows like those of `tall`, of which a share of the values is replaced by zero."""
    rng = np.random.default_rng(12)
    loadings = (rng.standard_normal((LATENT, cols)) / np.arange(1, LATENT + 1)[:, None] ** 0.5).astype("f4")
    below = np.uint8(round(256 * share))

    def fill(r: slice, c: slice) -> np.ndarray:
        n = r.stop - r.start
        values = rng.standard_normal((n, LATENT), dtype="f4") @ loadings
        values += np.float32(0.1) * rng.standard_normal((n, cols), dtype="f4")
        values += np.float32(1.0)
        values[np.frombuffer(rng.bytes(n * cols), np.uint8).reshape(n, cols) < below] = 0.0
        return values

    path = folder / f"zeros-{rows}x{cols}-{share:g}.zarr"
    return build(path, (rows, cols), (32768, cols), fill)
