"""A pool of threads in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Event, Lock
from typing import Any

from streamdr.core.accumulator import Accumulator


class Threads:
    """A pool of threads in this process. Merging is done by the caller, which has nothing else to do."""

    run = 1

    def __init__(self, workers: int, stop: Event) -> None:
        self.workers = workers
        self.stopped = stop.is_set
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="streamdr")
        self._lines = 0
        self._counting = Lock()

    def count(self, lines: int) -> None:
        """Add the lines of a block that a task is done with."""
        with self._counting:
            self._lines += lines

    def counted(self) -> int:
        """How many lines all tasks are done with."""
        return self._lines

    def share(self, value: Any) -> Any:
        """Threads see the value itself."""
        return value

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a task. Its arguments are values, or handles of tasks that are finished."""
        values = [item.result() if isinstance(item, Future) else item for item in arguments]
        return self._pool.submit(function, *values)

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

    def width(self, planned: int) -> int:
        """What was planned was planned for threads."""
        return planned

    def cancel(self, handles: Iterable[Future[Any]]) -> None:
        """Cancel what has not begun, wait for the rest."""
        wait([handle for handle in handles if not handle.cancel()])

    def recover(self) -> None:
        """Threads lose nothing that the process does not lose with them."""

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)
