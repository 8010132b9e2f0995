"""AnnData stores: a matrix of observations and variables, their names, and columns beside it."""

from __future__ import annotations

from streamdr.data.source import SampleCoordinate, Source
from streamdr.data.sparse.columns import TableColumns, TextOfIntegers, named, open_column
from streamdr.data.sparse.groups import StoredGroup, readable
from streamdr.data.sparse.matrix import is_sparse_matrix, open_sparse
from streamdr.data.sparse.tenx import open_tenx

_MATRIX, RAW = "X", "raw"
_OBSERVATIONS, _VARIABLES = "obs", "var"
_OBSERVATION_NAMES = "obs_names"
TABLES = (_OBSERVATIONS, _VARIABLES, f"{RAW}/{_VARIABLES}")
_INDEX = "_index"
"""The attribute of a table that names the column with the names of its rows."""


def open_matrix(group: StoredGroup, array: str | None, sample_axis: int | str) -> Source | None:
    """Open a matrix of an AnnData store, or a group that is a sparse matrix; None for anything else.

    Parameters
    ----------
    group : StoredGroup
        The store.
    array : str or None
        The matrix: `X`, `layers/counts`, `raw/X`. None for `X`.
    sample_axis : int or str
        The axis, or the named dimension, that holds the samples.
    """
    with readable(group):
        return _open_matrix(group, array, sample_axis)


def _open_matrix(group: StoredGroup, array: str | None, sample_axis: int | str) -> Source | None:
    if (cells := open_tenx(group, array, sample_axis)) is not None:
        return cells
    if array is None and is_sparse_matrix(group):
        return open_sparse(group, sample_axis=sample_axis)
    path = _MATRIX if array is None else array.strip("/")
    matrix = group.group(path) if path and ".." not in path.split("/") else None
    if matrix is not None and is_sparse_matrix(matrix):
        source = open_sparse(matrix, sample_axis=sample_axis)
    elif is_anndata(group) and group.has_array(path):
        source = group.numbers(path, sample_axis=sample_axis)
    else:
        return None
    if sample_axis == 0:
        _add_names(source, group, path)
    return source


def is_anndata(group: StoredGroup) -> bool:
    """Whether a group is an AnnData store, which older versions did not mark."""
    if group.attributes.get("encoding-type") == "anndata":
        return True
    return all(index_of(group.group(table)) is not None for table in (_OBSERVATIONS, _VARIABLES))


def index_of(table: StoredGroup | None) -> Source | None:
    """Return the names of the rows of a table, if it has any."""
    name = None if table is None else table.attributes.get(_INDEX)
    found = open_column(table, name) if table is not None and isinstance(name, str) else None
    return TextOfIntegers(found) if found is not None and found.spec.dtype.kind in "iu" else found


def _add_names(source: Source, group: StoredGroup, path: str) -> None:
    """Give a matrix the names of its observations and variables, and `obs`, where their numbers agree."""
    variables = index_of(group.group(f"{RAW}/{_VARIABLES}" if path.startswith(f"{RAW}/") else _VARIABLES))
    if variables is not None:
        source.feature_names = named(source, variables)
    table = group.group(_OBSERVATIONS)
    observations = index_of(table)
    if table is None or observations is None or observations.spec.n_rows != source.spec.n_rows:
        return
    source.sample_dims = (_OBSERVATIONS,)
    source.sample_coords = (SampleCoordinate(_OBSERVATION_NAMES, observations),)
    source.sample_columns = TableColumns(table, source.spec.n_rows)
