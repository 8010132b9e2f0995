"""Data frames and data sets: the one matrix in them, with the names of its columns.

Their packages are not imported here. A caller that has such data has already imported its package.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from streamdr.core.blocks import Array
from streamdr.data.sparse.scipy_matrices import as_scipy
from streamdr.data.table_columns import chosen_columns, listed
from streamdr.errors import DataError


class Named(NamedTuple):
    """A matrix, in memory or lazy, and the names of its columns."""

    values: Any
    names: tuple[str, ...]


def is_of(data: Any, module: str, kind: str) -> bool:
    """Whether data is an instance of a class, without importing the package of the class."""
    return module in sys.modules and isinstance(data, getattr(sys.modules[module], kind, ()))


def is_frame(data: Any) -> bool:
    """Whether data is a data frame of pandas or polars, in memory."""
    return is_of(data, "pandas", "DataFrame") or is_of(data, "polars", "DataFrame")


def is_lazy_frame(data: Any) -> bool:
    """Whether data is a dask DataFrame, or a column of one."""
    return is_of(data, "dask.dataframe", "DataFrame") or is_of(data, "dask.dataframe", "Series")


def single_matrix(data: Any) -> Any:
    """Return data, or the one variable of a Dataset. Containers without exactly one matrix are an error.

    Arrays of the package sparse are returned as those of scipy.
    """
    if is_of(data, "xarray", "Dataset"):
        return _only_variable(data)
    if is_of(data, "xarray", "DataTree"):
        raise DataError(
            "a DataTree is a tree of data sets; give one variable of it, as in tree['group/name']"
        )
    if is_of(data, "polars", "LazyFrame"):
        raise DataError(
            "a polars LazyFrame holds no rows yet; call collect() if they fit in memory, else "
            "sink_parquet('x.parquet') and give that path"
        )
    return as_scipy(data)


def named_values(frame: Any, columns: Sequence[str] | None = None) -> Named:
    """Return the values and column names of a data frame of numbers, in memory or lazy.

    `columns` are names and patterns; None for all columns.
    """
    if columns is not None:
        names = [str(name) for name in frame.columns]
        numbers = [name not in set(not_numbers(frame)) for name in frame.columns]
        chosen = chosen_columns(names, numbers, columns, "the data frame")
        frame = frame[[frame.columns[at] for at in chosen]]
    require_numbers(frame)
    if is_lazy_frame(frame):
        array = frame.to_dask_array(lengths=True)  # computes every partition once, to get its length
        return Named(array, tuple(map(str, frame.columns)) if array.ndim == 2 else ())
    frame = without_fill(frame)
    values = frame.sparse.to_coo() if is_sparse_frame(frame) else _in_memory(frame)
    return Named(values, tuple(map(str, frame.columns)))


def is_sparse_frame(frame: Any) -> bool:
    """Whether all columns of a data frame of pandas are sparse, and leave out zeros."""
    if not is_of(frame, "pandas", "DataFrame"):
        return False
    kinds = _sparse_columns(frame).values()
    return 0 < len(kinds) == frame.shape[1] and all(kind.fill_value == 0 for kind in kinds)


def without_fill(frame: Any) -> Any:
    """Return a data frame with dense columns, unless all are sparse and leave out zeros."""
    if not is_of(frame, "pandas", "DataFrame") or is_sparse_frame(frame):
        return frame
    sparse = _sparse_columns(frame)
    return frame.astype({name: kind.subtype for name, kind in sparse.items()}) if sparse else frame


def _sparse_columns(frame: Any) -> dict[Any, Any]:
    """Return the sparse columns of a data frame of pandas, with their types."""
    kind = sys.modules["pandas"].SparseDtype
    return {name: each for name, each in frame.dtypes.items() if isinstance(each, kind)}


def not_numbers(frame: Any) -> list[Any]:
    """Return the names of the columns of text, dates and so on."""
    if is_of(frame, "dask.dataframe", "Series"):
        return []  # the values of its one column are checked when they are read
    if is_of(frame, "polars", "DataFrame"):
        return [name for name, kind in frame.schema.items() if not _polars_number(kind)]
    if is_lazy_frame(frame):
        kinds = zip(frame.columns, frame.dtypes, strict=True)
        return [name for name, kind in kinds if getattr(kind, "kind", "O") not in "biuf"]
    return [frame.columns[i] for i in range(frame.shape[1]) if not _pandas_number(frame.iloc[:, i])]


def require_numbers(frame: Any) -> None:
    """Raise an error that names the columns of text, dates and so on, if there are any."""
    others = not_numbers(frame)
    if others:
        raise DataError(
            f"the column{'s' if len(others) > 1 else ''} {listed(others)} of the data frame hold"
            f"{'' if len(others) > 1 else 's'} something else than numbers; leave such columns out, or "
            "convert them to numbers"
        )


def _only_variable(data: Any) -> Any:
    """Return the only variable of a Dataset."""
    names = list(data.data_vars)
    if len(names) == 1:
        return data[names[0]]
    if not names:
        raise DataError("the Dataset has no variables; give an array with rows in it")
    raise DataError(
        f"the Dataset has the variables {listed(names)}; give one of them, as in data[{names[0]!r}], or "
        f"name one or several, as in fit(data, variable={names[0]!r})"
    )


def _pandas_number(column: Any) -> bool:
    """Whether a pandas column holds numbers."""
    kind = getattr(column.dtype, "kind", "O")
    if kind != "O":
        return kind in "biuf"
    categories = getattr(column.dtype, "categories", None)
    if categories is not None:
        return getattr(categories.dtype, "kind", "O") in "biuf"
    inferred = sys.modules["pandas"].api.types.infer_dtype(column, skipna=True)
    return inferred in ("floating", "integer", "mixed-integer-float", "decimal", "boolean", "empty")


def _polars_number(kind: Any) -> bool:
    """Whether a polars type is numeric."""
    return bool(kind.is_numeric()) or str(kind) in ("Boolean", "Null")


def _in_memory(frame: Any) -> Array:
    """Return the values of a data frame in memory as a numpy array."""
    values = np.asarray(frame)
    if values.dtype.kind == "O":  # columns of several types, or with missing values
        values = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    return values
