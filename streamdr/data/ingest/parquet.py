"""Reading Parquet: one file, or a directory of part files, one batch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamdr.core.blocks import Array
from streamdr.data.ingest.columns import Columns, choose_columns, leading_unnamed
from streamdr.data.ingest.table import Batch, Options, Stream
from streamdr.data.ordering import natural_order
from streamdr.data.parquet_file import fill, index_columns, is_number, is_text, opened, require_unique
from streamdr.errors import DataError
from streamdr.store.labels import LabelKind, as_labels

_BATCH_BYTES = 4 * 2**20
_SAMPLED_ROWS = 1000


@contextmanager
def open_parquet(path: Path, options: Options) -> Iterator[Stream]:
    """Open the numeric columns of a file, or of the part files in a directory in their natural order."""
    parts = _parts(path)
    with opened(parts[0]) as file:
        schema: pa.Schema = file.schema_arrow
        chosen = _chosen_columns(path, file, schema, options)
    every = schema.names
    names = [every[i] for i in chosen.used]
    labels = None if chosen.labels is None else every[chosen.labels]
    label_kind = None if labels is None else options.label_kind or _label_kind(parts[0], schema, labels)
    read = names if labels is None else [*names, labels]
    types = {name: schema.field(name).type for name in names}
    dtype = np.result_type(*{_numpy_type(parts[0], name, types[name]) for name in names})
    n_rows = 0
    for part in parts:
        with opened(part) as file:
            _require_same_types(
                part, file.schema_arrow, parts[0], {name: schema.field(name).type for name in read}
            )
            n_rows += file.metadata.num_rows
            if dtype.kind != "f" and _has_missing(file, names):
                dtype = np.dtype(np.float64)
    batch_rows = max(1, _BATCH_BYTES // (len(names) * dtype.itemsize))

    def batches() -> Iterator[Batch]:
        for part in parts:
            done = 0
            with opened(part) as file:
                for batch in file.iter_batches(batch_rows, columns=read, use_threads=False):
                    values = _values(batch, names, dtype)
                    found = None
                    if labels is not None and label_kind is not None:
                        found = _labels(part, batch.column(labels), label_kind, done)
                    done += len(values)
                    yield Batch(values, len(values), found)

    yield Stream(
        len(names),
        dtype,
        batches(),
        total=n_rows,
        unit="rows",
        feature_names=tuple(names),
        label_kind=label_kind,
        left_out=chosen.left_out,
        not_used=tuple(name for name in every if name not in types and name != labels),
        remarks=chosen.remarks,
    )


def _parts(path: Path) -> list[Path]:
    """Return the file, or the part files of a directory in their natural order."""
    if not path.is_dir():
        return [path]
    parts = [part for part in path.rglob("*") if part.suffix in (".parquet", ".pq") and not part.is_dir()]
    if not parts:
        raise DataError(f"{path}: is a directory without Parquet files; check the path")
    nested = next((part for part in parts if part.parent != path), None)
    if nested is not None:
        raise DataError(
            f"{path}: is partitioned into directories such as {nested.parent.name!r}, whose names are not "
            "in the files; ingest these directories one by one"
        )
    return sorted(parts, key=lambda part: natural_order(part.name))


def _chosen_columns(path: Path, file: pq.ParquetFile, schema: pa.Schema, options: Options) -> Columns:
    """Return the columns that the options select; by default all but the index of a data frame."""
    names = schema.names  # a property that makes a new list each time
    require_unique(path, names)
    index = index_columns(schema)
    n_unnamed = leading_unnamed(names)

    def counts_rows(column: int) -> bool:
        if not pa.types.is_integer(schema.field(column).type):
            return False
        batch = next(file.iter_batches(_SAMPLED_ROWS, columns=[names[column]]), None)
        found = [] if batch is None else batch.column(0).to_pylist()
        return len(found) > 1 and any(found == list(range(i, i + len(found))) for i in (0, 1))

    return choose_columns(
        path,
        names,
        len(names),
        options,
        is_number=lambda column: is_number(schema.field(column).type),
        is_index=lambda column: column < n_unnamed or names[column] in index,
        counts_rows=counts_rows,
    )


def _label_kind(part: Path, schema: pa.Schema, name: str) -> LabelKind:
    """Return the type of labels in a column."""
    kind = schema.field(name).type
    if is_text(kind):
        return "text"
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_integer(values) or pa.types.is_boolean(values):
        return "int64"
    if pa.types.is_floating(values):
        return "float64"
    raise DataError(f"{part}: column {name!r} holds {kind}, which cannot be labels; use text or numbers")


def _labels(part: Path, column: pa.Array, kind: LabelKind, first_row: int) -> Array:
    """Return the labels of a batch. A missing label is an error."""
    values = column.to_pylist()
    if None in values:
        row = first_row + values.index(None)
        raise DataError(f"{part}: row {row} has no label; give it one, or leave the row out")
    try:
        return as_labels(values, kind)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{part}: its labels do not have the type {kind} of the labels before") from None


def _numpy_type(part: Path, name: str, kind: pa.DataType) -> np.dtype[Any]:
    """Return the numpy type of a column."""
    if pa.types.is_decimal(kind):
        return np.dtype(np.float64)
    if is_number(kind):
        numpy_type: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return numpy_type
    raise DataError(
        f"{part}: column {name!r} holds {kind}, not numbers; leave it out with `--exclude` (or every such "
        "one with `--numeric-only`), or make it the `--labels`"
    )


def _require_same_types(part: Path, schema: pa.Schema, model: Path, types: dict[str, pa.DataType]) -> None:
    """Raise an error if a part file has other types than the first one."""
    available = frozenset(schema.names)
    for name, kind in types.items():
        found = schema.field(name).type if name in available else None
        if found != kind:
            what = "no such column" if found is None else str(found)
            raise DataError(
                f"{part}: column {name!r} is {kind} in {model.name}, but here there is {what}; "
                "write all parts with one schema"
            )


def _has_missing(file: pq.ParquetFile, names: Sequence[str]) -> bool:
    """Whether a value is missing in these columns: from the statistics of the file, else by reading them."""
    leaves = {file.schema.column(i).path: i for i in range(len(file.schema))}
    unknown = []
    for name in names:
        groups = (file.metadata.row_group(g) for g in range(file.num_row_groups))
        statistics = [group.column(leaves[name]).statistics for group in groups]
        if any(s is None or not s.has_null_count for s in statistics):
            unknown.append(name)
        elif any(s.null_count for s in statistics):
            return True
    return bool(unknown) and any(
        column.null_count for batch in file.iter_batches(columns=unknown) for column in batch.columns
    )


def _values(batch: pa.RecordBatch, names: Sequence[str], dtype: np.dtype[Any]) -> Array:
    """Return the columns of a batch as a matrix."""
    values = np.empty((batch.num_rows, len(names)), dtype)
    fill(values, batch, names)
    return values
