"""The words everything else is written in: the shape of the data, a span of it, a block of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

GOOD_READ_BYTES = 1 << 20
"""Reading twice as much at a time is hardly faster."""
_BANDS = 8

Array = NDArray[Any]
Axis = Literal["rows", "columns"]


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The native float type in which values of `dtype` are exact (64-bit integers: to 53 bits).

    Bytes and shorts are exact in single precision, and so is half precision. Everything wider goes to
    double. Products are never taken in the stored type: 300 rows of 200 in uint8 would sum to nothing.
    """
    exact_in_single = dtype.kind == "b" or dtype.itemsize <= 2 or (dtype.kind == "f" and dtype.itemsize == 4)
    return np.dtype(np.float32 if exact_in_single else np.float64)


def widen(values: Array) -> Array:
    """Return values as native floats, untouched (not copied) where they are already."""
    return values.astype(working_dtype(values.dtype), copy=False)


def settled(array: Array) -> Array:
    """The same numbers in rows, each where its type belongs; not copied where they lie so already.

    BLAS multiplies what lies otherwise in another way, and rounds otherwise. What came over a network may
    begin at any byte.
    """
    return np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED"])


class Settled:
    """Holds arrays for products: they lie alike in every process, wherever they came from."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            self.__dict__[name] = settled(value) if isinstance(value, np.ndarray) else value


@dataclass(frozen=True)
class MatrixSpec:
    """All that a method may know before it sees data: rows are samples, columns are features."""

    n_rows: int
    n_cols: int
    dtype: np.dtype[Any]
    labels: np.dtype[Any] | None = None
    """The type of the labels, where rows have them: numbers, or text."""

    @property
    def working(self) -> np.dtype[Any]:
        """The type in which blocks of this matrix arrive."""
        return working_dtype(self.dtype)

    def length(self, axis: Axis) -> int:
        """How many rows, or columns, there are."""
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
        """Cut the run into consecutive pieces of `length`, the last one possibly shorter."""
        for start in range(self.start, self.stop, length):
            yield Span(start, min(start + length, self.stop))


@dataclass(frozen=True)
class Part:
    """Every so manyth band of rows, which are whole chunks: a part of the data that is like all of it.

    The rest of a part are all other bands: who reads a part, and then the rest, has read every row once.
    """

    number: int
    of: int
    rest: bool = False

    def __post_init__(self) -> None:
        if self.rest and self.of < 2:
            raise ValueError("the only part has all the rows: there is no rest")

    def bands(self, n_rows: int, chunk: int, row_bytes: int) -> list[Span]:
        """The rows of this part, of a matrix that is stored in chunks of so many rows."""
        bands = Span(0, n_rows).split(self.band(n_rows, chunk, row_bytes))
        return [band for n, band in enumerate(bands) if (n % self.of == self.number) != self.rest]

    def n_rows(self, n_rows: int) -> int:
        """How many rows of so many this part has, at most: bands are as long as suits the chunks."""
        share = -(-n_rows // self.of) * ((self.of - 1) if self.rest else 1)
        return min(n_rows, 2 * share)

    def band(self, n_rows: int, chunk: int, row_bytes: int) -> int:
        """How many rows lie side by side: a good read where that leaves a part several bands."""
        if chunk * self.of > n_rows:  # fewer chunks than parts: they share chunks
            return max(1, n_rows // self.of)
        affordable = n_rows // (_BANDS * self.of * chunk)
        return chunk * max(1, min(affordable, GOOD_READ_BYTES // (chunk * row_bytes)))


@dataclass(frozen=True)
class Block:
    """What one read delivers: whole rows (or, for a pass over columns, whole columns) of the matrix."""

    span: Span
    values: Array
    labels: Array | None = None
    """One a row, where rows have them: float64, or text. None of them is NaN."""
    weights: Array | None = None
    disposable: bool = False
    """Whether the values may be overwritten: nobody looks at them again."""
    suspect: Callable[[], object] = lambda: None
    """For who meets a sum that is not finite: raises, and says where, if it was the data and no overflow."""
    rows: Array | None = None
    """The numbers of the rows in the whole matrix, where the span is one of a part of it."""

    @property
    def numbers(self) -> Array:
        """The number of each row in the whole matrix."""
        return np.arange(self.span.start, self.span.stop) if self.rows is None else self.rows
