"""Arrays for models that are not fitted yet: they have a shape, and take no memory."""

from __future__ import annotations

import numpy as np

from streamdr.core.blocks import Array


def unallocated(*shape: int) -> Array:
    """An array of zeros of any shape that takes no memory."""
    return np.broadcast_to(np.zeros(()), shape)
