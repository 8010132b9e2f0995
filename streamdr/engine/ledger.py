"""The ledger: the states of finished and interrupted passes, so that nothing is read twice.

The key of an entry is a digest of what the pass computes: the kind of accumulator and its parameters, the
name of the input, and the partition. An entry has digests of the rows that it has read. It is valid as long
as these are the first rows of the input, however many were appended.

An entry is a `.npz` file of plain arrays. Each large state has such a file of its own, which the entry names:
most states of a merge tree stay the same between two checkpoints, or when few rows are appended, and are not
written again. Loading runs no code, and the checksums of the archives detect a flipped bit. An entry that
cannot be read is deleted. Other files in the same folder are neither counted nor deleted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Span
from streamdr.core.digests import json_digest
from streamdr.core.function_digest import UnidentifiedError, function_digest
from streamdr.engine.archives import START_BYTES, Archive, is_archive, write_archive
from streamdr.engine.merge_tree import segments_in
from streamdr.engine.partition import Partition
from streamdr.errors import StoreError
from streamdr.store.key_value_folder import Item, KeyValueFolder
from streamdr.store.remote import in_parallel

_SCHEMA = 2
_KEPT_BYTES = 1 << 30
_OWN_FILE_BYTES = 1 << 20
"""States of at least this size have a file of their own."""
_THREADS = 2
"""How many of these files are read or written at a time."""
_NAME = re.compile(r"([0-9a-f]{40})(-[0-9a-f]{24})?\.npz")


@dataclass(frozen=True)
class TailPart:
    """A folded part of the last segment, and the digest of the input up to its end."""

    span: Span
    state: Accumulator
    mark: str


@dataclass(frozen=True)
class Entry:
    """The state of a pass over an input of `length` lines: a merge tree, and digests of its input."""

    length: int
    counts: list[int]
    """The value of each digit of the merge tree, lowest first."""
    digits: list[Accumulator]
    """The states of the digits that are not zero."""
    mark: str
    """The digest of the input up to the end of the digits."""
    tail: list[TailPart]
    ends: list[str]
    """The digest of the input up to the end of each digit that is not zero."""


@dataclass(frozen=True)
class Layout:
    """What an entry says of its states, which are read only if they are still of use."""

    length: int
    counts: list[int]
    mark: str
    tail: list[tuple[Span, str]]
    """The parts of the last segment, each with the digest of the input up to its end."""
    ends: list[str]
    """Empty in entries of earlier versions."""
    files: list[str | None]
    """The file of each state, digits first; None for a state that is in the entry itself."""

    @classmethod
    def read(cls, key: str, recorded: dict[str, Any]) -> Layout:
        """Return the layout that an entry recorded. A damaged one may raise an error of any type."""
        # Entries of earlier versions do not contain their key, and have no other files.
        if recorded.get("key", key) != key:
            raise ValueError("the entry is of another pass")
        counts, length = recorded["counts"], recorded["length"]
        if not all(type(number) is int and number >= 0 for number in (length, *counts)):
            raise ValueError("the entry has invalid counts")
        tail = [(Span(int(start), int(stop)), str(mark)) for start, stop, mark in recorded["tail"]]
        n_states = sum(count > 0 for count in counts) + len(tail)
        files = recorded.get("files", [None] * n_states)
        if len(files) != n_states or not all(name is None or _is_state_of(key, name) for name in files):
            raise ValueError("the entry names other files than its own")
        return cls(length, counts, str(recorded["mark"]), tail, recorded.get("ends", []), files)


def every_part(layout: Layout) -> int:
    """Return the number of all parts of the last segment of an entry."""
    return len(layout.tail)


class Ledger:
    """Entries in a folder. A `fresh` ledger ignores the entries of earlier runs."""

    def __init__(self, folder: KeyValueFolder, *, fresh: bool = False) -> None:
        self.folder = folder
        self._fresh = fresh
        self._used: set[str] = set()
        self._files: dict[str, set[str]] = {}
        """The files of the large states of entries, as this ledger has read or written them."""

    def key(self, empty: Accumulator, data: str, partition: Partition) -> str | None:
        """Return the key of a pass over `data`. Equal keys and equal rows mean equal bits.

        The key is None if the pass depends on a function that cannot be identified. It is then not stored.
        """
        try:
            parameters = {name: _identified(value) for name, value in empty.parameters().items()}
        except UnidentifiedError:
            return None
        meaning = {
            "schema": _SCHEMA,
            "kind": empty.kind,
            "parameters": parameters,
            "input": data,
            "cut": [partition.axis, partition.chunk, partition.block, partition.segment, partition.finest],
        }
        return json_digest(meaning)[:40]

    def load(
        self, key: str, empty: Accumulator, usable: Callable[[Layout], int | None] = every_part
    ) -> Entry | None:
        """Return the entry, or None if it is missing or damaged. Then the pass is computed again.

        `usable` returns how many parts of the last segment are of use, or None if nothing is. Other states
        are not read.
        """
        if self._fresh and key not in self._used:
            return None
        try:
            with self.folder.open(_file(key)) as file:
                if file is None:
                    return None
                archive = Archive(file)
                layout = Layout.read(key, archive.layout)
                parts = usable(layout)
                entry = None if parts is None else self._entry(key, empty, archive, layout, parts)
        except NotADirectoryError as error:
            raise StoreError(
                f"{self.folder.name}: is not a directory; set execution.ledger to another path"
            ) from error
        except Exception:
            # A flipped bit in an archive may cause an error of any type.
            with suppress(StoreError):
                self.forget(key)
            return None
        self._used.add(key)
        self._files[key] = {name for name in layout.files if name is not None}
        self.folder.touch(_file(key))
        return entry

    def _entry(self, key: str, empty: Accumulator, archive: Archive, layout: Layout, parts: int) -> Entry:
        """Return an entry with its digits and some parts of the last segment."""
        n_digits = len(layout.files) - len(layout.tail)
        files = layout.files[: n_digits + parts]
        apart = [name for name in files if name is not None]
        loaded = iter(_each(partial(self._state, key, empty), apart))
        states = [
            _restored(empty, archive, f"{number}/") if name is None else next(loaded)
            for number, name in enumerate(files)
        ]
        tail = [
            TailPart(span, state, mark)
            for (span, mark), state in zip(layout.tail[:parts], states[n_digits:], strict=True)
        ]
        return Entry(layout.length, layout.counts, states[:n_digits], layout.mark, tail, layout.ends)

    def _state(self, key: str, empty: Accumulator, name: str) -> Accumulator:
        """Return a state from its own file."""
        with self.folder.open(name) as file:
            if file is None:
                raise FileNotFoundError(name)
            archive = Archive(file)
            if archive.layout["state"] != name:
                raise ValueError("the file is of another state")
            return _restored(empty, archive, "")

    def save(self, key: str, entry: Entry) -> None:
        """Replace the entry atomically: a kill leaves the old one or the new one.

        States that have not changed stay in their files. New ones are written before the entry that names
        them, and old ones are deleted after it.
        """
        states = [*entry.digits, *(part.state for part in entry.tail)]
        files = [
            _state_file(key, place) if _bytes_of(state) >= _OWN_FILE_BYTES else None
            for state, place in zip(states, _places(entry), strict=True)
        ]
        known = self._files.get(key, set())
        apart = {name: state for name, state in zip(files, states, strict=True) if name is not None}
        # Another run of the same pass may have deleted a file since.
        changed = [name for name in apart if name not in known or not self._is_entry(name)]
        try:
            _each(lambda name: self.folder.write(name, partial(_write_state, name, apart[name])), changed)
            self.folder.write(_file(key), lambda file: _write(file, key, entry, files))
        except OSError as error:
            raise StoreError(
                f"{self.folder.name}: the checkpoint cannot be written: {error.strerror or error}; free some "
                "space, or set execution.ledger to another path"
            ) from error
        self._used.add(key)
        self._files[key] = set(apart)
        with suppress(OSError):  # what is left is deleted with the entry
            for name in known - set(apart):
                self.folder.delete(name)

    def forget(self, key: str) -> None:
        """Delete an entry."""
        try:
            self.folder.delete(_file(key))
            for item in self.folder.items():
                if _is_state_of(key, item.name):
                    self.folder.delete(item.name)
        except OSError as error:
            raise StoreError(
                f"{self.folder.name}: an entry cannot be deleted: {error.strerror or error}; set "
                "execution.ledger to another path"
            ) from error
        self._files.pop(key, None)

    def prune(self) -> None:
        """Delete the entries that were unused for longest, if the ledger is much larger than those in use."""
        entries: dict[str, list[Item]] = {}
        for item in self.folder.items():
            key = item.name.partition(".")[0].partition("-")[0]
            if _NAME.fullmatch(item.name) or (item.name == _file(key) and key in self._used):
                entries[key] = [*entries.pop(key, []), item]  # an entry is as old as its newest file
        for key in self._used & entries.keys():
            entries[key] = self._without_leftovers(key, entries[key])
        sizes = {key: sum(item.size for item in items) for key, items in entries.items()}
        budget = max(_KEPT_BYTES, 3 * sum(size for key, size in sizes.items() if key in self._used))
        total = sum(sizes.values())
        for key, items in entries.items():
            if total <= budget:
                return
            # First the file that names the others.
            for item in sorted(items, key=lambda item: item.name != _file(key)):
                if key not in self._used and self._is_entry(item.name):
                    self.folder.delete(item.name)
                    total -= item.size

    def _without_leftovers(self, key: str, items: list[Item]) -> list[Item]:
        """Delete the states that a killed run has left beside an entry, and return the files of the entry."""
        named = {_file(key), *self._files.get(key, ())}
        if all(item.name in named for item in items):
            return items
        with suppress(Exception), self.folder.open(_file(key)) as file:  # another run may have replaced it
            if file is not None:
                named |= set(Layout.read(key, Archive(file).layout).files)
                for item in items:
                    if item.name not in named and self._is_entry(item.name):
                        self.folder.delete(item.name)
        return [item for item in items if item.name in named]

    def _is_entry(self, name: str) -> bool:
        """Return whether a file begins like an entry or a state. The name alone does not prove that."""
        with suppress(OSError):
            return is_archive(self.folder.beginning(name, START_BYTES))
        return False


def _write(file: BinaryIO, key: str, entry: Entry, files: list[str | None]) -> None:
    """Write an entry, with the states that have no file of their own."""
    states = [*entry.digits, *(part.state for part in entry.tail)]
    arrays = {
        f"{number}/{name}": array
        for number, state in enumerate(states)
        if files[number] is None
        for name, array in state.arrays().items()
    }
    layout = {
        "key": key,
        "length": entry.length,
        "counts": entry.counts,
        "mark": entry.mark,
        "tail": [(part.span.start, part.span.stop, part.mark) for part in entry.tail],
        "ends": entry.ends,
        "files": files,
    }
    write_archive(file, layout, arrays)


def _write_state(name: str, state: Accumulator, file: BinaryIO) -> None:
    """Write a state to its own file."""
    write_archive(file, {"state": name}, state.arrays())


def _places(entry: Entry) -> Iterator[list[Any]]:
    """Yield what identifies each state: its segments or lines, and the digest of the input up to their end.

    It determines the bits of the state, given the key of the pass.
    """
    stop, ends = segments_in(entry.counts), iter(entry.ends)
    for level, count in enumerate(entry.counts):
        if count:
            start = stop - segments_in([*[0] * level, count])
            yield ["segments", start, stop, next(ends)]
            stop = start
    for part in entry.tail:
        yield ["lines", part.span.start, part.span.stop, part.mark]


def _each(function: Callable[[str], Any], names: list[str]) -> list[Any]:
    """Return the results of a function for all names; several at a time, if there are several."""
    return in_parallel(function, names, _THREADS) if len(names) > 1 else [function(name) for name in names]


def _bytes_of(state: Accumulator) -> int:
    return sum(array.nbytes for array in state.arrays().values())


def _file(key: str) -> str:
    return f"{key}.npz"


def _state_file(key: str, place: list[Any]) -> str:
    return f"{key}-{json_digest(place)[:24]}.npz"


def _is_state_of(key: str, name: str) -> bool:
    """Return whether a name is that of a file with a state of an entry."""
    return re.fullmatch(rf"{re.escape(key)}-[0-9a-f]{{24}}\.npz", name) is not None


def _identified(value: Any) -> Any:
    """Return a parameter as JSON: an array by its type, shape and content, a function by its digest."""
    if isinstance(value, np.ndarray):
        content = hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()
        return [value.dtype.str, list(value.shape), content]
    return {"function": function_digest(value)} if callable(value) else value


def _restored(empty: Accumulator, archive: Archive, prefix: str) -> Accumulator:
    accumulator = empty.empty_like()
    accumulator.restore(archive.arrays(prefix))
    return accumulator
