"""The least that PCA of sparse rows must do: decode the chunks, and multiply the rows of every block."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import zarr
from numcodecs import blosc

from benchmarks.contender import Fit, Solution
from benchmarks.floors import drop, seconds_over

BLOCK_ROWS = 8192

Product = Callable[[scipy.sparse.csr_array], object]


def reading(store: str) -> float:
    """Return the seconds in which two threads decode the chunks of values and indices, nothing else."""
    blosc.use_threads = False
    group: Any = zarr.open_group(store, mode="r")["X"]
    seconds = 0.0
    for name in ("data", "indices"):
        array = group[name]
        paths = sorted(Path(store, "X", name).glob("[0-9]*"))

        def decode(path: Path, chunk: int = array.chunks[0], dtype: np.dtype = array.dtype) -> None:
            values = np.empty(chunk, dtype)
            blosc.decompress(path.read_bytes(), values)

        seconds += seconds_over(paths, decode)  # type: ignore[arg-type]  # any items do
    return seconds


def floor(store: str, product: Product) -> Fit:
    """Decode the chunks, and take the product of as many blocks as there are, each time of the first one."""
    group: Any = zarr.open_group(store, mode="r")["X"]
    ends = group["indptr"][: BLOCK_ROWS + 1]
    columns = int(group.attrs["shape"][1])
    parts = (group["data"][: ends[-1]], group["indices"][: ends[-1]], ends.astype(np.int32))
    block = scipy.sparse.csr_array(parts, shape=(len(ends) - 1, columns))
    block.has_canonical_format = True
    number = -(-int(group.attrs["shape"][0]) // BLOCK_ROWS)

    def fit() -> Solution:
        def task(_: int) -> None:
            product(block)

        products = seconds_over(range(number), task)  # type: ignore[arg-type]  # any items do
        return Solution.nothing(read=reading(store), products=products)

    return fit


def sparse_products(store: str) -> Fit:
    """X'X by scipy."""
    return floor(store, lambda rows: rows.T @ rows)


def dense_products(store: str) -> Fit:
    """Rows made dense, and X'X by BLAS."""

    def product(rows: scipy.sparse.csr_array) -> None:
        dense = rows.toarray()
        drop(dense.T @ dense)

    return floor(store, product)


def panel_products(store: str) -> Fit:
    """X'X as streamdr divides it: dense panels of the well filled columns, and a sparse rest."""
    from streamdr.statistics.sparse_products import products_of

    return floor(store, products_of)
