"""The least that a route must do: two threads, with one BLAS thread each, read and multiply every chunk.

streamdr decodes most chunks itself, in less time than zarr-python takes. So the floor does too: a floor that
reads through zarr-python could be beaten, and is there for comparison only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import zarr
from numcodecs import blosc

from benchmarks import lazy_arrays
from benchmarks.contender import CORES, Fit, Solution
from benchmarks.data import chunk_slices

Span = tuple[slice, slice]


class Floor:
    """The chunks of a store, to be read and dropped."""

    def __init__(self, store: str, through_zarr: bool) -> None:
        blosc.use_threads = False
        self.store = Path(store)
        self.array = zarr.open_array(store, mode="r")
        self.fetch = self.through_zarr if through_zarr else self.directly
        self.spans = chunk_slices(self.array.shape, self.array.chunks)
        self.block = np.asarray(self.array[self.spans[0]])

    def read(self) -> float:
        """Return the seconds of one read of the store."""
        return seconds_over(self.spans, self.fetch)

    def through_zarr(self, span: Span) -> None:
        """Read a chunk as zarr-python does."""
        drop(np.asarray(self.array[span]))

    def directly(self, span: Span) -> None:
        """Read a chunk's file and decode it, nothing else."""
        row, col = (axis.start // size for axis, size in zip(span, self.array.chunks, strict=True))
        values = np.empty(self.array.chunks, self.array.dtype)
        blosc.decompress((self.store / "c" / str(row) / str(col)).read_bytes(), values)

    def multiply(self, product: Callable[[np.ndarray], None]) -> float:
        """Return the seconds of a product of every block, each thread having one block for all of them."""
        copies: SimpleQueue[np.ndarray] = SimpleQueue()
        for _ in range(CORES):
            copies.put(self.block.copy())

        def task(span: Span) -> None:
            rows, cols = span
            mine = copies.get()
            product(mine[: rows.stop - rows.start, : cols.stop - cols.start])
            copies.put(mine)

        return seconds_over(self.spans, task)


def seconds_over(spans: Iterable[Span], task: Callable[[Span], None]) -> float:
    """Return how long two threads take for a task over all chunks."""
    with ThreadPoolExecutor(CORES) as pool:
        start = time.perf_counter()
        for _ in pool.map(task, spans):
            pass
        return time.perf_counter() - start


def drop(block: np.ndarray) -> None:
    """Discard a block."""


def covariance(store: str, through_zarr: bool = False) -> Fit:
    """One read, and Y'Y of every block."""
    floor = Floor(store, through_zarr)

    def fit() -> Solution:
        return Solution.nothing(read=floor.read(), products=floor.multiply(lambda y: drop(y.T @ y)))

    return fit


def gram(store: str, k: int, through_zarr: bool = False) -> Fit:
    """One read with AA' of every block, and one with A'V."""
    floor = Floor(store, through_zarr)
    vectors = np.ones((floor.block.shape[0], k), np.float32)

    def fit() -> Solution:
        return Solution.nothing(
            read=floor.read() + floor.read(),
            products=floor.multiply(lambda a: drop(a @ a.T)) + floor.multiply(lambda a: drop(a.T @ vectors)),
        )

    return fit


def krylov(store: str, width: int) -> Fit:
    """One read, with Y'(YQ) of every block: a single pass."""
    floor = Floor(store, through_zarr=False)
    basis = np.ones((floor.block.shape[1], width), np.float32)

    def fit() -> Solution:
        return Solution.nothing(read=floor.read(), products=floor.multiply(lambda y: drop(y.T @ (y @ basis))))

    return fit


def kernel(store: str, m: int, gamma: float) -> Fit:
    """One read, and for every block K = exp(2 gamma XL') in place and K'K: the one pass of Nystrom.

    Distances, centring, sums in float64, the landmarks' choice and the solve are not in it. K'K takes seven
    eighths of the time. Of tiles of 512 to 16,384 rows those of 4,096 are as fast as any (16 MB for 1,000
    landmarks), if their exponentials are taken while a slab is in the cache and if they are never freed.
    """
    tile, slab = 4096, 256
    floor = Floor(store, through_zarr=False)
    landmarks = np.ascontiguousarray(2 * gamma * floor.block[:m].T)
    room: SimpleQueue[tuple[np.ndarray, np.ndarray]] = SimpleQueue()
    for _ in range(CORES):
        room.put((np.empty((tile, m), np.float32), np.empty((m, m), np.float32)))

    def products(block: np.ndarray) -> None:
        kernels, product = room.get()
        for start in range(0, len(block), tile):
            rows = block[start : start + tile]
            values = kernels[: len(rows)]
            for first in range(0, len(rows), slab):
                part = values[first : first + slab]
                np.matmul(rows[first : first + slab], landmarks, out=part)
                np.exp(part, out=part)
            np.matmul(values.T, values, out=product)
        room.put((kernels, product))

    def fit() -> Solution:
        return Solution.nothing(read=floor.read(), products=floor.multiply(products))

    return fit


def landmarks(store: str, m: int, k: int) -> Fit:
    """One read, and for every block X L' and the product of that with k axes: landmark MDS.

    The squares, means and the choice of landmarks are not in it, nor is what is written. Tiles of 1,024 rows
    stay in the cache.
    """
    tile = 1024
    floor = Floor(store, through_zarr=False)
    points = np.ascontiguousarray(floor.block[:m].T)
    axes = np.ones((m, k), np.float32)
    room: SimpleQueue[np.ndarray] = SimpleQueue()
    for _ in range(CORES):
        room.put(np.empty((tile, m), np.float32))

    def products(block: np.ndarray) -> None:
        squares = room.get()
        for start in range(0, len(block), tile):
            rows = block[start : start + tile]
            np.matmul(rows, points, out=squares[: len(rows)])
            drop(squares[: len(rows)] @ axes)
        room.put(squares)

    def fit() -> Solution:
        return Solution.nothing(read=floor.read(), products=floor.multiply(products))

    return fit


def distances(store: str, m: int, k: int, metric: str) -> Fit:
    """One read, and for every block scipy's distances to landmarks and the product of these with k axes."""
    from scipy.spatial.distance import cdist

    tile = 1024
    floor = Floor(store, through_zarr=False)
    floor.block = floor.block.astype(np.float64)
    points, axes = floor.block[:m].copy(), np.ones((m, k))
    room: SimpleQueue[np.ndarray] = SimpleQueue()
    for _ in range(CORES):
        room.put(np.empty((tile, m)))

    def products(block: np.ndarray) -> None:
        found = room.get()
        for start in range(0, len(block), tile):
            rows = block[start : start + tile]
            drop(cdist(rows, points, metric, out=found[: len(rows)]) @ axes)
        room.put(found)

    def fit() -> Solution:
        return Solution.nothing(read=floor.read(), products=floor.multiply(products))

    return fit


def linear_map(store: str, k: int) -> Fit:
    """One read, and the product of every block with k axes."""
    floor = Floor(store, through_zarr=False)
    axes = np.ones((floor.block.shape[1], k), np.float32)

    def fit() -> Solution:
        return Solution.nothing(read=floor.read(), products=floor.multiply(lambda x: drop(x @ axes)))

    return fit


def reading(store: str) -> Fit:
    """One read."""
    floor = Floor(store, through_zarr=False)
    return lambda: Solution.nothing(read=floor.read())


def latent(store: str, k: int) -> Fit:
    """One read, and the products of an E step over every block: a single iteration of EM for PPCA.

    For each slab of rows, with M its mask, R its values without the mean, and symmetric k x k matrices packed
    as p numbers: the matrices of all rows (p x d times M'), W'R', and the sums for the M step (p + k + 1 x n
    times M, k + 1 x n times R). Solving the k x k systems is not in it.
    """
    from streamdr.methods.ppca.small_matrices import matrices_per_slab, packed_length

    floor = Floor(store, through_zarr=False)
    floor.block = np.nan_to_num(floor.block.astype(np.float64))
    cols, p = floor.block.shape[1], packed_length(k)
    height = matrices_per_slab(k, cols)
    random = np.random.default_rng(0).random
    mask = (random((height, cols)) < 0.75).astype(np.float64)
    packed, loadings, table = random((p, cols)), random((k, cols)), random((p + k + 1, height))

    def products(residual: np.ndarray) -> None:
        matrices, projected = np.empty((p, height)), np.empty((k, height))
        masked, sums = np.empty((p + k + 1, cols)), np.empty((k + 1, cols))
        for start in range(0, len(residual), height):
            rows = residual[start : start + height]
            n = len(rows)
            np.matmul(packed, mask[:n].T, out=matrices[:, :n])
            np.matmul(loadings, rows.T, out=projected[:, :n])
            np.matmul(table[:, :n], mask[:n], out=masked)
            np.matmul(table[p:, :n], rows, out=sums)

    def fit() -> Solution:
        return Solution.nothing(read=floor.read(), products=floor.multiply(products))

    return fit


def units(store: str, n_units: int, passes: int, nearest: bool) -> Fit:
    """As many reads, each with X C' of every block and, if asked for, the least product of each row.

    These are the passes of a self-organising map in batches. The sums of the rows of each unit, the distances
    and the steps between passes are not in it. Tiles are those of the method.
    """
    from streamdr.methods.som.nearest import tile_rows

    floor = Floor(store, through_zarr=False)
    cols, dtype = floor.block.shape[1], floor.block.dtype
    tile = tile_rows(n_units, cols, dtype.itemsize)
    codebook = np.ascontiguousarray(np.resize(floor.block, (n_units, cols)).T)
    room: SimpleQueue[np.ndarray] = SimpleQueue()
    for _ in range(CORES):
        room.put(np.empty((tile, n_units), dtype))

    def products(block: np.ndarray) -> None:
        scores = room.get()
        for start in range(0, len(block), tile):
            rows = block[start : start + tile]
            found = np.matmul(rows, codebook, out=scores[: len(rows)])
            if nearest:
                drop(found.argmin(axis=1))
        room.put(scores)

    def fit() -> Solution:
        read = sum(floor.read() for _ in range(passes))
        return Solution.nothing(read=read, products=sum(floor.multiply(products) for _ in range(passes)))

    return fit


def lazy_blocks(store: str, kind: str, place: str) -> Fit:
    """Every block of a dask array, computed by dask and dropped, and Y'Y of every block, where blocks are."""
    import dask

    array, client = lazy_arrays.placed(store, kind, place)
    floor = Floor(store, through_zarr=False)
    heights = array.chunks[0]
    dropped = array.map_blocks(forgotten, dtype=array.dtype, chunks=((1,) * len(heights), (1,)))

    def here() -> tuple[float, float]:
        start = time.perf_counter()
        dask.compute(dropped, scheduler="threads", num_workers=CORES)
        return time.perf_counter() - start, floor.multiply(lambda y: drop(y.T @ y))

    def there() -> tuple[float, float]:
        start = time.perf_counter()
        client.compute(dropped, sync=True)
        read = time.perf_counter() - start
        start = time.perf_counter()
        share = [heights[each::CORES] for each in range(CORES)]
        client.gather(client.map(products_of, share, cols=array.shape[1], pure=False))
        return read, time.perf_counter() - start

    def fit() -> Solution:
        read, products = here() if client is None else there()
        return Solution.nothing(read=read, products=products)

    return fit


def forgotten(block: np.ndarray) -> np.ndarray:
    """Return one value instead of a block."""
    return np.zeros((1, 1), block.dtype)


def products_of(heights: Iterable[int], cols: int) -> None:
    """Multiply blocks of these heights, in a worker."""
    block = np.ones((max(heights), cols), np.float32)
    for height in heights:
        drop(block[:height].T @ block[:height])
