"""Opening an input: a path, an address, an array or a data frame becomes a source."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import zarr

from streamdr.core.addresses import Address, Location, parse_location
from streamdr.core.axes import VARIABLE, FeatureAxes
from streamdr.core.blocks import Array, Span
from streamdr.data.anndata_objects import add_names, is_anndata, matrix_of
from streamdr.data.concatenated import ConcatenatedSource
from streamdr.data.expanding import expand, is_path_list, is_several, several_name
from streamdr.data.features import axes_of
from streamdr.data.file_formats import (
    NoRowsError,
    groups_in_hdf5,
    is_hdf5,
    is_netcdf,
    is_parquet,
    open_hdf5,
    open_parquet,
    within_hdf5,
)
from streamdr.data.frames import is_frame, is_lazy_frame, is_of, named_values, single_matrix
from streamdr.data.in_memory import ArraySource, MappedSource, open_npy
from streamdr.data.labelled.container import Container, XarrayDataset, ZarrGroup
from streamdr.data.labelled.opening import Labelled, features_beside, open_labelled
from streamdr.data.labelled.selection import EmptySelectionError
from streamdr.data.labelled.weights import COSLAT, along_dims, checked_weights, latitude_weights
from streamdr.data.labelled.weights import KEY as WEIGHTS_KEY
from streamdr.data.labels import LabelColumnSource, require_one_per_row
from streamdr.data.layout import MatrixLayout
from streamdr.data.lazy_arrays import open_dask
from streamdr.data.missing_values import MissingValuesSource, layout_of, stored_value
from streamdr.data.ordering import ordered
from streamdr.data.row_conditions import select_rows
from streamdr.data.source import Source
from streamdr.data.sparse.anndata import open_matrix
from streamdr.data.sparse.columns import open_column, open_column_group
from streamdr.data.sparse.dask_chunks import SparseDaskSource, has_sparse_chunks
from streamdr.data.sparse.groups import ZarrNodes
from streamdr.data.sparse.npz import is_npz, open_npz
from streamdr.data.sparse.scipy_matrices import is_sparse, open_scipy
from streamdr.data.table_columns import asks_for_all, with_labels
from streamdr.data.text_labels import TextArray, TextStore
from streamdr.data.zarr.icechunk_node import repository_at
from streamdr.data.zarr.locate import locate
from streamdr.data.zarr.objects import node_at, node_of
from streamdr.data.zarr.source import COMPANION_ADVICE, ZarrSource
from streamdr.data.zarr.stores import Directory, Node
from streamdr.errors import DataError, InputError, ParameterError

_KEYS = {"array": "path"}
"""The configuration keys of arguments of `open_source`, where the names differ."""


def open_source(
    data: Any,
    *,
    array: str | None = None,
    columns: str | Sequence[str] | None = None,
    sample_axis: int | str = 0,
    variable: str | Sequence[str] | None = None,
    sample_dims: str | Sequence[str] | None = None,
    select: Mapping[str, Any] | None = None,
    balance_variables: bool = False,
    feature_weights: Any = None,
    min_observed: float | None = None,
    order_by: str | None = None,
    weights: Any = None,
    labels: Any = None,
    label_column: int | str | None = None,
    mask: Any = None,
    missing_value: Any = None,
    allow_missing_chunks: bool = False,
    where: Mapping[str, Any] | None = None,
    row_mask: Any = None,
) -> Source:
    """Open a path, an address, a zarr array or group, an array or a data frame as rows x features.

    Parameters
    ----------
    data : path, Address, list, zarr array or group, numpy or dask array, DataArray, Dataset or data frame
        The rows. A list, a pattern such as `"era5_*.zarr"`, or a folder of Parquet files, is several stores,
        one after another.
    array : str or None
        The name of an array in a group.
    columns : str, list of str or None
        The columns of a table (Parquet, or a data frame): names, and patterns such as `"gene_*"` for columns
        of numbers. A label column is added. None for all columns.
    sample_axis : int or str
        The axis, or the named dimension, that holds the samples.
    variable : str, list of str or None
        The variable of a data set with named dimensions, or several, whose features are side by side. Its
        coordinates are read too, and its values are decoded by the CF conventions.
    sample_dims : str, list of str or None
        The dimensions of the samples. The rows go through them in C order; all others are features. None
        for the first dimension.
    select : mapping or None
        What to read of a dimension: a label, a range of labels such as `[-60, 60]` or `["1990", None]`, both
        ends included, or `{"positions": [0, 10]}`, counted from 0, without the last.
    balance_variables : bool
        Give each of several variables the same total variance.
    feature_weights : "coslat", str, array or None
        The weight of each feature: `"coslat"` for the square root of the cosine of the latitude, the name
        of an array beside the variable, a path, or the numbers. Centred features are multiplied by them.
    min_observed : float or None
        Leave out features that are observed in a smaller share of the rows.
    order_by : str or None
        The order of several stores: `"name"`, or a coordinate of the samples; None for that of the first
        sample dimension, and otherwise for the order of a list, and of names.
    weights : array or path
        One number per row. A path may end within an HDF5 file, as in `cells.h5ad/obs/weight`.
    labels : array or path
        One number or one string per row; a column of AnnData is one, as in `cells.zarr/obs/cell_type`.
    label_column : int, str or None
        The column of the data that holds the labels, by its number or name; or a column of `obs` of AnnData.
    mask : array or path
        Booleans, or 0 and 1, in the shape of the data: true where a value is missing.
    missing_value : float, "fill_value" or None
        A number that stands for a missing value, or `"fill_value"` for that of the zarr store.
    allow_missing_chunks : bool
        Read a chunk that is not stored as the fill value. Otherwise it is an error.
    where : mapping or None
        Conditions on the rows to read, by the names of coordinates of the samples or of columns: a value, a
        list of values, or comparisons such as `">= 200"` and `">= 200 and < 5000"`. Rows that satisfy all of
        them are read.
    row_mask : array or path
        One boolean or number per row. Rows where it is false or zero are not read.

    Returns
    -------
    source : Source
        The rows, read one region at a time. Missing values are read as NaN.

    Raises
    ------
    InputError
        If the data does not exist, or weights, labels or mask do not match it.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> source = streamdr.open_source(np.arange(12.0).reshape(4, 3))
    >>> source.spec.n_rows, source.spec.n_cols
    (4, 3)
    """
    how = _How(
        array,
        sample_axis,
        Labelled(variable, sample_dims, select),
        allow_missing_chunks,
        order_by,
        _wanted_columns(columns, label_column),
    )
    source = _open_all(data, how)
    stored_missing_value = None if missing_value is None else stored_value(missing_value, source)
    if mask is not None or stored_missing_value is not None:
        flags = None if mask is None else _open_mask(mask, source, sample_axis, allow_missing_chunks)
        source = MissingValuesSource(source, mask=flags, missing_value=stored_missing_value)
    if label_column is not None:
        if labels is not None:
            raise ParameterError("label_column", "cannot be combined with labels: rows have one label each")
        labels = source.column_beside(label_column)
        if labels is None:
            source = LabelColumnSource(source, label_column)
    source = _with_features(source, data, how, feature_weights, min_observed, balance_variables)
    if weights is not None or labels is not None:
        source = _joined(source, weights, labels)
    return source if not where and row_mask is None else _selected(source, where or {}, row_mask)


def _joined(source: Source, weights: Any, labels: Any) -> Source:
    """Return a source with weights and labels of its rows."""
    joined = copy.copy(source)
    if weights is not None:
        joined.weights = _open_weights(weights, source)
    if labels is not None:
        joined.labels = _open_labels(labels, source)
        joined.spec = replace(source.spec, labels=joined.labels.spec.dtype)
    return joined


def _selected(source: Source, where: Mapping[str, Any], row_mask: Any) -> Source:
    """Return the rows that satisfy all conditions, with their weights, labels and coordinates."""
    flags = None
    if row_mask is not None:
        flags = _companion(_open(row_mask, None, 0, False, "row_mask"))
        flags.validate()
    return select_rows(source, where, flags)


@dataclass(frozen=True)
class _How:
    """How each store is opened, and in which order several are read."""

    array: str | None
    sample_axis: int | str
    labelled: Labelled
    allow_missing: bool
    order_by: str | None
    columns: tuple[str, ...] | None = None

    @property
    def is_labelled(self) -> bool:
        """Whether variables with named dimensions were asked for."""
        return any(getattr(self.labelled, field.name) is not None for field in fields(self.labelled))

    @property
    def suffix(self) -> str:
        """What follows the names of several stores: two variables of the same stores are two inputs."""
        names = self.labelled.variable
        return "" if names is None else f"/{names if isinstance(names, str) else ','.join(names)}"

    def require_consistent(self) -> None:
        """Refuse arguments that exclude each other."""
        if not self.is_labelled:
            return
        if self.array is not None:
            raise ParameterError(
                "array", "cannot be combined with variable, sample_dims or select; give variable"
            )
        if self.sample_axis != 0:
            raise ParameterError(
                "sample_axis", "cannot be combined with variable, sample_dims or select; give sample_dims"
            )


def _wanted_columns(columns: str | Sequence[str] | None, label: int | str | None) -> tuple[str, ...] | None:
    """Return the columns of a table that are read: those asked for, and the one with the labels."""
    if columns is None:
        return with_labels(None, label)
    wanted = (columns,) if isinstance(columns, str) else tuple(columns)
    if not wanted or not all(isinstance(each, str) for each in wanted):
        raise ParameterError("columns", f"{columns!r} is no list of names and patterns")
    return with_labels(wanted, label)


def _open_all(data: Any, how: _How) -> Source:
    """Open one store, or several as one."""
    how.require_consistent()
    if not _is_several(data):
        if how.order_by is not None:
            raise ParameterError("order_by", "is for several stores, and this is one; leave it out")
        return _open_one(data, how)
    parts: list[Source] = []
    empty: list[str] = []
    without_rows: list[Location] = []
    for place in expand(data):
        try:
            parts.append(_open_one(place, how))
        except EmptySelectionError as error:  # such as the years before the first that is selected
            empty.append(f"{place}: {error.message}")
        except NoRowsError:  # such as the file of an empty partition
            without_rows.append(place)
    name = several_name(data)
    if without_rows and not parts and not empty:
        raise NoRowsError(f"{name}: none of its {len(without_rows)} files has rows; there is nothing to fit")
    if not parts:
        raise EmptySelectionError(
            "select", f"{name}: nothing is selected of any of {len(empty)} files; {empty[-1]}"
        )
    return ConcatenatedSource(ordered(parts, how.order_by), f"{name}{how.suffix}")


def _is_several(data: Any) -> TypeGuard[str | Sequence[str]]:
    """Whether data is a pattern, or a list of paths."""
    return is_path_list(data) or (isinstance(data, str | Path) and is_several(str(data)))


def _first_place(data: Any) -> Any:
    """Return data, or the first of several stores."""
    return expand(data)[0] if _is_several(data) else data


def _open_one(data: Any, how: _How) -> Source:
    """Open one store: variables with their coordinates, or an array."""
    if how.columns is not None and (_is_parquet_file(data) or not asks_for_all(how.columns)):
        return _open_table(data, how.columns, how)
    if is_anndata(data):
        return add_names(_open(matrix_of(data), how.array, how.sample_axis, how.allow_missing), data)
    container = _container(data, how)
    if container is not None:
        return open_labelled(container, _by_axis(container, how))
    return _open(data, how.array, how.sample_axis, how.allow_missing)


def _is_parquet_file(data: Any) -> bool:
    """Whether data is the path of a Parquet file."""
    place = parse_location(data) if isinstance(data, str) else data
    return isinstance(place, Path) and is_parquet(place) and not place.is_dir()


def _open_table(data: Any, columns: Sequence[str], how: _How) -> Source:
    """Open columns of a table."""
    data = single_matrix(parse_location(data) if isinstance(data, str) else data)
    if _is_parquet_file(data):
        require_exists(data, "path")
        return open_parquet(data, columns)
    if is_frame(data) or is_lazy_frame(data):
        return _open_frame(data, columns, how.sample_axis, how.allow_missing)
    raise InputError(
        "columns",
        f"{_described(data)} is neither Parquet nor a data frame, whose columns can be chosen by name; leave "
        "columns out, and choose them by a selection at the beginning of a chain",
    )


def _container(data: Any, how: _How) -> Container | None:
    """Return the container of labelled data; None for other data."""
    if is_of(data, "xarray", "DataArray"):
        return XarrayDataset.of(data)
    if is_of(data, "xarray", "Dataset") and (how.is_labelled or len(data.data_vars) == 1):
        return XarrayDataset.of(data)
    data = parse_location(data) if isinstance(data, str) else data
    if not how.is_labelled and not (isinstance(data, Path) and is_netcdf(data)):
        return None
    if isinstance(data, Path) and is_hdf5(data):
        require_exists(data, "path")
        return open_hdf5(data, allow_missing=how.allow_missing)
    parquet = isinstance(data, Path) and is_parquet(data)
    node = None if parquet else _zarr_node(data, "path")
    if node is None:
        raise InputError(
            "variable",
            f"{_described(data)} has no named dimensions; leave variable, sample_dims and select out",
        )
    return ZarrGroup(node, allow_missing=how.allow_missing)


def _by_axis(container: Container, how: _How) -> Labelled:
    """Return what to open, with the sample dimension for a sample axis of a DataArray."""
    if how.is_labelled or not isinstance(container, XarrayDataset) or how.sample_axis == 0:
        return how.labelled
    (variable,) = container.variables()
    dims, shape = container.dims(variable), container.shape(variable)
    axis = MatrixLayout.of(shape, how.sample_axis, container.name, dims).sample_axis
    return replace(how.labelled, sample_dims=dims[axis])


def _with_features(
    source: Source, data: Any, how: _How, weights: Any, min_observed: float | None, balanced: bool
) -> Source:
    """Return a source with what was asked of its features: weights, and which of them are used."""
    if weights is None and min_observed is None and not balanced:
        return source
    axes = axes_of(source)
    if balanced and axes.dims[0] != VARIABLE:
        raise ParameterError("balance_variables", "needs several variables; name them in `variable`")
    if min_observed is not None and not 0 < min_observed <= 1:
        raise ParameterError("min_observed", f"{min_observed} is not a share above 0 and up to 1")
    found = None if weights is None else _feature_weights(weights, axes, source, data, how)
    changed = copy.copy(source)
    changed.axes = replace(axes, weights=found, min_observed=min_observed, balanced=balanced)
    return changed


def _feature_weights(given: Any, axes: FeatureAxes, source: Source, data: Any, how: _How) -> Array:
    """Return the weight of each feature."""
    if isinstance(given, str) and given == COSLAT:
        return latitude_weights(axes, source.name)
    if is_of(given, "xarray", "DataArray"):
        dims = tuple(str(dim) for dim in given.dims)
        if not set(dims) <= set(axes.dims):
            raise ParameterError(
                WEIGHTS_KEY, f"weights along {', '.join(dims)} for features along {', '.join(axes.dims)}"
            )
        sizes = dict(zip(axes.dims, axes.shape, strict=True))
        if any(given.sizes[dim] != sizes[dim] for dim in dims):
            raise ParameterError(WEIGHTS_KEY, f"weights of shape {given.shape} for features of {axes.shape}")
        return checked_weights(along_dims(np.asarray(given.values), dims, axes), axes, WEIGHTS_KEY)
    if isinstance(given, str):
        container = _container(_first_place(data), how)
        if container is not None and given in container.names():
            return checked_weights(features_beside(container, how.labelled, given, axes), axes, given)
        if container is not None and re.fullmatch(r"\w+", given) and not os.path.lexists(given):
            raise ParameterError(
                WEIGHTS_KEY,
                f"{given!r} is neither {COSLAT}, nor a file, nor an array of {container.name}, which has "
                f"{', '.join(container.names())}",
            )
    if isinstance(given, str | os.PathLike | Address):
        opened = _open(given, None, 0, False, WEIGHTS_KEY)
        values = opened.read(Span(0, opened.spec.n_rows), Span(0, opened.spec.n_cols))
        return checked_weights(values.reshape(-1), axes, opened.name)
    return checked_weights(given, axes, source.name)


def _open(
    data: Any, array: str | None, sample_axis: int | str, allow_missing: bool, name: str = "array"
) -> Source:
    """Open data without mask, weights and labels."""
    data = single_matrix(parse_location(data) if isinstance(data, str) else data)
    key = _KEYS.get(name, name)
    if array is None and (inside := within_hdf5(data)) is not None:
        data, array = inside
    if isinstance(data, Path) and not data.is_dir() and (is_hdf5(data) or is_parquet(data)):
        require_exists(data, key)
        if is_hdf5(data):
            groups = groups_in_hdf5(data, allow_missing=allow_missing)
            return open_matrix(groups, array, sample_axis) or groups.only(array, sample_axis)
        if array is not None:
            raise InputError("array", f"{data}: a table has no arrays; leave array out")
        return open_parquet(data)
    if isinstance(data, Path) and is_npz(data) and not data.is_dir():
        require_exists(data, key)
        return open_npz(data, sample_axis=sample_axis)
    node = _zarr_node(data, key)
    if node is not None:
        matrix = open_matrix(ZarrNodes(node, allow_missing=allow_missing), array, sample_axis)
        if matrix is not None:
            return matrix
        found = locate(node, array, key)
        return ZarrSource(found.node, found.metadata, sample_axis=sample_axis, allow_missing=allow_missing)
    if array is not None:
        raise InputError("array", f"{array!r} was asked for, but {_described(data)} is not a group of arrays")
    if isinstance(data, Source):
        return data
    if isinstance(data, Path):
        return MappedSource(open_npy(data), sample_axis=sample_axis)
    if isinstance(data, np.memmap) and MappedSource.can_map(data):
        return MappedSource(data, sample_axis=sample_axis)
    if isinstance(data, np.ma.MaskedArray):
        return _open_masked(data, sample_axis, name)
    if isinstance(data, (np.ndarray, list, tuple)):
        return ArraySource(data, sample_axis=sample_axis, name=name)
    if is_sparse(data):
        return open_scipy(data, sample_axis=sample_axis, name=name)
    if is_of(data, "dask.array", "Array"):
        if has_sparse_chunks(data) and sample_axis == 0:
            return SparseDaskSource(data)
        return open_dask(data, sample_axis)
    if is_of(data, "xarray", "DataArray"):  # a mask, weights or labels
        return _open_one(data, _How(None, sample_axis, Labelled(), allow_missing, None))
    if is_frame(data) or is_lazy_frame(data):
        return _open_frame(data, None, sample_axis, allow_missing, name)
    raise DataError(
        f"{_described(data)} cannot be opened; give a path to a zarr store or a .npy file, "
        "a zarr, dask, xarray, numpy or scipy.sparse array, or a data frame of pandas, polars or dask"
    )


def _open_frame(
    frame: Any,
    columns: Sequence[str] | None,
    sample_axis: int | str,
    allow_missing: bool,
    name: str = "array",
) -> Source:
    """Open a data frame, in memory or lazy, or columns of it."""
    values, names = named_values(frame, columns)
    source = _open(values, None, sample_axis, allow_missing, name)
    source.feature_names = names or None
    return source


def _zarr_node(data: Any, key: str) -> Node | None:
    """Return the node of data in a zarr store; None for other data, such as a `.npy` file.

    `key` is the configuration key of the data.
    """
    if isinstance(data, (zarr.Array, zarr.Group)):
        return node_of(data)
    if isinstance(data, Address):
        return node_at(data, key)
    if not isinstance(data, Path):
        return None
    if (repository := repository_at(data, key)) is not None:
        return repository
    if data.is_dir():
        return Directory(data, str(data))
    require_exists(data, key)
    if data.suffix != ".npy":
        advice = f"convert it with `streamdr ingest {data} DEST.zarr`"
        raise InputError(key, f"{data}: not a zarr store; {advice}")
    return None


def require_exists(place: Location, key: str) -> None:
    """Raise an error if a path does not exist; `key` is its configuration key."""
    if isinstance(place, Path) and not os.path.lexists(place):
        searched = "" if place.is_absolute() else f" in {Path.cwd()}, where relative paths begin"
        raise InputError(key, f"{place}: no such file or directory{searched}")


def _open_masked(data: np.ma.MaskedArray[Any, Any], sample_axis: int | str, name: str) -> Source:
    """Open a numpy masked array."""
    values = _open(np.ma.getdata(data), None, sample_axis, False, name)
    if data.mask is np.ma.nomask:
        return values
    return MissingValuesSource(
        values, mask=ArraySource(data.mask, sample_axis=sample_axis, name=f"mask of {name}")
    )


def _open_mask(mask: Any, source: Source, sample_axis: int | str, allow_missing: bool) -> Source:
    """Open a mask with the sample axis of its data."""
    layout = layout_of(source)
    axis = sample_axis if isinstance(sample_axis, str) else layout.sample_axis
    try:
        return _open(mask, None, axis, allow_missing, "mask")
    except InputError:
        raise
    except ParameterError as error:
        raise InputError(
            "mask", f"{error}; a mask needs the shape {layout.shape} of {source.name}"
        ) from error


def _open_weights(weights: Any, source: Source) -> Source:
    """Open weights, one per row."""
    opened = _companion(_open(weights, None, 0, False, "weights"))
    n_rows, n_cols = opened.spec.n_rows, opened.spec.n_cols
    if (n_rows, n_cols) != (source.spec.n_rows, 1):
        given = str(n_rows) if n_cols == 1 else f"{n_rows} x {n_cols}"
        raise InputError(
            "weights",
            f"{opened.name}: {given} weights for the {source.spec.n_rows} rows of {source.name}; "
            "one weight per row is needed",
        )
    return opened


def _companion(opened: Source) -> Source:
    """Return a source of weights or labels with advice for missing chunks: these are never allowed."""
    if isinstance(opened, ZarrSource):
        opened.missing_advice = COMPANION_ADVICE
    return opened


def _open_labels(labels: Any, source: Source) -> Source:
    """Open labels, one per row of a source."""
    opened = open_labels(labels)
    require_one_per_row(opened, source)
    return opened


def open_labels(labels: Any, *, allow_missing_chunks: bool = False) -> Source:
    """Open labels: numbers, text, or a column of a table of AnnData."""
    labels = single_matrix(parse_location(labels) if isinstance(labels, str) else labels)
    if (inside := within_hdf5(labels)) is not None:
        file, name = inside
        column = open_column(groups_in_hdf5(file, allow_missing=allow_missing_chunks), name)
        if column is None:
            raise InputError("labels", f"{file}: has no column {name}")
        return column
    node = _zarr_node(labels, "labels")
    if node is not None:
        group = ZarrNodes(node, allow_missing=allow_missing_chunks)
        text_or_column = TextStore.at(node) or open_column_group(group)
        if text_or_column is not None:
            return text_or_column
    elif not isinstance(labels, (Path, Source)):
        values = labels if hasattr(labels, "dtype") else np.asarray(labels)
        if values.dtype.kind in "UTO":
            return TextArray(values, "labels")
    return _companion(_open(labels, None, 0, allow_missing_chunks, "labels"))


def _described(data: Any) -> str:
    """Return a description of the data for error messages."""
    if isinstance(data, (Path, Address)):
        return str(data)
    return f"a {type(data).__module__}.{type(data).__qualname__}"
