"""The ledger: the states of finished and interrupted passes, so that nothing is read twice.

The key of an entry is a digest of what the pass computes: the kind of accumulator and its parameters, the
name of the input, and the partition. An entry has digests of the rows that it has read. It is valid as long
as these are the first rows of the input, however many were appended. It is one `.npz` file of plain arrays:
loading it runs no code, and the checksums of the archive detect a flipped bit. An entry that cannot be read
is deleted. Other files in the same folder are neither counted nor deleted.
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
from streamdr.core.function_digest import UnidentifiedError, function_digest
from streamdr.engine.partition import Partition
from streamdr.errors import StoreError
from streamdr.store.key_value_folder import KeyValueFolder

_SCHEMA = 2
_KEPT_BYTES = 1 << 30
_NAME = re.compile(r"[0-9a-f]{40}\.npz")
_ARCHIVE, _FIRST = b"PK\x03\x04", b"layout.npy"
_NAME_OFFSET = 30
"""The offset of the name of the first file in an archive."""


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


class Ledger:
    """Entries in a folder. A `fresh` ledger ignores the entries of earlier runs."""

    def __init__(self, folder: KeyValueFolder, *, fresh: bool = False) -> None:
        self.folder = folder
        self._fresh = fresh
        self._used: set[str] = set()

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

    def load(self, key: str, empty: Accumulator) -> Entry | None:
        """Return the entry, or None if it is missing or damaged. Then the pass is computed again."""
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
            # A flipped bit in an archive may cause an error of any type.
            with suppress(StoreError):
                self.forget(key)
            return None
        self._used.add(key)
        self.folder.touch(_file(key))
        return entry

    def save(self, key: str, entry: Entry) -> None:
        """Replace the entry atomically: a kill leaves the old one or the new one."""
        try:
            self.folder.write(_file(key), lambda file: _write(file, key, entry))
        except OSError as error:
            raise StoreError(
                f"{self.folder.name}: the checkpoint cannot be written: {error.strerror or error}; free some "
                "space, or set execution.ledger to another path"
            ) from error
        self._used.add(key)

    def forget(self, key: str) -> None:
        """Delete an entry."""
        try:
            self.folder.delete(_file(key))
        except OSError as error:
            raise StoreError(
                f"{self.folder.name}: an entry cannot be deleted: {error.strerror or error}; set "
                "execution.ledger to another path"
            ) from error

    def prune(self) -> None:
        """Delete the entries that were unused for longest, if the ledger is much larger than those in use."""
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
        """Return whether a file begins like an entry. The name alone does not prove that it is one."""
        with suppress(OSError):
            start = self.folder.beginning(name, _NAME_OFFSET + len(_FIRST))
            return start.startswith(_ARCHIVE) and start[_NAME_OFFSET:] == _FIRST
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
    # The layout comes first: an entry is recognised by its first file.
    np.savez(file, allow_pickle=False, layout=np.array(json.dumps(layout)), **arrays)


def _read(file: BinaryIO, key: str, empty: Accumulator) -> Entry:
    """Return the entry in a file. A damaged file may raise an error of any type."""
    size = file.seek(0, 2)
    with zipfile.ZipFile(file) as archive:
        files = archive.infolist()
        if sum(info.file_size for info in files) > size:
            raise ValueError("the archive says that it holds more than it does")
        arrays = {info.filename.removesuffix(".npy"): _array(archive, info) for info in files}
    layout = json.loads(str(arrays.pop("layout")))
    # Entries of earlier versions contain neither their key nor the number of their arrays.
    if (layout.get("key", key), layout.get("arrays", len(arrays))) != (key, len(arrays)):
        raise ValueError("the entry is of another pass, or not complete")
    counts, tail, length, mark = layout["counts"], layout["tail"], layout["length"], layout["mark"]
    if not all(type(number) is int and number >= 0 for number in (length, *counts)):
        raise ValueError("the entry has invalid counts")
    n_digits = sum(count > 0 for count in counts)
    states = [_restored(empty, arrays, f"{n}/") for n in range(n_digits + len(tail))]
    parts = [
        TailPart(Span(int(start), int(stop)), state, str(mark))
        for (start, stop, mark), state in zip(tail, states[n_digits:], strict=True)
    ]
    return Entry(length, counts, states[:n_digits], str(mark), parts)


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    """Return one array. Nothing is allocated before the size of the file is checked."""
    with archive.open(info) as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns when it parses a damaged header
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
    """Return a parameter as JSON: an array by its type, shape and content, a function by its digest."""
    if isinstance(value, np.ndarray):
        content = hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()
        return [value.dtype.str, list(value.shape), content]
    return {"function": function_digest(value)} if callable(value) else value


def _restored(empty: Accumulator, arrays: Mapping[str, Array], prefix: str) -> Accumulator:
    accumulator = empty.empty_like()
    state = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    accumulator.restore(state)
    return accumulator
