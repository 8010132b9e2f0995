"""Bringing data in: files of other formats become a store that streams well."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamdr.blocks import Array
from streamdr.errors import ConfigError, DataError
from streamdr.ingest.conversion import convert, target_dtype
from streamdr.ingest.formats import open_table
from streamdr.ingest.table import Grid, Options, Stream
from streamdr.progress import Progress
from streamdr.store.arrays import Index, Layout
from streamdr.store.matrix import RowWriter, create_matrix, fill, plan_layout
from streamdr.store.publish import Staging, check_output
from streamdr.store.record import write_record

_FLOATS = ("float16", "float32", "float64")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@dataclass(frozen=True)
class IngestReport:
    """What was brought in, and what it became."""

    path: Path
    n_rows: int
    n_cols: int
    dtype: str
    chunks: tuple[int, ...]
    bytes_written: int
    seconds: float


def ingest(
    source: Path,
    dest: Path,
    *,
    dataset: str | None = None,
    columns: Sequence[str] | None = None,
    dtype: str | None = None,
    chunk_rows: int | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    overwrite: bool = False,
    progress: Progress,
) -> IngestReport:
    """Copy a .npy, CSV, Parquet or HDF5 file into a zarr store, in bounded memory, whatever its size.

    Parameters
    ----------
    source
        The file, or a directory of Parquet part files.
    dest
        The zarr group to make. Its array is called X.
    dataset
        HDF5: the dataset to read, where there are several.
    columns
        CSV and Parquet: the columns to read, by name (or position from 0, in a CSV without a header).
    dtype
        The type to store. By default that of the file, and float64 for text.
    chunk_rows
        The rows of a chunk. By default as many as make 16 MB.
    delimiter
        CSV: the character between fields. By default a comma, tab, semicolon or bar, whichever fits.
    header
        CSV: whether the first line names the columns. By default it does when it is not all numbers.
    overwrite
        Replace a store that streamdr made before.
    progress
        Whom to tell how far it is.
    """
    started = time.perf_counter()
    wanted = _parse_dtype(dtype)
    options = Options(dataset, None if columns is None else tuple(columns), delimiter, header, wanted)
    with open_table(source, options) as table:
        stored = target_dtype(source, table.dtype, wanted)
        check_output(dest, inputs=[source], overwrite=overwrite)
        with Staging(dest, overwrite=overwrite) as staging:
            if isinstance(table, Grid):
                layout = _copy_grid(source, table, staging.path, stored, chunk_rows, progress)
            else:
                layout = _copy_stream(source, table, staging.path, stored, chunk_rows, progress)
            write_record(staging.path, "ingested", {"source": source.name}, complete=True)
            bytes_written = sum(file.stat().st_size for file in staging.path.rglob("*") if file.is_file())
            staging.publish()
    return IngestReport(
        path=dest,
        n_rows=layout.shape[0],
        n_cols=math.prod(layout.shape[1:]),
        dtype=layout.dtype.name,
        chunks=layout.chunks,
        bytes_written=bytes_written,
        seconds=time.perf_counter() - started,
    )


def _copy_grid(
    source: Path, table: Grid, group: Path, dtype: np.dtype[Any], chunk_rows: int | None, progress: Progress
) -> Layout:
    if not table.shape:
        raise DataError(f"{source}: holds a single number, not a matrix; check that this is the right file")
    if 0 in table.shape:
        raise DataError(f"{source}: is empty, of shape {table.shape}; check that this is the right file")

    def values(region: Index) -> Array:
        return convert(source, table.read(region), dtype, *(part.start for part in region[:2]))

    layout = plan_layout(table.shape, dtype, chunk_rows=chunk_rows, grain=table.grain)
    fill(create_matrix(group, layout), layout, values, _label(source), progress)
    return layout


def _copy_stream(
    source: Path, table: Stream, group: Path, dtype: np.dtype[Any], chunk_rows: int | None, progress: Progress
) -> Layout:
    writer = RowWriter(group, table.n_cols, dtype, chunk_rows=chunk_rows, feature_names=table.feature_names)
    bytes_each = 1 if table.unit == "bytes" else table.n_cols * table.dtype.itemsize
    progress.start(_label(source), table.total, bytes_per_row=bytes_each, unit=table.unit)
    try:
        for values, extent in table.batches:
            writer.append(convert(source, values, dtype, writer.n_rows))
            progress.advance(extent)
        writer.finish()
    finally:
        progress.finish()
    if writer.n_rows == 0:
        raise DataError(f"{source}: has no rows; check that this is the right file")
    return writer.layout


def _label(source: Path) -> str:
    return f"Ingesting {source.name}"


def _parse_dtype(name: str | None) -> np.dtype[Any] | None:
    if name is None:
        return None
    if name not in _FLOATS + _INTEGERS:
        raise ConfigError(f"dtype is {name!r}, but must be one of {', '.join(_FLOATS + _INTEGERS)}")
    return np.dtype(name)
