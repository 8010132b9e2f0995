"""The memory of finished and interrupted passes, so that nothing is read twice.

An entry is found by what the pass means: the kind of accumulator and its parameters, the input's name, and
how it is cut. It says which rows it has taken in, and what they were: so it serves as long as they are the
first rows of the input, however many were appended. It is one `.npz` file of plain arrays: no code is run to
load it, and the archive's own checksums notice a flipped bit. An entry that cannot be read, for whatever
reason, is forgotten. Files that are not entries may lie in the same folder: they are neither counted nor
dropped.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array, Span
from streamdr.core.digests import json_digest
from streamdr.engine.function_digest import UnidentifiedError, function_digest
from streamdr.engine.partition import Partition
from streamdr.errors import StoreError
from streamdr.store.key_value_folder import KeyValueFolder

_SCHEMA = 2
_KEPT_BYTES = 1 << 30
_NAME = re.compile(r"[0-9a-f]{40}\.npz")
_ARCHIVE, _FIRST = b"PK\x03\x04", b"layout.npy"
_AT = 30
"""Where the name of its first file stands in an archive."""


@dataclass(frozen=True)
class TailPart:
    """What was folded of the last segment, and the digest of the input up to where it ends."""

    span: Span
    state: Accumulator
    mark: str


@dataclass(frozen=True)
class Entry:
    """The state of a pass over an input of `length` lines: a merge tree, and what it was made of."""

    length: int
    counts: list[int]
    """How many times its unit each digit of the merge tree stands for, lowest first."""
    digits: list[Accumulator]
    """The states of those digits that are not zero."""
    mark: str
    """The digest of the input up to where the digits end."""
    tail: list[TailPart]


class Ledger:
    """Entries in a folder. A `fresh` one does not see what was there before."""

    def __init__(self, folder: KeyValueFolder, *, fresh: bool = False) -> None:
        self.folder = folder
        self._fresh = fresh
        self._used: set[str] = set()

    def key(self, empty: Accumulator, data: str, partition: Partition) -> str | None:
        """The name of a pass over `data`: equal keys and equal rows mean equal bits.

        None where the pass depends on a function that could be any: it must not be remembered.
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

    def load(self, key: str, empty: Accumulator) -> Entry | None:
        """The entry, or None when there is none or it is damaged: then the pass is simply redone."""
        if self._fresh and key not in self._used:
            return None
        try:
            with self.folder.open(_file(key)) as file:
                if file is None:
                    return None
                entry = _read(file, key, empty)
        except NotADirectoryError as error:
            raise StoreError(
                f"{self.folder.name}: is not a directory; set execution.ledger to another path"
            ) from error
        except Exception:
            # A flipped bit in an archive may be noticed by whoever comes across it, by any error.
            with suppress(StoreError):
                self.forget(key)
            return None
        self._used.add(key)
        self.folder.touch(_file(key))
        return entry

    def save(self, key: str, entry: Entry) -> None:
        """Replace the entry at once: a kill leaves the old one or the new one."""
        try:
            self.folder.write(_file(key), lambda file: _write(file, key, entry))
        except OSError as error:
            raise StoreError(
                f"{self.folder.name}: the checkpoint cannot be written: {error.strerror or error}; free some "
                "space, or set execution.ledger to another path"
            ) from error
        self._used.add(key)

    def forget(self, key: str) -> None:
        """Drop an entry."""
        try:
            self.folder.delete(_file(key))
        except OSError as error:
            raise StoreError(
                f"{self.folder.name}: an entry cannot be dropped: {error.strerror or error}; set "
                "execution.ledger to another path"
            ) from error

    def prune(self) -> None:
        """Drop what was of no use for longest, as far as it takes much more room than what is in use."""
        used = {_file(key) for key in self._used}
        items = [item for item in self.folder.items() if item.name in used or _NAME.fullmatch(item.name)]
        budget = max(_KEPT_BYTES, 3 * sum(item.size for item in items if item.name in used))
        total = sum(item.size for item in items)
        for item in items:
            if total <= budget:
                return
            if item.name not in used and self._is_entry(item.name):
                self.folder.delete(item.name)
                total -= item.size

    def _is_entry(self, name: str) -> bool:
        """Whether a file begins as entries do: its name alone might be anybody's."""
        with suppress(OSError):
            start = self.folder.beginning(name, _AT + len(_FIRST))
            return start.startswith(_ARCHIVE) and start[_AT:] == _FIRST
        return False


def _write(file: BinaryIO, key: str, entry: Entry) -> None:
    states = [*entry.digits, *(part.state for part in entry.tail)]
    arrays = {
        f"{number}/{name}": array
        for number, state in enumerate(states)
        for name, array in state.arrays().items()
    }
    layout = {
        "key": key,
        "arrays": len(arrays),
        "length": entry.length,
        "counts": entry.counts,
        "mark": entry.mark,
        "tail": [(part.span.start, part.span.stop, part.mark) for part in entry.tail],
    }
    # By its first file an entry is known.
    np.savez(file, allow_pickle=False, layout=np.array(json.dumps(layout)), **arrays)


def _read(file: BinaryIO, key: str, empty: Accumulator) -> Entry:
    """The entry in a file. What is wrong with it is an error of any kind."""
    size = file.seek(0, 2)
    with zipfile.ZipFile(file) as archive:
        files = archive.infolist()
        if sum(info.file_size for info in files) > size:
            raise ValueError("the archive says that it holds more than it does")
        arrays = {info.filename.removesuffix(".npy"): _array(archive, info) for info in files}
    layout = json.loads(str(arrays.pop("layout")))
    # Entries of earlier versions did not say whose they were, nor how many arrays they had.
    if (layout.get("key", key), layout.get("arrays", len(arrays))) != (key, len(arrays)):
        raise ValueError("the entry is of another pass, or not complete")
    counts, tail, length, mark = layout["counts"], layout["tail"], layout["length"], layout["mark"]
    if not all(type(number) is int and number >= 0 for number in (length, *counts)):
        raise ValueError("the entry has counts that are none")
    n_digits = sum(count > 0 for count in counts)
    states = [_restored(empty, arrays, f"{n}/") for n in range(n_digits + len(tail))]
    parts = [
        TailPart(Span(int(start), int(stop)), state, str(mark))
        for (start, stop, mark), state in zip(tail, states[n_digits:], strict=True)
    ]
    return Entry(length, counts, states[:n_digits], str(mark), parts)


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    """One array. Nothing is allocated for values that are not there."""
    with archive.open(info) as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python, which parses what a damaged header says
        read_header = _HEADERS[np.lib.format.read_magic(stream)]
        shape, _, dtype = read_header(stream)
        if math.prod(shape) * dtype.itemsize != info.file_size - stream.tell():
            raise ValueError(f"{info.filename} is not as long as its header says")
    with archive.open(info) as stream:
        array: Array = np.lib.format.read_array(stream, allow_pickle=False)
        return array


_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def _file(key: str) -> str:
    return f"{key}.npz"


def _identified(value: Any) -> Any:
    """A parameter as JSON: an array by its type, shape and content, a function by its digest."""
    if isinstance(value, np.ndarray):
        content = hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()
        return [value.dtype.str, list(value.shape), content]
    return {"function": function_digest(value)} if callable(value) else value


def _restored(empty: Accumulator, arrays: Mapping[str, Array], prefix: str) -> Accumulator:
    accumulator = empty.empty_like()
    state = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    accumulator.restore(state)
    return accumulator
