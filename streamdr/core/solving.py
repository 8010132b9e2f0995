"""Independent tasks of a solve, on as many threads as the driver allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar

from streamdr.core.blocks import Span

_workers: ContextVar[int] = ContextVar("streamdr_solve_workers", default=1)


@contextmanager
def solving_with(workers: int) -> Iterator[None]:
    """Let the solves in this block use this number of threads. It never changes the result."""
    token = _workers.set(workers)
    try:
        yield
    finally:
        _workers.reset(token)


def by_slices(task: Callable[[Span], None], length: int, width: int) -> None:
    """Run a task for each slice of fixed width, on several threads if the driver allows that.

    Tasks must not depend on each other. They gain only where they release Python's lock.
    """
    slices = list(Span(0, length).split(width))
    workers = min(_workers.get(), len(slices))
    if workers < 2:
        for each in slices:
            task(each)
        return
    with ThreadPoolExecutor(workers) as threads:
        for _ in threads.map(task, slices):  # raises the first error
            pass
