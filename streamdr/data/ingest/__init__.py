"""Ingestion: files of other formats are converted to a zarr store that is chunked for streaming."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.progress import PassStart, Progress
from streamdr.data.ingest.appending import Appending, appending, require_columns
from streamdr.data.ingest.conversion import convert, target_dtype
from streamdr.data.ingest.formats import open_table
from streamdr.data.ingest.table import ArrayFile, Options, Stream, Table
from streamdr.errors import ConfigError, DataError
from streamdr.store import Staging, check_output
from streamdr.store.arrays import ArrayLayout, Index
from streamdr.store.labels import LABELS, LabelWriter
from streamdr.store.matrix import NAME, RowWriter, create_matrix, fill, plan_layout
from streamdr.store.record import write_record

_PROBE = "probe"
_FLOATS = ("float16", "float32", "float64")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@dataclass(frozen=True)
class IngestReport:
    """The result of an ingestion."""

    path: Path
    n_rows: int
    n_cols: int
    dtype: str
    chunks: tuple[int, ...]
    bytes_written: int
    seconds: float
    appended_rows: int
    """The number of rows that came from this file."""
    labels: str | None
    """The column whose values are the array `labels`."""
    left_out: tuple[str, ...]
    """Columns that were left out automatically: they number the rows, or are not numeric."""

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, as `--json` prints it."""
        return {"command": "ingest", **asdict(self), "path": str(self.path)}


def ingest(
    source: Path,
    dest: Path,
    *,
    dataset: str | None = None,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    numeric_only: bool = False,
    labels: str | None = None,
    dtype: str | None = None,
    chunk_rows: int | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    overwrite: bool = False,
    append: bool = False,
    progress: Progress,
) -> IngestReport:
    """Copy a .npy, CSV, Parquet or HDF5 file of any size into a zarr store, in bounded memory.

    Parameters
    ----------
    source
        The file, or a directory of Parquet part files.
    dest
        The zarr group to create or to append to. Its array is named X.
    dataset
        HDF5: the dataset to read, if there are several.
    columns
        CSV and Parquet: the columns to read, by name (or position from 0, in a CSV without a header).
    exclude
        CSV and Parquet: the columns not to read, by name or by pattern (`id_*`).
    numeric_only
        CSV and Parquet: leave out columns that are not numbers. In CSV the first thousand rows decide.
    labels
        CSV and Parquet: the column with one label per row, text or numbers. It becomes the array `labels`
        beside X.
    dtype
        The type to store. By default that of the file, and float64 for CSV.
    chunk_rows
        The number of rows per chunk. By default a chunk has about 16 MB.
    delimiter
        CSV: the character between fields. By default it is detected: a comma, tab, semicolon, bar or
        space.
    header
        CSV: whether the first line has the names of the columns. By default this is detected.
    overwrite
        Replace a store that streamdr ingested before.
    append
        Add the rows to a store that streamdr ingested before, all or none of them.
    progress
        Receives the progress.
    """
    started = time.perf_counter()
    wanted = _parse_dtype(dtype)
    options = Options(
        dataset,
        None if columns is None else tuple(columns),
        delimiter,
        header,
        wanted,
        exclude=tuple(exclude) if exclude else None,
        numeric_only=numeric_only or None,
        labels=labels,
    )
    if append:
        if overwrite or chunk_rows is not None:
            raise ConfigError(
                "--append adds rows to a store as it is; leave out --overwrite and --chunk-rows"
            )
        report = _append(source, dest, options, progress)
    else:
        report = _create(source, dest, options, chunk_rows, overwrite, progress)
    return replace(report, seconds=time.perf_counter() - started)


def _create(
    source: Path, dest: Path, options: Options, chunk_rows: int | None, overwrite: bool, progress: Progress
) -> IngestReport:
    """Ingest a file into a new store."""
    with open_table(source, options) as table:
        stored = target_dtype(source, table.dtype, options.dtype)
        check_output(dest, kind="ingested", inputs=[source], overwrite=overwrite)
        with Staging(dest, kind="ingested", overwrite=overwrite) as staging:
            if isinstance(table, ArrayFile):
                layout = _copy_array_file(source, table, staging.path, stored, chunk_rows, progress)
            else:
                writer = RowWriter(
                    staging.path,
                    table.n_cols,
                    stored,
                    chunk_rows=chunk_rows,
                    feature_names=table.feature_names,
                )
                labels = None if table.label_kind is None else LabelWriter(staging.path, table.label_kind)
                _copy_stream(source, table, writer, labels, stored, progress)
                layout = writer.layout
            entries = {
                "source": source.name,
                **({} if options.labels is None else {"labels": options.labels}),
                **({"left_out": list(table.not_used)} if isinstance(table, Stream) else {}),
            }
            write_record(staging.path, "ingested", entries, complete=True)
            written = sum(file.stat().st_size for file in staging.path.rglob("*") if file.is_file())
            staging.publish()
    return _report(dest, layout, written, layout.shape[0], table, options.labels)


