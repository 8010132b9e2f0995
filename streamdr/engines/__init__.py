"""The engines that run tasks: a pool of threads here, or a dask cluster. Nothing above knows which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Event

from streamdr.engines.base import Engine, Handle, KilledError, LostError, available_cores, merged
from streamdr.engines.recovery import Recovery
from streamdr.engines.threads import Threads
from streamdr.settings import Execution

__all__ = [
    "Engine",
    "Handle",
    "KilledError",
    "LostError",
    "Recovery",
    "Threads",
    "available_cores",
    "engine_for",
    "merged",
]


@contextmanager
def engine_for(execution: Execution, workers: int, stop: Event) -> Iterator[Engine]:
    """Start, or join, the engine that an execution names, and end what was started."""
    if execution.in_process:
        with closing(Threads(workers, stop)) as threads:
            yield threads
        return
    # Importing distributed takes a second, which only those pay who use a cluster.
    from streamdr.engines.clusters import dask_engine

    with dask_engine(execution, workers, stop) as engine:
        yield engine
