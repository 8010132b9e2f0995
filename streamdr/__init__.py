"""Dimensionality reduction for data that does not fit in memory."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

IMPORTED_AT = time.time()
"""The time of the import. Files of the package that are newer may differ from the code of this process."""

__version__ = "0.1.0"

# Names resolve on first use, so that `streamdr --help` loads none of the packages behind them.
_FUNCTIONS = {
    "Chain": "streamdr.estimators",
    "MDS": "streamdr.estimators",
    "execution": "streamdr.core.execution",
    "folds": "streamdr.statistics.splits",
    "load_model": "streamdr.estimators",
    "open_source": "streamdr.data",
    "storage_options": "streamdr.core.addresses",
}
_MODULES = ("errors", "plots", "testing")


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(["__version__", *_MODULES, *_FUNCTIONS, *_estimators()])
    if name in _MODULES:
        return import_module(f"streamdr.{name}")
    if name in _FUNCTIONS:
        return getattr(import_module(_FUNCTIONS[name]), name)
    if not name.startswith("_") and name in _estimators():
        return getattr(import_module("streamdr.estimators"), name)
    raise AttributeError(f"module 'streamdr' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__getattr__("__all__"))


def _estimators() -> list[str]:
    """Return the names of the estimators of all registered methods."""
    return [method.__name__ for method in import_module("streamdr.methods").METHODS.values()]
