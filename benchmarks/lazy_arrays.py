"""Dask arrays over a store, and the cluster that computes some of them."""

from __future__ import annotations

import atexit
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.contender import CORES

KINDS = ("plain", "chain", "centred", "shared")
"""The store itself, a chain of maps of its blocks, a map that needs a reduction, a common subexpression."""
PLACES = ("threads", "cluster", "persisted")


def lazy_array(store: str, kind: str) -> Any:
    """Return a lazy array of a kind, with one block per chunk of the store."""
    import dask.array as da

    stored = da.from_zarr(store)
    match kind:
        case "plain":
            return stored
        case "chain":
            roots = stored.map_blocks(root_of_size, dtype=np.float32)
            return roots.map_blocks(scaled, dtype=np.float64).astype(np.float32)
        case "centred":
            return stored - stored.mean(axis=0)
        case "shared":
            roots = stored.map_blocks(root_of_size, dtype=np.float32)
            return roots - np.float32(0.1) * roots * roots
    raise ValueError(kind)


def root_of_size(block: np.ndarray) -> np.ndarray:
    """Return the square roots of absolute values."""
    return np.sqrt(np.abs(block))


def scaled(block: np.ndarray) -> np.ndarray:
    """Return the values in double precision, on another scale."""
    return 2.5 * block.astype(np.float64)


def local_cluster() -> Any:
    """Return the default client of a new cluster of two processes, with streamdr imported in its workers."""
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=CORES, threads_per_worker=1, host="127.0.0.1", dashboard_address=None)
    client = Client(cluster)
    atexit.register(cluster.close)
    atexit.register(client.close)
    client.run(warm_up)
    return client


def warm_up() -> None:
    """Import in a worker what is imported here before the clock starts."""
    import_module("streamdr").PCA  # noqa: B018
    import_module("dask.array")


def placed(store: str, kind: str, place: str) -> tuple[Any, Any]:
    """Return an array at a place, and the client of its cluster; None for threads."""
    from distributed import wait

    if place == "threads":
        return lazy_array(store, kind), None
    client = local_cluster()
    array = lazy_array(store, kind)
    if place == "persisted":
        array = client.persist(array)
        wait(array)
    return array, client
