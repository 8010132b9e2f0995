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

from streamdr.core.accumulator import Accumulator, copied
from streamdr.core.blocks import Axis, Block, Span
from streamdr.core.buffers import release
from streamdr.core.linalg import ignore_overflow
from streamdr.core.method import Pass
from streamdr.core.progress import Progress
from streamdr.data.row_subset import RowSubset, RowSubsetSnapshot
from streamdr.data.snapshot import Snapshot
from streamdr.data.source import Source
from streamdr.engine.checkpoints import Checkpoints, NoCheckpoints, PassCheckpoints, input_name
from streamdr.engine.executors import Executor, Handle, LostError, Recovery
from streamdr.engine.ledger import Ledger
from streamdr.engine.merge_tree import MergeTree, Work
from streamdr.engine.partition import Partition, partition
from streamdr.errors import DataError, Interrupted

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
            block = source.scratch_block(span, axis, allow_nan=empty.allow_nan)
            with ignore_overflow():
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

    def __init__(self, engine: Executor, progress: Progress, lines: int) -> None:
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

    engine: Executor
    source: Source
    window: int
    """Segments that may be under way, or waiting for an earlier one, at once."""
    progress: Progress
    stop: threading.Event
    ledger: Ledger | None = None
    checkpoint_seconds: float = 5.0
    seen: Snapshot | None = None
    """What the source was like before the first pass. A ledger needs it."""
    bytes_read: int = 0
    _unverified: list[str | None] = field(default_factory=list, init=False)
    """The ledger's keys of the passes that were read since the source was last looked at, None for a pass
    without one. Keys only: checkpoints hold accumulators, and there may be many passes."""

    def __post_init__(self) -> None:
        self._next_word = time.monotonic() + _WORD_SECONDS
        self._fingerprint = "" if self.seen is None else self.seen.digest(self.source.spec.n_rows)

    def run(self, request: Pass) -> Accumulator:
        """The pass's accumulator, full: read, resumed, or remembered."""
        if request.in_memory is not None:
            return self._look(request, request.in_memory)
        recovery = self.recovery()
        return recovery.retry(lambda: self._attempt(request, recovery))

    def _look(self, request: Pass, block: Block) -> Accumulator:
        """Rows that are in memory, a few at a time by several threads, merged as they stand."""
        spans = list(block.span.split(max(1, _LOOK_BYTES // max(1, block.values[:1].nbytes))))

        def part(span: Span) -> Accumulator:
            if self.stop.is_set():
                raise Interrupted("stopped between two blocks")
            accumulator = copied(request.empty)
            rows = slice(span.start - block.span.start, span.stop - block.span.start)
            with ignore_overflow():
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
        tree, notes = self._recall(request, source)
        recovery.begin(tree.lines)
        if work := tree.work(self.engine.run):
            try:
                self._read(request, source, tree, work, notes, recovery)
            finally:
                release()
        full: Accumulator = self.engine.result(tree.total())
        return full

    def remembered(self, request: Pass) -> tuple[Accumulator | None, int]:
        """The pass's accumulator if nothing has to be read for it, or None and how many bytes have to be."""
        if request.in_memory is not None:  # nothing is read, but nobody looks only to tell that
            return None, 0
        source = self._source(request)
        tree, _ = self._recall(request, source)
        work = tree.work(self.engine.run)
        full = None if work else self.engine.result(tree.total())
        return full, sum(_bytes_of(part, tree.partition, source) for part in work)

    def bytes_of(self, request: Pass) -> int:
        """How much a pass reads of which nothing is remembered."""
        if request.in_memory is not None:
            return 0
        source = self._source(request)
        return source.spec.n_rows * source.stored_line_bytes("rows")

    def _source(self, request: Pass) -> Source:
        return self.source if request.part is None else RowSubset(self.source, request.part)

    def _recall(self, request: Pass, source: Source) -> tuple[MergeTree[Handle], PassCheckpoints]:
        held = sum(array.nbytes for array in request.empty.arrays().values())
        parts = partition(source.spec, source.chunks, request.axis, held, request.cost_factor)
        tree = MergeTree[Handle](parts, self.engine.merge)
        notes = self._notes(request, source, tree)
        notes.restore()
        return tree, notes

    def _read(
        self,
        request: Pass,
        source: Source,
        tree: MergeTree[Handle],
        work: list[Work[Handle]],
        notes: PassCheckpoints,
        recovery: Recovery,
    ) -> None:
        parts = tree.partition
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
                    tree.take(part, handle)
                    self.bytes_read += _bytes_of(part, parts, source)
                    shown.take(part.lines)
                    notes.save_when_due()
            self._unverified.append(notes.key)
        finally:
            if not isinstance(sys.exception(), LostError):  # then there is nothing left to be saved
                notes.save()
            self.progress.finish()

    def _notes(self, request: Pass, source: Source, tree: MergeTree[Handle]) -> PassCheckpoints:
        if self.ledger is None or self.seen is None:
            return NoCheckpoints()
        snapshot = RowSubsetSnapshot(self.seen, source) if isinstance(source, RowSubset) else self.seen
        key = self.ledger.key(request.empty, input_name(source, snapshot, request.axis), tree.partition)
        if key is None:
            return NoCheckpoints()
        return Checkpoints(
            self.ledger,
            key,
            source,
            snapshot,
            request.empty,
            tree,
            self.engine,
            self.progress,
            self.checkpoint_seconds,
        )

    def require_unchanged(self) -> None:
        """Look at the source again, if it was read, and refuse what was read of one that has changed."""
        if self.seen is None or not self._unverified:
            return
        if self.source.fingerprint() != self._fingerprint:
            for key in self._unverified:
                if self.ledger is not None and key is not None:
                    self.ledger.forget(key)
            raise DataError(
                f"{self.source.name}: changed while it was being read; nothing was kept of this pass. "
                "Run again when nothing writes to it"
            )
        self._unverified.clear()


def _bytes_of(work: Work[Handle], partition: Partition, source: Source) -> int:
    """How much a task reads: block by block."""
    return sum(source.stored_bytes(partition.blocks(span), partition.axis) for span in work.spans)
