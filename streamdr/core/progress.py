"""Progress of a pass: rows, GB/s and the time left, as a bar, as lines, or not at all."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TextIO

from streamdr.core.safe_text import one_line

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


_NARROW_COLUMNS = 60
"""On a narrower terminal there is no bar."""
_PERCENT_COLUMNS = 6
_BAR_COLUMNS = 18
"""The columns of the percentage, and of the percentage with a short bar beside it."""

Clock = Callable[[], float]
Unit = Literal["rows", "columns", "bytes"]


class PassStart(NamedTuple):
    """A pass that begins: its label, and what is counted."""

    label: str
    total: int
    """The number of rows (or columns, or bytes) of the whole pass."""
    done: int = 0
    """The number that an earlier process has done."""
    bytes_per_row: float = 0.0
    unit: Unit = "rows"


class Progress(Protocol):
    """Receives the progress of passes, from one thread. Every pass that starts is also finished."""

    def start(self, begun: PassStart) -> None:
        """A pass begins."""

    def advance(self, rows: int) -> None:
        """`rows` more rows (or columns) are done."""

    def finish(self) -> None:
        """The pass is over: complete, or stopped where it stands."""

    def message(self, text: str) -> None:
        """A line for people, such as "resuming pass 1 at row 120,000"."""


class Silent:
    """Shows nothing."""

    def start(self, begun: PassStart) -> None:
        """Do nothing."""

    def advance(self, rows: int) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""

    def message(self, text: str) -> None:
        """Do nothing."""


class Meter:
    """The clock of one pass: the fraction done, the reading speed of this process, the time left."""

    WINDOW = 32
    GRAIN = 0.5
    """Seconds between two measurements of the pace: workers finish in bursts."""

    def __init__(self, begun: PassStart, clock: Clock) -> None:
        self.label = one_line(begun.label)
        self.total = begun.total
        self.done = begun.done
        self.unit = begun.unit
        self._bytes_per_row = begun.bytes_per_row
        self._clock = clock
        self._resumed_at = begun.done
        self._started = clock()
        self._recent = deque([(self._started, begun.done)], maxlen=self.WINDOW)

    def advance(self, rows: int) -> None:
        """Count rows that were done just now."""
        self.done += rows
        now = self._clock()
        if now - self._recent[-1][0] >= self.GRAIN:
            self._recent.append((now, self.done))

    @property
    def elapsed(self) -> float:
        """Seconds since this process began the pass."""
        return self._clock() - self._started

    @property
    def fraction(self) -> float:
        """The fraction of the pass that is done, by this process or an earlier one."""
        return self.done / self.total if self.total else 1.0

    @property
    def gigabytes_per_second(self) -> float | None:
        """The mean speed of this process. Rows that an earlier process read are not counted."""
        if self._bytes_per_row <= 0 or self.elapsed <= 0:
            return None
        return (self.done - self._resumed_at) * self._bytes_per_row / self.elapsed / 1e9

    @property
    def seconds_left(self) -> float | None:
        """The time left at the recent pace; None before the pace is known."""
        # The median slope across a quarter of the window: a burst or one long stall moves few of the
        # slopes, where a mean would promise hours for every minute that a laptop slept.
        points = list(self._recent)
        lag = max(1, len(points) // 4)
        slopes = [(n1 - n0) / (t1 - t0) for (t0, n0), (t1, n1) in zip(points, points[lag:], strict=False)]
        pace = median(slopes) if slopes else 0.0
        return (self.total - self.done) / pace if pace > 0 else None

    def speed(self) -> str:
        """The speed as text; empty when unknown."""
        rate = self.gigabytes_per_second
        return "" if rate is None else f"{rate:.2f} GB/s"

    def remaining(self) -> str:
        """The time left as text; empty when unknown."""
        seconds = self.seconds_left
        return "" if seconds is None else f"{_duration(seconds)} left"

    def under_way(self) -> str:
        """The state of a running pass in one line."""
        count = f"{self.done:,} of {self.total:,} {self.unit}"
        return _sentence(self.label, count, f"{100 * self.fraction:.0f}%", self.speed(), self.remaining())

    def outcome(self) -> str:
        """The end of a pass in one line: complete, or where it stopped."""
        if self.done >= self.total:
            count = f"{self.total:,} {self.unit} in {_duration(self.elapsed)}"
        else:
            count = f"stopped at {self.done:,} of {self.total:,} {self.unit} after {_duration(self.elapsed)}"
        return _sentence(self.label, count, self.speed())


class Lines:
    """Plain lines for logs: one every few seconds, and one at the end of each pass."""

    def __init__(self, stream: TextIO, every: float = 5.0, clock: Clock = time.monotonic) -> None:
        self._stream = stream
        self._every = every
        self._clock = clock
        self._next = 0.0

    def start(self, begun: PassStart) -> None:
        """Begin a pass, and wait for the first line to be due."""
        self._meter = Meter(begun, self._clock)
        self._next = self._clock() + self._every

    def advance(self, rows: int) -> None:
        """Count the rows, and write a line when one is due."""
        self._meter.advance(rows)
        if self._clock() >= self._next and self._meter.done < self._meter.total:
            self.message(self._meter.under_way())
            self._next = self._clock() + self._every

    def finish(self) -> None:
        """Write the pass's last line."""
        self.message(self._meter.outcome())

    def message(self, text: str) -> None:
        """Write the text as a line."""
        # The reader of the log may have closed it: the run continues.
        with suppress(OSError):
            print(one_line(text), file=self._stream, flush=True)


