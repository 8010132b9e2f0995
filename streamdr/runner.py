"""Runs one pass: segments out to the engine, merged in order, checkpointed, and stopped cleanly."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from streamdr.accumulators import Accumulator
from streamdr.blocks import Axis, Span
from streamdr.engines import Engine, Handle
from streamdr.errors import DataError, Interrupted
from streamdr.ledger import Entry, Ledger
from streamdr.methods import Pass
from streamdr.progress import Progress
from streamdr.segments import Counter, Cut, cut
from streamdr.sources.base import Source

Task = tuple[Callable[..., Any], *tuple[Any, ...]]

_POLL_SECONDS = 0.2
_CHECKPOINT_SHARE = 20
"""A checkpoint that took a second is not written again for twenty."""


def fold(
    empty: Accumulator,
    source: Source,
    axis: Axis,
    segments: Sequence[Sequence[Span]],
    stopped: Callable[[], bool],
) -> Accumulator:
    """The task: read, update and drop block after block; several segments merge as they would apart."""
    total: Accumulator | None = None
    for blocks in segments:
        accumulator = empty.empty_like()
        for span in blocks:
            if stopped():
                raise Interrupted("stopped between two blocks")
            block = source.loan(span, axis)
            with np.errstate(over="ignore", invalid="ignore"):  # the solve says so, in words that help
                accumulator.update(block)
        if total is None:
            total = accumulator
        else:
            total.merge(accumulator)
    assert total is not None  # a task has segments
    return total


def in_order(
    engine: Engine, tasks: Iterator[Task], window: int, stop: threading.Event
) -> Generator[Handle, None, None]:
    """Run tasks, at most `window` begun and not yet taken, and yield their handles in the tasks' order.

    A failure is raised in its turn: of several bad blocks, the first is the one that is named.
    """
    flying: deque[Handle] = deque()
    try:
        while True:
            flying.extend(engine.submit(*task) for task in islice(tasks, window - len(flying)))
            if not flying:
                return
            finished = engine.finished(flying[0], _POLL_SECONDS)
            if stop.is_set():
                raise Interrupted("stopped before the end")
            if finished:
                engine.check(flying[0])
                yield flying.popleft()
    finally:
        engine.cancel(flying)


@dataclass
class Runner:
    """What it takes to run passes over one source."""

    engine: Engine
    source: Source
    window: int
    """Segments that may be under way, or waiting for an earlier one, at once."""
    progress: Progress
    stop: threading.Event
    ledger: Ledger | None = None
    checkpoint_seconds: float = 5.0
    bytes_read: int = 0
    _fingerprint: str = field(default="", init=False)

    def __post_init__(self) -> None:
        if self.ledger is not None:
            self._fingerprint = self.source.fingerprint()

    def run(self, request: Pass) -> Accumulator:
        """The pass's accumulator, full: read, resumed, or remembered."""
        held = sum(array.nbytes for array in request.empty.arrays().values())
        parts = cut(self.source.spec, self.source.chunks, request.axis, held)
        counter = Counter[Handle](self.engine.merge)
        notes = Checkpoints(self, request.empty, parts, counter)
        notes.restore()
        if counter.count < len(parts):
            self._read(request, parts, counter, notes)
        full: Accumulator = self.engine.result(counter.total())
        return full

    def _read(self, request: Pass, parts: Cut, counter: Counter[Handle], notes: Checkpoints) -> None:
        line_bytes = self.source.spec.line_bytes(parts.axis)
        first = counter.count
        start = parts.span(first).start
        if first:
            self.progress.message(f"resuming {request.label} at {parts.axis[:-1]} {start:,}")
        self.progress.start(request.label, parts.length, start, float(line_bytes), parts.axis)
        empty, source = self.engine.share(request.empty), self.engine.share(self.source)
        numbers = list(parts.tasks(first, self.engine.run))
        tasks = (
            (fold, empty, source, parts.axis, [parts.blocks(n) for n in task], self.engine.stopped)
            for task in numbers
        )
        try:
            with closing(in_order(self.engine, tasks, self.window, self.stop)) as handles:
                for task, handle in zip(numbers, handles, strict=True):
                    if not parts.is_full(task[-1]):
                        counter.tail = handle
                    else:
                        counter.push(handle, level=1 if len(task) > 1 else 0)
                    lines = sum(len(parts.span(n)) for n in task)
                    self.bytes_read += lines * line_bytes
                    self.progress.advance(lines)
                    notes.save_when_due()
            self._require_unchanged(notes)
        finally:
            notes.save()
            self.progress.finish()

    def _require_unchanged(self, notes: Checkpoints) -> None:
        if self.ledger is not None and self.source.fingerprint() != self._fingerprint:
            notes.forget()
            raise DataError(
                f"{self.source.name}: changed while it was being read; nothing was kept of this pass. "
                "Run again when nothing writes to it"
            )


class Checkpoints:
    """The ledger's entry of one pass, kept up with its counter."""

    def __init__(self, runner: Runner, empty: Accumulator, parts: Cut, counter: Counter[Handle]) -> None:
        self._engine = runner.engine
        self._ledger = runner.ledger
        self._empty = empty
        self._counter = counter
        self._key = self._ledger.key(empty, runner._fingerprint, parts) if self._ledger else ""
        self._pause = runner.checkpoint_seconds
        self._due = time.monotonic() + self._pause
        self._saved = 0

    def restore(self) -> None:
        """Take up what an earlier run left."""
        entry = self._ledger.load(self._key, self._empty) if self._ledger else None
        if entry is None:
            return
        place = self._engine.place
        self._counter.digits = [digit and (digit[0], place(digit[1])) for digit in entry.digits]
        self._counter.tail = None if entry.tail is None else place(entry.tail)
        self._saved = self._counter.count

    def save_when_due(self) -> None:
        """Save, unless that was done a moment ago."""
        if time.monotonic() >= self._due:
            began = time.monotonic()
            self.save()
            took = time.monotonic() - began
            self._due = began + took + max(self._pause, _CHECKPOINT_SHARE * took)

    def save(self) -> None:
        """Write down where the pass is, if that has moved."""
        if self._ledger is None or self._counter.count == self._saved:
            return
        fetch = self._engine.result
        digits = [digit and (digit[0], fetch(digit[1])) for digit in self._counter.digits]
        tail = None if self._counter.tail is None else fetch(self._counter.tail)
        self._ledger.save(self._key, Entry(digits, tail))
        self._saved = self._counter.count

    def forget(self) -> None:
        """Drop what was written of this pass, for good."""
        if self._ledger is not None:
            self._ledger.forget(self._key)
        self._ledger = None
