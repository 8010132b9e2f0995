"""Dimensionality reduction for data that does not fit in memory."""

from __future__ import annotations

import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamdr import errors, plots, testing
    from streamdr.accumulators.folds import folds
    from streamdr.addresses import storage_options
    from streamdr.estimators import (
        LDA,
        MDS,
        PCA,
        PPCA,
        ClassicalMDS,
        KernelPCA,
        LandmarkMDS,
        MetricMDS,
        NonmetricMDS,
        PPCAMixture,
        SelectCorrelation,
        SelectForward,
        SelectFScore,
        SelectMutualInfo,
        SparseKernelPCA,
        load_model,
    )
    from streamdr.settings import execution
    from streamdr.sources import open_source

IMPORTED_AT = time.time()
"""Whatever of the package changed on disk since then may not be what this process runs."""

__version__ = "0.1.0"
__all__ = [
    "LDA",
    "MDS",
    "PCA",
    "PPCA",
    "ClassicalMDS",
    "KernelPCA",
    "LandmarkMDS",
    "MetricMDS",
    "NonmetricMDS",
    "PPCAMixture",
    "SelectCorrelation",
    "SelectFScore",
    "SelectForward",
    "SelectMutualInfo",
    "SparseKernelPCA",
    "__version__",
    "errors",
    "execution",
    "folds",
    "load_model",
    "open_source",
    "plots",
    "storage_options",
    "testing",
]

# Names resolve on first use, so that `streamdr --help` loads none of the packages behind them.
_ELSEWHERE = {
    "execution": "streamdr.settings",
    "folds": "streamdr.accumulators.folds",
    "open_source": "streamdr.sources",
    "storage_options": "streamdr.addresses",
}
_MODULES = ("errors", "plots", "testing")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"streamdr.{name}")
    if name in __all__:
        return getattr(import_module(_ELSEWHERE.get(name, "streamdr.estimators")), name)
    raise AttributeError(f"module 'streamdr' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
