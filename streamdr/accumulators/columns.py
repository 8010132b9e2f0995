"""Passes over columns, for wide data: a block holds every row of some columns, so their means are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.blocks import Array, Block, Settled, settled, widen
from streamdr.linalg import column_squares, constant_columns, double_centred, shift_near_mean
from streamdr.scratch import room_for, scratch


@dataclass(frozen=True)
class Columns:
    """Whole columns moved near their means and scaled as asked, rows times the root of their weights.

    The values are the block's own memory if it may be overwritten, or the thread's scratch: they last until
    it moves another block.
    """

    values: Array
    roots: Array
    """The square roots of the rows' weights."""
    mean: Array
    deviation: Array
    constant: Array
    """Which columns cannot be scaled: they are zero in `values`, as is their `deviation`."""


def near_their_means(block: Block, *, scale: bool, ddof: int, double: bool) -> Columns:
    """Move a block of whole columns near the origin, and divide it by its deviations when asked.

    Near is enough: what is left of the means is one direction, the same for all columns, that of the
    rows' root weights. A A' is freed of it at the end, once, and vectors orthogonal to it never see it.
    """
    values = widen(block.values)
    if double:
        values = values.astype(np.float64, copy=False)
    shift = shift_near_mean(values)
    moved = np.subtract(values, shift, out=room_for(values, block))
    roots = np.ones(len(moved)) if block.weights is None else np.sqrt(block.weights)
    if block.weights is not None:
        moved *= roots.astype(moved.dtype)[:, None]
    total = float(roots @ roots)
    offset = (roots.astype(moved.dtype) @ moved).astype(np.float64) / (total or 1.0)
    if not np.isfinite(offset).all():
        block.suspect()
    mean = shift.astype(np.float64) + offset
    if not scale:
        return Columns(moved, roots, mean, np.ones_like(mean), np.zeros(0, dtype=np.intp))
    variance = np.maximum(column_squares(moved) - total * offset**2, 0.0) / (total - ddof)
    constant = constant_columns(variance, mean)
    deviation = np.sqrt(variance)
    deviation[constant] = 1.0
    moved /= deviation.astype(moved.dtype)
    moved[:, constant] = 0.0
    deviation[constant] = 0.0
    return Columns(moved, roots, mean, deviation, constant)


class Gram:
    """A A' summed over blocks of columns, A the centred (and scaled) data: n x n whatever the width."""

    kind: ClassVar[str] = "gram"
    holes: ClassVar[bool] = False

    def __init__(self, n_rows: int, *, scale: bool = False, ddof: int = 1, double: bool = False) -> None:
        self.n_rows = n_rows
        self.scale = scale
        self.ddof = ddof
        self.double = double
        self.roots = np.zeros(n_rows)
        self.constant = -1
        """The first column that could not be scaled, or -1."""
        self.raw = np.zeros((n_rows, n_rows))

    @property
    def weight(self) -> float:
        """The sum of the rows' weights."""
        return float(self.roots @ self.roots)

    def update(self, block: Block) -> None:
        """Fold one block of columns in."""
        if block.values.shape[1] == 0:
            return
        columns = near_their_means(block, scale=self.scale, ddof=self.ddof, double=self.double)
        product = scratch("product", self.raw.shape, columns.values.dtype)
        self.raw += np.matmul(columns.values, columns.values.T, out=product)
        self.roots = columns.roots
        if self.constant < 0 and len(columns.constant):
            self.constant = block.span.start + int(columns.constant[0])

    def merge(self, later: Self) -> None:
        """Fold in the products of the columns that follow."""
        self.raw += later.raw
        self.roots = np.maximum(self.roots, later.roots)
        self.constant = later.constant if self.constant < 0 else self.constant

    def centred(self) -> Array:
        """A A' with the columns' means taken off."""
        return double_centred(self.raw, self.roots)

    def empty_like(self) -> Self:
        """A fresh one for the same rows."""
        return type(self)(self.n_rows, scale=self.scale, ddof=self.ddof, double=self.double)

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart before any data."""
        # The products only depend on ddof through the scaling: without it, any ddof shares them.
        ddof = self.ddof if self.scale else None
        return {"n_rows": self.n_rows, "scale": self.scale, "ddof": ddof, "double": self.double}

    def value(self) -> dict[str, Array]:
        """The weight and the products."""
        return {"weight": np.array(self.weight), "gram": self.centred()}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"roots": self.roots, "constant": np.array(self.constant), "raw": self.raw}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take up a saved state."""
        self.roots, self.raw = arrays["roots"], arrays["raw"]
        self.constant = int(arrays["constant"])