class Bar:
    """A progress bar for a terminal."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        from rich.console import Console

        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._clock = clock

    def start(self, begun: PassStart) -> None:
        """Draw a bar, filled up to where an earlier process stopped."""
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
        from rich.table import Column

        self._meter = Meter(begun, self._clock)
        self._live: RichProgress = Progress(
            TextColumn(
                "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")
            ),
            *([] if self._narrow else [BarColumn(bar_width=None)]),
            TaskProgressColumn(),
            TextColumn("{task.fields[state]}", markup=False, table_column=Column(no_wrap=True)),
            console=self._console,
            expand=True,
        )
        self._task: TaskID = self._live.add_task(
            self._meter.label, total=begun.total, completed=begun.done, state=self._state()
        )
        self._live.start()

    def advance(self, rows: int) -> None:
        """Fill the bar further."""
        self._meter.advance(rows)
        self._live.update(self._task, completed=self._meter.done, state=self._state())

    def finish(self) -> None:
        """Stop updating the bar, and restore the terminal."""
        self._live.stop()

    def message(self, text: str) -> None:
        """Write the text above the bar."""
        self._console.print(one_line(text), soft_wrap=True)

    @property
    def _narrow(self) -> bool:
        return bool(self._console.width < _NARROW_COLUMNS)

    def _state(self) -> str:
        """As much of the time left, the count and the speed as fits beside the label and the bar."""
        meter = self._meter
        room = self._console.width - len(meter.label) - (_PERCENT_COLUMNS if self._narrow else _BAR_COLUMNS)
        count = f"{meter.done:,}/{meter.total:,} {meter.unit}"
        chosen: list[str] = []
        for fact in filter(None, (meter.remaining(), count, meter.speed())):
            if len("  ".join([*chosen, fact])) <= room:
                chosen.append(fact)
        return "  ".join(chosen)


def for_stream(stream: TextIO | None = None) -> Progress:
    """A bar where the stream (standard error, unless given) is a terminal that can draw one, else lines."""
    stream = sys.stderr if stream is None else stream
    if stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
        return Bar(stream)
    return Lines(stream)


def _sentence(label: str, *facts: str) -> str:
    return f"{label}: " + ", ".join(filter(None, facts))


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, whole = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{whole:02}" if hours else f"{minutes}:{whole:02}"
