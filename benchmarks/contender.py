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
    """The result of a fit: variances in decreasing order, one component per row."""

    variances: np.ndarray
    components: np.ndarray
    notes: Mapping[str, float | str] = field(default_factory=dict)
    mean: np.ndarray = field(default_factory=lambda: np.empty(0))
    noise: float = 0.0
    """The noise variance, for models that have one."""
    landmarks: np.ndarray = field(default_factory=lambda: np.empty(0))
    """The landmarks of kernel PCA; components then have one row of weights per component."""
    embedding: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    """The coordinates of all rows, or of those that are judged."""
    columns: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """The selected columns, in the order of selection; variances are their scores."""
    aside: float = 0.0
    """Seconds of the fit for monitoring only, which are not counted."""

    @classmethod
    def nothing(cls, **notes: float | str) -> Solution:
        """Return the solution of a floor: notes on its time, and no arrays."""
        return cls(np.empty(0), np.empty((0, 0)), notes)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of the solution, by the names of their fields."""
        names = ("variances", "components", "mean", "landmarks", "embedding", "columns")
        return {name: np.asarray(getattr(self, name)) for name in names}

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to judge."""
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
    root: Path | None = None
    """The tree whose code it runs, where that is not this one."""
    cold: bool = False
    """Whether the store is dropped from the page cache before the run, instead of being read into it."""
