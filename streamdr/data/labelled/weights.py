"""The weights of features: by latitude, from an array beside the data, or as given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamdr.core.axes import Coordinate, FeatureAxes
from streamdr.core.blocks import Array
from streamdr.core.cf_names import is_latitude
from streamdr.errors import DataError, ParameterError

COSLAT = "coslat"
KEY = "feature_weights"


def latitude_weights(axes: FeatureAxes, name: str) -> Array:
    """Return the square root of the cosine of the latitude of each feature, so that areas count equally.

    Raises
    ------
    ParameterError
        If no coordinate of the features is a latitude, or several are.
    """
    found = [one for one in axes.coords if is_latitude(one.name, one.attributes)]
    along = [one for one in found if one.dims == (one.name,)]
    found = along or found
    if not found:
        listed = ", ".join(one.name for one in axes.coords) or "none"
        raise ParameterError(
            KEY,
            f"{name}: no latitude to weigh by, among the coordinates of its features ({listed}): a latitude "
            "has the units degrees_north or the name lat; give the weights as an array instead",
        )
    if len(found) > 1:
        raise ParameterError(
            KEY,
            f"{name}: {' and '.join(one.name for one in found)} are latitudes; give the weights as an array",
        )
    degrees = np.asarray(found[0].values, np.float64)
    if not (np.abs(degrees) <= 90.0 + 1e-6).all():
        raise DataError(f"{name}: {found[0].name} has latitudes beyond 90 degrees, or missing ones")
    # At a pole, the cosine of the rounded angle is tiny, and may be negative.
    weights = np.sqrt(np.clip(np.cos(np.deg2rad(degrees)), 0.0, 1.0))
    return _spread(weights, found[0], axes)


def _spread(values: Array, coordinate: Coordinate, axes: FeatureAxes) -> Array:
    """Return values along the dimensions of a coordinate for each feature, flattened."""
    return along_dims(values, coordinate.dims, axes)


def along_dims(values: Array, dims: Sequence[str], axes: FeatureAxes) -> Array:
    """Return values with some of the feature dimensions, in any order, for each feature, flattened."""
    order = [dims.index(dim) for dim in axes.dims if dim in dims]
    shape = [length if dim in dims else 1 for dim, length in zip(axes.dims, axes.shape, strict=True)]
    return np.broadcast_to(values.transpose(order).reshape(shape), axes.shape).reshape(-1).copy()


def checked_weights(values: Any, axes: FeatureAxes, name: str) -> Array:
    """Return weights as one number per feature: from a vector, or from an array of the shape of a sample."""
    try:
        weights = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError(KEY, f"weights are numbers, one per feature: {error}") from error
    if weights.size != axes.n_features or weights.shape not in (axes.shape, (axes.n_features,)):
        given = " x ".join(map(str, weights.shape)) or "1"
        expected = " x ".join(map(str, axes.shape))
        raise ParameterError(KEY, f"{name}: {given} weights for features of shape {expected}; give one each")
    weights = weights.reshape(-1)
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if bad.size:
        raise ParameterError(
            KEY,
            f"{name}: the weight of {axes.described(int(bad[0]))} is {weights[bad[0]]} ({bad.size} such); "
            "weights must be finite and not negative, and 0 leaves a feature out",
        )
    if not weights.any():
        raise ParameterError(KEY, f"{name}: every weight is 0, so there is nothing to fit")
    return weights
