"""A fitted model as an xarray Dataset: arrays under dimensions and coordinates, scalars as attributes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamdr import store
from streamdr.core.axes import FeatureAxes
from streamdr.store.models import labelled_fields


def dataset_of(
    model: Any,
    *,
    method: str,
    parameters: Mapping[str, Any],
    n_rows: int,
    feature_names: Sequence[str] | None,
    axes: FeatureAxes | None,
) -> Any:
    """Return a model as a Dataset, with what `xarray.open_zarr` shows of it after it was saved."""
    try:
        import xarray
    except ImportError as error:
        raise ImportError("to_xarray needs xarray: pip install 'streamdr[xarray]'") from error

    scalars, arrays = labelled_fields(model, axes, feature_names)
    variables = {
        one.name: xarray.Variable(one.dims, np.array(one.values), dict(one.attributes)) for one in arrays
    }
    dims = {name: field.metadata.get("dims") for name, field in model.__dataclass_fields__.items()}
    attributes = {"method": method, "parameters": _parameters(parameters), "n_rows": n_rows}
    for name, value in scalars.items():
        if dims[name] is not None and value is not None:  # text along a dimension
            variables[name] = xarray.Variable(dims[name], np.array(value, dtype=np.str_))
        elif value is not None:
            attributes[name] = _attribute(value)
    # Times are decoded here, as they are when a store is opened.
    return xarray.decode_cf(xarray.Dataset(variables, attrs=attributes), decode_timedelta=False)


def _parameters(parameters: Mapping[str, Any]) -> str:
    """Return parameters as JSON. A function is named."""
    plain = {
        name: getattr(value, "__qualname__", repr(value)) if callable(value) else value
        for name, value in parameters.items()
    }
    return json.dumps(store.to_json(plain))


def _attribute(value: Any) -> Any:
    """Return a scalar as an attribute that every file format of xarray takes."""
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, int | float | str) else json.dumps(store.to_json(value))
