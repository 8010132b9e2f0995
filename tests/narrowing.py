"""Checks that narrow the type of a value, for mypy."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import zarr

from streamdr.core.blocks import Array

T = TypeVar("T")


def checked(kind: type[T], value: object) -> T:
    """Return the value, which must be an instance of `kind`."""
    assert isinstance(value, kind), f"{value!r} is not a {kind.__name__}"
    return value


def present(value: T | None) -> T:
    """Return the value, which must not be None."""
    assert value is not None
    return value


def array_in(group: zarr.Group, name: str) -> zarr.Array:
    """Return the array of this name in a group."""
    return checked(zarr.Array, group[name])


def values_of(array: zarr.Array) -> Array:
    """Return all values of an array."""
    return checked(np.ndarray, array[...])
