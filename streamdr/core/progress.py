"""Progress of a pass: rows, GB/s and the time left, as a bar, as lines, or not at all."""

from __future__ import annotations

import math
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

_BLENDED = 0.2
"""In this part of the predicted time, the measured pace comes to count as much as the prediction."""
_MOST_RATIO = 10.0
"""A prediction of later passes is corrected by this factor at most."""

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
    seconds: float = 0.0
    """The predicted time of the whole pass; 0 where it is not known."""
    later_seconds: float = 0.0
    """The predicted time of what follows the pass; 0 where it is not known."""


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
        self._predicted = _sound(begun.seconds)
        self._later = _sound(begun.later_seconds)
        self._clock = clock
        self._resumed_at = begun.done
        self._started = clock()
        self._recent = deque([(self._started, begun.done)], maxlen=self.WINDOW)
        self._last = self._started

    def advance(self, rows: int) -> None:
        """Count rows that were done just now."""
        self.done += rows
        now = self._clock()
        if rows:
            self._last = now
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
        """The time left of the pass, as predicted, then at the recent pace; None if neither is known."""
        slowness = self._slowness
        if slowness is None:
            return None
        left = max(0, self.total - self.done) * slowness
        if self._pace or not left:
            return left
        return left - (self._clock() - self._last) if left > self._clock() - self._last else None

    @property
    def seconds_in_all(self) -> float | None:
        """The time left of the pass and of what follows it; None where that is not known."""
        left, slowness = self.seconds_left, self._slowness
        if left is None or slowness is None or not self._later:
            return None
        # What follows is as much slower than predicted as this pass is.
        ratio = slowness * self.total / self._predicted if self._predicted and self.total else 1.0
        return left + self._later * min(max(ratio, 1 / _MOST_RATIO), _MOST_RATIO)

    @property
    def _slowness(self) -> float | None:
        """The seconds per row: as predicted, then more and more as measured; None if neither is known."""
        pace, predicted = self._pace, self._predicted / self.total if self.total else 0.0
        if not (pace and predicted):
            return 1 / pace if pace else predicted or None
        known = self.elapsed / (self.elapsed + _BLENDED * self._predicted)
        return known / pace + (1 - known) * predicted

    @property
    def _pace(self) -> float:
        """The recent rows per second; 0 before they are known."""
        # The median slope across a quarter of the window: a burst or one long stall moves few of the
        # slopes, where a mean would promise hours for every minute that a laptop slept.
        points = list(self._recent)
        lag = max(1, len(points) // 4)
        slopes = [(n1 - n0) / (t1 - t0) for (t0, n0), (t1, n1) in zip(points, points[lag:], strict=False)]
        return max(0.0, median(slopes)) if slopes else 0.0

    def speed(self) -> str:
        """The speed as text; empty when unknown."""
        rate = self.gigabytes_per_second
        return "" if rate is None else f"{rate:.2f} GB/s"

    def remaining(self) -> str:
        """The time left as text; empty when unknown."""
        seconds, in_all = self.seconds_left, self.seconds_in_all
        if seconds is None:
            return ""
        return f"{_duration(seconds)} left" + (
            "" if in_all is None else f", about {_duration(in_all)} in all"
        )

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


def _sound(seconds: float) -> float:
    """Return a predicted time; 0 instead of one that is none."""
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def _sentence(label: str, *facts: str) -> str:
    return f"{label}: " + ", ".join(filter(None, facts))


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, whole = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{whole:02}" if hours else f"{minutes}:{whole:02}"
