"""streamdr, as a user calls it."""

from __future__ import annotations

import atexit
from importlib import import_module

from benchmarks.contender import CORES, Fit, Solution


def threads(store: str, k: int, memory_limit: str) -> Fit:
    """A thread pool, the solver chosen by shape, cost and memory limit."""
    return fitted(store, k, memory_limit, "threads")


def processes(store: str, k: int, memory_limit: str) -> Fit:
    """A dask cluster of two processes, started and ended by the fit."""
    import distributed  # noqa: F401

    return fitted(store, k, memory_limit, "processes")


def running_processes(store: str, k: int, memory_limit: str) -> Fit:
    """A dask cluster of two processes that is up, with streamdr imported, when the fit begins."""
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=CORES, threads_per_worker=1, host="127.0.0.1", dashboard_address=None)
    client = Client(cluster)
    atexit.register(cluster.close)
    atexit.register(client.close)
    client.run(warm_up)
    return fitted(store, k, memory_limit, client)


def warm_up() -> None:
    """Import in a worker what is imported here before the clock starts."""
    import_module("streamdr").PCA  # noqa: B018


def fitted(store: str, k: int, memory_limit: str, scheduler: object) -> Fit:
    """Return the fit under a scheduler."""
    import streamdr

    execution, PCA = streamdr.execution, streamdr.PCA

    def fit() -> Solution:
        with execution(workers=CORES, memory_limit=memory_limit, scheduler=scheduler):
            model = PCA(n_components=k).fit(store)
        return Solution(model.explained_variance_, model.components_, {"solver": model.solver_})

    return fit
