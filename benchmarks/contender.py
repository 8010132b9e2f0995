"""The contenders of a benchmark, and their solutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

CORES = 2
"""Every contender runs on this many cores, as threads of its own or of BLAS."""


@dataclass(frozen=True)
class Solution:
    """What a fit found: variances in decreasing order, one component a row."""

    variances: np.ndarray
    components: np.ndarray
    notes: Mapping[str, float | str] = field(default_factory=dict)
    mean: np.ndarray = field(default_factory=lambda: np.empty(0))
    noise: float = 0.0
    """The variance in every direction, of models that have such a thing."""
    landmarks: np.ndarray = field(default_factory=lambda: np.empty(0))
    """The rows that components of kernel PCA are combinations of; one row of weights a component."""
    embedding: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    """The coordinates of all rows, or of those that are judged."""
    columns: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """The columns that were chosen, in the order of their choice; variances are their scores."""
    aside: float = 0.0
    """Seconds of the fit for monitoring only, which are not counted."""

    @classmethod
    def nothing(cls, **notes: float | str) -> Solution:
        """Return what a floor finds: nothing but the time it took."""
        return cls(np.empty(0), np.empty((0, 0)), notes)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """What was found, by the names of the fields."""
        names = ("variances", "components", "mean", "landmarks", "embedding", "columns")
        return {name: np.asarray(getattr(self, name)) for name in names}

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to be judged."""
        return not any(array.size for array in self.arrays.values())


Fit = Callable[[], Solution]


@dataclass(frozen=True)
class Contender:
    """One program on one store: `prepare(store, **arguments)` imports, and the fit it returns is timed."""

    name: str
    prepare: Callable[..., Fit]
    store: Path
    arguments: Mapping[str, Any] = field(default_factory=dict)
    blas_threads: int = CORES
