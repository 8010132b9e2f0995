"""The memory of finished and interrupted passes, so that nothing is read twice.

An entry is found by what the pass means: the kind of accumulator and its parameters, the input's name, and
how it is cut. It says which rows it has taken in, and what they were: so it serves as long as they are the
first rows of the input, however many were appended. It is one `.npz` file of plain arrays: no code is run to
load it, and the archive's own checksums notice a flipped bit.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from streamdr.accumulators import Accumulator
from streamdr.blocks import Array, Span
from streamdr.errors import StoreError
from streamdr.folders import Folder
from streamdr.segments import Cut

_SCHEMA = 2
_KEPT_BYTES = 1 << 30


@dataclass(frozen=True)
class Part:
    """What was folded of the last segment, and the digest of the input up to where it ends."""

    span: Span
    state: Accumulator
    mark: str


@dataclass(frozen=True)
class Entry:
    """The state of a pass over an input that was `length` lines long: a tally, and what it was made of."""

    length: int
    counts: list[int]
    """How many times its unit each digit of the tally stands for, lowest first."""
    digits: list[Accumulator]
    """The states of those digits that are not zero."""
    mark: str
    """The digest of the input up to where the digits end."""
    tail: list[Part]


class Ledger:
    """Entries in a folder. A `fresh` one does not see what was there before."""

    def __init__(self, folder: Folder, *, fresh: bool = False) -> None:
        self.folder = folder
        self._fresh = fresh
        self._used: set[str] = set()

    def key(self, empty: Accumulator, data: str, cut: Cut) -> str:
        """The name of a pass over `data`: equal keys and equal rows mean equal bits."""
        meaning = {
            "schema": _SCHEMA,
            "kind": empty.kind,
            "parameters": {name: _digest(value) for name, value in empty.parameters().items()},
            "input": data,
            "cut": [cut.axis, cut.chunk, cut.block, cut.segment, cut.finest],
        }
        return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()[:40]

    def load(self, key: str, empty: Accumulator) -> Entry | None:
        """The entry, or None when there is none or it is damaged: then the pass is simply redone."""
        if self._fresh and key not in self._used:
            return None
        try:
            with self.folder.open(_file(key)) as file:
                if file is None:
                    return None
                entry = _read(file, empty)
        except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            self.forget(key)
            return None
        self._used.add(key)
        self.folder.touch(_file(key))
        return entry

    def save(self, key: str, entry: Entry) -> None:
        """Replace the entry at once: a kill leaves the old one or the new one."""
        try:
            self.folder.write(_file(key), lambda file: _write(file, entry))
        except OSError as error:
            raise StoreError(
                f"{self.folder.name}: the checkpoint cannot be written: {error.strerror or error}; free some "
                "space, or set execution.ledger to another path"
            ) from error
        self._used.add(key)

    def forget(self, key: str) -> None:
        """Drop an entry."""
        self.folder.delete(_file(key))

    def prune(self) -> None:
        """Drop what was of no use for longest, as far as it takes much more room than what is in use."""
        files = {_file(key) for key in self._used}
        items = self.folder.items()
        budget = max(_KEPT_BYTES, 3 * sum(item.size for item in items if item.name in files))
        total = sum(item.size for item in items)
        for item in items:
            if total <= budget:
                return
            if item.name.endswith(".npz") and item.name not in files:
                self.folder.delete(item.name)
                total -= item.size


def _write(file: BinaryIO, entry: Entry) -> None:
    layout = {
        "length": entry.length,
        "counts": entry.counts,
        "mark": entry.mark,
        "tail": [(part.span.start, part.span.stop, part.mark) for part in entry.tail],
    }
    arrays: dict[str, Array] = {"layout": np.array(json.dumps(layout))}
    for number, state in enumerate([*entry.digits, *(part.state for part in entry.tail)]):
        arrays |= {f"{number}/{name}": array for name, array in state.arrays().items()}
    np.savez(file, allow_pickle=False, **arrays)


def _read(file: BinaryIO, empty: Accumulator) -> Entry:
    with np.load(file, allow_pickle=False) as archive:
        layout = json.loads(str(archive["layout"]))
        arrays = {name: archive[name] for name in archive.files if name != "layout"}
    counts: list[int] = layout["counts"]
    n_digits = sum(count > 0 for count in counts)
    states = [_restored(empty, arrays, f"{n}/") for n in range(n_digits + len(layout["tail"]))]
    tail = [
        Part(Span(start, stop), state, mark)
        for (start, stop, mark), state in zip(layout["tail"], states[n_digits:], strict=True)
    ]
    return Entry(layout["length"], counts, states[:n_digits], layout["mark"], tail)


def _file(key: str) -> str:
    return f"{key}.npz"


def _digest(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        content = hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()
        return [value.dtype.str, list(value.shape), content]
    return value


def _restored(empty: Accumulator, arrays: Mapping[str, Array], prefix: str) -> Accumulator:
    accumulator = empty.empty_like()
    state = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    accumulator.restore(state)
    return accumulator
