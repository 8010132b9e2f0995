"""The least that a route must do: two threads read every chunk, and multiply every block with BLAS on one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
import zarr

from benchmarks.contender import CORES, Fit, Solution
from benchmarks.data import chunk_slices

Span = tuple[slice, slice]


def seconds_over(task: Callable[[Span], None], spans: Iterable[Span]) -> float:
    """Return how long two threads take for a task over all chunks."""
    with ThreadPoolExecutor(CORES) as pool:
        start = time.perf_counter()
        for _ in pool.map(task, spans):
            pass
        return time.perf_counter() - start


def seconds_multiplying(product: Callable[[np.ndarray], None], block: np.ndarray, count: int) -> float:
    """Return how long two threads take for a product of as many blocks, each thread on a copy of its own."""
    copies: SimpleQueue[np.ndarray] = SimpleQueue()
    for _ in range(CORES):
        copies.put(block.copy())

    def multiply(_: int) -> None:
        mine = copies.get()
        product(mine)
        copies.put(mine)

    with ThreadPoolExecutor(CORES) as pool:
        start = time.perf_counter()
        for _ in pool.map(multiply, range(count)):
            pass
        return time.perf_counter() - start


class Floor:
    """The chunks of a store, to be read and dropped."""

    def __init__(self, store: str) -> None:
        self.array = zarr.open_array(store, mode="r")
        self.spans = chunk_slices(self.array.shape, self.array.chunks)
        self.block = self.array[self.spans[0]]

    def read(self) -> float:
        """Return the seconds of one read of the store."""
        return seconds_over(lambda span: drop(self.array[span]), self.spans)

    def multiply(self, product: Callable[[np.ndarray], None]) -> float:
        """Return the seconds of a product of every block."""
        # The last block may be cut short: its share of a product counts as what it is.
        count = round(self.array.size / self.block.size)
        return seconds_multiplying(product, self.block, count)


def drop(block: np.ndarray) -> None:
    """Let go of a block."""


def covariance(store: str) -> Fit:
    """One read, and Y'Y of every block."""
    floor = Floor(store)

    def fit() -> Solution:
        return Solution.nothing(read=floor.read(), products=floor.multiply(lambda y: drop(y.T @ y)))

    return fit


def gram(store: str, k: int) -> Fit:
    """One read with AA' of every block, and one with A'V."""
    floor = Floor(store)
    vectors = np.ones((floor.block.shape[0], k), np.float32)

    def fit() -> Solution:
        return Solution.nothing(
            read=floor.read() + floor.read(),
            products=floor.multiply(lambda a: drop(a @ a.T)) + floor.multiply(lambda a: drop(a.T @ vectors)),
        )

    return fit


def krylov(store: str, width: int) -> Fit:
    """One read, with Y'(YQ) of every block: a single pass."""
    floor = Floor(store)
    basis = np.ones((floor.block.shape[1], width), np.float32)

    def fit() -> Solution:
        return Solution.nothing(read=floor.read(), products=floor.multiply(lambda y: drop(y.T @ (y @ basis))))

    return fit
