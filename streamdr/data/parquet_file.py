"""Parquet files: opening them, and the values of their columns."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamdr.core.blocks import Array
from streamdr.core.files import require_regular
from streamdr.errors import DataError

READ_BUFFER = 2**16
"""The bytes that each column is read ahead."""
_DAMAGED = (pa.ArrowException, OSError, ValueError, LookupError, TypeError, OverflowError, MemoryError)
"""The exceptions that pyarrow raises for damaged files, depending on the call."""


@contextmanager
def opened(path: Path, metadata: pq.FileMetaData | None = None) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file. Errors of pyarrow become a DataError that names the file."""
    try:
        require_regular(path)
        # Buffered, so that a large row group is not read at once.
        with pq.ParquetFile(path, metadata=metadata, buffer_size=READ_BUFFER, pre_buffer=False) as file:
            yield file
    except DataError:
        raise
    except _DAMAGED as error:
        raise DataError(f"{path}: cannot be read as Parquet ({error}); was it copied whole?") from error


def require_unique(path: Path, names: Sequence[str]) -> None:
    """Raise an error if a file has no columns, or two with one name."""
    if not names:
        raise DataError(f"{path}: has no columns; check that this is the right file")
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise DataError(f"{path}: {times} of its columns are called {name!r}; give each a different name")


def index_columns(schema: pa.Schema) -> list[str]:
    """Return the columns that are the index of a data frame of pandas."""
    # A RangeIndex is described by a mapping, and has no column.
    index = [name for name in schema.names if name.startswith("__index_level_")]
    described = (schema.pandas_metadata or {}).get("index_columns", ())
    return index + [name for name in described if isinstance(name, str)]


def is_number(kind: pa.DataType) -> bool:
    """Whether a type is numeric or boolean."""
    types = pa.types
    return bool(
        types.is_decimal(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    )


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is text, or categories that are text."""
    types = pa.types
    values = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(values) or types.is_large_string(values) or types.is_string_view(values))


def fill(target: Array, batch: pa.RecordBatch, names: Sequence[str]) -> None:
    """Copy columns of numbers to a matrix. Values that are missing become NaN."""
    for i, name in enumerate(names):
        column = batch.column(name)
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        elif pa.types.is_boolean(column.type):
            column = column.cast(pa.uint8())  # with nulls, pyarrow would return Python objects
        target[:, i] = column.to_numpy(zero_copy_only=False)


def stamp(path: Path) -> tuple[int, int]:
    """Return the size and the modification time of a file."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def wider(types: Sequence[pa.DataType]) -> np.dtype[Any]:
    """Return single precision if all columns have it, else double precision."""
    single = all(pa.types.is_float32(kind) or pa.types.is_float16(kind) for kind in types)
    return np.dtype(np.float32 if single else np.float64)
