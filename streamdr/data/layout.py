"""How an N-dimensional array is a matrix: one axis holds the samples, all others are the features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeVar

import numpy as np

from streamdr.core.blocks import Array, Span
from streamdr.errors import DataError, ParameterError

T = TypeVar("T")
Region = tuple[slice, ...]
"""A box of an N-dimensional array: one slice, with start and stop, an axis."""


@dataclass(frozen=True)
class MatrixLayout:
    """The axes of an array, read as rows x columns: features flatten in C order, samples come first."""

    shape: tuple[int, ...]
    sample_axis: int

    @classmethod
    def of(
        cls,
        shape: Sequence[int],
        sample_axis: int | str,
        name: str,
        dims: Sequence[object] | None = None,
    ) -> MatrixLayout:
        """The layout of an array that has these axes (and names of axes), if it has rows and columns."""
        shape = tuple(int(length) for length in shape)
        if not shape:
            raise DataError(f"{name}: a single number (0-dimensional); rows x features are needed")
        if isinstance(sample_axis, str):
            if dims is None or sample_axis not in dims:
                known = (
                    "its dimensions have no names" if dims is None else f"it has {', '.join(map(str, dims))}"
                )
                raise ParameterError("sample_axis", f"{name}: no dimension {sample_axis!r}; {known}")
            axis = list(dims).index(sample_axis)
        elif -len(shape) <= sample_axis < len(shape):
            axis = sample_axis % len(shape)
        else:
            raise ParameterError(
                "sample_axis", f"{name}: no axis {sample_axis} in an array of {len(shape)} dimensions"
            )
        if not all(shape):
            raise DataError(f"{name}: the array is empty (shape {shape}); there is nothing to fit")
        return cls(shape, axis)

    @cached_property
    def features(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.shape[: self.sample_axis] + self.shape[self.sample_axis + 1 :]

    def samples_first(self, names: Sequence[T]) -> tuple[T, ...]:
        """What is given for each axis, that of the samples first."""
        others = [name for axis, name in enumerate(names) if axis != self.sample_axis]
        return names[self.sample_axis], *others

    @property
    def n_rows(self) -> int:
        """How many samples there are."""
        return self.shape[self.sample_axis]

    @cached_property
    def n_cols(self) -> int:
        """How many values one sample has."""
        return prod(self.features)

    @cached_property
    def step(self) -> int:
        """How many columns one index along the first feature axis covers."""
        return prod(self.features[1:])

    def select(self, rows: Span, cols: Span) -> tuple[Region, Span]:
        """The smallest box that holds the columns, and where they are among the columns of the box."""
        box, start, width = [], cols.start, self.n_cols
        last = cols.stop - 1
        # Follow the first and the last column down the axes. As long as both lie at one index, that axis
        # is pinned to it; along the first axis where they part the box runs from one to the other, and
        # whatever comes after that is whole.
        parted = False
        for length in self.features:
            width //= length
            first, final = (0, length - 1) if parted else (start // width, last // width)
            if not parted:
                start, last = start - first * width, last - first * width
                parted = first != final
            box.append(slice(first, final + 1))
        box.insert(self.sample_axis, rows.slice)
        return tuple(box), Span(start, start + len(cols))

    def matrix(self, box: Array) -> Array:
        """A box as rows x columns: a view where that is possible."""
        return np.moveaxis(box, self.sample_axis, 0).reshape(box.shape[self.sample_axis], -1)

    def empty(self, region: Region, dtype: np.dtype[np.generic]) -> tuple[Array, Array]:
        """Fresh memory for a box, as a C-ordered matrix and as the box that `region` cuts out."""
        matrix = np.empty(self.shape_of(region), dtype)
        return matrix, self.box(matrix, region)

    def shape_of(self, region: Region) -> tuple[int, int]:
        """The rows and columns of the matrix that `region` cuts out."""
        lengths = [piece.stop - piece.start for piece in region]
        return lengths.pop(self.sample_axis), prod(lengths)

    def box(self, matrix: Array, region: Region) -> Array:
        """A C-ordered matrix seen as the box that `region` cuts out."""
        lengths = [piece.stop - piece.start for piece in region]
        n_rows = lengths.pop(self.sample_axis)
        return np.moveaxis(matrix.reshape(n_rows, *lengths), 0, self.sample_axis)

    def granularity(self, chunk: Sequence[int]) -> tuple[int, int]:
        """The rows and columns that one chunk spans, whole along all feature axes but the first."""
        lengths = [min(c, length) for c, length in zip(chunk, self.shape, strict=True)]
        rows = lengths.pop(self.sample_axis)
        return rows, lengths[0] * self.step if lengths else 1

    def covers(self, region: Region) -> tuple[Span, Span]:
        """The rows of a box, and the columns from its first to its last."""
        features = [piece for axis, piece in enumerate(region) if axis != self.sample_axis]
        first = last = 0
        for piece, length in zip(features, self.features, strict=True):
            first, last = first * length + piece.start, last * length + piece.stop - 1
        rows = region[self.sample_axis]
        return Span(rows.start, rows.stop), Span(first, last + 1)

    def trimmed(self, matrix: Array, part: Span) -> Array:
        """Some columns of a matrix, without keeping the others alive."""
        return matrix if len(part) == matrix.shape[1] else matrix[:, part.slice].copy()

    def excess(self, n_cols: int) -> int:
        """How many columns a box for `n_cols` columns may hold, if it may hold more than those."""
        if len(self.features) < 2 or n_cols == self.n_cols or n_cols % self.step == 0:
            return 0
        return min(self.n_cols, n_cols + 2 * self.step)
