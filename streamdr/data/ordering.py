"""The order of several files: by a coordinate of their samples, or by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from streamdr.data.concatenated import missing_coordinate
from streamdr.data.sample_times import in_units_of, text_of, values_of
from streamdr.data.source import SampleCoordinate, Source
from streamdr.errors import DataError, InputError

BY_NAME = "name"


class _Extent(NamedTuple):
    """The first and the last value of a coordinate in a file."""

    low: Any
    high: Any
    part: Source


def ordered(parts: Sequence[Source], order_by: str | None = None) -> list[Source]:
    """Return files in the order of their rows.

    Parameters
    ----------
    parts
        The files, opened.
    order_by
        A coordinate of the samples, or `name`. None for the coordinate of the first dimension of the samples;
        by name if there is none.
    """
    _require_different(parts)
    first = parts[0]
    if order_by is None:
        dim = first.sample_dims[0] if first.sample_dims else None
        having = [part for part in parts if _coordinate(part, dim) is not None]
        if dim is None or not having:
            order_by = BY_NAME
        elif len(having) < len(parts):
            lacking = next(part for part in parts if _coordinate(part, dim) is None)
            raise missing_coordinate(dim, lacking.name, having[0].name)
        else:
            order_by = dim
    if order_by == BY_NAME:
        return sorted(parts, key=lambda part: natural_order(part.name))
    return _by_coordinate(parts, order_by)


def natural_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts part.2 before part.10."""
    words = re.split(r"([0-9]+)", name)
    return [(int(word), word) if word.isdecimal() else (-1, word) for word in words]


def _by_coordinate(parts: Sequence[Source], name: str) -> list[Source]:
    """Return files in ascending order of a coordinate. Files whose values overlap are an error."""
    coordinates = [_required(part, name) for part in parts]
    model = coordinates[0]
    extents = [
        _extent(part, in_units_of(model, one, part.name), model)
        for part, one in zip(parts, coordinates, strict=True)
    ]
    extents.sort(key=lambda extent: (extent.low, natural_order(extent.part.name)))
    for before, after in pairwise(extents):
        if after.low <= before.high:
            low, high = text_of(model, after.low), text_of(model, before.high)
            raise DataError(
                f"{after.part.name}: its {name} begins at {low}, and {before.part.name} goes on until "
                f"{high}: rows of two files overlap; leave one of them out, or cut it"
            )
    return [extent.part for extent in extents]


def _extent(part: Source, coordinate: SampleCoordinate, model: SampleCoordinate) -> _Extent:
    """Return the first and the last value of a coordinate in a file, in the units of the first file."""
    values = values_of(coordinate)
    name = coordinate.name
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise DataError(
            f"{part.name}: its {name} has no value in row {row}, so the file has no place among the others; "
            f"give it one, or set order_by to {BY_NAME!r}"
        )
    if values[0] > values[-1]:
        texts = [text_of(model, values[at]) for at in (0, -1)]
        raise DataError(
            f"{part.name}: its {name} descends, from {texts[0]} to {texts[1]}; sort its rows, or set "
            f"order_by to {BY_NAME!r}"
        )
    ascending = np.sort(values)
    return _Extent(ascending[0], ascending[-1], part)


def _required(part: Source, name: str) -> SampleCoordinate:
    """Return the coordinate of the samples with a name, or raise an error with those that there are."""
    found = _coordinate(part, name)
    if found is None:
        names = ", ".join(one.name for one in part.sample_coords) or "none"
        raise InputError(
            "order_by",
            f"{part.name}: has no coordinate {name!r} of its samples; it has {names}; give one that all "
            f"files have, or {BY_NAME!r}",
        )
    return found


def _coordinate(part: Source, name: str | None) -> SampleCoordinate | None:
    return next((one for one in part.sample_coords if one.name == name), None)


def _require_different(parts: Sequence[Source]) -> None:
    """Raise an error if a file is there twice."""
    seen: set[str] = set()
    for part in parts:
        if part.name in seen:
            raise InputError("path", f"{part.name}: is given twice; its rows would count twice")
        seen.add(part.name)
