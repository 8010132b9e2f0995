"""Values in the memory of dask workers: what they weigh, and how they are sent.

dask places and steals tasks by the sizes of their arguments. It cannot see into our objects, and would take
every accumulator for a few bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pickle import PickleBuffer
from typing import Any

import numpy as np
from distributed.protocol import pickle

_OUT_OF_BAND = 5
"""The first version of pickle that sends arrays without a copy."""

Packed = PickleBuffer | bytes | int
"""The memory of an array, or the length of one that holds zeros only."""


class Held:
    """A value on a worker. It is sent without its arrays of zeros, of which an empty accumulator consists."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        content, buffers = _pickled(self.value)
        packed: list[Packed] = [_packed(buffer) for buffer in buffers]
        if protocol < _OUT_OF_BAND:
            packed = [each if isinstance(each, int) else bytes(each) for each in packed]
        return _restored, (content, packed)

    def __sizeof__(self) -> int:
        """Return the bytes of the value with its arrays. dask asks when a task has finished."""
        content, buffers = _pickled(self.value)
        return len(content) + sum(buffer.raw().nbytes for buffer in buffers)


def value_of(argument: Any) -> Any:
    """Return the value that is held, or the argument itself."""
    return argument.value if isinstance(argument, Held) else argument


def _pickled(value: Any) -> tuple[bytes, list[PickleBuffer]]:
    """Return a value pickled without the memory of its arrays, which is not copied."""
    buffers: list[PickleBuffer] = []
    return pickle.dumps(value, buffer_callback=buffers.append), buffers


def _packed(buffer: PickleBuffer) -> Packed:
    memory = buffer.raw()
    return buffer if np.frombuffer(memory, np.uint8).any() else memory.nbytes


def _restored(content: bytes, packed: Sequence[Any]) -> Held:
    return Held(pickle.loads(content, buffers=[_unpacked(each) for each in packed]))


def _unpacked(packed: Any) -> Any:
    return bytearray(packed) if isinstance(packed, int) else packed
