"""Coordinates of samples from several files: times in the units of the first file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamdr.core.blocks import Array, Span
from streamdr.core.cf_time import TimeAxis
from streamdr.data.snapshot import Snapshot
from streamdr.data.source import SampleCoordinate, Source
from streamdr.errors import DataError


def in_units_of(first: SampleCoordinate, other: SampleCoordinate, file: str) -> SampleCoordinate:
    """Return the coordinate of another file in the units of the first: reference dates may differ."""
    if _units(first) == _units(other):
        return other
    try:
        theirs, own = TimeAxis.of(first.attributes), TimeAxis.of(other.attributes)
        if theirs is None or own is None:
            was, now = (_units(one)[0] or "none" for one in (first, other))
            raise DataError(f"its units are {now}, and {was} in the first file; make them equal")
        return replace(other, values=_Converted(other.values, own, theirs), attributes=first.attributes)
    except DataError as error:
        raise DataError(f"{file}: coordinate {first.name!r}: {error}") from error


def values_of(coordinate: SampleCoordinate) -> Array:
    """Return all values of a coordinate. There is one per row, so they fit in memory by far."""
    values = coordinate.values
    return values.read(Span(0, values.spec.n_rows), Span(0, 1))[:, 0]


def text_of(coordinate: SampleCoordinate, value: Any) -> str:
    """Return a value of a coordinate for people: a date, where it is a time."""
    axis = TimeAxis.of(coordinate.attributes)
    return str(value) if axis is None else axis.text(value)


def _units(coordinate: SampleCoordinate) -> tuple[Any, Any]:
    attributes: Mapping[str, Any] = coordinate.attributes
    return attributes.get("units"), attributes.get("calendar")


class _Converted(Source):
    """Times of one file in the units of another."""

    chunks = (1, 1)

    def __init__(self, stored: Source, own: TimeAxis, to: TimeAxis) -> None:
        self.name = stored.name
        self.chunks, self.grain = stored.chunks, stored.grain
        self._stored, self._own, self._to = stored, own, to
        # Integers stay integers where all of this file do.
        self.spec = replace(stored.spec, dtype=self._converted(Span(0, stored.spec.n_rows)).dtype)

    @property
    def _reads_from(self) -> tuple[Source | None, ...]:
        return (*super()._reads_from, self._stored)

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the converted times."""
        return self._converted(rows).astype(self.spec.dtype, copy=False)

    def _converted(self, rows: Span) -> Array:
        return self._own.convert(self._stored.read(rows, Span(0, 1)), self._to)

    def _snapshot(self) -> Snapshot:
        return self._stored.snapshot()
