"""Results that a dask cluster holds. A task that needs them receives them as arguments."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_here = threading.local()


@contextmanager
def results_at_hand(results: Mapping[Any, Any]) -> Iterator[None]:
    """Provide results, by their keys, to the graphs that this thread computes."""
    _here.results = results
    try:
        yield
    finally:
        del _here.results


def at_hand() -> Mapping[Any, Any]:
    """Return the results that were provided to this thread."""
    found: Mapping[Any, Any] = getattr(_here, "results", {})
    return found
