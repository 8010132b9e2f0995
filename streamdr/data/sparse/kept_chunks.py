"""Decoded chunks that are kept until all of their values have been read.

The rows of a block end somewhere within a chunk. The next block, perhaps in another thread, begins there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from streamdr.core.blocks import Array
from streamdr.core.buffers import released_with

MOST = 2
"""How many chunks of an array a thread keeps: one at each end of the rows that it reads."""


@dataclass
class _Kept:
    """A decoded chunk, and how many values of it have been read."""

    values: Array
    n_read: int
    thread: int


class KeptChunks:
    """The decoded chunks of all arrays in this process, by array and number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: WeakKeyDictionary[object, dict[int, _Kept]] = WeakKeyDictionary()

    def get(self, array: object, number: int, n_wanted: int, decode: Callable[[], Array]) -> Array:
        """Return a chunk, of which `n_wanted` values will be read now."""
        with self._lock:
            chunks = self._of.setdefault(array, {})
            kept = chunks.get(number)
            if kept is not None:
                kept.n_read += n_wanted
                if kept.n_read >= len(kept.values):
                    del chunks[number]
                return kept.values
        values = decode()  # two threads may decode the same chunk at the same time, which does no harm
        mine = threading.get_ident()
        with self._lock:
            if n_wanted < len(values):
                chunks[number] = _Kept(values, n_wanted, mine)
            own = [other for other, kept in chunks.items() if kept.thread == mine]
            for other in own[:-MOST]:
                del chunks[other]
        return values

    def clear(self) -> None:
        """Forget all chunks, after a pass: threads that have ended leave theirs behind."""
        with self._lock:
            self._of.clear()


kept_chunks = KeptChunks()
released_with(kept_chunks.clear)
