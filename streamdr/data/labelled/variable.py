"""One variable as rows x features: a part of an array with named dimensions, decoded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec, Span
from streamdr.core.buffers import scratch
from streamdr.data.grid_source import GridSource
from streamdr.data.labelled.packing import Packing
from streamdr.data.labelled.selection import Window
from streamdr.data.layout import MatrixLayout, Region
from streamdr.data.snapshot import DIGEST_BYTES, Snapshot
from streamdr.data.source import Source


@dataclass(frozen=True)
class SampleGrid:
    """The sample dimensions: rows go through them in C order.

    Parameters
    ----------
    dims : tuple of str
        Their names.
    windows : tuple of Window
        The positions along each of them that are read.
    """

    dims: tuple[str, ...]
    windows: tuple[Window, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of positions along each dimension."""
        return tuple(map(len, self.windows))

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return prod(self.shape)

    @property
    def rows_per_step(self) -> int:
        """The number of rows for each position along the first dimension, along which rows are appended."""
        return prod(self.shape[1:])

    def boxes(self, rows: Span) -> Iterator[tuple[Span, Region]]:
        """Yield the boxes of the sample dimensions that make up a range of rows, with the rows of each."""
        for part, box in _boxes(self.shape, rows.start, rows.stop):
            moved = (
                slice(one.start + window.start, one.stop + window.start)
                for one, window in zip(box, self.windows, strict=True)
            )
            yield part, tuple(moved)


def _boxes(shape: Sequence[int], start: int, stop: int) -> Iterator[tuple[Span, Region]]:
    """Yield the boxes, in C order, that make up a range of positions in an array of this shape."""
    if len(shape) == 1:
        yield Span(start, stop), (slice(start, stop),)
        return
    inner = prod(shape[1:])
    position = start
    while position < stop:
        index, within = divmod(position, inner)
        if within == 0 and stop - position >= inner:
            whole = (stop - position) // inner
            box = (slice(index, index + whole), *(slice(0, length) for length in shape[1:]))
            yield Span(position, position + whole * inner), box
            position += whole * inner
            continue
        end = min(stop, (index + 1) * inner)
        for part, box in _boxes(shape[1:], within, within + end - position):
            offset = position - within
            yield Span(part.start + offset, part.stop + offset), (slice(index, index + 1), *box)
        position = end


