"""AnnData stores: a matrix of observations and variables, their names, and columns beside it."""

from __future__ import annotations

import numpy as np

from streamdr.core.blocks import Span
from streamdr.data.source import SampleCoordinate, Source
from streamdr.data.sparse.groups import StoredGroup
from streamdr.data.sparse.matrix import open_sparse, sparse_format
from streamdr.data.sparse.tenx import open_tenx
from streamdr.errors import DataError

_MATRIX = "X"
_OBSERVATIONS, _VARIABLES = "obs", "var"
_OBSERVATION_NAMES = "obs_names"


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
    try:
        return _open_matrix(group, array, sample_axis)
    except OSError as error:
        raise DataError(f"{group.name}: cannot be read: {error}") from error


def _open_matrix(group: StoredGroup, array: str | None, sample_axis: int | str) -> Source | None:
    if array is None and sparse_format(group.attributes) is not None:
        return open_sparse(group, sample_axis=sample_axis)
    if array is None and (cells := open_tenx(group, sample_axis)) is not None:
        return cells
    path = _MATRIX if array is None else array.strip("/")
    if array is None and not _is_anndata(group):
        return None
    matrix = group.group(path) if path and ".." not in path.split("/") else None
    if matrix is not None and sparse_format(matrix.attributes) is not None:
        source = open_sparse(matrix, sample_axis=sample_axis)
    elif _is_anndata(group) and group.has_array(path):
        source = group.numbers(path, sample_axis=sample_axis)
    else:
        return None
    if _is_anndata(group) and sample_axis == 0:
        _add_names(source, group, path)
    return source


def _is_anndata(group: StoredGroup) -> bool:
    """Whether a group is an AnnData store, which older versions did not mark."""
    if group.attributes.get("encoding-type") == "anndata":
        return True
    return all(_index(group, table) is not None for table in (_OBSERVATIONS, _VARIABLES))


def _index(group: StoredGroup, table: str) -> str | None:
    """Return the path of the names of the rows of a table, if there is one."""
    frame = group.group(table)
    name = None if frame is None else frame.attributes.get("_index")
    if not isinstance(name, str) or frame is None or not frame.has_array(name):
        return None
    return f"{table}/{name}"


def _add_names(source: Source, group: StoredGroup, path: str) -> None:
    """Give a matrix the names of its observations and variables, where their numbers agree."""
    table = f"raw/{_VARIABLES}" if path.startswith("raw/") else _VARIABLES
    variables = _index(group, table)
    if variables is not None and group.is_text(variables) and group.length(variables) == source.spec.n_cols:
        names = group.text(variables).read(Span(0, source.spec.n_cols), Span(0, 1))[:, 0]
        source.feature_names = tuple(np.asarray(names).tolist())
    observations = _index(group, _OBSERVATIONS)
    if observations is not None and group.length(observations) == source.spec.n_rows:
        source.sample_dims = (_OBSERVATIONS,)
        names_of_rows = group.column(observations)
        source.sample_coords = (SampleCoordinate(_OBSERVATION_NAMES, names_of_rows),)
