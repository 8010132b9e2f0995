"""From the features that a model uses to all of them: NaN where one is left out, in units of the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from streamdr.core.axes import FeatureAxes
from streamdr.core.blocks import Array, Span, working_dtype
from streamdr.data.features import for_model
from streamdr.data.in_memory import ArraySource
from streamdr.estimators.lazy import RowMap


def attribute(value: Any, metadata: Mapping[str, Any], axes: FeatureAxes | None) -> Any:
    """Return an attribute of a model, given the metadata of its field."""
    if axes is None or not axes.selects or not isinstance(value, np.ndarray):
        return value
    units = bool(metadata.get("data_units"))
    for at, dim in enumerate(metadata.get("dims", ())):
        if dim in ("feature", "feature_too"):
            moved = np.moveaxis(value, at, -1)
            value = np.moveaxis(axes.expanded(axes.unweighted(moved) if units else moved), -1, at)
    return value


def used(rows: Array, axes: FeatureAxes | None) -> Array:
    """Return the features of rows that a model uses."""
    source = for_model(ArraySource(rows, name="X"), axes)
    return source.read(Span(0, len(rows)), Span(0, source.spec.n_cols))


def map_to_all(function: Callable[[Any], Array], axes: FeatureAxes | None) -> Callable[[Any], Array]:
    """Return a map to all features, from a map to those that a model uses."""
    if axes is None or not axes.selects:
        return function

    def mapped_rows(given: Any) -> Array:
        rows = function(given)
        return axes.expanded(axes.unweighted(rows).astype(rows.dtype, copy=False))

    return mapped_rows


def between(values: Array, axes: FeatureAxes | None, power: int) -> Array:
    """Return a matrix of the used features for all of them; `power` is that of its units."""
    if axes is None or not axes.selects:
        return values
    for _ in range(2):
        values = axes.expanded(axes.unweighted(values, power)).T
    return values


def map_of_all(
    function: RowMap, axes: FeatureAxes | None, power: int, *, like_rows: bool, allow_nan: bool
) -> RowMap:
    """Return a map of rows with all features, from a map of those that a model uses.

    If the result is in (powers of) the units of the features, `power` is not 0. With `like_rows` it has
    the floating type of the rows, also if the model sees weighted values in double precision.
    """
    if axes is None or not axes.selects:
        return function

    def mapped_rows(rows: Array) -> Array:
        whole = ArraySource(rows, name="X")
        whole.axes = axes  # for errors, which name the cell
        source = for_model(whole, axes)
        found = function(source.block(Span(0, len(rows)), allow_nan=allow_nan).values)
        found = axes.unweighted(found, power) if power else found
        found = found.astype(working_dtype(rows.dtype), copy=False) if like_rows else found
        return axes.expanded(found) if power else found

    return mapped_rows
