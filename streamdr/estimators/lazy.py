"""Lazy maps: apply a map of rows to the blocks of a dask array, a DataArray or a store on demand."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from streamdr.core.axes import FeatureAxes
from streamdr.core.blocks import Array, MatrixSpec, Span, working_dtype
from streamdr.data import Source, open_source
from streamdr.data.anndata_objects import is_anndata, matrix_of
from streamdr.data.column_subset import ColumnSubset
from streamdr.data.expanding import is_path_list
from streamdr.data.frames import is_lazy_frame, is_of, named_values, single_matrix
from streamdr.data.in_memory import ArraySource
from streamdr.data.labelled.opening import UNLABELLED, Labelled
from streamdr.data.sparse.dask_chunks import has_sparse_chunks
from streamdr.data.sparse.scipy_matrices import as_scipy, is_sparse
from streamdr.engine.executors.identity import identity, run_as
from streamdr.engine.partition import partition
from streamdr.errors import RowError
from streamdr.estimators.labelled import Arranged, arranged, is_labelled

RowMap = Callable[[Array], Array]


def is_streamed(data: Any) -> bool:
    """Whether data is read block by block: everything except numpy arrays and data frames in memory."""
    if is_anndata(data):
        data = matrix_of(data)
    if isinstance(data, str | os.PathLike | np.memmap | Source) or is_path_list(data):
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
    labelled: Labelled = UNLABELLED,
    axes: FeatureAxes | None = None,
    numbers: Array | None = None,
) -> Any:
    """Apply a map of rows to each block: DataArray to DataArray, anything else to a dask array.

    `allow_nan` permits missing values in the rows. `dtype` is that of the result; None for that of the rows.
    `labelled` says which variables are the rows. If the result has the features of the fit, and not those of
    the rows, `axes` are their axes. If the data has some columns only, `numbers` are theirs, for messages.
    """
    if is_labelled(data):
        rows = arranged(data, labelled)
        values = _map_labelled(rows, function, len(outputs), allow_nan, dtype, numbers)
        return rows.result(values, outputs, keep_features=keep_features, axes=axes)
    data = _as_array(data)
    if type(data).__module__.startswith("dask"):
        return _map_dask(data, function, len(outputs), allow_nan, dtype, numbers)
    source = open_source(data, **labelled.arguments)
    return _map_source(source, function, len(outputs), allow_nan, dtype)


def columns_of(data: Any, columns: Array, labelled: Labelled = UNLABELLED) -> tuple[Any, Labelled]:
    """Return some columns of streamed data, lazily, and how they are labelled.

    Chunks without these columns are not read.
    """
    if is_labelled(data):
        rows = arranged(data, labelled)
        flat = rows.data
        if len(rows.feature_dims) != 1:
            flat = flat.stack({"feature of sample": rows.feature_dims}, create_index=False)
        return flat.isel({flat.dims[-1]: columns}), Labelled(sample_dims=rows.sample_dims)
    data = _as_array(data)
    if type(data).__module__.startswith("dask"):
        return _flat(data)[:, columns], UNLABELLED
    return ColumnSubset(open_source(data, **labelled.arguments), columns), UNLABELLED


def _as_array(data: Any) -> Any:
    """Return the one array of streamed data, such as a Dataset or a lazy data frame."""
    data = single_matrix(matrix_of(data) if is_anndata(data) else data)
    data = named_values(data).values if is_lazy_frame(data) else data
    if is_of(data, "dask.array", "Array") and has_sparse_chunks(data):
        return data.map_blocks(_dense, dtype=data.dtype, meta=np.empty((0, 0), data.dtype))
    return data


def _dense(chunk: Any) -> Array:
    chunk = as_scipy(chunk)
    dense: Array = chunk.toarray() if is_sparse(chunk) else np.asarray(chunk)
    return dense


def _map_dask(
    array: Any,
    function: RowMap,
    n_outputs: int,
    allow_nan: bool,
    given: np.dtype[Any] | None,
    numbers: Array | None,
) -> Any:
    whole_rows = _flat(array).rechunk({1: -1})
    dtype = given or working_dtype(array.dtype)
    array_name = f"dask array {array.name}"
    expected = identity()  # checked on the cluster that computes it

    def mapped_block(rows: Array, block_info: Any = None) -> Array:
        start = block_info[0]["array-location"][0][0]
        block = _BlockRows(rows, array_name, start, numbers)
        with _located(lambda row: (array_name, start + row), block.described_column):
            made: Array = run_as(expected, lambda: function(block.finite(allow_nan=allow_nan)))
        return made

    return whole_rows.map_blocks(
        mapped_block, dtype=dtype, chunks=(whole_rows.chunks[0], (n_outputs,)), meta=np.empty((0, 0), dtype)
    )


@contextmanager
def _located(
    place: Callable[[int], tuple[str, int]], described_column: Callable[[int], str]
) -> Iterator[None]:
    """Name the data of a row, and its number there, in errors of rows that cannot be mapped."""
    try:
        yield
    except RowError as error:
        raise error.located(*place(error.row), described_column) from None


class _BlockRows(ArraySource):
    """Some rows of an array. Errors have the numbers of rows and columns in the whole."""

    def __init__(self, rows: Array, name: str, start: int = 0, numbers: Array | None = None) -> None:
        super().__init__(rows, name=name)
        self._start, self._numbers = start, numbers

    def finite(self, *, allow_nan: bool) -> Array:
        """Return the rows. Refuse values that are not finite, except NaN with `allow_nan`."""
        if self._array.size:
            self.block(Span(0, len(self._array)), allow_nan=allow_nan)
        return self._array

    def _refuse(
        self, row: int, col: int, value: Any, count: int, region: str, *, allow_nan: bool
    ) -> NoReturn:
        super()._refuse(self._start + row, col, value, count, region, allow_nan=allow_nan)

    def _region(self, rows: Span, cols: Span) -> str:
        return super()._region(Span(self._start + rows.start, self._start + rows.stop), cols)

    def described_column(self, column: int) -> str:
        return super().described_column(column if self._numbers is None else int(self._numbers[column]))


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
        with _located(lambda row: source.stored_row(start + row), source.described_column):
            return run_as(
                expected, lambda: function(source.block(Span(start, stop), allow_nan=allow_nan).values)
            )

    chunks = (tuple(len(span) for span in spans), (n_outputs,))
    dtype = given or data.working
    return da.map_blocks(mapped_block, chunks=chunks, dtype=dtype, meta=np.empty((0, 0), dtype))


def _map_labelled(
    rows: Arranged,
    function: RowMap,
    n_outputs: int,
    allow_nan: bool,
    dtype: np.dtype[Any] | None,
    numbers: Array | None,
) -> Any:
    """Map labelled rows: at once if they are in memory."""
    data = rows.data
    if data.chunks is None and not data._in_memory:
        data = data.chunk("auto")
    n_rows, n_cols = rows.shape
    if data.chunks is None:
        values = data.values.reshape(n_rows, n_cols)
        block = _BlockRows(values, data.name or "DataArray", numbers=numbers)
        try:
            return function(block.finite(allow_nan=allow_nan))
        except RowError as error:
            if numbers is None or error.column is None:
                raise
            raise error.in_chain(error.step, int(numbers[error.column])) from None
    return _map_dask(data.data.reshape(n_rows, n_cols), function, n_outputs, allow_nan, dtype, numbers)
