"""Recovery after lost workers: restart as long as there is progress, and a few times without progress.

When a worker dies, its tasks and results are lost. The work continues from the last checkpoint. But reading
a block may be what kills the workers. dask blames every task of a dead worker. So after such a loss the next
tasks run one at a time: a task that then kills its workers is identified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from streamdr.core.blocks import Axis, Span
from streamdr.core.progress import Progress
from streamdr.engine.executors.base import Executor, Handle, KilledError, LostError
from streamdr.errors import DataError

_TRIES = 3
"""How many times work may be lost without progress."""

T = TypeVar("T")


@dataclass
class Recovery:
    """Restarts the work of one pass or transform after losses."""

    engine: Executor
    progress: Progress
    name: str
    """The name of the source, for errors."""
    width: int
    """The number of tasks that may be submitted at a time, if no task has killed its worker."""
    first: int = field(default=-1, init=False)
    """The number of lines that were done when the work began."""
    _reached: int = field(default=-1, init=False)
    _tries: int = field(default=0, init=False)
    _suspects: int = field(default=0, init=False)
    _deaths: int = field(default=0, init=False)

    @property
    def window(self) -> int:
        """The number of tasks that may be submitted at a time."""
        return 1 if self._suspects else self.width

    @property
    def long_runs(self) -> int:
        """How many long runs must remain for a task to be one. A task under suspicion is short."""
        return 0 if self._suspects else self.engine.long_runs

    def retry(self, attempt: Callable[[], T]) -> T:
        """Attempt work until it is done, or there were too many losses."""
        while True:
            try:
                return attempt()
            except LostError as error:
                if self._tries >= _TRIES:
                    raise
                self.engine.recover()
                if isinstance(error, KilledError):
                    self._suspects = 2 * self.width
                self.progress.message(f"{error}; restarting from the last saved state")

    def begin(self, done: int) -> None:
        """Start an attempt, with `done` lines already done."""
        self._tries = self._tries + 1 if done <= self._reached else 1
        self._reached = max(done, self._reached)
        self.first = done if self.first < 0 else self.first

    def watch(
        self, handles: Iterable[Handle], spans: Iterable[Span], axis: Axis = "rows"
    ) -> Iterator[Handle]:
        """Yield the handles of tasks. If one kills its workers, raise an error that names its span."""
        tasks = iter(handles)
        for span in spans:
            try:
                handle = next(tasks)
            except KilledError as error:
                self._deaths += error.attempts
                if not self._suspects:
                    raise
                raise DataError(
                    f"{self.name}: {axis} {span.start}-{span.stop - 1} killed every worker that read them, "
                    f"{self._deaths} in all: they may need more memory than a worker has, or crash the "
                    f"decoder. Check the logs of the workers; repair these {axis}, store smaller chunks, or "
                    "give workers more memory"
                ) from error
            self._suspects = max(0, self._suspects - 1)
            yield handle
