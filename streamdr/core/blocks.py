"""The shape of the data, spans of rows or columns, and blocks of values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

BLOCK_BYTES = 16 << 20
"""Bytes that are read at a time, in whole chunks."""
LARGEST_BLOCK_BYTES = 64 << 20
"""Bytes that are read at a time where the accumulator is large."""
SEGMENT_BYTES = 32 << 20
"""Bytes that one task reads."""
IN_MEMORY_BYTES = 4 << 20
"""Bytes that one task takes of rows that are in memory."""
GOOD_READ_BYTES = 1 << 20
"""Bytes of a read above which longer reads are hardly faster."""
SPARSE_PIECE = 1 << 20
"""The most stored values that a block of sparse rows has, unless it is a single row."""
_BANDS = 8

Array = NDArray[Any]
SparseRows: TypeAlias = csr_array
"""Rows whose columns ascend, each at most once. A value that is not stored is zero."""
Axis = Literal["rows", "columns"]


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The native float type in which values of `dtype` are exact (64-bit integers: to 53 bits).

    Types of up to two bytes are exact in single precision. Wider types become double. Products are never
    taken in the stored type: sums of uint8 would overflow.
    """
    exact_in_single = dtype.kind == "b" or dtype.itemsize <= 2 or (dtype.kind == "f" and dtype.itemsize == 4)
    return np.dtype(np.float32 if exact_in_single else np.float64)


def widen(values: Array) -> Array:
    """Return values as native floats, without a copy if they already are."""
    return values.astype(working_dtype(values.dtype), copy=False)


def aligned(array: Array) -> Array:
    """A C-contiguous, aligned array of the same numbers; not copied if it already is one.

    BLAS uses other kernels for other memory layouts, and they round differently. An array that came over a
    network may begin at any byte.
    """
    return np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED"])


class AlignedArrays:
    """A base class whose arrays are C-contiguous and aligned after unpickling, in every process."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            self.__dict__[name] = aligned(value) if isinstance(value, np.ndarray) else value


@dataclass(frozen=True)
class MatrixSpec:
    """The shape and types of the data. Rows are samples, columns are features."""

    n_rows: int
    n_cols: int
    dtype: np.dtype[Any]
    labels: np.dtype[Any] | None = None
    """The type of the labels, where rows have them: numbers, or text."""
    feature_weights: Array | None = field(default=None, compare=False, repr=False)
    """The weight of each column: a method works on centred columns multiplied by it; None if all are 1."""

    columns: Array | None = field(default=None, compare=False, repr=False)
    """The number of each column in the data as it is stored; None if none is left out."""
    feature_names: tuple[str, ...] | None = field(default=None, compare=False, repr=False)
    """The name of each column, where columns have names: for methods that choose columns by name. In the plan
    of a chain, there may be more names than columns: those that a member may keep."""
    density: float | None = field(default=None, compare=False, repr=False)
    """The share of the values that are stored, where rows are sparse; None for dense rows. It serves to
    estimate work: no result depends on it."""
    chunks: tuple[int, int] | None = field(default=None, compare=False, repr=False)
    """The rows and columns of a chunk, where they are known: for methods that can read along both axes."""

    def stored_number(self, column: int) -> int:
        """The number of a column in the data as it is stored, for a message."""
        return column if self.columns is None else int(self.columns[column])

    @property
    def working(self) -> np.dtype[Any]:
        """The type in which blocks of this matrix arrive."""
        return working_dtype(self.dtype)

    def length(self, axis: Axis) -> int:
        """The number of rows, or of columns."""
        return self.n_rows if axis == "rows" else self.n_cols

    def line_bytes(self, axis: Axis) -> int:
        """The bytes of one row, or column, as it arrives in a block."""
        return self.length("columns" if axis == "rows" else "rows") * self.working.itemsize


@dataclass(frozen=True, order=True)
class Span:
    """A half-open run of rows or of columns."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def slice(self) -> slice:
        """The same run for indexing."""
        return slice(self.start, self.stop)

    def split(self, length: int) -> Iterator[Span]:
        """Split the run into consecutive spans of `length`, the last one possibly shorter."""
        for start in range(self.start, self.stop, length):
            yield Span(start, min(start + length, self.stop))


@dataclass(frozen=True)
class Part:
    """A subset of the rows: every `of`-th band, from band `number` on. Bands are runs of whole chunks.

    The subset is spread evenly over the data, and so resembles all of it. With `rest`, it is all other bands:
    a part and its rest together contain every row once.
    """

    number: int
    of: int
    rest: bool = False

    def __post_init__(self) -> None:
        if self.rest and self.of < 2:
            raise ValueError("the only part holds all rows: there is no rest")

    def bands(self, n_rows: int, chunk: int, row_bytes: int) -> list[Span]:
        """The spans of this part, of a matrix that is stored in chunks of `chunk` rows."""
        bands = Span(0, n_rows).split(self.band(n_rows, chunk, row_bytes))
        return [band for n, band in enumerate(bands) if (n % self.of == self.number) != self.rest]

    def n_rows(self, n_rows: int) -> int:
        """An upper bound of the number of rows of this part. Bands have the length that suits the chunks."""
        share = -(-n_rows // self.of) * ((self.of - 1) if self.rest else 1)
        return min(n_rows, 2 * share)

    def band(self, n_rows: int, chunk: int, row_bytes: int) -> int:
        """The number of rows of a band: enough for an efficient read, while a part keeps several bands."""
        if chunk * self.of > n_rows:  # fewer chunks than parts: parts share chunks
            return max(1, n_rows // self.of)
        affordable = n_rows // (_BANDS * self.of * chunk)
        return chunk * max(1, min(affordable, GOOD_READ_BYTES // (chunk * row_bytes)))


V = TypeVar("V")


@dataclass(frozen=True)
class BlockOf(Generic[V]):
    """The values of one read: whole rows of the matrix (whole columns, in a pass over columns)."""

    span: Span
    values: V
    labels: Array | None = None
    """One label per row, if rows have labels: float64 or text, never NaN."""
    weights: Array | None = None
    disposable: bool = False
    """Whether the values may be overwritten: they are not used again."""
    locate_nonfinite: Callable[[], object] = lambda: None
    """To be called when a sum is not finite: raises an error with the position if the data is the cause, not
    an overflow."""
    rows: Array | None = None
    """The row numbers in the whole matrix, where the block belongs to a part of the rows."""

    @property
    def numbers(self) -> Array:
        """The row numbers in the whole matrix."""
        return np.arange(self.span.start, self.span.stop) if self.rows is None else self.rows


Block: TypeAlias = BlockOf[Array]
"""A block of dense values."""
SparseBlock: TypeAlias = BlockOf[SparseRows]
"""A block of sparse rows."""
