"""The store of ingested data: one array X, compressed, with checksums, in chunks for streaming."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec

from streamdr.core.blocks import Array
from streamdr.core.progress import PassStart, Progress
from streamdr.core.system import available_cores
from streamdr.errors import ConfigError
from streamdr.store.arrays import CHUNK_BYTES, ArrayLayout, Index

NAME = "X"
LARGEST_CHUNK_BYTES = 4 * CHUNK_BYTES
LARGEST_BAND_BYTES = 2**29
"""The most memory for a band of whole rows, where a table is read by rows but stored in parts of rows."""

_WIDE = 8
_ENDLESS = 2**62


def is_wide(shape: Sequence[int]) -> bool:
    """Return whether there are so many more columns than rows that the data will be read by column."""
    return math.prod(shape[1:]) >= _WIDE * shape[0]


def plan_layout(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    chunk_rows: int | None = None,
    grain: Sequence[int] | None = None,
) -> ArrayLayout:
    """Return a layout with chunks of about 16 MB: whole rows of a tall array, whole columns of a wide one.

    A row (or column) that is too large for a chunk is divided too, one dimension after the other.
    `grain` is the chunk shape of the file that is copied. Chunks are multiples of it where possible. A wide
    file that is stored by rows is divided into tiles, so that few of its chunks are read twice.
    """
    if chunk_rows is not None and not 1 <= chunk_rows <= LARGEST_CHUNK_BYTES // dtype.itemsize:
        limit = LARGEST_CHUNK_BYTES // dtype.itemsize
        raise ConfigError(f"chunk_rows is {chunk_rows:,}, but for {dtype} it must be from 1 to {limit:,}")
    chunks = list(shape)
    order = list(range(len(shape)))
    if chunk_rows is not None:
        chunks[0] = min(chunk_rows, shape[0])
        order = order[1:] if math.prod(chunks) * dtype.itemsize > LARGEST_CHUNK_BYTES else []
    elif is_wide(shape):
        line_bytes = math.prod(shape) // shape[1] * dtype.itemsize
        if grain is None or grain[1] * line_bytes <= LARGEST_BAND_BYTES:
            order[:2] = 1, 0
        else:
            chunks[0] = max(1, LARGEST_BAND_BYTES * shape[0] // (math.prod(shape) * dtype.itemsize))
            order = order[1:]
    for axis in order:
        line = math.prod(chunks) // chunks[axis] * dtype.itemsize
        length = max(1, CHUNK_BYTES // line)
        if grain is not None and grain[axis] * line <= LARGEST_CHUNK_BYTES:
            length = max(grain[axis], length - length % grain[axis])
        chunks[axis] = min(length, shape[axis])
        if chunks[axis] * line <= LARGEST_CHUNK_BYTES:
            break
    return ArrayLayout(shape, tuple(chunks), dtype.newbyteorder("="), _dimension_names(len(shape)))


def create_matrix(
    group: Path, layout: ArrayLayout, feature_names: Sequence[str] | None = None, *, name: str = NAME
) -> zarr.Array[Any]:
    """Create the array, without data, in the directory of its group."""
    return zarr.create_array(
        group / name,
        shape=layout.shape,
        chunks=layout.chunks,
        dtype=layout.dtype,
        # The checksum covers the compressed bytes: a flipped bit is detected before decompression.
        compressors=[BloscCodec(cname="lz4", clevel=5, shuffle="shuffle"), Crc32cCodec()],
        fill_value=math.nan if layout.dtype.kind == "f" else 0,
        dimension_names=layout.dims,
        attributes={} if feature_names is None else {"feature_names": list(feature_names)},
        # Chunks of zeros are written too, so that a missing chunk is known to be lost.
        config={"write_empty_chunks": True},
    )


def rows_from(path: Path, start: int) -> Array:
    """Return the rows of an array from `start` on. The caller must have checked its metadata."""
    return np.asarray(zarr.open_array(path, mode="r")[start:])


def fill(
    array: zarr.Array[Any],
    layout: ArrayLayout,
    values: Callable[[Index], Array],
    label: str,
    progress: Progress,
) -> None:
    """Write every chunk of the array, several in parallel. `values` returns the values of a region."""
    axis = 1 if layout.grid[0] == 1 and math.prod(layout.grid) > 1 else 0
    per_line = math.prod(layout.shape[2:]) if axis else 1
    total = layout.shape[axis] * per_line

    def write(region: Index) -> int:
        array[region] = values(region)
        last = all(s.stop == n for s, n in zip(region[axis + 1 :], layout.shape[axis + 1 :], strict=True))
        return (region[axis].stop - region[axis].start) * per_line if last else 0

    bytes_per_line = math.prod(layout.shape) * layout.dtype.itemsize / total
    progress.start(PassStart(label, total, bytes_per_row=bytes_per_line, unit="columns" if axis else "rows"))
    workers = ThreadPoolExecutor(min(4, available_cores()))
    try:
        for lines in workers.map(write, (region for _, region in layout.files())):
            progress.advance(lines)
    finally:
        # No thread may still write when the caller removes the files.
        workers.shutdown(cancel_futures=True)
        progress.finish()


class RowWriter:
    """Appends rows to a matrix of unknown length. It writes whole chunks, except for the last one."""

    def __init__(
        self,
        group: Path,
        n_cols: int,
        dtype: np.dtype[Any],
        *,
        chunk_rows: int | None = None,
        feature_names: Sequence[str] | None = None,
        chunks: tuple[int, ...] | None = None,
    ) -> None:
        """Write into a group. `chunks` is the chunk shape of the array that the rows will be appended to."""
        self._fixed = chunks is not None
        self.layout = replace(
            plan_layout((_ENDLESS, n_cols), dtype, chunk_rows=chunk_rows), shape=(0, n_cols)
        )
        if chunks is not None:
            self.layout = replace(self.layout, chunks=chunks)
        row_bytes = n_cols * dtype.itemsize
        if chunk_rows is not None and chunk_rows * row_bytes > max(LARGEST_BAND_BYTES, row_bytes):
            raise ConfigError(
                f"chunk_rows is {chunk_rows:,}, which takes {chunk_rows * row_bytes / 1e9:.3g} GB of memory "
                f"at {n_cols:,} columns; choose at most {max(1, LARGEST_BAND_BYTES // row_bytes):,}"
            )
        self._group = group
        self._feature_names = feature_names
        self._buffer = np.empty((self.layout.chunks[0], n_cols), self.layout.dtype)
        self._filled = 0
        self._array: zarr.Array[Any] | None = None

    @property
    def n_rows(self) -> int:
        """The number of rows that were appended so far."""
        return self.layout.shape[0] + self._filled

    def append(self, values: Array) -> None:
        """Append rows of the dtype of the matrix."""
        while len(values):
            taken = values[: len(self._buffer) - self._filled]
            self._buffer[self._filled : self._filled + len(taken)] = taken
            self._filled += len(taken)
            values = values[len(taken) :]
            if self._filled == len(self._buffer):
                self._flush()

    def finish(self) -> None:
        """Write the rows that do not fill a chunk."""
        if self._filled:
            self._flush()

    def _flush(self) -> None:
        start, n_cols = self.layout.shape
        self.layout = replace(self.layout, shape=(start + self._filled, n_cols))
        if self._array is None:
            # Only now is it known whether the matrix fills a chunk. A shorter matrix gets a shorter chunk.
            if not self._fixed:
                self.layout = replace(self.layout, chunks=(self._filled, self.layout.chunks[1]))
            self._array = create_matrix(self._group, self.layout, self._feature_names)
        else:
            self._array.resize(self.layout.shape)
        self._array[start:] = self._buffer[: self._filled]
        self._filled = 0


def _dimension_names(ndim: int) -> tuple[str, ...]:
    if ndim == 2:
        return "sample", "feature"
    return "sample", *(f"axis_{axis}" for axis in range(1, ndim))
