"""The notes that a pass takes of itself while it runs, and takes up when it runs again."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import takewhile
from typing import Protocol

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Axis
from streamdr.core.progress import Progress
from streamdr.data.snapshot import Snapshot
from streamdr.data.source import Source
from streamdr.engine.executors import Executor, Handle
from streamdr.engine.ledger import Entry, Ledger, TailPart
from streamdr.engine.merge_tree import MergeTree, segments_in

_SHARE = 20
"""PassCheckpoints that took a second are not taken again for twenty."""


class PassCheckpoints(Protocol):
    """What a runner tells of a pass."""

    @property
    def key(self) -> str | None:
        """The key of its entry in the ledger, if it has one."""

    def restore(self) -> None:
        """Take up what an earlier run left."""

    def save_when_due(self) -> None:
        """Save, unless that was done a moment ago."""

    def save(self) -> None:
        """Write down where the pass is, if that has moved."""


class NoCheckpoints:
    """Of a pass that nobody will resume."""

    key: str | None = None

    def restore(self) -> None:
        """There is nothing."""

    def save_when_due(self) -> None:
        """Nothing is saved."""

    def save(self) -> None:
        """Nothing is saved."""


def input_name(source: Source, snapshot: Snapshot, axis: Axis) -> str:
    """What a pass reads. Appended rows change every column, so columns have nothing to go on from."""
    if axis == "rows":
        return source.identity
    return f"{source.identity} {snapshot.digest(source.spec.n_rows)}"


class Checkpoints:
    """The ledger's entry of one pass, kept up with its merge tree."""

    def __init__(
        self,
        ledger: Ledger,
        key: str,
        source: Source,
        snapshot: Snapshot,
        empty: Accumulator,
        tree: MergeTree[Handle],
        engine: Executor,
        progress: Progress,
        pause: float,
    ) -> None:
        self._ledger = ledger
        self._source = source
        self._snapshot = snapshot
        self._empty = empty
        self._tree = tree
        self._engine = engine
        self._progress = progress
        self._pause = pause
        self._due = time.monotonic() + pause
        self._saved = 0
        self.key = key

    def restore(self) -> None:
        """Take up what an earlier run left, as far as it is of rows that are still the same."""
        entry = self._ledger.load(self.key, self._empty)
        if entry is None:
            return
        stop = segments_in(entry.counts) * self._tree.partition.segment_lines
        if not self._is_known(stop, entry.mark):
            self._progress.message(
                f"{self._source.name}: rows that were read before have changed, so all are read again"
            )
            return
        if entry.length < self._tree.partition.length:
            added = self._tree.partition.length - entry.length
            self._progress.message(
                f"{self._source.name}: {added:,} {self._tree.partition.axis} were appended"
            )
        known = takewhile(lambda part: self._is_known(part.span.stop, part.mark), entry.tail)
        self._go_on_from(replace(entry, tail=list(known)))
        self._saved = self._tree.lines

    def save_when_due(self) -> None:
        """Save, unless that was done a moment ago."""
        if time.monotonic() >= self._due:
            began = time.monotonic()
            if (entry := self._write()) is not None:
                self._go_on_from(entry)
            took = time.monotonic() - began
            self._due = began + took + max(self._pause, _SHARE * took)

    def save(self) -> None:
        """Write down where the pass is, if that is further than what is written down."""
        self._write()

    def _write(self) -> Entry | None:
        if self._tree.lines <= self._saved:
            return None
        fetch, digits = self._engine.result, self._tree.digits
        states: list[Accumulator] = [fetch(digit[1]) for digit in digits if digit]
        tail = [TailPart(span, fetch(handle), self._mark(span.stop)) for span, handle in self._tree.tail]
        entry = Entry(
            length=self._tree.partition.length,
            counts=[digit[0] if digit else 0 for digit in digits],
            digits=states,
            mark=self._mark(self._tree.count * self._tree.partition.segment_lines),
            tail=tail,
        )
        self._ledger.save(self.key, entry)
        self._saved = self._tree.lines
        return entry

    def _go_on_from(self, entry: Entry) -> None:
        """Put what is written down in the place of what was computed.

        On a cluster, a result that is lost with its worker is computed again, and so is all that went into
        it, from the first row on. What is written down is where that ends.
        """
        states, place = iter(entry.digits), self._engine.place
        self._tree.digits = [(count, place(next(states))) if count else None for count in entry.counts]
        self._tree.tail = [(part.span, place(part.state)) for part in entry.tail]

    def _is_known(self, stop: int, mark: str) -> bool:
        return stop <= self._tree.partition.length and self._mark(stop) == mark

    def _mark(self, stop: int) -> str:
        """What the input is up to a line. Columns are marked by all that there is: see `input_name`."""
        return self._snapshot.digest(stop) if self._tree.partition.axis == "rows" else ""
