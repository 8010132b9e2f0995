"""Lazy maps: apply a map of rows to the blocks of a dask array, a DataArray or a store on demand."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec, Span, working_dtype
from streamdr.data import Source, open_source
from streamdr.data.column_subset import ColumnSubset
from streamdr.data.frames import is_lazy_frame, named_values, single_matrix
from streamdr.data.in_memory import ArraySource
from streamdr.engine.executors.identity import identity, run_as
from streamdr.engine.partition import partition

RowMap = Callable[[Array], Array]


def is_streamed(data: Any) -> bool:
    """Whether data is read block by block: everything except numpy arrays and data frames in memory."""
    if isinstance(data, str | os.PathLike | np.memmap | Source):
        return True
    return type(data).__module__.partition(".")[0] in ("zarr", "dask", "xarray")


def mapped(
    data: Any,
    function: RowMap,
    outputs: Sequence[str],
    *,
    keep_features: bool = False,
    allow_nan: bool = False,
    dtype: np.dtype[Any] | None = None,
) -> Any:
    """Apply a map of rows to each block: DataArray to DataArray, anything else to a dask array.

    `allow_nan` permits missing values in the rows. `dtype` is that of the result; None for that of the rows.
    """
    data = _as_array(data)
    if _is_dataarray(data):
        return _map_dataarray(
            data, function, outputs, keep_features=keep_features, allow_nan=allow_nan, dtype=dtype
        )
    if type(data).__module__.startswith("dask"):
        return _map_dask(data, function, len(outputs), allow_nan, dtype)
    return _map_source(open_source(data), function, len(outputs), allow_nan, dtype)


def columns_of(data: Any, columns: Array) -> Any:
    """Return some columns of streamed data, lazily. Chunks without these columns are not read."""
    data = _as_array(data)
    if _is_dataarray(data):
        flat = data if data.ndim == 2 else data.stack({"feature of sample": data.dims[1:]})
        return flat.isel({flat.dims[1]: columns})
    if type(data).__module__.startswith("dask"):
        return _flat(data)[:, columns]
    return ColumnSubset(open_source(data), columns)


def _as_array(data: Any) -> Any:
    """Return the one array of streamed data, such as a Dataset or a lazy data frame."""
    data = single_matrix(data)
    return named_values(data).values if is_lazy_frame(data) else data


def _map_dask(
    array: Any, function: RowMap, n_outputs: int, allow_nan: bool, given: np.dtype[Any] | None
) -> Any:
    whole_rows = _flat(array).rechunk({1: -1})
    dtype = given or working_dtype(array.dtype)
    expected = identity()  # checked on the cluster that computes it

    def mapped_block(rows: Array, block_info: Any = None) -> Array:
        name = f"block that begins at row {block_info[0]['array-location'][0][0]}"
        made: Array = run_as(expected, lambda: function(_require_finite(rows, name, allow_nan)))
        return made

    return whole_rows.map_blocks(
        mapped_block, dtype=dtype, chunks=(whole_rows.chunks[0], (n_outputs,)), meta=np.empty((0, 0), dtype)
    )


def _require_finite(rows: Array, name: str, allow_nan: bool) -> Array:
    """Return the rows. Refuse values that are not finite, except NaN with `allow_nan`."""
    if rows.size:
        ArraySource(rows, name=name).block(Span(0, len(rows)), allow_nan=allow_nan)
    return rows


def _flat(array: Any) -> Any:
    return array.reshape(array.shape[0], math.prod(array.shape[1:])) if array.ndim != 2 else array


def _map_source(
    source: Source, function: RowMap, n_outputs: int, allow_nan: bool, given: np.dtype[Any] | None
) -> Any:
    import dask.array as da

    data: MatrixSpec = source.spec
    spans = list(
        Span(0, data.n_rows).split(partition(data, source.chunks, "rows", 0, source.cost_factor).block)
    )
    source.validate()
    expected = identity()

    def mapped_block(block_info: Any = None) -> Any:
        (start, stop), _ = block_info[None]["array-location"]
        return run_as(expected, lambda: function(source.block(Span(start, stop), allow_nan=allow_nan).values))

    chunks = (tuple(len(span) for span in spans), (n_outputs,))
    dtype = given or data.working
    return da.map_blocks(mapped_block, chunks=chunks, dtype=dtype, meta=np.empty((0, 0), dtype))


def _map_dataarray(
    data: Any,
    function: RowMap,
    outputs: Sequence[str],
    *,
    keep_features: bool,
    allow_nan: bool,
    dtype: np.dtype[Any] | None,
) -> Any:
    import xarray

    sample = data.dims[0]
    if data.chunks is None and not data._in_memory:
        data = data.chunk("auto")
    if data.chunks is None:
        values = function(
            _require_finite(data.values.reshape(len(data), -1), data.name or "DataArray", allow_nan)
        )
    else:
        values = _map_dask(data.data, function, len(outputs), allow_nan, dtype)
    labels = {name: coord for name, coord in data.coords.items() if coord.dims == (sample,)}
    if keep_features and data.ndim == 2:
        labels |= {name: coord for name, coord in data.coords.items() if coord.dims == (data.dims[1],)}
        return xarray.DataArray(values, dims=data.dims, coords=labels, name=data.name)
    labels["component"] = list(outputs)
    return xarray.DataArray(values, dims=(sample, "component"), coords=labels, name=data.name)


def _is_dataarray(data: Any) -> bool:
    return type(data).__module__.startswith("xarray") and type(data).__name__ == "DataArray"
