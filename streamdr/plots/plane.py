"""Points in the plane: their extent, and a subset to draw."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from streamdr.core.blocks import Array, Span, widen
from streamdr.core.figures import MOST_POINTS
from streamdr.data import open_source
from streamdr.errors import DataError
from streamdr.plots.classes import Classes, Labels

Extent = tuple[float, float, float, float]
"""The limits of a part of the plane: left, right, bottom, top."""

_ROOM = 0.15
"""The margin around the points, as a share of their width."""
_BLOCK_ROWS = 65_536


@dataclass(frozen=True)
class Points:
    """The rows of two features that are drawn, and the extent of all rows."""

    values: Array
    labels: Array | None
    classes: Classes
    low: Array
    high: Array

    @classmethod
    def read(cls, data: Any, labels: Labels | None) -> Points:
        """Read rows, find the extent of the finite ones, and keep at most `MOST_POINTS`, evenly spaced."""
        source = open_source(data)
        n_rows, n_cols = source.spec.n_rows, source.spec.n_cols
        if n_cols != 2:
            raise DataError(f"{source.name}: has {n_cols:,} columns; points of a plane have 2")
        if labels is not None and len(labels) != n_rows:
            raise DataError(
                f"{len(labels):,} labels for the {n_rows:,} points of {source.name}; give one label per point"
            )
        source.validate()
        low, high, classes = np.full(2, np.inf), np.full(2, -np.inf), Classes()
        kept, named = [], []
        step = ceil(n_rows / MOST_POINTS)
        grain = source.chunks[0]
        for span in Span(0, n_rows).split(max(grain, _BLOCK_ROWS // grain * grain)):
            rows = widen(source.read(span, Span(0, 2)))
            finite = np.isfinite(rows).all(axis=1)
            low = np.minimum(low, rows[finite].min(axis=0, initial=np.inf))
            high = np.maximum(high, rows[finite].max(axis=0, initial=-np.inf))
            shown = finite & (np.arange(span.start, span.stop) % step == 0)
            kept.append(rows[shown].astype(np.float64))
            if labels is not None:
                here = np.asarray(labels[span.slice])
                classes = classes.united(here[finite])
                named.append(here[shown])
        if not np.isfinite(low).all():
            raise DataError(
                f"{source.name}: none of its {n_rows:,} points is finite; there is nothing to draw"
            )
        return cls(np.concatenate(kept), np.concatenate(named) if named else None, classes, low, high)

    def surroundings(self) -> Extent:
        """Return the extent of all points, with a margin."""
        width = self.high - self.low
        # Points on a line parallel to an axis, or at one position, get a margin too.
        least = np.maximum(width.max(), 1e-3 * np.abs(self.high).max()) or 1.0
        room = np.where(width > 0, _ROOM * width, 0.5 * least)
        (left, bottom), (right, top) = self.low - room, self.high + room
        return float(left), float(right), float(bottom), float(top)
