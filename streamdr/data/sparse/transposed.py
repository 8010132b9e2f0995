"""Sparse matrices that are stored by columns (CSC): transposed to rows, in memory."""

from __future__ import annotations

from functools import partial

import numpy as np

from streamdr.core.blocks import Array, Span
from streamdr.core.byte_sizes import format_bytes
from streamdr.core.execution import current
from streamdr.core.system import memory_limit
from streamdr.data.snapshot import FileSnapshot
from streamdr.data.sparse.source import CsrSource
from streamdr.data.sparse.vectors import LoadedArrays, LoadedVector
from streamdr.errors import MemoryLimitError

_INT32 = np.iinfo(np.int32).max
_MIB = 1 << 20


def held_by_rows(columns: CsrSource) -> CsrSource:
    """Return the transpose of a source whose rows are the columns of a matrix, to be held in memory.

    Any row has values all over the store. It is read twice, piece by piece, when the first row is needed.
    """
    n_cols, n_rows, n_stored = columns.spec.n_rows, columns.spec.n_cols, columns.n_stored
    arrays = LoadedArrays(partial(_by_rows, columns))
    snapshot = partial(_snapshot, columns)
    layout = (
        (n_rows + 1, np.dtype(np.int64)),
        (n_stored, _column_dtype(n_cols)),
        (n_stored, columns.spec.dtype),
    )
    held = sum(length * dtype.itemsize for length, dtype in layout)
    limit = current().memory_limit or memory_limit()
    if held > limit:
        raise MemoryLimitError(
            f"{columns.name}: is stored by columns (csc), and takes {format_bytes(held)} of memory by rows; "
            f"the memory limit is {format_bytes(limit)}",
            -(-held // _MIB),
            ", or write the matrix by rows (csr), which are read piece by piece",
        )
    pointers, numbers, values = (
        LoadedVector(arrays, number, length, dtype, columns.name, snapshot)
        for number, (length, dtype) in enumerate(layout)
    )
    return CsrSource(columns.name, n_cols, pointers=pointers, columns=numbers, values=values)


def _column_dtype(n_cols: int) -> np.dtype[np.signedinteger]:
    return np.dtype(np.int32 if n_cols <= _INT32 else np.int64)


def _by_rows(columns: CsrSource) -> tuple[Array, Array, Array]:
    """Return pointers, columns and values by rows: rows are counted first, then filled column by column."""
    n_cols, n_rows = columns.spec.n_rows, columns.spec.n_cols
    pieces = list(columns.sparse_pieces(Span(0, n_cols)))
    pointers = np.zeros(n_rows + 1, np.int64)
    for piece in pieces:
        pointers[1:] += np.bincount(columns.read_sparse(piece).indices, minlength=n_rows)
    np.cumsum(pointers, out=pointers)
    numbers = np.empty(int(pointers[-1]), _column_dtype(n_cols))
    values = np.empty(len(numbers), columns.spec.dtype)
    next_of_row = pointers[:-1].copy()
    for piece in pieces:
        part = columns.read_sparse(piece).T.tocsr()
        lengths = np.diff(part.indptr)
        at = np.repeat(next_of_row - part.indptr[:-1], lengths) + np.arange(part.nnz)
        numbers[at] = part.indices + piece.start
        values[at] = part.data
        next_of_row += lengths
    return pointers, numbers, values


def _snapshot(columns: CsrSource) -> FileSnapshot:
    """Return a snapshot of everything: rows that are appended change all columns."""
    found = columns._snapshot()
    return FileSnapshot(found.digest(columns.spec.n_rows), found.require_chunks)
