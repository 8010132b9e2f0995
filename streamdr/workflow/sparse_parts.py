"""Sparse matrices and tables of AnnData, which `inspect` shows in the place of their arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from streamdr.core.blocks import Span
from streamdr.data.sparse.anndata import RAW, TABLES, index_of, is_anndata
from streamdr.data.sparse.columns import TableColumns
from streamdr.data.sparse.groups import StoredGroup
from streamdr.data.sparse.matrix import ARRAYS, shape_of, sparse_format
from streamdr.errors import DataError
from streamdr.workflow.findings import (
    ArrayInspection,
    FoundArray,
    MatrixInspection,
    MissingChunks,
    TableInspection,
    UnusableArray,
)

_NAMES = 3
"""How many names of rows are shown."""


def inspect_group(
    group: StoredGroup, names: Sequence[str], inspect_array: Callable[[str], FoundArray]
) -> Iterator[FoundArray]:
    """Yield sparse matrices and tables of a group, and then all arrays that are no part of them.

    `names` are the paths of all arrays in the group.
    """
    whole = []
    for path in dict.fromkeys(name.rpartition("/")[0] for name in names if name.split("/")[-1] == ARRAYS[-1]):
        matrix = group.group(path) if path else group
        if matrix is not None and sparse_format(matrix.attributes) is not None:
            yield _matrix(matrix, path, inspect_array)
            whole.append(path)
    if names and is_anndata(group):
        for path in TABLES:
            if (table := group.group(path)) is not None:
                yield _table(table, path)
                whole.append(path)
    for name in names:  # a single number stands for `raw` where there is none
        if name != RAW and not any(name.startswith(f"{path}/" if path else "") for path in whole):
            yield inspect_array(name)


def _matrix(
    matrix: StoredGroup, path: str, inspect_array: Callable[[str], FoundArray]
) -> MatrixInspection | UnusableArray:
    try:
        n_rows, n_cols = shape_of(matrix)
        parts = [inspect_array(f"{path}/{name}" if path else name) for name in ARRAYS]
        n_stored, dtype = matrix.length(ARRAYS[0]), matrix.dtype(ARRAYS[0])
    except DataError as error:
        return UnusableArray(path or matrix.name, str(error))
    for part in parts:
        if not isinstance(part, ArrayInspection):
            problem = part.problem if isinstance(part, UnusableArray) else "is not of numbers"
            return UnusableArray(path or matrix.name, f"{part.name}: {problem}")
    arrays = [part for part in parts if isinstance(part, ArrayInspection)]
    return MatrixInspection(
        name=path or matrix.name,
        format=sparse_format(matrix.attributes) or "",
        n_rows=n_rows,
        n_cols=n_cols,
        dtype=str(dtype),
        stored_values=n_stored,
        stored_bytes=sum(array.stored_bytes for array in arrays),
        missing=_missing([array.missing for array in arrays if array.missing is not None]),
    )


def _missing(parts: Sequence[MissingChunks]) -> MissingChunks | None:
    """Return what is missing of several arrays together; None if that is not known."""
    if not parts:
        return None
    first = next((part.first for part in parts if part.first is not None), None)
    return MissingChunks(sum(part.count for part in parts), sum(part.total for part in parts), first)


def _table(table: StoredGroup, path: str) -> TableInspection | UnusableArray:
    try:
        names = index_of(table)
        if names is None:
            return UnusableArray(path, "has no names of its rows")
        n_rows = names.spec.n_rows
        first = names.read(Span(0, min(n_rows, _NAMES)), Span(0, 1))[:, 0].tolist()
        columns = tuple(TableColumns(table, n_rows).names())
        return TableInspection(path, n_rows, tuple(map(str, first)), columns)
    except DataError as error:
        return UnusableArray(path, str(error))
