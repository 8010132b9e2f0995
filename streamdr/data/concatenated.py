"""Several sources as one: their rows one after another, as files that belong together."""

from __future__ import annotations

import copy
import hashlib
import pickle
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from streamdr.core.axes import FeatureAxes
from streamdr.core.blocks import Array, Axis, MatrixSpec, Span, SparseRows, widen
from streamdr.core.buffers import scratch
from streamdr.data.layout import MatrixLayout
from streamdr.data.same_features import common_dtype, require_same_features
from streamdr.data.sample_times import in_units_of
from streamdr.data.snapshot import DIGEST_BYTES, Snapshot
from streamdr.data.source import SampleColumns, SampleCoordinate, Source
from streamdr.data.sparse.pieces import joined
from streamdr.errors import DataError
from streamdr.store.remote import in_parallel


class Piece(NamedTuple):
    """The rows of one part within a span of all rows."""

    part: Source
    rows: Span
    """Counted in the part."""
    target: slice
    """Counted from the start of the span."""


class ConcatenatedSource(Source):
    """The rows of several sources, one after another. Errors name the file and its row.

    Blocks are cut as those of one store with all rows and the chunks of the first part. So a part that is
    added at the end is appended rows.

    Parameters
    ----------
    parts : sequence of Source
        The sources in order, with the same features and without weights and labels.
    name : str
        The name of all of them, which stays when files are added: the pattern that they match.
    """

    def __init__(self, parts: Sequence[Source], name: str) -> None:
        if not parts:
            raise DataError(f"{name}: there are no files; check the pattern")
        first = parts[0]
        for part in parts:
            if part.weights is not None or part.labels is not None:
                raise DataError(f"{part.name}: one of several files cannot have weights or labels of its own")
            require_same_features(first, part)
        self.name = name
        self.spec = MatrixSpec(
            sum(part.spec.n_rows for part in parts),
            first.spec.n_cols,
            common_dtype(parts, name),
            density=_density(parts),
        )
        self.chunks, self.grain = first.chunks, first.grain
        self.feature_names, self.axes = first.feature_names, first.axes
        self.sample_shape, self.dims = first.sample_shape, first.dims
        self.layout = MatrixLayout((self.spec.n_rows, *(first.sample_shape or (self.spec.n_cols,))), 0)
        self.sample_dims = first.sample_dims
        self.selected = {dim: ends for dim, ends in first.selected.items() if dim not in first.sample_dims}
        self.sample_coords = _joined_coordinates(parts, name)
        columns = [part.sample_columns for part in parts if part.sample_columns is not None]
        self.sample_columns = JoinedColumns(tuple(columns), name) if len(columns) == len(parts) else None
        self.cost_factor = first.cost_factor
        self.client = next((part.client for part in parts if part.client is not None), None)
        self.private_buffers = all(part.private_buffers for part in parts)
        self.part_ends = tuple(
            zip(
                (part.name for part in parts),
                accumulate(part.spec.n_rows for part in parts),
                strict=True,
            )
        )
        self._parts = _Packed(_without_coordinates(part, first.axes) for part in parts)
        self._starts = [0, *(end for _, end in self.part_ends[:-1])]
        self._overheads: dict[tuple[int, int], int] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names that errors may quote: those of the parts too."""
        return (*super().names, *(part.name for part in self._parts))

    @property
    def _reads_from(self) -> tuple[Source | None, ...]:
        return (*super()._reads_from, *self._parts)

    @property
    def stored_itemsize(self) -> int:
        """The bytes that are read per value, as in the first part."""
        return self._parts[0].stored_itemsize

    def stored_line_bytes(self, axis: Axis) -> int:
        """Return the bytes that are read per line; a column goes through all parts."""
        if axis == "rows":
            return self._parts[0].stored_line_bytes(axis)
        return sum(part.stored_line_bytes(axis) for part in self._parts)

    def stored_bytes(self, spans: Iterable[Span], axis: Axis = "rows") -> int:
        """Return the bytes that are read for spans of lines, in whole grains of each part."""
        if axis == "columns":
            spans = list(spans)
            return sum(part.stored_bytes(spans, axis) for part in self._parts)
        return sum(piece.part.stored_bytes([piece.rows]) for span in spans for piece in self._pieces(span))

    def stored_row(self, row: int) -> tuple[str, int]:
        """Return the file of a row, and its number there."""
        piece = next(self._pieces(Span(row, row + 1)))
        return piece.part.stored_row(piece.rows.start)

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region."""
        return self._joined(lambda part: part.read, np.empty, rows, cols)

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """Return the region, in memory that this thread's next call overwrites."""
        return self._joined(lambda part: part.read_scratch, partial(scratch, "several files"), rows, cols)

    def _joined(
        self,
        reader: Callable[[Source], Callable[[Span, Span], Array]],
        memory: Callable[[tuple[int, ...], np.dtype[Any]], Array],
        rows: Span,
        cols: Span,
    ) -> Array:
        """Read the parts of a region. A region of one part is returned as that part has it."""
        pieces = list(self._pieces(rows))
        dtype = self.spec.dtype
        if dtype.kind == "U":
            return np.concatenate([piece.part.read(piece.rows, cols) for piece in pieces])
        if len(pieces) == 1 and pieces[0].part.spec.dtype == dtype:
            return reader(pieces[0].part)(pieces[0].rows, cols)
        values = memory((len(rows), len(cols)), dtype)
        for piece in pieces:
            # Scratch memory of the part: it is copied before the next part overwrites it.
            values[piece.target] = piece.part.read_scratch(piece.rows, cols)
        return values

    def read_sparse(self, rows: Span) -> SparseRows:
        """Return sparse rows, of one or several parts."""
        found = joined([piece.part.read_sparse(piece.rows) for piece in self._pieces(rows)])
        return found.astype(self.spec.dtype, copy=False)

    def sparse_lengths(self, rows: Span) -> Iterator[Array]:
        """Yield how many values of each row are stored."""
        for piece in self._pieces(rows):
            yield from piece.part.sparse_lengths(piece.rows)

    def sparse_bytes(self, n_rows: int) -> int:
        """Return the most bytes that sparse rows of a part take, and of a copy of them."""
        return 2 * max(part.sparse_bytes(min(n_rows, part.spec.n_rows)) for part in self._parts)

    def check_sparse(self, rows: Span, *, allow_nan: bool = False) -> None:
        """Raise an error for the first non-finite value. Each part names itself and its own row."""
        for piece in self._pieces(rows):
            piece.part.check_sparse(piece.rows, allow_nan=allow_nan)

    def _pieces(self, rows: Span) -> Iterator[Piece]:
        """Yield the parts of a span of rows."""
        number, start = bisect_right(self._starts, rows.start) - 1, rows.start
        while start < rows.stop:
            first, end = self._starts[number], self.part_ends[number][1]
            stop = min(end, rows.stop)
            target = slice(start - rows.start, stop - rows.start)
            yield Piece(self._parts[number], Span(start - first, stop - first), target)
            number, start = number + 1, stop

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the most that a part needs besides the rows, and a copy of them if they are joined."""
        key = n_rows, n_cols
        if key not in self._overheads:  # the plan asks often, and there may be a thousand parts
            most = max(part.overhead(min(n_rows, part.spec.n_rows), n_cols) for part in self._parts)
            self._overheads[key] = most + n_rows * n_cols * self.spec.dtype.itemsize
        return super().overhead(n_rows, n_cols) + self._overheads[key]

    def checking_bytes(self, n_rows: int, n_cols: int) -> int:
        """Return the most bytes that `check` of a region allocates in a part."""
        return max(part.checking_bytes(min(n_rows, part.spec.n_rows), n_cols) for part in self._parts)

    def _require_valid(
        self,
        pieces: Iterable[tuple[tuple[Span, Span], Array]],
        rows: Span,
        cols: Span,
        *,
        allow_nan: bool,
    ) -> None:
        """Raise an error for the first non-finite value. Each part names itself and its own row."""
        for part, own, _ in self._pieces(rows):
            checked = ((piece, widen(part.read(*piece))) for piece in part._pieces_to_check(own, cols))
            part._require_valid(checked, own, cols, allow_nan=allow_nan)

    def _require_chunks(self) -> None:
        super()._require_chunks()
        for part in self._parts:
            part._require_chunks()

    def _snapshot(self) -> Snapshot:
        meaning = f"{self.spec.dtype.str} {self.sample_shape} {self.spec.n_cols}"
        snapshots = in_parallel(Source.snapshot, self._parts, workers=8)
        ends = tuple(end for _, end in self.part_ends)
        return ConcatenatedSnapshot(
            meaning, tuple(part.identity for part in self._parts), tuple(snapshots), ends
        )

    def described_column(self, column: int) -> str:
        """Return the number and name of a column, for a message."""
        return self._parts[0].described_column(column)


@dataclass(frozen=True)
class JoinedColumns(SampleColumns):
    """The columns beside the rows that all of several sources have."""

    parts: tuple[SampleColumns, ...]
    name: str

    def names(self) -> Sequence[str]:
        """Return the names of the columns, in the order of the first source."""
        others = [frozenset(part.names()) for part in self.parts[1:]]
        return [name for name in self.parts[0].names() if all(name in other for other in others)]

    def open(self, name: str) -> Source:
        """Open a column of all sources."""
        return ConcatenatedSource([part.open(name) for part in self.parts], f"{self.name}, column {name!r}")


@dataclass(frozen=True)
class ConcatenatedSnapshot:
    """The snapshots of several sources. What follows the first rows has no part in their digest."""

    meaning: str
    """What the parts have in common: type and features."""
    identities: tuple[str, ...]
    """What each part is: two variables of one store may have been written at the same time."""
    parts: tuple[Snapshot, ...]
    ends: tuple[int, ...]
    """The number of rows up to the end of each part."""

    def digest(self, rows: int) -> str:
        """Return a digest of the parts that contain these rows, the last one up to the last row."""
        # The part that contains the last row, also if it ends there: it may grow.
        number = min(bisect_left(self.ends, rows), len(self.ends) - 1)
        start = self.ends[number - 1] if number else 0
        last = self._of_part(number, rows - start) if rows > start else ""
        return _digest(self._before[number], last, str(rows))

    def _of_part(self, number: int, rows: int) -> str:
        """Return what a part is, and a digest of its first rows."""
        return f"{self.identities[number]} {self.parts[number].digest(rows)}"

    @cached_property
    def _before(self) -> list[str]:
        """The digest of all parts before each part."""
        lengths = np.diff((0, *self.ends[:-1])).tolist()
        whole = [self._of_part(number, length) for number, length in enumerate(lengths)]
        return list(accumulate(whole, _digest, initial=_digest(self.meaning)))

    def require_chunks(self) -> None:
        """Raise an error if chunks of a part were missing."""
        for part in self.parts:
            part.require_chunks()


class _Packed(tuple[Source, ...]):
    """Parts whose pickle is compressed: the metadata of a thousand stores is a thousand times the same."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (zlib.compress(pickle.dumps(tuple(self)), 1),)


