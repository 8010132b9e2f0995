"""The stresses: how much the distances of a configuration differ from the target distances.

Every stress is a weighted sum of squares over pairs, sum w (a - b)^2 / norm, where a is the target distance,
b the one between two points, and w a power of a:

- normalized: sum (a - b)^2 / sum a^2
- relative: sum ((a - b) / a)^2
- sammon: sum (a - b)^2 / a, divided by sum a
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from streamdr.core.blocks import Array

StressName = Literal["normalized", "relative", "sammon"]
STRESSES: tuple[str, ...] = get_args(StressName)
_POWER = {"normalized": 0, "relative": 2, "sammon": 1}


def weights_of(stress: str, targets: Array) -> Array:
    """The weight of each pair by its target distance; 0 where that is missing, or zero and a divisor."""
    power = _POWER[stress]
    observed = ~np.isnan(targets)
    if power == 0:
        return observed.astype(np.float64)
    usable = observed & (targets > 0)
    weights: Array = np.divide(1.0, targets, out=np.zeros(targets.shape), where=usable)
    return weights * weights if power == 2 else weights


def norm_of(stress: str, size: float) -> float:
    """The divisor of the stress, given `size`, the sum of w a^2."""
    return 1.0 if stress == "relative" else size
