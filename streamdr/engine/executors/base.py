"""What an engine is: it runs tasks somewhere, and says when their results are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from streamdr.core.accumulator import Accumulator, copied
from streamdr.errors import EngineError

Handle = Any
"""What an engine gives for a result that may not exist yet."""


class LostError(EngineError):
    """Results, or tasks under way, went with the workers that had them; who needs them starts again."""


class KilledError(LostError):
    """A task whose workers died, as often as the cluster allows: killed by it, or by one beside it."""

    def __init__(self, message: str, attempts: int) -> None:
        super().__init__(message)
        self.attempts = attempts

    def __reduce__(self) -> tuple[type[KilledError], tuple[str, int]]:
        return type(self), (str(self), self.attempts)


class Executor(Protocol):
    """Runs functions on arguments, some of them handles of its own.

    Whatever touches a handle may raise `LostError`; `recover` then says whether starting again is of any use.
    """

    workers: int
    """How many tasks run at once."""
    run: int
    """How many segments to a task: more where merging is dear."""
    stopped: Callable[[], bool]
    """What a long task asks now and then: whether to give up."""

    @property
    def count(self) -> Callable[[int], None]:
        """What a long task calls after each block, with how many lines it was of."""

    def counted(self) -> int:
        """How many lines tasks have counted so far: 0 for ever where tasks are too far away to say."""

    def share(self, value: Any) -> Any:
        """Send a large argument once, for many tasks."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Handle:
        """Start a task. Handles among its arguments stand for their values, which are there already."""

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

    def width(self, planned: int) -> int:
        """How many tasks may be under way at once; `planned` is how many this process has memory for."""

    def cancel(self, handles: Iterable[Handle]) -> None:
        """Forget tasks that have not begun, and wait for those that have."""

    def recover(self) -> None:
        """After a loss, wait until tasks can be submitted again, or say that they never can."""


def merged(earlier: Accumulator, later: Accumulator) -> Accumulator:
    """A new accumulator of both, neither touched."""
    both = copied(earlier)
    both.merge(later)
    return both
