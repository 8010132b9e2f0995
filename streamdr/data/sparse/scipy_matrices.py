"""Sparse matrices and arrays of scipy, in memory, as a source of sparse rows."""

from __future__ import annotations

from typing import Any, TypeGuard

from scipy import sparse

from streamdr.core.blocks import SparseRows
from streamdr.core.byte_sizes import format_bytes
from streamdr.core.execution import current
from streamdr.core.system import memory_limit
from streamdr.data.dtypes import require_numeric
from streamdr.data.sparse.matrix import checked_shape, require_rows_first
from streamdr.data.sparse.source import CsrSource
from streamdr.data.sparse.vectors import HeldVector
from streamdr.errors import DataError, MemoryLimitError


def is_sparse(data: Any) -> TypeGuard[Any]:
    """Whether data is a sparse matrix, or a sparse array, of scipy."""
    return bool(sparse.issparse(data))


def as_scipy(data: Any) -> Any:
    """Return an array of the package sparse as one of scipy; dense, where scipy has none like it.

    The package is not imported here. Other data is returned as it is.
    """
    if type(data).__module__.partition(".")[0] != "sparse" or not hasattr(data, "to_scipy_sparse"):
        return data
    return data.to_scipy_sparse() if data.ndim == 2 and data.fill_value == 0 else data.todense()


def by_rows(matrix: Any, name: str) -> SparseRows:
    """Return a matrix of any format as rows whose columns ascend. Values of one place are added.

    The arrays are those of the matrix if it is so already, and copies otherwise.
    """
    _require_two_dimensions(matrix, name)
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
    _require_two_dimensions(matrix, name)
    n_rows, n_cols = checked_shape(matrix.shape, name)
    if matrix.format != "csr":
        _require_pointers_fit(n_rows, name)
    rows = by_rows(matrix, name)
    used = slice(0, int(rows.indptr[-1]))  # scipy allows longer arrays
    arrays = (rows.indptr, rows.indices[used], rows.data[used])
    pointers, columns, values = (HeldVector(each, name) for each in arrays)
    return CsrSource(name, n_cols, pointers=pointers, columns=columns, values=values)


def _require_two_dimensions(matrix: Any, name: str) -> None:
    if matrix.ndim != 2:
        raise DataError(f"{name}: a sparse array of {matrix.ndim} dimensions; rows x features have two")


def _require_pointers_fit(n_rows: int, name: str) -> None:
    """Refuse rows whose ends alone are more than the memory: a few values may claim any shape."""
    held, limit = 8 * (n_rows + 1), current().memory_limit or memory_limit()
    if held > limit:
        raise MemoryLimitError(
            f"{name}: the ends of its {n_rows} rows take {format_bytes(held)}; the memory limit is "
            f"{format_bytes(limit)}",
            -(-held >> 20),
            ", or correct the shape of the matrix",
        )


def like(rows: SparseRows, given: Any) -> Any:
    """Return rows as a matrix if `given` is one, and else as an array: their operators differ."""
    return sparse.csr_matrix(rows) if isinstance(given, sparse.spmatrix) else rows


def _ascends(matrix: Any) -> bool:
    """Whether a matrix is stored by rows, and the columns of each ascend."""
    return matrix.format == "csr" and bool(matrix.has_canonical_format)
