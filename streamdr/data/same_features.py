"""Whether files, or a model and its data, have the same features, in the same order and on the same grid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from streamdr.core.axes import Coordinate, FeatureAxes
from streamdr.core.blocks import Array
from streamdr.core.cf_time import TimeAxis
from streamdr.data.source import Source
from streamdr.errors import DataError

_GRID_ADVICE = "select, sort or regrid it to the grid that the model was fitted to"
_ADVICE = "make them equal, say by regridding, or leave the file out"


def require_same_features(first: Source, other: Source) -> None:
    """Raise an error that names the file and the first feature, dimension or coordinate that differs."""
    if first.sample_dims != other.sample_dims:
        raise _differ(other, first, "sample dimensions", other.sample_dims, first.sample_dims)
    if first.axes is not None and other.axes is not None:
        _require_same_axes(first, first.axes, other, other.axes)
    elif (first.axes is None) != (other.axes is None):
        without, having = (other, first) if other.axes is None else (first, other)
        raise DataError(
            f"{without.name}: its dimensions have no names, and those of {having.name} have; {_ADVICE}"
        )
    if first.feature_names is not None and other.feature_names is not None:
        names = zip_longest(first.feature_names, other.feature_names)
        for number, (wanted, found) in enumerate(names):
            if wanted != found:
                raise DataError(
                    f"{other.name}: column {number} is {_named(found)}, and {_named(wanted)} in "
                    f"{first.name}; write all files with the same columns in the same order"
                )
    if first.spec.n_cols != other.spec.n_cols:
        raise _differ(other, first, "number of features", other.spec.n_cols, first.spec.n_cols)
    if None not in (first.sample_shape, other.sample_shape) and first.sample_shape != other.sample_shape:
        raise _differ(other, first, "shape of a row", other.sample_shape, first.sample_shape)


def require_names_of_model(
    source: Source, names: Sequence[str] | None, axes: FeatureAxes | None = None
) -> None:
    """Raise an error that names the first column that has another name than in a model, if both have names.

    Columns in another order would be taken for each other. Features with axes are compared by these.
    """
    labelled = source.axes is not None and axes is not None
    if source.feature_names is None or names is None or labelled:
        return
    for number, (wanted, found) in enumerate(zip_longest(names, source.feature_names)):
        if wanted != found:
            raise DataError(
                f"{source.name}: column {number} is {_named(found)}, and {_named(wanted)} in the model; give "
                "it the columns of the fit, in their order"
            )


def require_grid_of_model(source: Source, axes: FeatureAxes | None) -> None:
    """Raise an error that names the first dimension or coordinate that differs from those of a model.

    What has a name on one side only is not compared: features are then matched by position.
    """
    if source.axes is None or axes is None:
        return
    found = source.axes
    if found.dims != axes.dims and set(found.dims) == set(axes.dims):
        raise DataError(
            f"{source.name}: its feature dimensions are {_text(found.dims)}, and the model takes "
            f"{_text(axes.dims)}; store them in this order, or give a DataArray in Python, which is matched "
            "by name"
        )
    lengths = dict(zip(found.dims, found.shape, strict=True))
    for dim, length in zip(axes.dims, axes.shape, strict=True):
        if lengths.get(dim, length) != length:
            raise DataError(
                f"{source.name}: its dimension {dim!r} has {lengths[dim]} features, and {length} in the "
                "model; select the same part of it, or regrid it"
            )
    for wanted in axes.coords:
        other = found.coordinate(wanted.name)
        # Only the coordinate of a dimension says what is where.
        if other is not None and other.dims == wanted.dims and _are_comparable(wanted, other):
            where = f"{source.name}: its coordinate {wanted.name!r}"
            _require_same_values(where, other, "the model", wanted, _GRID_ADVICE)


def common_dtype(parts: Sequence[Source], name: str) -> np.dtype[Any]:
    """Return the type that holds the values of all parts. Booleans beside numbers are an error."""
    first = parts[0]
    if all(part.spec.dtype == first.spec.dtype for part in parts):
        return first.spec.dtype
    if any(part.spec.dtype == np.dtype(np.str_) for part in parts):  # text of any length
        return np.dtype(np.str_)
    for part in parts:
        kinds = {first.spec.dtype.kind, part.spec.dtype.kind}
        mixed = np.result_type(first.spec.dtype, part.spec.dtype) if len(kinds & {"b", "U"}) == 0 else None
        if len(kinds) > 1 and (mixed is None or (mixed.kind == "f" and "f" not in kinds)):
            raise _differ(part, first, "type", part.spec.dtype, first.spec.dtype)
    return np.result_type(*{part.spec.dtype for part in parts})


def _require_same_axes(first: Source, wanted: FeatureAxes, other: Source, found: FeatureAxes) -> None:
    if wanted.dims != found.dims:
        raise _differ(other, first, "feature dimensions", found.dims, wanted.dims)
    if wanted.name != found.name:
        raise _differ(other, first, "variable", found.name, wanted.name)
    its, mine = ({one.name: one for one in axes.coords} for axes in (wanted, found))
    for dim in wanted.dims:  # a coordinate beside those of the dimensions may be in some files only
        if (dim in its) != (dim in mine):
            lacking, having = (other, first) if dim in its else (first, other)
            raise DataError(f"{lacking.name}: has no coordinate {dim!r}, which {having.name} has; {_ADVICE}")
    for name in its:
        if name in mine:
            _require_same_coordinate(first, its[name], other, mine[name])
    if wanted.shape != found.shape:
        raise _differ(other, first, "shape of the features", found.shape, wanted.shape)
    if wanted.attributes.get("units") != found.attributes.get("units"):
        units = (axes.attributes.get("units") for axes in (found, wanted))
        raise _differ(other, first, "units", *units)


def _require_same_coordinate(first: Source, wanted: Coordinate, other: Source, found: Coordinate) -> None:
    """Raise an error for the first value of a coordinate that differs."""
    where = f"{other.name}: its coordinate {wanted.name!r}"
    if wanted.values.shape != found.values.shape:
        lengths = [_text(one.values.shape) for one in (found, wanted)]
        raise DataError(f"{where} has {lengths[0]} values, and {lengths[1]} in {first.name}; {_ADVICE}")
    units = tuple(one.attributes.get("units") for one in (found, wanted))
    if units[0] != units[1]:
        raise DataError(f"{where} is in {units[0]}, and in {units[1]} in {first.name}; {_ADVICE}")
    _require_same_values(where, found, first.name, wanted, _ADVICE)


def _require_same_values(where: str, found: Coordinate, other: str, wanted: Coordinate, advice: str) -> None:
    """Raise an error for the first value that differs, in a coordinate of the same shape."""
    differ = np.argwhere(~_equal(wanted.values, found.values))
    if len(differ):
        at = tuple(int(index) for index in differ[0])
        position = at[0] if len(at) == 1 else at
        raise DataError(
            f"{where} is {found.values[at]} at position {position}, and {wanted.values[at]} in {other} "
            f"({len(differ)} of {found.values.size} values differ); {advice}"
        )


def _are_comparable(one: Coordinate, other: Coordinate) -> bool:
    """Whether the numbers of two coordinates mean the same: those of times depend on the units."""
    units = [(each.attributes.get("units"), each.attributes.get("calendar")) for each in (one, other)]
    return units[0] == units[1] or not any(TimeAxis.of(each.attributes) for each in (one, other))


def _equal(wanted: Array, found: Array) -> Array:
    """Return which values are equal up to rounding, in the shorter of two floating types.

    Files may differ in precision, and `linspace` and `arange` in the last bits.
    """
    if wanted.dtype.kind == found.dtype.kind == "f":
        shorter = min(wanted.dtype, found.dtype, key=lambda dtype: dtype.itemsize)
        wanted, found = wanted.astype(shorter), found.astype(shorter)
        finite = np.abs(wanted[np.isfinite(wanted)])
        rounding = 2 * np.spacing(finite.max()) if finite.size else 0
        with np.errstate(invalid="ignore"):
            near = np.abs(wanted - found) <= rounding
        return np.asarray(near | (wanted == found) | (np.isnan(wanted) & np.isnan(found)))
    return np.asarray(wanted == found)


def _named(column: str | None) -> str:
    return "no column" if column is None else repr(column)


def _differ(other: Source, first: Source, what: str, found: object, wanted: object) -> DataError:
    """Return the error for something that differs between two files."""
    return DataError(
        f"{other.name}: its {what} is {_text(found)}, and {_text(wanted)} in {first.name}; {_ADVICE}"
    )


def _text(value: object) -> str:
    """Return dimensions, a shape or another value, for a message."""
    if isinstance(value, tuple):
        return " x ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
