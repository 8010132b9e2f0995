"""Helpers for tests of fits: small stores, fits, the bits of a model, stops in the middle of a pass."""

from __future__ import annotations

import threading
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import numpy as np
import zarr

from streamdr.core.blocks import widen
from streamdr.core.execution import Execution
from streamdr.core.method import Method, Model
from streamdr.core.progress import PassStart, Progress, Silent
from streamdr.data import open_source
from streamdr.data.source import Source
from streamdr.engine import fitting
from streamdr.methods.chain import ChainModel


def suited(method: Any, rows: np.ndarray) -> np.ndarray:
    """Return rows as a method takes them: without negative values, or alleles up to the ploidy."""
    if method.tags.nonnegative:
        rows = np.abs(rows)
    ploidy = getattr(method, "ploidy", None)
    if ploidy is None:
        return rows
    rows = widen(rows)
    low, high = np.nanmin(rows), np.nanmax(rows)
    return np.minimum((rows - low) * (ploidy / (high - low)), ploidy).astype(rows.dtype)


def stored(place: Path, values: np.ndarray, chunks: tuple[int, ...] = (40, 5)) -> Path:
    """Write an array to a new store."""
    zarr.create_array(place, shape=values.shape, chunks=chunks, dtype=values.dtype)[...] = values
    return place


def grown(path: Path, values: np.ndarray) -> None:
    """Append the missing last rows of some values to a store."""
    array = zarr.open_array(path, mode="r+")
    before = array.shape[0]
    array.resize(values.shape)
    array[before:] = values[before:]


def fit(
    method: Method,
    source: Path | Source,
    *,
    start: Model | None = None,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
    **settings: Any,
) -> fitting.Fitted:
    """Fit a method to a source, or to a store, with some settings of the execution."""
    opened = source if isinstance(source, Source) else open_source(source)
    return fitting.fit(method, opened, Execution(**settings), start=start, progress=progress, stop=stop)


def bits(model: Model) -> dict[str, Any]:
    """Return all fields of a model, arrays as bytes; of a chain, those of each of its models."""
    if isinstance(model, ChainModel):
        return dict(zip(model.names, map(bits, model.models), strict=True))
    found = {field.name: getattr(model, field.name) for field in fields(cast(Any, model))}
    return {name: x.tobytes() if isinstance(x, np.ndarray) else x for name, x in found.items()}


class StopAfter(Silent):
    """Stops the run when `rows` rows were folded."""

    def __init__(self, rows: float) -> None:
        self.left = rows
        self.stop = threading.Event()

    def advance(self, rows: int) -> None:
        self.left -= rows
        if self.left <= 0:
            self.stop.set()


class StopsInNewPass(Silent):
    """Stops the run after the first task of a pass that is not resumed."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.bytes_taken = 0.0
        self.resumed = False
        self._new, self._line_bytes = False, 0.0

    def start(self, begun: PassStart) -> None:
        self._new, self._line_bytes = begun.done == 0, begun.bytes_per_row
        self.resumed |= begun.done > 0

    def advance(self, rows: int) -> None:
        self.bytes_taken += rows * self._line_bytes
        if self._new:
            self.stop.set()
