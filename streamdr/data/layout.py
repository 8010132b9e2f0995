"""An N-dimensional array as a matrix: one axis holds the samples, all others are features."""

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
"""A box of an N-dimensional array: one slice per axis, with start and stop."""


@dataclass(frozen=True)
class MatrixLayout:
    """The axes of an array as rows x columns: samples first, features flattened in C order."""

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
        """Return the layout of an array with this shape and these names of dimensions."""
        shape = tuple(int(length) for length in shape)
        if not shape:
            raise DataError(f"{name}: a single number (0-dimensional); rows x features are needed")
        if isinstance(sample_axis, str):
            if dims is None or sample_axis not in dims:
                available = (
                    "its dimensions have no names" if dims is None else f"it has {', '.join(map(str, dims))}"
                )
                raise ParameterError("sample_axis", f"{name}: no dimension {sample_axis!r}; {available}")
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
        """Return items that are given per axis, that of the sample axis first."""
        others = [name for axis, name in enumerate(names) if axis != self.sample_axis]
        return names[self.sample_axis], *others

    @property
    def n_rows(self) -> int:
        """The number of samples."""
        return self.shape[self.sample_axis]

    @cached_property
    def n_cols(self) -> int:
        """The number of values per sample."""
        return prod(self.features)

    @cached_property
    def step(self) -> int:
        """The number of columns per index along the first feature axis."""
        return prod(self.features[1:])

    def select(self, rows: Span, cols: Span) -> tuple[Region, Span]:
        """Return the smallest box that contains the columns, and their position among its columns."""
        box, start, width = [], cols.start, self.n_cols
        last = cols.stop - 1
        # Follow the first and the last column down the axes. While both have the same index, the box has
        # only that index. Along the first axis where they differ, the box extends from one to the other.
        # All axes after that are complete.
        differ = False
        for length in self.features:
            width //= length
            first, final = (0, length - 1) if differ else (start // width, last // width)
            if not differ:
                start, last = start - first * width, last - first * width
                differ = first != final
            box.append(slice(first, final + 1))
        box.insert(self.sample_axis, rows.slice)
        return tuple(box), Span(start, start + len(cols))

    def matrix(self, box: Array) -> Array:
        """Return a box as rows x columns: a view if possible."""
        return np.moveaxis(box, self.sample_axis, 0).reshape(box.shape[self.sample_axis], -1)

    def empty(self, region: Region, dtype: np.dtype[np.generic]) -> tuple[Array, Array]:
        """Return new memory for `region`, as a C-ordered matrix and as a box."""
        matrix = np.empty(self.shape_of(region), dtype)
        return matrix, self.box(matrix, region)

    def shape_of(self, region: Region) -> tuple[int, int]:
        """Return the numbers of rows and columns of `region` as a matrix."""
        lengths = [piece.stop - piece.start for piece in region]
        return lengths.pop(self.sample_axis), prod(lengths)

    def box(self, matrix: Array, region: Region) -> Array:
        """Return a view of a C-ordered matrix as the box of `region`."""
        lengths = [piece.stop - piece.start for piece in region]
        n_rows = lengths.pop(self.sample_axis)
        return np.moveaxis(matrix.reshape(n_rows, *lengths), 0, self.sample_axis)

    def granularity(self, chunk: Sequence[int]) -> tuple[int, int]:
        """Return the rows and columns of a chunk, taken as complete along all feature axes but the first."""
        lengths = [min(c, length) for c, length in zip(chunk, self.shape, strict=True)]
        rows = lengths.pop(self.sample_axis)
        return rows, lengths[0] * self.step if lengths else 1

    def covers(self, region: Region) -> tuple[Span, Span]:
        """Return the rows of a box, and its columns from the first to the last."""
        features = [piece for axis, piece in enumerate(region) if axis != self.sample_axis]
        first = last = 0
        for piece, length in zip(features, self.features, strict=True):
            first, last = first * length + piece.start, last * length + piece.stop - 1
        rows = region[self.sample_axis]
        return Span(rows.start, rows.stop), Span(first, last + 1)

    def trimmed(self, matrix: Array, part: Span) -> Array:
        """Return a range of columns of a matrix, copied so that the other columns are freed."""
        return matrix if len(part) == matrix.shape[1] else matrix[:, part.slice].copy()

    def excess(self, n_cols: int) -> int:
        """Return the most columns that a box for `n_cols` columns may have; 0 if it has no others."""
        if len(self.features) < 2 or n_cols == self.n_cols or n_cols % self.step == 0:
            return 0
        return min(self.n_cols, n_cols + 2 * self.step)
