"""A matrix in a group, as AnnData stores it: sparse as three arrays, or dense as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamdr.data.dtypes import require_numeric
from streamdr.data.source import Source
from streamdr.data.sparse.groups import StoredGroup
from streamdr.data.sparse.source import CsrSource
from streamdr.data.sparse.transposed import held_by_rows
from streamdr.data.sparse.vectors import HeldVector, StoredVector, Vector
from streamdr.errors import DataError, ParameterError

ARRAYS = ("data", "indices", "indptr")
"""The arrays of a sparse matrix: its values, their columns, and where rows begin and end."""
_FORMATS = {"csr_matrix": "csr", "csc_matrix": "csc"}
_VERSION = "0.1.0"
"""The version of both formats, which anndata has not changed so far."""
_RESTORE = "restore it from a copy or write it again"


def sparse_format(attributes: Mapping[str, Any]) -> str | None:
    """Return `csr` or `csc` if the attributes of a group say that it is a sparse matrix; else None."""
    encoding = attributes.get("encoding-type")
    if isinstance(encoding, str) and encoding in _FORMATS:
        return _FORMATS[encoding]
    older = attributes.get("h5sparse_format")
    return older if older in _FORMATS.values() else None


def is_sparse_matrix(group: StoredGroup) -> bool:
    """Whether a group is a sparse matrix. One in a format that is not known is an error."""
    if sparse_format(group.attributes) is not None:
        version = group.attributes.get("encoding-version", _VERSION)
        if version != _VERSION:
            raise DataError(
                f"{group.name}: is a sparse matrix of encoding-version {str(version)!r}, and only {_VERSION} "
                "is known; write it again with an anndata of the time of this streamdr"
            )
        return True
    if not all(group.has_array(name) for name in ARRAYS):
        return False
    encoding = group.attributes.get("encoding-type")
    problem = "without encoding-type" if encoding is None else f"of encoding-type {str(encoding)!r}"
    raise DataError(
        f"{group.name}: has the arrays of a sparse matrix {problem}, where csr_matrix or csc_matrix is "
        "needed; write it again with anndata, or set this attribute"
    )


def open_sparse(group: StoredGroup, *, sample_axis: int | str = 0) -> Source:
    """Open a group that is a sparse matrix."""
    require_rows_first(sample_axis, group.name)
    n_rows, n_cols = shape_of(group)
    if sparse_format(group.attributes) == "csr":
        return rows_in(group, n_rows, n_cols)
    return held_by_rows(rows_in(group, n_cols, n_rows, line_name="column"))


def shape_of(group: StoredGroup) -> tuple[int, int]:
    """Return the shape of a sparse matrix, as its attributes have it."""
    attributes = group.attributes
    return checked_shape(attributes.get("shape", attributes.get("h5sparse_shape")), group.name)


def require_rows_first(sample_axis: int | str, name: str) -> None:
    """Raise an error if another axis than the first is asked for as that of the samples."""
    if sample_axis != 0:
        raise ParameterError(
            "sample_axis", f"{name}: the rows of a sparse matrix are the samples; leave sample_axis out"
        )


def rows_in(
    group: StoredGroup, n_rows: int, n_cols: int, *, line_name: str = "row", sorts: bool = False
) -> CsrSource:
    """Open the three arrays of a matrix in a group."""
    values, columns, pointers = (_vector(group, name) for name in ARRAYS)
    if pointers.length != n_rows + 1:
        raise DataError(
            f"{group.name}: indptr has {pointers.length} values where {n_rows} {line_name}s take "
            f"{n_rows + 1}; {_RESTORE}"
        )
    return CsrSource(
        group.name,
        n_cols,
        pointers=pointers,
        columns=columns,
        values=values,
        line_name=line_name,
        sorts=sorts,
    )


def checked_shape(found: Any, name: str) -> tuple[int, int]:
    """Return a shape as it is stored, or raise an error if it is none."""
    if found is None:
        raise DataError(f"{name}: a sparse matrix needs the attribute shape, which is missing; {_RESTORE}")
    shape = np.asarray(found)
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or (shape < 0).any():
        raise DataError(f"{name}: its shape is {shape.tolist()}, not two lengths; {_RESTORE}")
    n_rows, n_cols = (int(length) for length in shape)
    if not (n_rows and n_cols):
        raise DataError(f"{name}: the matrix is empty ({n_rows} x {n_cols}); there is nothing to fit")
    return n_rows, n_cols


def _vector(group: StoredGroup, name: str) -> Vector:
    """Open one of the three arrays."""
    if not group.has_array(name):
        raise DataError(
            f"{group.name}: a sparse matrix needs the array {name}, which is missing, or not of numbers; "
            f"{_RESTORE}"
        )
    if not group.length(name):  # of a matrix of zeros; there is nothing to read
        where = f"{group.name}/{name}"
        dtype = require_numeric(group.dtype(name), where).newbyteorder("=")
        return HeldVector(np.zeros(0, dtype), where)
    return StoredVector(group.numbers(name))
