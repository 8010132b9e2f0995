"""Memory that a thread uses again and again.

Every fresh block of memory comes from the system page by page, and that costs as much as filling it. What
does not outlive one step of one thread is borrowed here instead.
"""

from __future__ import annotations

import math
import threading
import weakref
from typing import Any

import numpy as np

from streamdr.blocks import Array, Block


class _Buffers:
    """The memory of one thread, by what it is for."""

    def __init__(self) -> None:
        self.kept: dict[str, Array] = {}
        _all.add(self)


_all: weakref.WeakSet[_Buffers] = weakref.WeakSet()
_mine = threading.local()


def scratch(purpose: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Uninitialised memory of this thread's, valid until it asks again for the same purpose.

    It is kept, at the largest size asked for, until it is released or the thread ends.
    """
    wanted = math.prod(shape) * dtype.itemsize
    buffers: _Buffers | None = getattr(_mine, "buffers", None)
    if buffers is None:
        buffers = _mine.buffers = _Buffers()
    kept = buffers.kept.get(purpose)
    if kept is None or kept.nbytes < wanted:
        buffers.kept.pop(purpose, None)
        kept = None  # let go of the old before taking the new
        kept = buffers.kept[purpose] = np.empty(wanted, np.uint8)
    return kept[:wanted].view(dtype).reshape(shape)


def release() -> None:
    """Let go of what all threads keep, after a pass: what follows has other uses for the memory.

    A thread that is still at work loses nothing: its arrays live as long as it holds them.
    """
    for buffers in list(_all):
        buffers.kept.clear()


def room_for(values: Array, block: Block) -> Array:
    """Memory for what a block's values become: their own where nobody looks at them again."""
    return values if block.disposable else scratch("moved", values.shape, values.dtype)
