"""Whether files have the same features, in the same order and on the same grid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from streamdr.core.axes import Coordinate, FeatureAxes
from streamdr.core.blocks import Array
from streamdr.data.source import Source
from streamdr.errors import DataError

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
    differ = np.argwhere(~_equal(wanted.values, found.values))
    if len(differ):
        at = tuple(int(index) for index in differ[0])
        position = at[0] if len(at) == 1 else at
        raise DataError(
            f"{where} is {found.values[at]} at position {position}, and {wanted.values[at]} in {first.name} "
            f"({len(differ)} of {found.values.size} values differ); {_ADVICE}"
        )


def _equal(wanted: Array, found: Array) -> Array:
    """Return which values are equal, in the shorter of two floating types: files may differ in precision."""
    if wanted.dtype.kind == found.dtype.kind == "f":
        shorter = min(wanted.dtype, found.dtype, key=lambda dtype: dtype.itemsize)
        wanted, found = wanted.astype(shorter), found.astype(shorter)
        return np.asarray((wanted == found) | (np.isnan(wanted) & np.isnan(found)))
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
