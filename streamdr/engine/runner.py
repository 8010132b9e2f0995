"""Runs passes: submits segments to the executor, merges them in order, checkpoints, and stops cleanly."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, cast

from streamdr.core import blocks as sizes
from streamdr.core.accumulator import (
    Accumulator,
    UpdatesSparse,
    UpdatesTiles,
    copied,
    takes_sparse,
    takes_stored,
)
from streamdr.core.blocks import Axis, Block, Span
from streamdr.core.buffers import release
from streamdr.core.function_digest import UnidentifiedError
from streamdr.core.linalg import ignore_overflow
from streamdr.core.method import Pass
from streamdr.core.progress import PassStart, Progress
from streamdr.data.remote_results import results_at_hand
from streamdr.data.row_subset import RowSubset, RowSubsetSnapshot
from streamdr.data.snapshot import Snapshot
from streamdr.data.source import Source
from streamdr.data.transformed import TransformedSource
from streamdr.engine.checkpoints import Checkpoints, NoCheckpoints, PassCheckpoints, input_name
from streamdr.engine.executors import Executor, Handle, LostError, Recovery
from streamdr.engine.executors.threads import Threads
from streamdr.engine.forecast import Expected, Forecast
from streamdr.engine.ledger import Ledger
from streamdr.engine.merge_tree import MergeTree, Work, carry
from streamdr.engine.partition import Partition, column_tiles, partition
from streamdr.errors import DataError, Interrupted, RowError

Task = tuple[Callable[..., Any], *tuple[Any, ...]]

_POLL_SECONDS = 0.2
_MESSAGE_SECONDS = 5.0
_SHOW_SECONDS = 1.0


def fold(
    empty: Accumulator,
    begun: Accumulator | None,
    source: Source,
    axis: Axis,
    segments: Sequence[Sequence[Span]],
    stopped: Callable[[], bool],
    count: Callable[[int], None],
    keys: Sequence[Any] = (),
    *results: Any,
) -> Accumulator:
    """Read segments block by block into accumulators, and merge these as the tree does. This is one task.

    `begun` is the state of the first segment from an earlier run. It is copied, since a task may run twice.
    `results` are what a cluster holds of a lazy source, under these keys.
    """
    if keys:
        with results_at_hand(dict(zip(keys, results, strict=True))):
            return fold(empty, begun, source, axis, segments, stopped, count)
    digits: list[tuple[int, Accumulator] | None] = []
    for blocks in segments:
        accumulator = empty.empty_like() if begun is None else copied(begun)
        begun = None
        for span in blocks:
            if stopped():
                raise Interrupted("stopped between two blocks")
            with ignore_overflow():
                _update(accumulator, source, span, axis)
            count(len(span))
        carry(digits, accumulator, 0, _absorbed)
    (total,) = (digit[1] for digit in digits if digit is not None)  # a task has one segment, or whole runs
    return total


def _absorbed(earlier: Accumulator, later: Accumulator) -> Accumulator:
    """Merge into the earlier accumulator, which this task owns, and return it."""
    earlier.merge(later)
    return earlier


def _update(accumulator: Accumulator, source: Source, span: Span, axis: Axis) -> None:
    """Read a block into an accumulator: sparse rows piece by piece, if it takes them."""
    start = span.start
    try:
        if takes_sparse(accumulator, source.spec, axis):
            for piece in source.sparse_blocks(span, allow_nan=accumulator.allow_nan):
                start = piece.span.start
                cast(UpdatesSparse, accumulator).update_sparse(piece)
        elif axis == "rows" and isinstance(accumulator, UpdatesTiles):
            for columns in column_tiles(source.spec, source.chunks, len(span)):
                block = source.scratch_tile(span, columns, allow_nan=accumulator.allow_nan)
                accumulator.update_tile(block, columns)
        else:
            read = source.stored_block if takes_stored(accumulator) else source.scratch_block
            accumulator.update(read(span, axis, allow_nan=accumulator.allow_nan))
    except RowError as error:
        place = source.stored_row(start + error.row)
        raise error.located(*place, source.described_column) from None


def in_order(
    recovery: Recovery, tasks: Iterator[Task], stop: threading.Event, waiting: Callable[[], None]
) -> Generator[Handle, None, None]:
    """Run tasks, at most a window of them at a time, and yield their handles in order.

    `waiting` is called a few times per second while the next task is not finished. Failures are raised in
    order too: of several bad blocks, the error names the first one.
    """
    engine = recovery.engine
    pending: deque[Handle] = deque()
    try:
        while True:
            pending.extend(engine.submit(*task) for task in islice(tasks, recovery.window - len(pending)))
            if not pending:
                return
            finished = engine.finished(pending[0], _POLL_SECONDS)
            if stop.is_set():
                raise Interrupted("stopped before the end")
            if finished:
                engine.check(pending[0])
                yield pending.popleft()
            else:
                waiting()
    finally:
        engine.cancel(pending)


def _accumulated(empty: Accumulator, block: Block) -> Accumulator:
    """Add rows that are in memory to a copy of an accumulator. This is one task."""
    accumulator = copied(empty)
    with ignore_overflow():
        accumulator.update(block)
    return accumulator


def _within(span: Span, part: Span) -> slice:
    """Return where a part of a span is in an array that holds the span."""
    return slice(part.start - span.start, part.stop - span.start)


class Advance:
    """Advances the progress by the lines of finished tasks and, during a long task, by those of its blocks.

    Only finished tasks are kept when a run is stopped. Blocks are counted if the executor supports it.
    """

    def __init__(self, engine: Executor, progress: Progress, lines: int) -> None:
        self._engine = engine
        self._progress = progress
        self._lines = lines
        self._before = engine.counted()
        self._taken = self._shown = 0
        self._next_look = time.monotonic() + _SHOW_SECONDS

    def take(self, lines: int) -> None:
        """Add lines that are read and merged."""
        self._taken += lines
        self._show(self._taken)

    def look(self) -> None:
        """Show the progress of unfinished tasks, if nothing was shown recently."""
        if time.monotonic() >= self._next_look:
            self._show(min(self._engine.counted() - self._before, self._lines))

    def _show(self, done: int) -> None:
        if done > self._shown:
            self._progress.advance(done - self._shown)
            self._shown = done
        self._next_look = time.monotonic() + _SHOW_SECONDS


@dataclass
class Runner:
    """Runs passes over one source."""

    engine: Executor
    source: Source
    window: int
    """The number of segments that may run, or wait for an earlier one, at a time."""
    progress: Progress
    stop: threading.Event
    ledger: Ledger | None = None
    checkpoint_seconds: float = 5.0
    seen: Snapshot | None = None
    """The snapshot of the source before the first pass. A ledger needs it."""
    bytes_read: int = 0
    forecast: Forecast = field(default_factory=Forecast)
    """How long passes are expected to take, to be shown."""
    _unverified: list[str | None] = field(default_factory=list, init=False)
    """The ledger keys of the passes that were read since the source was last checked, None for a pass
    without one. Only keys are kept: checkpoints hold accumulators, and there may be many passes."""

    def __post_init__(self) -> None:
        self._next_message = time.monotonic() + _MESSAGE_SECONDS
        self._fingerprint = "" if self.seen is None else self.seen.digest(self.source.spec.n_rows)

    def continued(self, engine: Executor, source: Source, window: int) -> Runner:
        """Return a runner over other features of the same rows. It checks the passes of this one too."""
        later = replace(self, engine=engine, source=source, window=window)
        later._unverified.extend(self._unverified)
        return later

    def run(self, request: Pass) -> Accumulator:
        """Return the full accumulator of a pass: read, resumed, or from the ledger."""
        expected = self.forecast.begin(request)
        if request.in_memory is not None:
            return self._run_in_memory(request, request.in_memory)
        recovery = self.recovery()
        return recovery.retry(lambda: self._attempt(request, recovery, expected))

    def _run_in_memory(self, request: Pass, block: Block) -> Accumulator:
        """Accumulate rows that are in memory, by threads of this process, and merge the parts in order."""
        line_bytes = max(1, block.values[:1].nbytes) * request.cost_factor
        spans = list(block.span.split(max(1, sizes.IN_MEMORY_BYTES // line_bytes)))
        parts = (replace(block, span=span, values=block.values[_within(block.span, span)]) for span in spans)
        if self.stop.is_set():
            raise Interrupted("stopped before the end")
        if len(spans) == 1:  # for few rows, starting threads would take most of the time
            total = _accumulated(request.empty, next(parts))
        else:
            total = self._merged(request.empty, parts, min(self.engine.workers, self.window, len(spans)))
        if time.monotonic() > self._next_message:  # such a pass may take only a millisecond
            self.progress.message(request.label)
            self._next_message = time.monotonic() + _MESSAGE_SECONDS
        return total

    def _merged(self, empty: Accumulator, parts: Iterator[Block], workers: int) -> Accumulator:
        """Accumulate each part by one of `workers` threads, while this one merges those before it."""
        total: Accumulator | None = None
        tasks = ((_accumulated, empty, part) for part in parts)
        with closing(Threads(workers, self.stop)) as threads:
            recovery = Recovery(threads, self.progress, self.source.name, self.window)
            with closing(in_order(recovery, tasks, self.stop, lambda: None)) as handles:
                for handle in handles:
                    if total is None:
                        total = threads.result(handle)
                    else:
                        total.merge(threads.result(handle))
        assert total is not None  # there are parts
        return total

    def recovery(self) -> Recovery:
        """Return a new recovery for work that reads the source."""
        return Recovery(self.engine, self.progress, self.source.name, self.engine.width(self.window))

    def _attempt(self, request: Pass, recovery: Recovery, expected: Expected) -> Accumulator:
        source = self._source(request)
        tree, checkpoints = self._restored(request, source)
        recovery.begin(tree.lines)
        if work := self._work(tree, recovery.long_runs):
            try:
                self._read(request, source, tree, work, checkpoints, recovery, expected)
            finally:
                release()
        full: Accumulator = self.engine.result(tree.total())
        return full

    def remembered(self, request: Pass) -> tuple[Accumulator | None, int]:
        """Return the full accumulator of a pass, or None, and the number of bytes to read for it."""
        if request.in_memory is not None:  # it reads nothing, but is not computed for an estimate
            return None, 0
        source = self._source(request)
        tree, _ = self._restored(request, source)
        work = self._work(tree, self.engine.long_runs)
        full = None if work else self.engine.result(tree.total())
        return full, sum(_bytes_of(part, tree.partition, source) for part in work)

    def bytes_of(self, request: Pass) -> int:
        """Return the bytes that a pass reads if nothing of it is in the ledger."""
        if request.in_memory is not None:
            return 0
        source = self._source(request)
        return source.spec.n_rows * source.stored_line_bytes("rows")

    def _work(self, tree: MergeTree[Handle], long_runs: int) -> list[Work[Handle]]:
        """Return what is left to read: single segments if a cluster holds the source: then little moves."""
        if self.source.holder is not None:
            return tree.work(1)
        return tree.work(self.engine.run, long_runs)

    def _source(self, request: Pass) -> Source:
        mapped = self.source
        if request.through is not None:
            mapped = TransformedSource(self.source, request.through, request.steps)
        return mapped if request.part is None else RowSubset(mapped, request.part)

    def _restored(self, request: Pass, source: Source) -> tuple[MergeTree[Handle], PassCheckpoints]:
        """Return the merge tree of a pass, with its state from the ledger, and its checkpoints."""
        held = sum(array.nbytes for array in request.empty.arrays().values())
        sparse = takes_sparse(request.empty, source.spec, request.axis)
        parts = partition(source.spec, source.chunks, request.axis, held, request.cost_factor, sparse=sparse)
        tree = MergeTree[Handle](parts, self.engine.merge)
        checkpoints = self._checkpoints(request, source, tree)
        checkpoints.restore()
        return tree, checkpoints

    def _read(
        self,
        request: Pass,
        source: Source,
        tree: MergeTree[Handle],
        work: list[Work[Handle]],
        checkpoints: PassCheckpoints,
        recovery: Recovery,
        expected: Expected,
    ) -> None:
        parts = tree.partition
        line_bytes = source.stored_line_bytes(parts.axis)
        start = parts.length - sum(part.lines for part in work)
        if start:
            self.progress.message(f"resuming {request.label} at {parts.axis[:-1]} {start:,}")
        empty, shared = self.engine.share(request.empty), self.engine.keep(source)
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
                *self._remote_results(source, part, parts),
            )
            for part in work
        )
        spans = (part.span for part in work)
        self.progress.start(
            PassStart(request.label, parts.length, start, float(line_bytes), parts.axis, *expected)
        )
        shown = Advance(self.engine, self.progress, parts.length - start)
        try:
            with closing(in_order(recovery, tasks, self.stop, shown.look)) as handles:
                for part, handle in zip(work, recovery.watch(handles, spans, parts.axis), strict=True):
                    tree.take(part, handle)
                    self.bytes_read += _bytes_of(part, parts, source)
                    shown.take(part.lines)
                    checkpoints.save_when_due()
            self._unverified.append(checkpoints.key)
        finally:
            if not isinstance(sys.exception(), LostError):  # the results are lost, so nothing can be saved
                checkpoints.save()
            self.progress.finish()

    def _remote_results(self, source: Source, work: Work[Handle], parts: Partition) -> tuple[Any, ...]:
        """Return the keys, and one by one the handles, of what the cluster holds of the lines of a task."""
        if not self.engine.shares_futures:
            return ()
        regions = (source.area(span, parts.axis) for lines in work.spans for span in parts.blocks(lines))
        found = source.remote_results(regions)
        return list(found), *found.values()

    def _checkpoints(self, request: Pass, source: Source, tree: MergeTree[Handle]) -> PassCheckpoints:
        if self.ledger is None or self.seen is None:
            return NoCheckpoints()
        snapshot = RowSubsetSnapshot(self.seen, source) if isinstance(source, RowSubset) else self.seen
        try:
            name = input_name(source, snapshot, request.axis)
        except UnidentifiedError:  # the rows are mapped by a function that cannot be identified
            return NoCheckpoints()
        key = self.ledger.key(request.empty, name, tree.partition)
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
        """Check, if the source was read, that it has not changed since. Otherwise delete the new entries."""
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
    """Return the bytes that a task reads, block by block."""
    return sum(source.stored_bytes(partition.blocks(span), partition.axis) for span in work.spans)
