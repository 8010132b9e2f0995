"""A source with the rows of another source as a model maps them, block by block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NoReturn, cast

import numpy as np

from streamdr.core import blocks
from streamdr.core.blocks import SPARSE_PIECE, Array, Axis, Span, SparseRows, working_dtype
from streamdr.core.buffers import scratch
from streamdr.core.linalg import ignore_overflow
from streamdr.core.mapping import (
    columns_kept,
    columns_read,
    mapped_chunks,
    mapped_names,
    mapped_spec,
    mapping_digest,
    maps_apart,
)
from streamdr.core.method import MapsColumnsApart, MapsSparse, Model, SelectsColumns, UsesScratch
from streamdr.data.column_subset import ColumnSubset
from streamdr.data.snapshot import Snapshot
from streamdr.data.source import Source
from streamdr.errors import DataError, RowError

_SLAB_BYTES = 1 << 23
"""The bytes of dense rows, at their widest and in double precision, that are mapped together."""


@dataclass(frozen=True)
class _Part:
    """Some columns of a source, and the model that maps them."""

    model: Model
    reader: Source
    columns: Span
    """The columns that are read."""
    outputs: Span
    """The outputs of the model that are used."""
    slab: int
    """How many rows are mapped together."""


class TransformedSource(Source):
    """The rows of a source, mapped through a model, with their weights, labels and coordinates.

    Whole rows are read, a few chunks at a time, so that memory holds little more than the mapped rows. Of a
    model that selects columns, only these are read, and of one that maps each column apart, those that are
    asked for. Rows stay sparse if the model keeps zeros. `steps` are the names of the steps that the model
    has, for errors.
    """

    def __init__(self, whole: Source, model: Model, steps: Sequence[str] = ()) -> None:
        self.name = whole.name
        self.spec = mapped_spec(whole.spec, model)
        self.feature_names = mapped_names(whole.feature_names, model)
        self.chunks = mapped_chunks(whole.chunks, whole.spec, model)
        self.take_samples(whole)
        self.weights, self.labels = whole.weights, whole.labels
        self._whole, self._whole_model, self._steps = whole, model, tuple(steps)
        self._sparse = whole.spec.density is not None and isinstance(model, MapsSparse)
        self._model, self._reader = model, whole
        reads = columns_read(model)
        if reads is not None and isinstance(model, SelectsColumns) and not self._sparse:
            selected = ColumnSubset(whole, reads)
            if selected.stored_line_bytes("rows") < whole.stored_line_bytes("rows"):
                self._model, self._reader = model.narrowed(), selected
        # The column of the whole from which each output is made, where outputs can be made one by one.
        self._apart = columns_kept(model) if maps_apart(model) and whole.spec.density is None else None
        self.grain = (self._reader.grain[0], model.n_outputs)
        self.cost_factor = whole.cost_factor
        self.private_buffers = not self._sparse
        row_bytes = self._reader.spec.line_bytes("rows") * self._reader.cost_factor
        chunk = whole.chunks[0]
        self._widest = max(model.n_features, model.n_outputs)
        self._piece = chunk * max(1, blocks.BLOCK_BYTES // (chunk * row_bytes))
        self._depth: int = whole._depth + 1 if isinstance(whole, TransformedSource) else 0

    @property
    def client(self) -> Any:
        """The client of the whole source."""
        return self._whole.client

    def remote_results(self, regions: Iterable[tuple[Span, Span]]) -> Mapping[Any, Any]:
        """Return the futures that whole rows of the source need."""
        everything = Span(0, self._whole.spec.n_cols)
        return self._whole.remote_results((rows, everything) for rows, _ in regions)

    @cached_property
    def _digest(self) -> str:
        return mapping_digest(self._whole_model)

    @property
    def identity(self) -> str:
        """The name in keys of the ledger: that of the whole, and a digest of the map."""
        return f"{self._whole.identity}, mapped by {self._digest}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names that errors may quote."""
        return self._whole.names

    @property
    def _reads_from(self) -> tuple[Source | None, ...]:
        return (*super()._reads_from, self._whole)

    @property
    def complete_rows(self) -> int:
        """How many of the first rows are in complete chunks of the whole."""
        return self._whole.complete_rows

    @property
    def stored_itemsize(self) -> int:
        """The bytes that are read per value of the whole source."""
        return self._whole.stored_itemsize

    def stored_line_bytes(self, axis: Axis) -> int:
        """Return the bytes that are read per line: for a column, its share of reading all rows."""
        row = self._reader.stored_line_bytes("rows")
        return row if axis == "rows" else -(-row * self.spec.n_rows // self.spec.n_cols)

    def stored_bytes(self, spans: Iterable[Span], axis: Axis = "rows") -> int:
        """Return the bytes that are read for spans of lines: all rows for every span of columns."""
        if axis == "rows":
            return self._reader.stored_bytes(spans)
        if self._apart is not None:
            return self._whole.stored_bytes(
                (Span(int(kept[0]), int(kept[-1]) + 1) for kept in map(self._kept, spans) if len(kept)), axis
            )
        everything = self._reader.stored_bytes([Span(0, self.spec.n_rows)])
        return sum(everything for span in spans if span)

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region."""
        return self._gathered(np.empty((len(rows), len(cols)), self.spec.dtype), rows, cols)

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """Return the region, in memory that this thread's next call overwrites."""
        memory = scratch(f"mapped rows {self._depth}", (len(rows), len(cols)), self.spec.dtype)
        return self._gathered(memory, rows, cols)

    def _gathered(self, memory: Array, rows: Span, cols: Span) -> Array:
        """Read rows into `memory`, a piece at a time, map them, and return it."""
        for outputs, part in self._parts(cols):
            at = slice(outputs.start - cols.start, outputs.stop - cols.start)
            for piece in self._pieces(rows):
                target = memory[piece.start - rows.start : piece.stop - rows.start, at]
                if self._sparse:
                    mapped = self._mapped_sparse(piece)
                    dense = mapped if isinstance(mapped, np.ndarray) else mapped.toarray()
                    target[...] = dense[:, outputs.slice]
                else:
                    self._map_dense(piece, part, target)
        return memory

    def _kept(self, outputs: Span) -> Array:
        """Return the columns of the whole from which some outputs are made, which can be made one by one."""
        assert self._apart is not None
        return self._apart[outputs.slice]

    def _parts(self, cols: Span) -> Iterator[tuple[Span, _Part]]:
        """Yield outputs, and what they are made of: of a few columns, those of one chunk at a time."""
        if self._apart is None or len(cols) == self.spec.n_cols:
            whole_rows = Span(0, self._reader.spec.n_cols)
            yield cols, _Part(self._model, self._reader, whole_rows, cols, _slab_rows(self._widest))
            return
        chunks = self._kept(cols) // self._whole.chunks[1]
        bounds = [0, *(np.flatnonzero(np.diff(chunks)) + 1), len(chunks)]
        for start, stop in pairwise(bounds):
            outputs = Span(cols.start + int(start), cols.start + int(stop))
            columns, model = cast(MapsColumnsApart, self._whole_model).for_outputs(outputs)
            all_outputs, slab = Span(0, len(outputs)), _slab_rows(len(columns))
            yield outputs, _Part(model, self._whole, columns, all_outputs, slab)

    def _labels(self, rows: Span) -> Array | None:
        """Return the labels of rows, which may be a column of the whole."""
        return None if self.spec.labels is None else self._whole._labels(rows)

    def _pieces(self, rows: Span) -> Iterator[Span]:
        """Yield rows in pieces that end where chunks end: where they are cut depends on the layout only."""
        if self._sparse:
            yield from self._reader.sparse_pieces(rows)
            return
        start = rows.start
        while start < rows.stop:
            stop = min((start // self._piece + 1) * self._piece, rows.stop)
            yield Span(start, stop)
            start = stop

    def _map_dense(self, piece: Span, part: _Part, target: Array) -> None:
        """Read rows, and map them to `target`, a slab at a time: no other copy of all of them is made."""
        with self._located(piece, part.reader):
            values = part.reader.read_scratch(piece, part.columns)
            for slab in Span(0, len(piece)).split(part.slab):
                try:
                    mapped = part.model.transform(blocks.widen(values[slab.slice]))
                except RowError as error:
                    column = None if error.column is None else part.columns.start + error.column
                    row = slab.start + error.row
                    raise RowError(row, error.problem, error.step, column) from None
                target[slab.slice] = mapped[:, part.outputs.slice]

    def _mapped_sparse(self, piece: Span) -> Array | SparseRows:
        """Read sparse rows and map them."""
        with self._located(piece, self._reader):
            stored = self._reader.read_sparse(piece)
            model = cast(MapsSparse, self._model)
            return model.transform_sparse(stored.astype(working_dtype(stored.dtype), copy=False))

    @contextmanager
    def _located(self, piece: Span, reader: Source) -> Iterator[None]:
        """Let an error name the file and the row, of rows that are mapped."""
        try:
            with ignore_overflow():
                yield
        except RowError as error:
            self._check_whole(piece)  # a value that is not finite is the first cause
            if len(self._steps) == 1:
                error = error.in_chain(self._steps[0], error.column)
            place = self.stored_row(piece.start + error.row)
            raise error.located(*place, reader.described_column) from None

    def read_sparse(self, rows: Span) -> SparseRows:
        """Return whole rows, which are sparse if the model keeps zeros."""
        mapped = self._mapped_sparse(rows)
        return SparseRows(mapped) if isinstance(mapped, np.ndarray) else mapped

    def sparse_pieces(self, rows: Span) -> Iterator[Span]:
        """Yield rows in the pieces of the whole: no row has more stored values than there."""
        return self._reader.sparse_pieces(rows)

    def sparse_bytes(self, n_rows: int) -> int:
        """Return the bytes of a block of sparse rows, with those that reading and mapping it take."""
        return self._reader.sparse_bytes(n_rows) + self._sparse_copies(n_rows)

    def _sparse_copies(self, n_rows: int) -> int:
        """Return the bytes of sparse rows while they are mapped: as they arrive, and as they leave."""
        raw = self._reader.spec
        values = max(raw.n_cols, min(n_rows * raw.n_cols, SPARSE_PIECE))
        return 2 * values * (raw.working.itemsize + 8) + self._model_scratch(0)

    def _model_scratch(self, n_rows: int) -> int:
        """Return the bytes that mapping rows allocates besides the result: by default, a copy of them."""
        if isinstance(self._model, UsesScratch):
            return self._model.scratch_bytes(n_rows)
        return n_rows * self._reader.spec.line_bytes("rows")

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the bytes of a piece as it is read and mapped, besides the mapped rows."""
        mapped_row = self.spec.line_bytes("rows")
        own = super().overhead(n_rows, n_cols)
        if self._sparse:
            return own + self.sparse_bytes(n_rows) + n_rows * mapped_row
        reader, raw_cols, widest = self._reader, self._reader.spec.n_cols, self._widest
        if self._apart is not None and n_cols < self.spec.n_cols:
            reader, raw_cols = self._whole, min(self._whole.chunks[1], self._whole.spec.n_cols)
            widest, mapped_row = raw_cols, raw_cols * self.spec.working.itemsize
        rows = min(n_rows, self._piece)
        slab = min(rows, _slab_rows(widest))
        raw_row = raw_cols * reader.spec.working.itemsize
        reading = rows * raw_row + reader.overhead(rows, raw_cols)
        mapping = slab * (raw_row + mapped_row) + self._model_scratch(slab)
        return own + reading + mapping

    def checking_bytes(self, n_rows: int, n_cols: int) -> int:
        """Return the bytes of a check: of the whole, and then of mapped rows a few at a time."""
        rows, cols = next(self._pieces_to_check(Span(0, n_rows), Span(0, n_cols)))
        shape = len(rows), len(cols)
        mapped = shape[0] * shape[1] * (2 * self.spec.working.itemsize + 2) + self.overhead(*shape)
        if self._sparse:
            return max(mapped, self._reader.sparse_bytes(n_rows))
        return max(mapped, self._reader.checking_bytes(n_rows, self._reader.spec.n_cols))

    def check(self, span: Span, axis: Axis = "rows", *, allow_nan: bool = False) -> None:
        """Raise an error that locates the first non-finite value: in the whole, or else as it is mapped."""
        rows, _ = self.area(span, axis)
        self._check_whole(rows)
        super().check(span, axis, allow_nan=allow_nan)

    def check_sparse(self, rows: Span, *, allow_nan: bool = False) -> None:
        """Raise an error that locates the first non-finite value of sparse rows, as `check` does."""
        self._check_whole(rows)
        super().check_sparse(rows, allow_nan=allow_nan)

    def _check_whole(self, rows: Span) -> None:
        allow_nan = self._model.allow_nan
        if self._sparse:
            self._reader.check_sparse(rows, allow_nan=allow_nan)
        else:
            self._reader.check(rows, allow_nan=allow_nan)

    def stored_row(self, row: int) -> tuple[str, int]:
        """Return the file or array of a row, and its number there."""
        return self._whole.stored_row(row)

    def _refuse(
        self, row: int, col: int, value: Any, count: int, region: str, *, allow_nan: bool
    ) -> NoReturn:
        """Raise the error for a non-finite value that is mapped from finite ones, or from missing ones."""
        if np.isnan(value) and self._model.allow_nan:  # missing values, which the model lets through
            super()._refuse(row, col, value, count, region, allow_nan=allow_nan)
        name, number = self.stored_row(row)
        after = " -> ".join(self._steps) or "the steps before this one"
        raise DataError(
            f"{name}: row {number} is finite, but {value} in {self.described_column(col)} after {after} "
            f"({count} such values in {region}): its values are too large, or too small, for that"
        )

    def described_column(self, column: int) -> str:
        """Return the number and name of a column in the data, for a message; at this step, if it is none."""
        kept = columns_kept(self._whole_model)
        if kept is None:
            return f"{super().described_column(column)} at this step"
        return self._whole.described_column(int(kept[column]))

    def validate(self, seen: Snapshot | None = None) -> None:
        """Validate the whole source."""
        self._whole.validate(seen)

    def _require_chunks(self) -> None:
        self._whole._require_chunks()

    def snapshot(self) -> Snapshot:
        """Return the snapshot of the whole source: the map does not change."""
        return self._whole.snapshot()

    def _snapshot(self) -> Snapshot:
        return self._whole._snapshot()


def _slab_rows(widest: int) -> int:
    """Return how many rows are mapped together, by the columns that there are before or after."""
    return max(1, _SLAB_BYTES // (8 * widest))