def _unpacked(packed: bytes) -> _Packed:
    return _Packed(pickle.loads(zlib.decompress(packed)))


def _density(parts: Sequence[Source]) -> float | None:
    """Return the share of the values that are stored; None if a part has dense rows."""
    stored = 0.0
    for part in parts:
        if part.spec.density is None:
            return None
        stored += part.spec.density * part.spec.n_rows
    return stored / sum(part.spec.n_rows for part in parts)


def _digest(*texts: str) -> str:
    """Return a digest of texts."""
    return hashlib.blake2b(" ".join(texts).encode(), digest_size=DIGEST_BYTES).hexdigest()


def _without_coordinates(part: Source, axes: FeatureAxes | None) -> Source:
    """Return a part that shares the axes of the first one: a thousand copies would be pickled with it."""
    plain = copy.copy(part)
    plain.axes, plain.sample_coords, plain.sample_columns = axes, (), None
    return plain


def _joined_coordinates(parts: Sequence[Source], name: str) -> tuple[SampleCoordinate, ...]:
    """Return the coordinates of the samples that all parts have, in the units of the first part."""
    joined = []
    by_name = [{one.name: one for one in part.sample_coords} for part in parts]
    for first in parts[0].sample_coords:
        each = [coords.get(first.name) for coords in by_name]
        found = [
            in_units_of(first, one, part.name)
            for one, part in zip(each, parts, strict=True)
            if one is not None
        ]
        if len(found) == len(parts):
            values = ConcatenatedSource([one.values for one in found], f"{name}, coordinate {first.name!r}")
            joined.append(replace(first, values=values))
        elif first.name in parts[0].sample_dims:
            lacking = next(part.name for one, part in zip(each, parts, strict=True) if one is None)
            raise missing_coordinate(first.name, lacking, parts[0].name)
    return tuple(joined)


def missing_coordinate(coordinate: str, lacking: str, having: str) -> DataError:
    """Return the error for a file without a coordinate that another file has."""
    return DataError(
        f"{lacking}: has no coordinate {coordinate!r}, which {having} has; write it to this file too, "
        "or leave the file out"
    )
