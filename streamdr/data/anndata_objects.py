"""AnnData objects: their matrix, and the names of its rows and columns.

The package is not imported here. A caller that has such an object has already imported it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from streamdr.data.frames import is_of
from streamdr.data.source import SampleCoordinate, Source
from streamdr.data.text_labels import TextArray
from streamdr.errors import DataError


def is_anndata(data: Any) -> bool:
    """Whether data is an AnnData object."""
    return is_of(data, "anndata", "AnnData")


def matrix_of(data: Any) -> Any:
    """Return the matrix `X` of an object, or the path of the file that it is in."""
    if data.isbacked and not data.is_view:
        return Path(data.filename)
    try:
        matrix = data.X
    except Exception as error:  # anndata reads a view of a file by internals of scipy, which change
        if not data.isbacked:
            raise
        raise DataError(
            f"the AnnData object is a view of {data.filename}, which anndata cannot read ({error}); give the "
            "path of the file, and choose rows by `where` or `row_mask`, or in a chain by select_rows"
        ) from error
    if matrix is None:
        raise DataError("the AnnData object has no matrix X; give one, such as adata.layers['counts']")
    return matrix


def variable_names(data: Any) -> list[str]:
    """Return the names of the columns."""
    return [str(name) for name in data.var_names]


def empty_frame(names: list[str]) -> Any:
    """Return a data frame of pandas with these columns and without rows, which tells others the names."""
    return sys.modules["pandas"].DataFrame(columns=names)


def add_names(source: Source, data: Any) -> Source:
    """Give the matrix of an object the names of its rows and columns."""
    source.feature_names = tuple(variable_names(data))
    names = TextArray(np.asarray(data.obs_names, dtype=np.str_), "obs_names")
    source.sample_dims = ("obs",)
    source.sample_coords = (SampleCoordinate("obs_names", names),)
    return source
