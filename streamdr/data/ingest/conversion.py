"""Conversion of values to the stored type. Values that the type cannot represent are an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from streamdr.core.blocks import Array
from streamdr.errors import DataError


def target_dtype(source: Path, held: np.dtype[Any], wanted: np.dtype[Any] | None) -> np.dtype[Any]:
    """Return the type to store: that of the file (`held`), or `wanted` if it can represent the values."""
    if held.kind not in "biuf":
        raise DataError(f"{source}: holds {held}, but a matrix of real numbers is needed; convert it first")
    if wanted is None and held.itemsize > 8:
        raise DataError(f"{source}: holds {held}, which zarr cannot store; give `--dtype float64`")
    if wanted is not None and held.kind == "f" and wanted.kind in "iu":
        raise DataError(
            f"{source}: holds fractions or missing values ({held}), which {wanted} cannot hold; "
            "a store of a floating type is needed (`--dtype`)"
        )
    return (wanted or held).newbyteorder("=")


def convert(source: Path, values: Array, dtype: np.dtype[Any], first_row: int, first_col: int = 0) -> Array:
    """Return the values in another type. A value out of its range is an error: it does not overflow."""
    if np.can_cast(values.dtype, dtype, "safe"):
        return values.astype(dtype, copy=False)
    with np.errstate(over="ignore"):
        converted = values.astype(dtype)
    if dtype.kind == "f":
        lost = np.isinf(converted) & np.isfinite(values)
    else:
        lost = (values < np.iinfo(dtype).min) | (values > np.iinfo(dtype).max)
    if lost.any():
        row, *cols = (int(i) for i in np.argwhere(lost)[0])
        where = f"row {first_row + row}"
        if cols:
            where += f", column {first_col + cols[0]}"
        raise DataError(
            f"{source}: {values[(row, *cols)]} at {where} is out of range for {dtype}; "
            "a store of a wider type is needed (`--dtype`)"
        )
    return converted
