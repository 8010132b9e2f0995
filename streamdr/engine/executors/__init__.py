"""The engines that run tasks: a pool of threads here, or a dask cluster. Nothing above knows which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Event

from streamdr.core.execution import Execution
from streamdr.engine.executors.base import Executor, Handle, KilledError, LostError, merged
from streamdr.engine.executors.recovery import Recovery
from streamdr.engine.executors.threads import Threads

__all__ = [
    "Executor",
    "Handle",
    "KilledError",
    "LostError",
    "Recovery",
    "Threads",
    "merged",
    "open_executor",
]


@contextmanager
def open_executor(execution: Execution, workers: int, stop: Event) -> Iterator[Executor]:
    """Start, or join, the engine that an execution names, and end what was started."""
    if execution.in_process:
        with closing(Threads(workers, stop)) as threads:
            yield threads
        return
    # Importing distributed takes a second, which only those pay who use a cluster.
    from streamdr.engine.executors.clusters import dask_executor

    with dask_executor(execution, workers, stop) as engine:
        yield engine