class VariableSource(Source):
    """A variable, along its sample dimensions, for a window of each feature dimension.

    Parameters
    ----------
    array : GridSource
        The stored array.
    dims : sequence of str
        The names of the dimensions of the array, in its own order.
    samples : SampleGrid
        The sample dimensions.
    features : mapping of str to Window
        The feature dimensions in the order in which they are flattened, and what is read of them.
    packing : Packing or None
        How stored values become numbers; None if they are the numbers.
    """

    private_buffers = True

    def __init__(
        self,
        array: GridSource,
        dims: Sequence[str],
        samples: SampleGrid,
        features: Mapping[str, Window],
        packing: Packing | None,
    ) -> None:
        self.name = array.name
        self.samples = samples
        self._array = array
        self._packing = packing
        axes = [dims.index(dim) for dim in (*samples.dims, *features)]
        self._axes = tuple(axes)
        """The axes of the array, in the order of the matrix: those of samples, then those of features."""
        self._windows = tuple(features.values())
        self.layout = MatrixLayout((samples.n_rows, *map(len, self._windows)), 0)
        dtype = array.spec.dtype if packing is None else packing.decoded
        self.spec = MatrixSpec(self.layout.n_rows, self.layout.n_cols, dtype)
        self.chunks = self._matrix_chunk(array.chunk_shape)
        self.grain = self._matrix_chunk(array.piece_shape)
        self.sample_shape = self.layout.features
        self.missing_advice = getattr(array, "missing_advice", "")

    def _matrix_chunk(self, chunk: Sequence[int]) -> tuple[int, int]:
        """Return the rows and columns of a chunk. Appended rows do not change them."""
        number = len(self.samples.dims)
        rows = chunk[self._axes[0]] * self.samples.rows_per_step
        features = [chunk[axis] for axis in self._axes[number:]]
        return rows, self.layout.granularity((1, *features))[1]

    @property
    def array(self) -> GridSource:
        """The stored array."""
        return self._array

    @property
    def is_whole(self) -> bool:
        """Whether all values are read as they are stored, so that the array itself is the same source."""
        plain = all(
            window.start == 0 and window.is_open for window in (*self.samples.windows, *self._windows)
        )
        in_order = list(self._axes[1:]) == sorted(self._axes[1:])
        return plain and in_order and len(self.samples.dims) == 1 and self._packing is None

    @property
    def identity(self) -> str:
        """The name in keys of the ledger: that of the array, and what is read of it."""
        return f"{self._array.identity}, {self._description}{self._companion_names}"

    @property
    def _description(self) -> str:
        """What is read of the array. It does not change when rows are appended."""
        first, *others = self.samples.windows
        windows = [f"{first.start}:" if first.is_open else f"{first.start}:{first.stop}"]
        windows += [f"{window.start}:{window.stop}" for window in (*others, *self._windows)]
        packed = "" if self._packing is None else f" {self._packing}"
        return f"axes {self._axes} {' '.join(windows)}{packed}"

    @property
    def complete_rows(self) -> int:
        """How many of the first rows are in complete chunks of the array, in which the window may begin."""
        before = self.samples.windows[0].start * self.samples.rows_per_step
        end = before + self.spec.n_rows
        return max(0, end - end % self.chunks[0] - before)

    @property
    def client(self) -> Any:
        """The client of the array."""
        return self._array.client

    @property
    def _reads_from(self) -> tuple[Source | None, ...]:
        return (*super()._reads_from, self._array)

    @property
    def stored_itemsize(self) -> int:
        """The bytes of a value as it is stored."""
        return self._array.stored_itemsize

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region."""
        region, part = self.layout.select(rows, cols)
        memory = np.empty(self.layout.shape_of(region), self.spec.dtype)
        return self._filled(memory, rows, region, part)

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """Return the region, in memory that this thread's next call overwrites."""
        region, part = self.layout.select(rows, cols)
        memory = scratch("variable", self.layout.shape_of(region), self.spec.dtype)
        return self._filled(memory, rows, region, part)

    def _filled(self, memory: Array, rows: Span, region: Region, part: Span) -> Array:
        """Read a region into memory, decode it, and return the requested columns."""
        stored = memory
        if self._packing is not None:
            stored = scratch("stored values", memory.shape, self._array.spec.dtype)
        features = tuple(
            slice(piece.start + window.start, piece.stop + window.start)
            for piece, window in zip(region[1:], self._windows, strict=True)
        )
        back = np.argsort(self._axes)
        for span, box in self.samples.boxes(rows):
            where = (*box, *features)
            target = stored[span.start - rows.start : span.stop - rows.start]
            lengths = [one.stop - one.start for one in where]
            view = target.reshape(lengths).transpose(back)
            self._array.fill_box(tuple(where[axis] for axis in back), view)
        if self._packing is not None:
            self._packing.decode(stored, memory)
        return self.layout.trimmed(memory, part)

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the overhead of the array, of stored values, and of columns that are read in addition."""
        width = self.layout.excess(n_cols) or n_cols
        excess = n_rows * self.layout.excess(n_cols) * self.spec.dtype.itemsize
        stored = 0 if self._packing is None else n_rows * width * self._array.spec.dtype.itemsize
        return super().overhead(n_rows, n_cols) + self._array.overhead(n_rows, n_cols) + stored + excess

    def _require_chunks(self) -> None:
        super()._require_chunks()
        self._array._require_chunks()

    def _snapshot(self) -> Snapshot:
        first = self.samples.windows[0]
        return WindowSnapshot(
            self._array.snapshot(), first.start, self.samples.rows_per_step, self._description
        )


@dataclass(frozen=True)
class WindowSnapshot:
    """A snapshot of an array of which a window is read."""

    array: Snapshot
    start: int
    """The position of the first row along the first sample dimension."""
    rows_per_step: int
    description: str

    def digest(self, rows: int) -> str:
        """Return a digest of the array up to the last of these rows, and of what is read of it."""
        whole = self.array.digest(self.start + -(-rows // self.rows_per_step))
        text = f"{whole} {rows} {self.description}"
        return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()

    def require_chunks(self) -> None:
        """Raise an error if chunks were missing."""
        self.array.require_chunks()


class RowCoordinateSource(Source):
    """A coordinate of some of the sample dimensions, with one value for each row."""

    def __init__(self, values: Source, dims: Sequence[str], samples: SampleGrid) -> None:
        self.name = values.name
        self._values = values
        self._samples = samples
        self._at = tuple(samples.dims.index(dim) for dim in dims)
        self.layout = MatrixLayout((samples.n_rows,), 0)
        self.spec = replace(values.spec, n_rows=samples.n_rows, n_cols=1)
        self.chunks = (values.chunks[0] * samples.rows_per_step if self._at[0] == 0 else samples.n_rows, 1)

    @property
    def _reads_from(self) -> tuple[Source | None, ...]:
        return (*super()._reads_from, self._values)

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the values of a range of rows."""
        indices = np.unravel_index(np.arange(rows.start, rows.stop), self._samples.shape)
        at = [indices[axis] + self._samples.windows[axis].start for axis in self._at]
        low = [int(one.min()) for one in at]
        if isinstance(self._values, GridSource) and len(at) > 1:
            region = tuple(slice(least, int(one.max()) + 1) for least, one in zip(low, at, strict=True))
            box = np.empty([piece.stop - piece.start for piece in region], self._values.spec.dtype)
            self._values.fill_box(region, box)
        else:
            box = self._values.read(Span(low[0], int(at[0].max()) + 1), Span(0, 1))[:, 0]
        return box[tuple(one - least for one, least in zip(at, low, strict=True))][:, None]

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the bytes of the indices of rows, and of the values."""
        indices = 8 * n_rows * (2 + 2 * len(self._samples.dims))
        return indices + self._values.overhead(n_rows, 1) + 2 * n_rows * max(self.spec.dtype.itemsize, 8)

    def _require_chunks(self) -> None:
        self._values._require_chunks()

    def _snapshot(self) -> Snapshot:
        return WindowSnapshot(self._values.snapshot(), 0, 1, f"{self._at} {self._samples.windows}")