def _append(source: Path, dest: Path, options: Options, progress: Progress) -> IngestReport:
    """Append the rows of a file to a store."""
    with appending(dest) as target:
        layout, rows_before = target.layout, target.matrix.shape[0]
        if options.dtype not in (None, layout.dtype):
            raise ConfigError(f"dtype is {options.dtype}, but {dest} holds {layout.dtype}; leave it out")
        if options.labels is not None and target.labels is None:
            raise ConfigError(f"{dest}: has no labels to append to; leave `--labels` out")
        options = replace(
            options,
            dtype=layout.dtype,
            expected=target.feature_names,
            labels=options.labels if target.labels is None else options.labels or target.record["labels"],
            label_kind=target.label_kind,
            ignored=tuple(map(str, target.record.get("left_out", ()))),
        )
        with open_table(source, options) as table:
            stored = target_dtype(source, table.dtype, layout.dtype)
            if isinstance(table, ArrayFile):
                layout = _append_array_file(source, table, target, progress)
            else:
                layout = _append_stream(source, table, target, stored, progress)
        rows = target.matrix.whole_rows + layout.shape[0]
        written = target.commit(rows)
        layout = replace(target.layout, shape=(rows, *layout.shape[1:]))
    return _report(dest, layout, written, rows - rows_before, table, options.labels)


def _append_array_file(source: Path, table: ArrayFile, target: Appending, progress: Progress) -> ArrayLayout:
    """Write the rows of an array, after those of the incomplete chunk, to the staging directory."""
    _require_rows(source, table)
    require_columns(source, table.shape[1:], target)
    n_tail = target.matrix.shape[0] - target.matrix.whole_rows
    layout = replace(target.layout, shape=(n_tail + table.shape[0], *table.shape[1:]))
    array = create_matrix(target.staging, layout)
    target.matrix.require_like(target.staging / NAME)
    tail = target.matrix.tail()

    def values(region: Index) -> Array:
        rows, *others = region
        old = tail[(rows, *others)]
        new = slice(max(rows.start - n_tail, 0), max(rows.stop - n_tail, 0))
        fresh = table.read((new, *others))
        return np.concatenate(
            [old, convert(source, fresh, layout.dtype, *(part.start for part in (new, *others)[:2]))]
        )

    fill(array, layout, values, _label(source), progress)
    return layout


def _append_stream(
    source: Path, table: Stream, target: Appending, dtype: np.dtype[Any], progress: Progress
) -> ArrayLayout:
    """Write the rows of a stream, after those of the incomplete chunk, to the staging directory."""
    require_columns(source, (table.n_cols,), target)
    writer = RowWriter(target.staging, table.n_cols, dtype, chunks=target.matrix.chunks)
    create_matrix(target.staging, replace(target.layout, shape=(0, table.n_cols)), name=_PROBE)
    target.matrix.require_like(target.staging / _PROBE)
    tail = target.matrix.tail()
    writer.append(tail)
    labels = None
    if target.labels is not None and table.label_kind is not None:
        labels = LabelWriter(target.staging, table.label_kind)
        target.labels.require_like(target.staging / LABELS)
        labels.append(target.labels.tail())
    _copy_stream(source, table, writer, labels, dtype, progress, n_tail=len(tail))
    return writer.layout


def _report(
    dest: Path, layout: ArrayLayout, written: int, appended: int, table: Table, labels: str | None
) -> IngestReport:
    return IngestReport(
        path=dest,
        n_rows=layout.shape[0],
        n_cols=math.prod(layout.shape[1:]),
        dtype=layout.dtype.name,
        chunks=layout.chunks,
        bytes_written=written,
        seconds=0.0,
        appended_rows=appended,
        labels=labels,
        left_out=table.left_out if isinstance(table, Stream) else (),
    )


def _copy_array_file(
    source: Path,
    table: ArrayFile,
    group: Path,
    dtype: np.dtype[Any],
    chunk_rows: int | None,
    progress: Progress,
) -> ArrayLayout:
    """Write an array to a new zarr array, and return its layout."""
    _require_rows(source, table)

    def values(region: Index) -> Array:
        return convert(source, table.read(region), dtype, *(part.start for part in region[:2]))

    layout = plan_layout(table.shape, dtype, chunk_rows=chunk_rows, grain=table.grain)
    fill(create_matrix(group, layout), layout, values, _label(source), progress)
    return layout


def _require_rows(source: Path, table: ArrayFile) -> None:
    """Raise an error if an array is empty or a single number."""
    if not table.shape:
        raise DataError(f"{source}: holds a single number, not a matrix; check that this is the right file")
    if 0 in table.shape:
        raise DataError(f"{source}: is empty, of shape {table.shape}; check that this is the right file")


def _copy_stream(
    source: Path,
    table: Stream,
    writer: RowWriter,
    labels: LabelWriter | None,
    dtype: np.dtype[Any],
    progress: Progress,
    n_tail: int = 0,
) -> None:
    """Write the rows of a stream after the `n_tail` rows that the writer has already."""
    for remark in table.remarks:
        progress.message(f"{source.name}: {remark}")
    bytes_per_unit = 1 if table.unit == "bytes" else table.n_cols * table.dtype.itemsize
    progress.start(PassStart(_label(source), table.total, bytes_per_row=bytes_per_unit, unit=table.unit))
    try:
        for values, extent, found in table.batches:
            writer.append(convert(source, values, dtype, writer.n_rows - n_tail))
            if labels is not None and found is not None:
                labels.append(found)
            progress.advance(extent)
        writer.finish()
        if labels is not None:
            labels.finish()
    finally:
        progress.finish()
    if writer.n_rows == n_tail:
        raise DataError(f"{source}: has no rows; check that this is the right file")


def _label(source: Path) -> str:
    """Return the label of the progress bar."""
    return f"Ingesting {source.name}"


def _parse_dtype(name: str | None) -> np.dtype[Any] | None:
    """Return the type with a name, which must be an integer or floating type."""
    if name is None:
        return None
    if name not in _FLOATS + _INTEGERS:
        raise ConfigError(f"dtype is {name!r}, but must be one of {', '.join(_FLOATS + _INTEGERS)}")
    return np.dtype(name)