class Loadings(Settled):
    """V' A for eigenvectors V of A A', with each column's mean and deviation: what becomes the components.

    It keeps something of every column it saw: the answer itself is that large.
    """

    kind: ClassVar[str] = "loadings"
    holes: ClassVar[bool] = False

    def __init__(self, vectors: Array, *, scale: bool = False, ddof: int = 1, double: bool = False) -> None:
        self.vectors = settled(vectors)
        self.scale = scale
        self.ddof = ddof
        self.double = double
        self.pieces: list[tuple[Array, Array]] = []
        """Of each block the mean and deviation of its columns, and V' A in the precision it was taken in."""

    def update(self, block: Block) -> None:
        """Fold one block of columns in."""
        columns = near_their_means(block, scale=self.scale, ddof=self.ddof, double=self.double)
        loadings = self.vectors.T.astype(columns.values.dtype, copy=False) @ columns.values
        self.pieces.append((np.stack([columns.mean, columns.deviation]), loadings))

    def merge(self, later: Self) -> None:
        """Append the columns that follow."""
        self.pieces.extend(later.pieces)

    def take(self) -> tuple[Array, Array, Array]:
        """Hand over mean, deviation and V'A (a row a vector), keeping nothing: it would be held twice."""
        length = sum(piece.shape[1] for _, piece in self.pieces)
        levels, loadings = np.empty((2, length)), np.empty((self.vectors.shape[1], length))
        start = 0
        self.pieces.reverse()
        while self.pieces:
            level, piece = self.pieces.pop()
            columns = slice(start, start + piece.shape[1])
            levels[:, columns], loadings[:, columns] = level, piece
            start = columns.stop
        return levels[0], levels[1], loadings

    def empty_like(self) -> Self:
        """A fresh one for the same vectors."""
        return type(self)(self.vectors, scale=self.scale, ddof=self.ddof, double=self.double)

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart before any data."""
        return {"vectors": self.vectors, "scale": self.scale, "ddof": self.ddof, "double": self.double}

    def value(self) -> dict[str, Array]:
        """Mean, deviation and loadings of each column."""
        nothing = np.zeros((2, 0)), np.zeros((self.vectors.shape[1], 0))
        levels, loadings = zip(nothing, *self.pieces, strict=True)
        return {"levels": np.hstack(levels), "loadings": np.hstack(loadings)}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        levels = {f"level{i:06d}": level for i, (level, _) in enumerate(self.pieces)}
        return levels | {f"piece{i:06d}": piece for i, (_, piece) in enumerate(self.pieces)}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take up a saved state."""
        names = sorted(name.removeprefix("piece") for name in arrays if name.startswith("piece"))
        self.pieces = [(arrays[f"level{name}"], arrays[f"piece{name}"]) for name in names]


class Scores(Settled):
    """(X - mean) W summed over blocks of columns: the projection of wide rows, without a wide row."""

    kind: ClassVar[str] = "scores"
    holes: ClassVar[bool] = False

    def __init__(self, n_rows: int, mean: Array, projection: Array) -> None:
        self.n_rows = n_rows
        self.mean = mean
        self.projection = settled(projection)
        self.scores = np.zeros((n_rows, projection.shape[1]))

    def update(self, block: Block) -> None:
        """Fold one block of columns in."""
        values = widen(block.values)
        columns = block.span.slice
        shift = self.mean[columns].astype(values.dtype)
        projection = self.projection[columns]
        scores = np.subtract(values, shift, out=room_for(values, block)) @ projection.astype(
            values.dtype, copy=False
        )
        if not np.isfinite(scores).all():
            block.suspect()
        self.scores += scores
        self.scores += (shift - self.mean[columns]) @ projection

    def merge(self, later: Self) -> None:
        """Fold in the columns that follow."""
        self.scores += later.scores

    def empty_like(self) -> Self:
        """A fresh one for the same projection."""
        return type(self)(self.n_rows, self.mean, self.projection)

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart before any data."""
        return {"n_rows": self.n_rows, "mean": self.mean, "projection": self.projection}

    def value(self) -> dict[str, Array]:
        """The scores."""
        return {"scores": self.scores}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"scores": self.scores}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take up a saved state."""
        self.scores = arrays["scores"]
