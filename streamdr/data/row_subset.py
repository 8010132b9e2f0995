"""A source with a representative part of the rows of another source, as minibatches read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamdr.core.blocks import GOOD_READ_BYTES, Array, Axis, Block, Part, Span, SparseBlock, SparseRows
from streamdr.core.buffers import scratch
from streamdr.data.snapshot import Snapshot
from streamdr.data.source import Source
from streamdr.data.sparse.pieces import joined


class RowSubset(Source):
    """Every k-th band of rows, or all other bands. Errors and blocks have the row numbers of the whole."""

    private_buffers = True

    def __init__(self, whole: Source, part: Part) -> None:
        self.name = whole.name
        self.part = part
        self.chunks = whole.chunks
        self.grain = whole.grain  # bands are whole chunks
        self.feature_names = whole.feature_names
        self._whole = whole
        row_bytes = whole.spec.line_bytes("rows")
        self._bands = part.bands(whole.spec.n_rows, whole.chunks[0], row_bytes)
        self._good_read = GOOD_READ_BYTES // row_bytes
        self.spec = replace(whole.spec, n_rows=sum(len(band) for band in self._bands))

    @property
    def _reads_from(self) -> tuple[Source | None, ...]:
        return (*super()._reads_from, self._whole)

    def remote_results(self, regions: Iterable[tuple[Span, Span]]) -> Mapping[Any, Any]:
        """Return the futures that rows of the whole source need."""
        return self._whole.remote_results(
            (piece, cols) for rows, cols in regions for piece in self._pieces(rows)
        )

    @property
    def stored_itemsize(self) -> int:
        """The bytes that are read per value, as in the whole source."""
        return self._whole.stored_itemsize

    def stored_line_bytes(self, axis: Axis) -> int:
        """Return the bytes that are read per line. Rows are as in the whole source."""
        return self._whole.stored_line_bytes(axis) if axis == "rows" else super().stored_line_bytes(axis)

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region."""
        return self._gathered(np.empty((len(rows), len(cols)), self.spec.dtype), rows, cols)

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """Return the region, in memory that this thread's next call overwrites."""
        memory = scratch("row subset", (len(rows), len(cols)), self.spec.dtype)
        return self._gathered(memory, rows, cols)

    def _gathered(self, memory: Array, rows: Span, cols: Span) -> Array:
        """Read rows into `memory`, one span of the whole source at a time, and return it."""
        start = 0
        for piece in self._pieces(rows):
            memory[start : start + len(piece)] = self._whole.read_scratch(piece, cols)
            start += len(piece)
        return memory

    def block(self, span: Span, axis: Axis = "rows", *, allow_nan: bool = False) -> Block:
        """Return rows. Errors give their position in the whole source."""
        parts = [self._whole.block(piece, axis, allow_nan=allow_nan) for piece in self._pieces(span)]
        values = np.concatenate([part.values for part in parts])
        return self._numbered(Block(span, values, self._labels(span), self._weights(span)))

    def check(self, span: Span, axis: Axis = "rows", *, allow_nan: bool = False) -> None:
        """Raise an error that locates the first non-finite value in the whole source."""
        for piece in self._pieces(span):
            self._whole.check(piece, axis, allow_nan=allow_nan)

    def scratch_block(self, span: Span, axis: Axis = "rows", *, allow_nan: bool = False) -> Block:
        """Return rows in scratch memory, valid until this thread's next call."""
        return self._numbered(super().scratch_block(span, axis, allow_nan=allow_nan))

    def read_sparse(self, rows: Span) -> SparseRows:
        """Return sparse rows."""
        return joined([self._whole.read_sparse(piece) for piece in self._pieces(rows)])

    def sparse_lengths(self, rows: Span) -> Iterator[Array]:
        """Yield how many values of each row are stored."""
        for piece in self._pieces(rows):
            yield from self._whole.sparse_lengths(piece)

    def sparse_bytes(self, n_rows: int) -> int:
        """Return the bytes of sparse rows of the whole, and of a copy of them."""
        return 2 * self._whole.sparse_bytes(n_rows)

    def sparse_blocks(self, span: Span, *, allow_nan: bool = False) -> Iterator[SparseBlock]:
        """Yield sparse rows with their numbers in the whole source."""
        for block in super().sparse_blocks(span, allow_nan=allow_nan):
            yield replace(block, rows=self._numbers(block.span))

    def check_sparse(self, rows: Span, *, allow_nan: bool = False) -> None:
        """Raise an error that locates the first non-finite value in the whole source."""
        for piece in self._pieces(rows):
            self._whole.check_sparse(piece, allow_nan=allow_nan)

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the overhead of the whole, plus a copy of the rows."""
        return self._whole.overhead(n_rows, n_cols) + n_rows * n_cols * self.spec.dtype.itemsize

    def _snapshot(self) -> Snapshot:
        return RowSubsetSnapshot(self._whole.snapshot(), self)

    @property
    def identity(self) -> str:
        """The name in keys of the ledger: that of the whole, the part, and the length of a band."""
        which = "all but part" if self.part.rest else "part"
        by = f"by {len(self._bands[0])}"
        return f"{self._whole.identity}, {which} {self.part.number} of {self.part.of} {by}"

    def stop(self, rows: int) -> int:
        """Return where the first `rows` rows end in the whole source."""
        return max((piece.stop for piece in self._pieces(Span(0, rows))), default=0)

    def _numbered(self, block: Block) -> Block:
        """Return a block with the row numbers of the whole source."""
        return replace(block, rows=self._numbers(block.span))

    def _numbers(self, rows: Span) -> Array:
        """Return the numbers of rows in the whole source."""
        return np.concatenate([np.arange(piece.start, piece.stop) for piece in self._pieces(rows)])

    def _labels(self, rows: Span) -> Array | None:
        labels = [self._whole._labels(piece) for piece in self._pieces(rows)]
        found = [array for array in labels if array is not None]
        return np.concatenate(found) if found else None

    def _weights(self, rows: Span) -> Array | None:
        weights = [self._whole._weights(piece) for piece in self._pieces(rows)]
        found = [array for array in weights if array is not None]
        return np.concatenate(found) if found else None

    def _pieces(self, rows: Span) -> Iterator[Span]:
        """Yield the spans of rows in the whole source. Adjacent bands are joined, up to a good read size."""
        piece = Span(0, 0)
        for band in self._in_bands(rows):
            if piece.stop == band.start and len(piece) + len(band) <= self._good_read:
                piece = Span(piece.start, band.stop)
            else:
                if piece:
                    yield piece
                piece = band
        if piece:
            yield piece

    def _in_bands(self, rows: Span) -> Iterator[Span]:
        """Yield the same, one span per band. All bands have one length, except the last band of all rows."""
        length = len(self._bands[0])
        for number in range(rows.start // length, -(-rows.stop // length)):
            band, first = self._bands[number], number * length
            yield Span(
                band.start + max(rows.start - first, 0), band.start + min(rows.stop - first, len(band))
            )


@dataclass(frozen=True)
class RowSubsetSnapshot:
    """A snapshot of a part of the rows: the digest of the whole up to where they end."""

    whole: Snapshot
    part: RowSubset

    def digest(self, rows: int) -> str:
        """Return a digest of the first `rows` rows of the part."""
        return self.whole.digest(self.part.stop(rows))

    def require_chunks(self) -> None:
        """Raise an error if chunks of the whole source were missing."""
        self.whole.require_chunks()
