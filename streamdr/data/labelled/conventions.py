"""CF attributes: which of them outputs inherit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

_STORAGE = {
    *("missing_value", "scale_factor", "add_offset", "dtype", "chunksizes", "least_significant_digit"),
    *("valid_min", "valid_max", "valid_range", "actual_range"),  # of the values as they are packed
    *("coordinates", "bounds", "climatology", "grid_mapping", "geometry", "node_coordinates", "node_count"),
    *(
        "part_node_count",
        "interior_ring",
        "cell_measures",
        "formula_terms",
        "ancillary_variables",
        "compress",
    ),
    *("mesh", "location", "CLASS", "NAME", "DIMENSION_LIST", "DIMENSION_LABELS", "REFERENCE_LIST"),
    *("streamdr", "feature_names"),
}


def plain_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that outputs inherit, as JSON values.

    Parameters
    ----------
    attributes : mapping
        The attributes of an array: JSON values, or those of HDF5.

    Returns
    -------
    dict
        All but those that describe how values are stored (`_FillValue`, `scale_factor`, `valid_range`, all
        that begin with an underscore), those that name other arrays (`coordinates`, `bounds`,
        `grid_mapping`), and those that JSON cannot have.

    Examples
    --------
    >>> import numpy as np
    >>> from streamdr.data.labelled.conventions import plain_attributes
    >>> plain_attributes({"units": "K", "_FillValue": -1, "level": np.float32(850), "bounds": "lat_bnds"})
    {'units': 'K', 'level': 850.0}
    """
    found = {
        key: _plain(value)
        for key, value in attributes.items()
        if isinstance(key, str) and key not in _STORAGE and not key.startswith("_")
    }
    return {key: value for key, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    """A JSON value, or None if there is none: NaN, references, objects."""
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in "mM":  # its item would be a number without a unit
            return None
        value = value.item() if value.size == 1 else value.tolist()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        items = [_plain(item) for item in value]
        return None if any(item is None for item in items) else items
    if isinstance(value, Mapping):
        entries = {key: _plain(item) for key, item in value.items()}
        plain = all(isinstance(key, str) and item is not None for key, item in entries.items())
        return entries if plain else None
    return None
