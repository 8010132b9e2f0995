"""Executors: they run tasks on threads of this process, or on a dask cluster."""

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
    """Provide the executor of an execution. What is started here is ended with the context."""
    if execution.in_process:
        with closing(Threads(workers, stop)) as threads:
            yield threads
        return
    # Importing distributed takes a second, so it is done only for a cluster.
    from streamdr.engine.executors.clusters import dask_executor

    with dask_executor(execution, workers, stop) as engine:
        yield engine
