"""The numeric types that can be read as a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamdr.errors import DataError


def require_numeric(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    """Return `dtype` if it is a bool, an integer, or a float of 16, 32 or 64 bits; else raise an error."""
    if dtype.kind in "biu" or (dtype.kind == "f" and dtype.itemsize <= 8):
        return dtype
    raise not_numeric(str(dtype), name)


def not_numeric(dtype: str, name: str) -> DataError:
    """Return the error for a type, given its name in the metadata or in numpy."""
    return DataError(
        f"{name}: values of type {dtype} cannot be used; "
        "store bool, integer, float16, float32 or float64 values instead"
    )
