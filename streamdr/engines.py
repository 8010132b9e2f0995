"""The engines that run tasks: a pool of threads here, or a dask cluster. Nothing above knows which."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Event
from typing import Any, Protocol

from streamdr.accumulators import Accumulator
from streamdr.segments import RUN
from streamdr.settings import Execution

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # as in malloc.h
_KEPT = 32 << 20

Handle = Any
"""What an engine gives for a result that may not exist yet."""


class Engine(Protocol):
    """Runs functions on arguments, some of them handles of its own."""

    workers: int
    run: int
    """How many segments to a task: more where merging is dear."""
    stopped: Callable[[], bool]
    """What a long task asks now and then: whether to give up."""

    def share(self, value: Any) -> Any:
        """Send a large argument once, for many tasks."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Handle:
        """Start a task."""

    def merge(self, earlier: Handle, later: Handle) -> Handle:
        """Merge two finished accumulators, where they are."""

    def place(self, accumulator: Accumulator) -> Handle:
        """Put an accumulator from here where tasks' results are."""

    def finished(self, handle: Handle, timeout: float) -> bool:
        """Wait for a task to end, well or badly, for `timeout` seconds; whether it has."""

    def check(self, handle: Handle) -> None:
        """Raise the exception of a finished task that failed."""

    def result(self, handle: Handle) -> Any:
        """The value of a finished task, or its exception."""

    def cancel(self, handles: Iterable[Handle]) -> None:
        """Forget tasks that have not begun, and wait for those that have."""


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Threads:
    """A pool of threads in this process. Merging is done by the caller, which has nothing else to do."""

    run = 1

    def __init__(self, workers: int, stop: Event) -> None:
        self.workers = workers
        self.stopped = stop.is_set
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="streamdr")

    def share(self, value: Any) -> Any:
        """Threads see the value itself."""
        return value

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a task."""
        return self._pool.submit(function, *arguments)

    def merge(self, earlier: Future[Any], later: Future[Any]) -> Future[Any]:
        """Merge into the earlier one, here and now."""
        earlier.result().merge(later.result())
        return earlier

    def place(self, accumulator: Accumulator) -> Future[Any]:
        """Wrap a value as a finished task."""
        handle: Future[Any] = Future()
        handle.set_result(accumulator)
        return handle

    def finished(self, handle: Future[Any], timeout: float) -> bool:
        """Wait for a task to end."""
        return bool(wait([handle], timeout).done)

    def check(self, handle: Future[Any]) -> None:
        """Raise what the task raised."""
        if (error := handle.exception()) is not None:
            raise error

    def result(self, handle: Future[Any]) -> Any:
        """The task's value or exception."""
        return handle.result()

    def cancel(self, handles: Iterable[Future[Any]]) -> None:
        """Cancel what has not begun, wait for the rest."""
        wait([handle for handle in handles if not handle.cancel()])

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class Dask:
    """A dask cluster. Results stay on the workers, and merge there."""

    run = RUN

    def __init__(self, client: Any) -> None:
        from distributed import WorkerPlugin

        class Tuning(WorkerPlugin):  # type: ignore[misc]
            """What holds for a worker's process, whoever started it."""

            name = "streamdr-tuning"

            def setup(self, worker: Any) -> None:
                tune_worker()

        self.stopped = _never
        self._client = client
        self._client.register_plugin(Tuning())
        self.workers = sum(client.nthreads().values())

    def share(self, value: Any) -> Any:
        """Scatter a copy to every worker."""
        return self._client.scatter(value, broadcast=True, hash=False)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Start a task."""
        return self._client.submit(function, *arguments, pure=False)

    def merge(self, earlier: Any, later: Any) -> Any:
        """Merge on a worker, into a copy: a task must not change what it was given, dask may run it twice."""
        return self._client.submit(merged, earlier, later, pure=False)

    def place(self, accumulator: Accumulator) -> Any:
        """Send an accumulator to a worker."""
        return self._client.scatter(accumulator, hash=False)

    def finished(self, handle: Any, timeout: float) -> bool:
        """Wait for a task to end."""
        from distributed import TimeoutError as Timeout
        from distributed import wait as wait_for

        try:
            wait_for(handle, timeout)
        except Timeout:
            return False
        return True

    def check(self, handle: Any) -> None:
        """Raise what the task raised, without fetching what it gave."""
        if handle.status != "finished":
            handle.result()

    def result(self, handle: Any) -> Any:
        """Fetch the task's value, or raise its exception."""
        return handle.result()

    def cancel(self, handles: Iterable[Any]) -> None:
        """Cancel the tasks."""
        self._client.cancel(list(handles), force=True)


def tune_worker() -> None:
    """One BLAS thread, since tasks are the parallelism and bits must not depend on it; blocks reused.

    dask's workers tell the allocator to hand every freed block back to the system. Taking it again costs
    as much as decoding it: keep what the next block needs.
    """
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEPT)
        mallopt(_M_TRIM_THRESHOLD, 4 * _KEPT)


def _never() -> bool:
    return False


def merged(earlier: Accumulator, later: Accumulator) -> Accumulator:
    """A new accumulator of both, neither touched."""
    both = earlier.empty_like()
    both.restore({name: array.copy() for name, array in earlier.arrays().items()})
    both.merge(later)
    return both


@contextmanager
def engine_for(execution: Execution, workers: int, stop: Event) -> Iterator[Engine]:
    """Start, or join, the engine that an execution names."""
    scheduler = execution.scheduler
    if scheduler is None or scheduler == "threads":
        threads = Threads(workers, stop)
        try:
            yield threads
        finally:
            threads.close()
        return
    from distributed import Client, LocalCluster

    if isinstance(scheduler, Client):
        yield Dask(scheduler)
    elif scheduler == "processes":
        # Loopback, and no dashboard: nothing of this cluster is reachable from outside the machine.
        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            yield Dask(client)
    elif os.path.exists(scheduler):
        with Client(scheduler_file=scheduler) as client:
            yield Dask(client)
    else:
        with Client(scheduler) as client:
            yield Dask(client)
