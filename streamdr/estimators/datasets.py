"""A fitted model as an xarray Dataset: arrays under dimensions and coordinates, scalars as attributes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
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
    """Return a model as a Dataset, with what `xarray.open_zarr` shows of it after it was saved.

    Means are in the units of the data here, also where the model is one of weighted values.
    """
    try:
        import xarray
    except ImportError as error:
        raise ImportError("to_xarray needs xarray: pip install 'streamdr[xarray]'") from error

    if axes is not None and axes.weighted:
        model, axes = _unweighted(model, axes), replace(axes, weighted=False)
    scalars, arrays = labelled_fields(model, axes, feature_names)
    variables = {
        one.name: xarray.Variable(one.dims, np.array(one.values), dict(one.attributes)) for one in arrays
    }
    dims = {name: field.metadata.get("dims") for name, field in model.__dataclass_fields__.items()}
    attributes = {"method": method, "parameters": _json(parameters), "n_rows": n_rows}
    for name, value in scalars.items():
        if dims[name] is not None and value is not None:  # text along a dimension
            variables[name] = xarray.Variable(dims[name], np.array(value, dtype=np.str_))
        elif value is not None:
            attributes[name] = _attribute(value)
    # Times are decoded here, as they are when a store is opened.
    return xarray.decode_cf(xarray.Dataset(variables, attrs=attributes), decode_timedelta=False)


def tree_of(datasets: Mapping[str, Any]) -> Any:
    """Return data sets as one DataTree."""
    import xarray

    return xarray.DataTree.from_dict(datasets)


def _unweighted(model: Any, axes: FeatureAxes) -> Any:
    """Return a model of weighted values with its means in the units of the data."""
    means = [field.name for field in fields(model) if field.metadata.get("data_units")]
    return replace(model, **{name: axes.unweighted(getattr(model, name)) for name in means})


def _attribute(value: Any) -> Any:
    """Return a scalar as an attribute that every file format of xarray takes."""
    if isinstance(value, bool):
        return int(value)
    if callable(value):
        return _name(value)
    return value if isinstance(value, int | float | str) else _json(value)


def _json(value: Any) -> str:
    """Return plain values as JSON, with the names of functions."""
    if isinstance(value, Mapping):
        value = {key: _name(item) if callable(item) else item for key, item in value.items()}
    return json.dumps(store.to_json(value))


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", repr(function)))
