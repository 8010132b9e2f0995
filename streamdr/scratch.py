"""Memory that a thread uses again and again.

Every fresh block of memory comes from the system page by page, and that costs as much as filling it. What
does not outlive one step of one thread is borrowed here instead.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from streamdr.blocks import Array, Block

_mine = threading.local()


def scratch(purpose: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Uninitialised memory of this thread's, valid until it asks again for the same purpose.

    It is kept, at the largest size asked for, until the thread ends.
    """
    wanted = math.prod(shape) * dtype.itemsize
    kept: Array | None = getattr(_mine, purpose, None)
    if kept is None or kept.nbytes < wanted:
        setattr(_mine, purpose, None)  # let go of the old before taking the new
        kept = np.empty(wanted, np.uint8)
        setattr(_mine, purpose, kept)
    return kept[:wanted].view(dtype).reshape(shape)


def room_for(values: Array, block: Block) -> Array:
    """Memory for what a block's values become: their own where nobody looks at them again."""
    return values if block.disposable else scratch("moved", values.shape, values.dtype)
