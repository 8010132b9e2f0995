"""The memory of finished and interrupted passes, so that nothing is read twice.

An entry is keyed by what the pass means: the kind of accumulator and its parameters, the input's
fingerprint, and how it was cut. It is one `.npz` file of plain arrays: no code is run to load it, and the
archive's own checksums notice a flipped bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamdr.accumulators import Accumulator
from streamdr.blocks import Array
from streamdr.errors import StoreError
from streamdr.segments import Cut

_SCHEMA = 1


@dataclass(frozen=True)
class Entry:
    """The state of a pass: merged segments as a counter's digits, and the tail when it is complete."""

    digits: list[tuple[int, Accumulator] | None]
    tail: Accumulator | None


class Ledger:
    """Entries in a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def key(self, empty: Accumulator, fingerprint: str, cut: Cut) -> str:
        """The name of a pass: equal keys mean equal bits."""
        meaning = {
            "schema": _SCHEMA,
            "kind": empty.kind,
            "parameters": {name: _digest(value) for name, value in empty.parameters().items()},
            "input": fingerprint,
            "cut": asdict(cut),
        }
        return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()[:40]

    def load(self, key: str, empty: Accumulator) -> Entry | None:
        """The entry, or None when there is none or it is damaged: then the pass is simply redone."""
        self._sweep()
        try:
            with np.load(self._path(key), allow_pickle=False) as archive:
                layout = json.loads(str(archive["layout"]))
                arrays = {name: archive[name] for name in archive.files if name != "layout"}
        except FileNotFoundError:
            return None
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
            self.forget(key)
            return None
        counts: list[int] = layout["counts"]
        digits = [
            (count, _restored(empty, arrays, f"{level}/")) if count else None
            for level, count in enumerate(counts)
        ]
        return Entry(digits, _restored(empty, arrays, "tail/") if layout["tail"] else None)

    def save(self, key: str, entry: Entry) -> None:
        """Replace the entry at once: a kill leaves the old one or the new one."""
        layout = {
            "counts": [digit[0] if digit else 0 for digit in entry.digits],
            "tail": entry.tail is not None,
        }
        arrays: dict[str, Array] = {"layout": np.array(json.dumps(layout))}
        for level, digit in enumerate(entry.digits):
            if digit is not None:
                arrays |= {f"{level}/{name}": array for name, array in digit[1].arrays().items()}
        if entry.tail is not None:
            arrays |= {f"tail/{name}": array for name, array in entry.tail.arrays().items()}
        partial = self.root / f".{key}.{os.getpid()}.partial"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, self._path(key))
        except OSError as error:
            raise StoreError(
                f"{self.root}: the checkpoint cannot be written: {error.strerror or error}; free some space, "
                "or set execution.ledger to another path"
            ) from error
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)

    def forget(self, key: str) -> None:
        """Drop an entry."""
        self._path(key).unlink(missing_ok=True)

    def clear(self) -> None:
        """Drop every entry."""
        for path in self.root.glob("*.npz"):
            path.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove what runs were writing when they were killed."""
        for path in self.root.glob(".*.partial"):
            with suppress(OSError, ValueError):
                pid = int(path.name.split(".")[2])
                if not _is_running(pid):
                    path.unlink()

    def _path(self, key: str) -> Path:
        return self.root / f"{key}.npz"


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is somebody else's
    return True


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
