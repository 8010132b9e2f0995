"""Counts of genes in cells, as AnnData writes them to zarr, and the same rows as a dense store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse
import zarr
from rich.progress import track

DENSITY = 0.05
_TYPES = 30
_ROWS = 20_000
"""How many rows are made at a time."""


def blocks(rows: int, cols: int) -> Iterator[scipy.sparse.csr_array]:
    """Yield rows of counts: cells of some types, in which genes are found with log-normal rates."""
    rng = np.random.default_rng(0)
    rates = rng.lognormal(0.0, 1.2, cols) * rng.lognormal(0.0, 1.0, (_TYPES, cols))
    low, high = 1e-6, 10.0
    for _ in range(60):  # the depth with which the density is as wanted
        depth = np.sqrt(low * high)
        low, high = (low, depth) if (1 - np.exp(-depth * rates)).mean() > DENSITY else (depth, high)
    rates *= low
    found = (1 - np.exp(-rates)).astype("f4")
    for start in range(0, rows, _ROWS):
        own = np.random.default_rng([1, start])
        number = min(_ROWS, rows - start)
        types = np.sort(own.integers(0, _TYPES, number))
        stored = own.random((number, cols), dtype=np.float32) < found[types]
        counts = (1 + own.poisson(rates[types][stored])).astype("f4")
        ends = np.append(0, stored.sum(axis=1).cumsum())
        parts = (counts, np.nonzero(stored)[1].astype("i4"), ends)
        yield scipy.sparse.csr_array(parts, shape=(number, cols))[own.permutation(number)]


def counts_store(folder: Path, rows: int, cols: int) -> Path:
    """Write the rows as `anndata.write_zarr` does: zarr v2, lz4, chunks as zarr chooses them."""
    path = folder / f"counts-{rows}x{cols}.zarr"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    parts = [partial.with_name(f"{path.name}.{name}") for name in ("data", "indices")]
    lengths = []
    with parts[0].open("wb") as data, parts[1].open("wb") as indices:
        for block in track(blocks(rows, cols), description=path.name, total=-(-rows // _ROWS)):
            block.sort_indices()
            data.write(block.data.tobytes())
            indices.write(block.indices.astype("i4").tobytes())
            lengths.append(np.diff(block.indptr))
    ends = np.append(0, np.concatenate(lengths).cumsum())
    root = zarr.open_group(partial, mode="w", zarr_format=2)
    root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    group = root.create_group("X")
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [rows, cols]})
    for name, part, dtype in zip(("data", "indices"), parts, ("f4", "i4"), strict=True):
        values = np.memmap(part, dtype, "r")
        array = group.create_array(name, shape=values.shape, dtype=dtype)
        step = 64 * array.chunks[0]
        for start in range(0, len(values), step):
            array[start : start + step] = values[start : start + step]
        part.unlink()
    group.create_array("indptr", shape=ends.shape, dtype=np.int64)[...] = ends
    for name, length in (("obs", rows), ("var", cols)):
        _write_names(root.create_group(name), name, length)
    zarr.consolidate_metadata(partial)
    os.rename(partial, path)
    return path


def _write_names(group: zarr.Group, prefix: str, length: int) -> None:
    """Write a data frame that has an index only, as AnnData does."""
    group.attrs.update(
        {
            "encoding-type": "dataframe",
            "encoding-version": "0.2.0",
            "_index": "_index",
            "column-order": [],
        }
    )
    names = np.array([f"{prefix}{number}" for number in range(length)])
    index = group.create_array("_index", data=names)
    index.attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})


def dense_store(folder: Path, rows: int, cols: int) -> Path:
    """Write the same rows as a dense array, in whole rows."""
    path = folder / f"counts-dense-{rows}x{cols}.zarr"
    if path.exists():
        return path
    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    array = zarr.create_array(partial, shape=(rows, cols), chunks=(2000, cols), dtype="f4")
    start = 0
    for block in track(blocks(rows, cols), description=path.name, total=-(-rows // _ROWS)):
        array[start : start + block.shape[0]] = block.toarray()
        start += block.shape[0]
    os.rename(partial, path)
    return path
