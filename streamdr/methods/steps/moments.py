"""Means and variances of columns, as steps need them: their memory, and the divisor of the variance."""

from __future__ import annotations

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec
from streamdr.core.method import Phase
from streamdr.methods.steps.base import SLAB_BYTES, most_stored
from streamdr.statistics.observed import Observed
from streamdr.statistics.validation import require_products


def moments_phase(data: MatrixSpec, per_column: int = 0) -> Phase:
    """The memory of a pass that fills an `Observed`, and of `per_column` bytes for each column after it."""
    held = 32 * data.n_cols
    scratch = 3 * held + 2 * SLAB_BYTES
    return Phase(
        held,
        scratch_bytes=scratch,
        solve_bytes=4 * held + per_column * data.n_cols,
        takes_sparse=True,
        sparse_scratch_bytes=scratch + 80 * most_stored(data),
    )


def variance_of(found: Observed) -> Array:
    """The variance of each column over its weight; a DataError if products overflow."""
    require_products(found.squares, found.mean)
    return found.variance


def unbiased(weights: Array, ddof: int) -> Array:
    """The factor from the variance over the weight to that over the weight minus `ddof`; one for one row."""
    return np.where(weights > ddof, weights / np.where(weights > ddof, weights - ddof, 1.0), 1.0)
