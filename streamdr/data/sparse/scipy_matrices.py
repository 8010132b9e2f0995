"""Sparse matrices and arrays of scipy, in memory, as a source of sparse rows."""

from __future__ import annotations

from typing import Any, TypeGuard

from scipy import sparse

from streamdr.core.blocks import SparseRows
from streamdr.data.dtypes import require_numeric
from streamdr.data.sparse.matrix import checked_shape, require_rows_first
from streamdr.data.sparse.source import CsrSource
from streamdr.data.sparse.vectors import HeldVector
from streamdr.errors import DataError


def is_sparse(data: Any) -> TypeGuard[Any]:
    """Whether data is a sparse matrix, or a sparse array, of scipy."""
    return bool(sparse.issparse(data))


def by_rows(matrix: Any, name: str) -> SparseRows:
    """Return a matrix of any format as rows whose columns ascend. Values of one place are added.

    The arrays are those of the matrix if it is so already, and copies otherwise.
    """
    if matrix.ndim != 2:
        raise DataError(f"{name}: a sparse array of {matrix.ndim} dimensions; rows x features have two")
    try:
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=not _ascends(matrix))
        rows = SparseRows(matrix)
    except ValueError as error:
        raise DataError(f"{name}: the sparse matrix is damaged: {error}; make it again") from error
    if not _ascends(rows):
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def open_scipy(matrix: Any, *, sample_axis: int | str = 0, name: str = "array") -> CsrSource:
    """Open a sparse matrix, or a sparse array, of scipy."""
    require_rows_first(sample_axis, name)
    require_numeric(matrix.dtype, name)
    _, n_cols = checked_shape(matrix.shape, name)
    rows = by_rows(matrix, name)
    used = slice(0, int(rows.indptr[-1]))  # scipy allows longer arrays
    arrays = (rows.indptr, rows.indices[used], rows.data[used])
    pointers, columns, values = (HeldVector(each, name) for each in arrays)
    return CsrSource(name, n_cols, pointers=pointers, columns=columns, values=values)


def like(rows: SparseRows, given: Any) -> Any:
    """Return rows as a matrix if `given` is one, and else as an array: their operators differ."""
    return sparse.csr_matrix(rows) if isinstance(given, sparse.spmatrix) else rows


def _ascends(matrix: Any) -> bool:
    """Whether a matrix is stored by rows, and the columns of each ascend."""
    return matrix.format == "csr" and bool(matrix.has_canonical_format)
