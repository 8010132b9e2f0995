"""Scratch buffers that each thread reuses.

The system hands out new memory page by page, which takes as long as filling it. Arrays that do not outlive
one step of one thread are taken from here instead.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from streamdr.core.blocks import Array, Block, working_dtype


class _Buffers:
    """The buffers of one thread, by purpose."""

    def __init__(self) -> None:
        self.kept: dict[str, Array] = {}
        _all.add(self)


_all: weakref.WeakSet[_Buffers] = weakref.WeakSet()
_mine = threading.local()
_also: list[Callable[[], None]] = []


def scratch(purpose: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An uninitialised array, valid until this thread requests another one for the same purpose.

    The buffer is kept, at the largest size requested, until it is released or the thread ends.
    """
    n_bytes = math.prod(shape) * dtype.itemsize
    buffers: _Buffers | None = getattr(_mine, "buffers", None)
    if buffers is None:
        buffers = _mine.buffers = _Buffers()
    kept = buffers.kept.get(purpose)
    if kept is None or kept.nbytes < n_bytes:
        buffers.kept.pop(purpose, None)
        kept = None  # free the old buffer before the new one is allocated
        kept = buffers.kept[purpose] = np.empty(n_bytes, np.uint8)
    return kept[:n_bytes].view(dtype).reshape(shape)


def release() -> None:
    """Free the buffers of all threads, after a pass.

    A thread that is still running is not affected: its arrays live as long as it references them.
    """
    for buffers in list(_all):
        buffers.kept.clear()
    for free in _also:
        free()


def released_with(free: Callable[[], None]) -> None:
    """Call a function whenever the buffers are released, to free what else was kept during a pass."""
    _also.append(free)


def output_buffer(values: Array, block: Block) -> Array:
    """An array for a result of the shape of `values`: `values` itself where the block is disposable."""
    return values if block.disposable else scratch("moved", values.shape, values.dtype)


def widened(values: Array) -> Array:
    """Values as native floats, as `widen` returns them, in a scratch buffer if they are converted."""
    dtype = working_dtype(values.dtype)
    if values.dtype == dtype:
        return values
    converted = scratch("widened", values.shape, dtype)
    converted[...] = values
    return converted
