"""What a test knows of a value and its type does not say: checked, and thereby known to mypy."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import zarr

from streamdr.core.blocks import Array

T = TypeVar("T")


def checked(kind: type[T], value: object) -> T:
    """The value, which is of this kind."""
    assert isinstance(value, kind), f"{value!r} is no {kind.__name__}"
    return value


def present(value: T | None) -> T:
    """The value, which is not None."""
    assert value is not None
    return value


def array_in(group: zarr.Group, name: str) -> zarr.Array:
    """The array of this name in a group."""
    return checked(zarr.Array, group[name])


def values_of(array: zarr.Array) -> Array:
    """All values of an array."""
    return checked(np.ndarray, array[...])
