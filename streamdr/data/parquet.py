"""Parquet files as input: rows x columns of numbers, one row group after another."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamdr.core.blocks import Array, MatrixSpec, Span
from streamdr.core.buffers import scratch
from streamdr.data.file_formats import NoRowsError
from streamdr.data.parquet_file import (
    READ_BUFFER,
    fill,
    index_columns,
    is_number,
    is_text,
    opened,
    require_unique,
    stamp,
    wider,
)
from streamdr.data.snapshot import FileSnapshot
from streamdr.data.source import SampleColumns, SampleCoordinate, Source
from streamdr.data.table_columns import chosen_columns
from streamdr.errors import DataError

_BATCH_BYTES = 4 * 2**20
_TEXT_BYTES = 64
"""About the bytes of a text."""
_TIME_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


class ParquetColumns(Source):
    """Some columns of a Parquet file. A read decodes the row groups that it needs, in the calling thread."""

    private_buffers = True

    def __init__(
        self, path: Path, metadata: pq.FileMetaData, names: Sequence[str], dtype: np.dtype[Any]
    ) -> None:
        lengths = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        if not sum(lengths):
            raise NoRowsError(f"{path}: has no rows; there is nothing to fit")
        self.name = str(path)
        self.spec = MatrixSpec(sum(lengths), len(names), dtype)
        # Row groups of other lengths are read as well: a block takes parts of two of them.
        self.chunks = self.grain = (next(length for length in lengths if length), 1)
        self._path, self._columns = path, list(names)
        self._starts = np.concatenate([[0], np.cumsum(lengths)]).tolist()
        self._group_bytes = max(metadata.row_group(i).total_byte_size for i in range(len(lengths)))
        self._stamp = stamp(path)
        self._metadata: pq.FileMetaData | None = metadata

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_metadata": None}  # a worker reads it again

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region."""
        return self._filled(np.empty((len(rows), len(cols)), self.spec.dtype), rows, cols)

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """Return the region, in memory that this thread's next call overwrites."""
        return self._filled(scratch("region", (len(rows), len(cols)), self.spec.dtype), rows, cols)

    def _filled(self, values: Array, rows: Span, cols: Span) -> Array:
        """Read a region into memory, in batches of each row group."""
        names = self._columns[cols.slice]
        for first, batch in self._batches(rows, names, len(names) * self.spec.dtype.itemsize):
            self._fill(values[first - rows.start :][: batch.num_rows], batch, names)
        return values

    def _batches(
        self, rows: Span, names: Sequence[str], row_bytes: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield batches of some columns, each with the number of its first row."""
        batch_rows = max(1, _BATCH_BYTES // row_bytes)
        with opened(self._path, self._metadata) as file:
            self._require_unchanged(file)
            group = bisect_right(self._starts, rows.start) - 1
            done = rows.start
            while done < rows.stop:
                at = self._starts[group]
                for batch in file.iter_batches(
                    batch_rows, row_groups=[group], columns=names, use_threads=False
                ):
                    first, last = max(done - at, 0), min(rows.stop - at, batch.num_rows)
                    if first < last:
                        yield done, batch[first:last]
                        done += last - first
                    at += batch.num_rows
                    if done == rows.stop:
                        break
                group += 1
                if done < min(rows.stop, self._starts[group]):
                    raise DataError(f"{self.name}: row group {group - 1} has fewer rows than the file says")

    def _fill(self, target: Array, batch: pa.RecordBatch, names: Sequence[str]) -> None:
        fill(target, batch, names)

    def _require_unchanged(self, file: pq.ParquetFile) -> None:
        """Raise an error if the file was replaced: its row groups would be elsewhere."""
        if stamp(self._path) != self._stamp:
            raise DataError(
                f"{self.name}: has changed since it was opened; run again when nothing writes to it"
            )
        self._metadata = file.metadata

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the bytes of a row group that is decoded, of a batch as it is converted, and of buffers."""
        group: int = self._group_bytes * n_cols // self.spec.n_cols
        return super().overhead(n_rows, n_cols) + group + 2 * _BATCH_BYTES + n_cols * READ_BUFFER

    def _snapshot(self) -> FileSnapshot:
        """Return a digest of the path, size and modification time of the file."""
        meaning = f"{self._columns} {self.spec.dtype.str} {self._starts}"
        return FileSnapshot.of(self._path, self.name, meaning, lambda: None)


class ParquetSource(ParquetColumns):
    """Columns of numbers of a Parquet file. Times that are its index are the coordinate of its rows.

    Parameters
    ----------
    path : Path
        The file.
    columns : sequence of str or None
        The names of columns, or patterns for several; None for all besides the index.
    """

    def __init__(self, path: Path, columns: Sequence[str] | None = None) -> None:
        with opened(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
        require_unique(path, schema.names)
        index = index_columns(schema)
        names = [name for name in schema.names if name not in index]
        numbers = [is_number(schema.field(name).type) for name in names]
        names = [names[at] for at in chosen_columns(names, numbers, columns, str(path))]
        if not names:
            raise DataError(f"{path}: has no column of numbers besides its index; there is nothing to fit")
        super().__init__(path, metadata, names, wider([schema.field(name).type for name in names]))
        self.feature_names = tuple(names)
        texts = tuple(name for name in schema.names if is_text(schema.field(name).type))
        self.sample_columns = _TextColumns(path, texts) if texts else None
        times = [name for name in index if pa.types.is_temporal(schema.field(name).type)]
        if len(index) == 1 and times and (units := _units(schema.field(times[0]).type)) is not None:
            name = "time" if times[0].startswith("__index_level_") else times[0]
            self.sample_dims = (name,)
            attributes = {"units": f"{units} since 1970-01-01", "calendar": "proleptic_gregorian"}
            self.sample_coords = (SampleCoordinate(name, _Times(path, metadata, times, name), attributes),)


@dataclass(frozen=True)
class _TextColumns(SampleColumns):
    """The columns of text of a file, each opened when labels or a condition name it."""

    path: Path
    texts: tuple[str, ...]

    def names(self) -> Sequence[str]:
        """Return the names of the columns, in their order."""
        return self.texts

    def open(self, name: str) -> Source:
        """Open a column."""
        with opened(self.path) as file:
            return _Text(self.path, file.metadata, name)


class _Text(ParquetColumns):
    """A column of text, or of categories that are text. What is missing is read as empty text."""

    private_buffers = False

    def __init__(self, path: Path, metadata: pq.FileMetaData, name: str) -> None:
        super().__init__(path, metadata, [name], np.dtype(np.str_))
        self.name = f"{path}, column {name!r}"

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the text of a range of rows."""
        texts: list[str] = []
        for _, batch in self._batches(rows, self._columns, _TEXT_BYTES):
            texts += batch.column(0).cast(pa.large_string()).fill_null("").to_pylist()
        return np.array(texts, np.str_)[:, None]

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """Return the text of a range of rows."""
        return self.read(rows, cols)


class _Times(ParquetColumns):
    """A column of times, as integers."""

    def __init__(self, path: Path, metadata: pq.FileMetaData, names: Sequence[str], name: str) -> None:
        super().__init__(path, metadata, names, np.dtype(np.int64))
        self.name = f"{path}, column {name!r}"

    def _fill(self, target: Array, batch: pa.RecordBatch, names: Sequence[str]) -> None:
        column = batch.column(names[0])
        if column.null_count:
            raise DataError(f"{self.name}: a time is missing; give each row one, or leave such rows out")
        kind = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
        target[:, 0] = column.cast(kind).to_numpy()


def _units(kind: pa.DataType) -> str | None:
    """Return the units of times since 1970, or None for durations and times of day."""
    if pa.types.is_date(kind):
        return "days" if pa.types.is_date32(kind) else "milliseconds"
    return _TIME_UNITS[kind.unit] if pa.types.is_timestamp(kind) else None
