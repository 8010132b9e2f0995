"""The notes that a pass takes of itself while it runs, and takes up when it runs again."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import takewhile
from typing import Protocol

from streamdr.accumulators import Accumulator
from streamdr.blocks import Axis
from streamdr.engines import Engine, Handle
from streamdr.ledger import Entry, Ledger, Part
from streamdr.progress import Progress
from streamdr.segments import Tally, segments_in
from streamdr.sources.base import Source
from streamdr.sources.snapshot import Snapshot

_SHARE = 20
"""Notes that took a second are not taken again for twenty."""


class Notes(Protocol):
    """What a runner tells of a pass."""

    def restore(self) -> None:
        """Take up what an earlier run left."""

    def save_when_due(self) -> None:
        """Save, unless that was done a moment ago."""

    def save(self) -> None:
        """Write down where the pass is, if that has moved."""

    def forget(self) -> None:
        """Drop what was written of this pass, for good."""


class NoNotes:
    """Of a pass that nobody will resume."""

    def restore(self) -> None:
        """There is nothing."""

    def save_when_due(self) -> None:
        """Nothing is saved."""

    def save(self) -> None:
        """Nothing is saved."""

    def forget(self) -> None:
        """Nothing was saved."""


def input_name(source: Source, snapshot: Snapshot, axis: Axis) -> str:
    """What a pass reads. Appended rows change every column, so columns have nothing to go on from."""
    if axis == "rows":
        return source.identity
    return f"{source.identity} {snapshot.digest(source.spec.n_rows)}"


class Checkpoints:
    """The ledger's entry of one pass, kept up with its tally."""

    def __init__(
        self,
        ledger: Ledger,
        key: str,
        source: Source,
        snapshot: Snapshot,
        empty: Accumulator,
        tally: Tally[Handle],
        engine: Engine,
        progress: Progress,
        pause: float,
    ) -> None:
        self._ledger = ledger
        self._source = source
        self._snapshot = snapshot
        self._empty = empty
        self._tally = tally
        self._engine = engine
        self._progress = progress
        self._pause = pause
        self._due = time.monotonic() + pause
        self._saved = 0
        self._key = key
        self._forgotten = False

    def restore(self) -> None:
        """Take up what an earlier run left, as far as it is of rows that are still the same."""
        entry = self._ledger.load(self._key, self._empty)
        if entry is None:
            return
        stop = segments_in(entry.counts) * self._tally.cut.segment_lines
        if not self._is_known(stop, entry.mark):
            self._progress.message(
                f"{self._source.name}: rows that were read before have changed, so all are read again"
            )
            return
        if entry.length < self._tally.cut.length:
            added = self._tally.cut.length - entry.length
            self._progress.message(f"{self._source.name}: {added:,} {self._tally.cut.axis} were appended")
        known = takewhile(lambda part: self._is_known(part.span.stop, part.mark), entry.tail)
        self._go_on_from(replace(entry, tail=list(known)))
        self._saved = self._tally.lines

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
        if self._forgotten or self._tally.lines <= self._saved:
            return None
        fetch, digits = self._engine.result, self._tally.digits
        states: list[Accumulator] = [fetch(digit[1]) for digit in digits if digit]
        tail = [Part(span, fetch(handle), self._mark(span.stop)) for span, handle in self._tally.tail]
        entry = Entry(
            length=self._tally.cut.length,
            counts=[digit[0] if digit else 0 for digit in digits],
            digits=states,
            mark=self._mark(self._tally.count * self._tally.cut.segment_lines),
            tail=tail,
        )
        self._ledger.save(self._key, entry)
        self._saved = self._tally.lines
        return entry

    def _go_on_from(self, entry: Entry) -> None:
        """Put what is written down in the place of what was computed.

        On a cluster, a result that is lost with its worker is computed again, and so is all that went into
        it, from the first row on. What is written down is where that ends.
        """
        states, place = iter(entry.digits), self._engine.place
        self._tally.digits = [(count, place(next(states))) if count else None for count in entry.counts]
        self._tally.tail = [(part.span, place(part.state)) for part in entry.tail]

    def forget(self) -> None:
        """Drop what was written of this pass, for good."""
        self._ledger.forget(self._key)
        self._forgotten = True

    def _is_known(self, stop: int, mark: str) -> bool:
        return stop <= self._tally.cut.length and self._mark(stop) == mark

    def _mark(self, stop: int) -> str:
        """What the input is up to a line. Columns are marked by all that there is: see `input_name`."""
        return self._snapshot.digest(stop) if self._tally.cut.axis == "rows" else ""
