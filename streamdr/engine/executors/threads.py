"""A pool of threads in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Event, Lock
from typing import Any

from streamdr.core.accumulator import Accumulator


class Threads:
    """A pool of threads in this process. The thread of the caller merges, since it is idle otherwise."""

    run = 1
    shares_futures = False
    long_runs = 0

    def __init__(self, workers: int, stop: Event) -> None:
        self.workers = workers
        self.stopped = stop.is_set
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="streamdr")
        self._lines = 0
        self._counting = Lock()

    def count(self, lines: int) -> None:
        """Add the lines of a block that a task has read."""
        with self._counting:
            self._lines += lines

    def counted(self) -> int:
        """Return the number of lines that all tasks have read."""
        return self._lines

    def share(self, value: Any) -> Any:
        """Return the value itself, since threads share memory."""
        return value

    def keep(self, value: Any) -> Any:
        """Return the value itself."""
        return value

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a task. Its arguments are values, or handles of tasks that are finished."""
        values = [item.result() if isinstance(item, Future) else item for item in arguments]
        return self._pool.submit(function, *values)

    def merge(self, earlier: Future[Any], later: Future[Any]) -> Future[Any]:
        """Merge into the earlier accumulator, in the calling thread."""
        earlier.result().merge(later.result())
        return earlier

    def place(self, accumulator: Accumulator) -> Future[Any]:
        """Return the value as a finished task."""
        handle: Future[Any] = Future()
        handle.set_result(accumulator)
        return handle

    def finished(self, handle: Future[Any], timeout: float) -> bool:
        """Wait for a task to end."""
        return bool(wait([handle], timeout).done)

    def check(self, handle: Future[Any]) -> None:
        """Raise the exception of the task, if it failed."""
        if (error := handle.exception()) is not None:
            raise error

    def result(self, handle: Future[Any]) -> Any:
        """Return the value of the task, or raise its exception."""
        return handle.result()

    def width(self, planned: int) -> int:
        """Return the planned number."""
        return planned

    def cancel(self, handles: Iterable[Future[Any]]) -> None:
        """Cancel tasks that have not begun, and wait for the others."""
        wait([handle for handle in handles if not handle.cancel()])

    def recover(self) -> None:
        """Do nothing: threads never lose results."""

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)
