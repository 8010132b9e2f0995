"""The protocol of executors: they run tasks, and report when results are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from streamdr.core.accumulator import Accumulator, copied
from streamdr.errors import EngineError

Handle = Any
"""The reference that an executor returns for a result that may not exist yet."""


class LostError(EngineError):
    """Results or running tasks were lost with their workers. The work that needs them starts again."""


class KilledError(LostError):
    """A task whose workers died as often as the cluster allows. Another task may be the cause."""

    def __init__(self, message: str, attempts: int) -> None:
        super().__init__(message)
        self.attempts = attempts

    def __reduce__(self) -> tuple[type[KilledError], tuple[str, int]]:
        return type(self), (str(self), self.attempts)


class Executor(Protocol):
    """Runs functions on arguments, some of which may be handles of this executor.

    Every method that takes a handle may raise `LostError`. Then `recover` is called before a restart.
    """

    workers: int
    """The number of tasks that run at a time."""
    run: int
    """The number of segments per task: more than one where merging is expensive."""
    shares_futures: bool
    """Whether the futures of a dask client may be arguments of tasks."""
    long_runs: int
    """How many long runs must remain for the next task to be one; 0 if no task is."""
    stopped: Callable[[], bool]
    """Called by long tasks from time to time: whether the run was stopped."""

    @property
    def count(self) -> Callable[[int], None]:
        """The function that a long task calls after each block, with the number of its lines."""

    def counted(self) -> int:
        """Return the number of lines that tasks have counted so far. It is always 0 on a cluster."""

    def share(self, value: Any) -> Any:
        """Send a large argument once, for many tasks."""

    def keep(self, value: Any) -> Any:
        """Send an argument once, and keep it until another one is kept: for the tasks of several passes."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Handle:
        """Start a task. Handles among its arguments, of finished tasks, are replaced by their values."""

    def merge(self, earlier: Handle, later: Handle) -> Handle:
        """Merge two finished accumulators, on the worker that holds them."""

    def place(self, accumulator: Accumulator) -> Handle:
        """Return a handle for an accumulator of this process, as if a task had computed it."""

    def finished(self, handle: Handle, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a task. Return whether it has finished or failed."""

    def check(self, handle: Handle) -> None:
        """Raise the exception of a finished task that failed."""

    def result(self, handle: Handle) -> Any:
        """Return the value of a finished task, or raise its exception."""

    def width(self, planned: int) -> int:
        """Return how many tasks may be submitted at a time. This process has memory for `planned` of them."""

    def cancel(self, handles: Iterable[Handle]) -> None:
        """Cancel tasks that have not begun, and wait for the others."""

    def recover(self) -> None:
        """Wait, after a loss, until tasks can be submitted again. Raise EngineError if they cannot."""


def merged(earlier: Accumulator, later: Accumulator) -> Accumulator:
    """Return a new accumulator with both merged. Neither is modified."""
    both = copied(earlier)
    both.merge(later)
    return both
