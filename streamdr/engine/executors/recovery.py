"""Going on after a loss: as long as that gets work further, and a few times where it does not.

A worker that dies takes tasks and results with it. What was written down is still there, and from there
the work goes on. But a block may be what kills its workers. dask blames every task that a dead worker had,
so after such a loss the next tasks run one at a time: the task that then kills its workers did it alone.
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
"""How often work may be lost at the same place."""

T = TypeVar("T")


@dataclass
class Recovery:
    """The losses of one piece of work, and what follows from them."""

    engine: Executor
    progress: Progress
    name: str
    """What is read, for errors."""
    width: int
    """How many tasks may be under way at once, when no task has killed its worker."""
    first: int = field(default=-1, init=False)
    """How many lines were done when the work began."""
    _reached: int = field(default=-1, init=False)
    _tries: int = field(default=0, init=False)
    _suspects: int = field(default=0, init=False)
    _deaths: int = field(default=0, init=False)

    @property
    def window(self) -> int:
        """How many tasks may be under way at once."""
        return 1 if self._suspects else self.width

    def retry(self, attempt: Callable[[], T]) -> T:
        """Attempt work until it is done, or a loss is one too many."""
        while True:
            try:
                return attempt()
            except LostError as error:
                if self._tries >= _TRIES:
                    raise
                self.engine.recover()
                if isinstance(error, KilledError):
                    self._suspects = 2 * self.width
                self.progress.message(f"{error}; going on from what is known")

    def begin(self, done: int) -> None:
        """An attempt begins, with so many lines done."""
        self._tries = self._tries + 1 if done <= self._reached else 1
        self._reached = max(done, self._reached)
        self.first = done if self.first < 0 else self.first

    def watch(
        self, handles: Iterable[Handle], spans: Iterable[Span], axis: Axis = "rows"
    ) -> Iterator[Handle]:
        """Pass on the handles of tasks, each of which reads the span beside it; name the one that kills."""
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
                    f"{self._deaths} in all: by taking more memory than a worker has, or by crashing what "
                    f"decodes them. See what the workers logged; mend these {axis}, store smaller chunks, or "
                    "give workers more memory"
                ) from error
            self._suspects = max(0, self._suspects - 1)
            yield handle
