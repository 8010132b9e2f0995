"""What a configuration of points is judged by: how much its distances differ from those that are wanted.

Every stress is a weighted sum of squares over pairs, sum w (a - b)^2 / norm, where a is the wanted distance,
b the one between two points, and w a power of a:

- normalized: sum (a - b)^2 / sum a^2
- relative: sum ((a - b) / a)^2
- sammon: sum (a - b)^2 / a, divided by sum a
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from streamdr.blocks import Array

StressName = Literal["normalized", "relative", "sammon"]
STRESSES: tuple[str, ...] = get_args(StressName)
_POWER = {"normalized": 0, "relative": 2, "sammon": 1}


def weights_of(stress: str, wanted: Array) -> Array:
    """The weight of each pair by its wanted distance; none where that is missing, or zero and divided by."""
    power = _POWER[stress]
    there = ~np.isnan(wanted)
    if power == 0:
        return there.astype(np.float64)
    usable = there & (wanted > 0)
    weights: Array = np.divide(1.0, wanted, out=np.zeros(wanted.shape), where=usable)
    return weights * weights if power == 2 else weights


def norm_of(stress: str, size: float) -> float:
    """What the sum is divided by, given the sum of w a^2, which is sum a^2 or sum a for those that are."""
    return 1.0 if stress == "relative" else size
