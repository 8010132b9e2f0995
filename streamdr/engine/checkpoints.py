"""Checkpoints: a pass writes its state to the ledger while it runs, and continues from it later."""

from __future__ import annotations

import time
from itertools import takewhile
from typing import Protocol

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Axis
from streamdr.core.progress import Progress
from streamdr.data.snapshot import Snapshot
from streamdr.data.source import Source
from streamdr.engine.executors import Executor, Handle
from streamdr.engine.ledger import Entry, Layout, Ledger, TailPart
from streamdr.engine.merge_tree import MergeTree, segments_in

_SHARE = 20
"""A checkpoint that took a second to write is not written again for twenty seconds."""


class PassCheckpoints(Protocol):
    """The checkpoints of one pass, as a runner uses them."""

    @property
    def key(self) -> str | None:
        """The key of its entry in the ledger, if it has one."""

    def restore(self) -> None:
        """Restore the state that an earlier run saved."""

    def save_when_due(self) -> None:
        """Save the state, unless it was saved recently."""

    def save(self) -> None:
        """Save the state, if it has advanced."""


class NoCheckpoints:
    """The checkpoints of a pass that is never resumed: nothing is saved."""

    key: str | None = None

    def restore(self) -> None:
        """Restore nothing."""

    def save_when_due(self) -> None:
        """Save nothing."""

    def save(self) -> None:
        """Save nothing."""


def input_name(source: Source, snapshot: Snapshot, axis: Axis) -> str:
    """Return the name of the input in the key of a pass.

    Appended rows change every column, so a pass over columns cannot be continued after an append.
    """
    if axis == "rows":
        return source.identity
    return f"{source.identity} {snapshot.digest(source.spec.n_rows)}"


class Checkpoints:
    """Saves the merge tree of one pass to its entry in the ledger, and restores it."""

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
        """Restore the state that an earlier run saved, as far as its rows have not changed."""
        entry = self._ledger.load(self.key, self._empty, self._usable)
        if entry is None:
            return
        if entry.length < self._tree.partition.length:
            added = self._tree.partition.length - entry.length
            self._progress.message(
                f"{self._source.name}: {added:,} {self._tree.partition.axis} were appended"
            )
        self._continue_from(entry)
        self._saved = self._tree.lines

    def _usable(self, layout: Layout) -> int | None:
        """Return how many parts of the last segment have not changed; None if a row before it has."""
        stop = segments_in(layout.counts) * self._tree.partition.segment_lines
        if not self._is_unchanged(stop, layout.mark):
            self._progress.message(
                f"{self._source.name}: rows that were read before have changed, so all are read again"
            )
            return None
        unchanged = takewhile(lambda part: self._is_unchanged(part[0].stop, part[1]), layout.tail)
        return len(list(unchanged))

    def save_when_due(self) -> None:
        """Save the state, unless it was saved recently."""
        if time.monotonic() >= self._due:
            began = time.monotonic()
            if (entry := self._write()) is not None:
                self._continue_from(entry)
            took = time.monotonic() - began
            self._due = began + took + max(self._pause, _SHARE * took)

    def save(self) -> None:
        """Save the state, if it is further than the saved one."""
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
            ends=[self._mark(stop) for stop in self._tree.ends],
        )
        self._ledger.save(self.key, entry)
        self._saved = self._tree.lines
        return entry

    def _continue_from(self, entry: Entry) -> None:
        """Replace the computed state by the saved one.

        On a cluster, a result that is lost with its worker is computed again, and so are all of its inputs,
        from the first row on. A saved state needs no inputs, so recomputation ends there.
        """
        states, place = iter(entry.digits), self._engine.place
        self._tree.digits = [(count, place(next(states))) if count else None for count in entry.counts]
        self._tree.tail = [(part.span, place(part.state)) for part in entry.tail]

    def _is_unchanged(self, stop: int, mark: str) -> bool:
        return stop <= self._tree.partition.length and self._mark(stop) == mark

    def _mark(self, stop: int) -> str:
        """Return the digest of the input up to a row. For columns it is in the key: see `input_name`."""
        return self._snapshot.digest(stop) if self._tree.partition.axis == "rows" else ""
