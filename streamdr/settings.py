"""Where and within what bounds work runs: set once, for a block of code or from a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streamdr.errors import ParameterError
from streamdr.sizes import parse_bytes


@dataclass(frozen=True)
class Execution:
    """How a fit or a transform runs. It never changes what comes out, only when and where."""

    workers: int | None = None
    """Threads, or processes; None for one a core."""
    memory_limit: int | None = None
    """Bytes that the process may take at its peak; None for most of what is free."""
    scheduler: Any = None
    """None or "threads", "processes", a dask scheduler's address, or a `distributed.Client`."""
    ledger: Path | None = None
    """Where finished and interrupted passes are remembered; None to remember nothing."""
    checkpoint_seconds: float = 5.0


_current: ContextVar[Execution] = ContextVar("streamdr_execution")


def current() -> Execution:
    """The execution in force here."""
    return _current.get(Execution())


@contextmanager
def execution(
    *,
    workers: int | None = None,
    memory_limit: int | str | None = None,
    scheduler: Any = None,
    ledger: str | Path | None = None,
    checkpoint_seconds: float | None = None,
) -> Iterator[Execution]:
    """Set how fits and transforms in this block run.

    >>> import numpy as np, streamdr
    >>> with streamdr.execution(workers=2, memory_limit="2GiB"):
    ...     pca = streamdr.PCA(n_components=2).fit(np.random.default_rng(0).normal(size=(100, 5)))
    >>> pca.components_.shape
    (2, 5)
    """
    if workers is not None and workers < 1:
        raise ParameterError("workers", f"workers must be at least 1, not {workers}")
    given = {
        "workers": workers,
        "memory_limit": None if memory_limit is None else parse_bytes(memory_limit),
        "scheduler": scheduler,
        "ledger": None if ledger is None else Path(ledger),
        "checkpoint_seconds": checkpoint_seconds,
    }
    setting = replace(current(), **{name: value for name, value in given.items() if value is not None})
    token = _current.set(setting)
    try:
        yield setting
    finally:
        _current.reset(token)
