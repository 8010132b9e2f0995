"""Runs one pass: segments out to the engine, merged in order, checkpointed, and stopped cleanly."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from streamdr.accumulators import Accumulator, copied
from streamdr.blocks import Axis, Block, Span
from streamdr.checkpoints import Checkpoints, NoNotes, Notes, input_name
from streamdr.engines import Engine, Handle, LostError, Recovery
from streamdr.errors import DataError, Interrupted
from streamdr.ledger import Ledger
from streamdr.linalg import unwarned
from streamdr.methods import Pass
from streamdr.progress import Progress
from streamdr.scratch import release
from streamdr.segments import Cut, Tally, Work, cut
from streamdr.sources.base import Source
from streamdr.sources.part import PartSnapshot, PartSource
from streamdr.sources.snapshot import Snapshot

Task = tuple[Callable[..., Any], *tuple[Any, ...]]

_POLL_SECONDS = 0.2
_LOOK_BYTES = 4 << 20
_WORD_SECONDS = 5.0
_LOOK_SECONDS = 1.0


def fold(
    empty: Accumulator,
    begun: Accumulator | None,
    source: Source,
    axis: Axis,
    segments: Sequence[Sequence[Span]],
    stopped: Callable[[], bool],
    count: Callable[[int], None],
) -> Accumulator:
    """The task: read, update and drop block after block; several segments merge as they would apart.

    `begun` is what an earlier run folded of the first segment. It is left alone: a task may run twice.
    """
    total: Accumulator | None = None
    for blocks in segments:
        accumulator = copied(empty if begun is None else begun)
        begun = None
        for span in blocks:
            if stopped():
                raise Interrupted("stopped between two blocks")
            block = source.loan(span, axis, holes=empty.holes)
            with unwarned():
                accumulator.update(block)
            count(len(span))
        if total is None:
            total = accumulator
        else:
            total.merge(accumulator)
    assert total is not None  # a task has segments
    return total


def in_order(
    recovery: Recovery, tasks: Iterator[Task], stop: threading.Event, waiting: Callable[[], None]
) -> Generator[Handle, None, None]:
    """Run tasks, at most a window of them begun and not yet taken, and yield their handles in order.

    `waiting` is called a few times a second while the next one is not finished. A failure is raised in its
    turn: of several bad blocks, the first is the one that is named.
    """
    engine = recovery.engine
    flying: deque[Handle] = deque()
    try:
        while True:
            flying.extend(engine.submit(*task) for task in islice(tasks, recovery.window - len(flying)))
            if not flying:
                return
            finished = engine.finished(flying[0], _POLL_SECONDS)
            if stop.is_set():
                raise Interrupted("stopped before the end")
            if finished:
                engine.check(flying[0])
                yield flying.popleft()
            else:
                waiting()
    finally:
        engine.cancel(flying)


class Advance:
    """Moves progress on by the lines of whole tasks and, while one takes long, by those of its blocks.

    Only what whole tasks did is kept when a run is stopped. Blocks are counted where the engine can.
    """

    def __init__(self, engine: Engine, progress: Progress, lines: int) -> None:
        self._engine = engine
        self._progress = progress
        self._lines = lines
        self._before = engine.counted()
        self._taken = self._shown = 0
        self._next_look = time.monotonic() + _LOOK_SECONDS

    def take(self, lines: int) -> None:
        """So many lines are done and merged."""
        self._taken += lines
        self._show(self._taken)

    def look(self) -> None:
        """Show how far tasks are that have not ended, if nothing was shown for a while."""
        if time.monotonic() >= self._next_look:
            self._show(min(self._engine.counted() - self._before, self._lines))

    def _show(self, done: int) -> None:
        if done > self._shown:
            self._progress.advance(done - self._shown)
            self._shown = done
        self._next_look = time.monotonic() + _LOOK_SECONDS


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
    _snapshot: Snapshot | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._next_word = time.monotonic() + _WORD_SECONDS
        if self.ledger is not None:
            self._snapshot = self.source.snapshot()

    def run(self, request: Pass) -> Accumulator:
        """The pass's accumulator, full: read, resumed, or remembered."""
        if request.at_hand is not None:
            return self._look(request, request.at_hand)
        recovery = self.recovery()
        return recovery.persevere(lambda: self._attempt(request, recovery))

    def _look(self, request: Pass, block: Block) -> Accumulator:
        """Rows that are in memory, a few at a time by several threads, merged as they stand."""
        spans = list(block.span.split(max(1, _LOOK_BYTES // max(1, block.values[:1].nbytes))))

        def part(span: Span) -> Accumulator:
            if self.stop.is_set():
                raise Interrupted("stopped between two blocks")
            accumulator = copied(request.empty)
            rows = slice(span.start - block.span.start, span.stop - block.span.start)
            with unwarned():
                accumulator.update(replace(block, span=span, values=block.values[rows]))
            return accumulator

        if len(spans) == 1:  # iterations over few rows would spend their time on starting threads
            total = part(spans[0])
        else:
            with ThreadPoolExecutor(min(len(spans), self.window)) as threads:
                parts = threads.map(part, spans)
                total = next(parts)
                for later in parts:
                    total.merge(later)
        if time.monotonic() > self._next_word:  # looks may take a millisecond each
            self.progress.message(request.label)
            self._next_word = time.monotonic() + _WORD_SECONDS
        return total

    def recovery(self) -> Recovery:
        """For work that reads the source."""
        return Recovery(self.engine, self.progress, self.source.name, self.engine.width(self.window))

    def _attempt(self, request: Pass, recovery: Recovery) -> Accumulator:
        source = self._source(request)
        tally, notes = self._recall(request, source)
        recovery.begin(tally.lines)
        if work := tally.work(self.engine.run):
            try:
                self._read(request, source, tally, work, notes, recovery)
            finally:
                release()
        full: Accumulator = self.engine.result(tally.total())
        return full

    def remembered(self, request: Pass) -> tuple[Accumulator | None, int]:
        """The pass's accumulator if nothing has to be read for it, or None and how many bytes have to be."""
        if request.at_hand is not None:  # nothing is read, but nobody looks only to tell that
            return None, 0
        source = self._source(request)
        tally, _ = self._recall(request, source)
        work = tally.work(self.engine.run)
        full = None if work else self.engine.result(tally.total())
        return full, sum(_bytes_of(part, tally.cut, source) for part in work)

    def bytes_of(self, request: Pass) -> int:
        """How much a pass reads of which nothing is remembered."""
        if request.at_hand is not None:
            return 0
        source = self._source(request)
        return source.spec.n_rows * source.stored_line_bytes("rows")

    def _source(self, request: Pass) -> Source:
        return self.source if request.part is None else PartSource(self.source, request.part)

    def _recall(self, request: Pass, source: Source) -> tuple[Tally[Handle], Notes]:
        held = sum(array.nbytes for array in request.empty.arrays().values())
        parts = cut(source.spec, source.chunks, request.axis, held, request.labour)
        tally = Tally[Handle](parts, self.engine.merge)
        notes = self._notes(request, source, tally)
        notes.restore()
        return tally, notes

    def _read(
        self,
        request: Pass,
        source: Source,
        tally: Tally[Handle],
        work: list[Work[Handle]],
        notes: Notes,
        recovery: Recovery,
    ) -> None:
        parts = tally.cut
        line_bytes = source.stored_line_bytes(parts.axis)
        start = parts.length - sum(part.lines for part in work)
        if start:
            self.progress.message(f"resuming {request.label} at {parts.axis[:-1]} {start:,}")
        empty, shared = self.engine.share(request.empty), self.engine.share(source)
        tasks = (
            (
                fold,
                empty,
                part.continues,
                shared,
                parts.axis,
                [parts.blocks(span) for span in part.spans],
                self.engine.stopped,
                self.engine.count,
            )
            for part in work
        )
        spans = (Span(part.spans[0].start, part.spans[-1].stop) for part in work)
        self.progress.start(request.label, parts.length, start, float(line_bytes), parts.axis)
        shown = Advance(self.engine, self.progress, parts.length - start)
        try:
            with closing(in_order(recovery, tasks, self.stop, shown.look)) as handles:
                for part, handle in zip(work, recovery.watch(handles, spans, parts.axis), strict=True):
                    tally.take(part, handle)
                    self.bytes_read += _bytes_of(part, parts, source)
                    shown.take(part.lines)
                    notes.save_when_due()
            self._require_unchanged(notes)
        finally:
            if not isinstance(sys.exception(), LostError):  # then there is nothing left to be saved
                notes.save()
            self.progress.finish()

    def _notes(self, request: Pass, source: Source, tally: Tally[Handle]) -> Notes:
        if self.ledger is None or self._snapshot is None:
            return NoNotes()
        snapshot = PartSnapshot(self._snapshot, source) if isinstance(source, PartSource) else self._snapshot
        key = self.ledger.key(request.empty, input_name(source, snapshot, request.axis), tally.cut)
        if key is None:
            return NoNotes()
        return Checkpoints(
            self.ledger,
            key,
            source,
            snapshot,
            request.empty,
            tally,
            self.engine,
            self.progress,
            self.checkpoint_seconds,
        )

    def _require_unchanged(self, notes: Notes) -> None:
        if self._snapshot is None:
            return
        rows = self.source.spec.n_rows
        if self.source.snapshot().digest(rows) != self._snapshot.digest(rows):
            notes.forget()
            raise DataError(
                f"{self.source.name}: changed while it was being read; nothing was kept of this pass. "
                "Run again when nothing writes to it"
            )


def _bytes_of(work: Work[Handle], cut: Cut, source: Source) -> int:
    """How much a task reads: block by block."""
    return sum(source.stored_bytes(cut.blocks(span), cut.axis) for span in work.spans)
