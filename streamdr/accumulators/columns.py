"""Passes over columns, for wide data: a block holds every row of some columns, so their means are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.blocks import Array, Block, Settled, settled, widen
from streamdr.linalg import column_squares, constant_columns, double_centred, shift_near_mean, slabs
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
    variance: Array
    """About the mean, over the weight of all rows; as asked for."""
    deviation: Array
    """What columns were divided by: ones if they were not scaled."""
    constant: Array
    """Which columns cannot be scaled: they are zero in `values`, as is their `deviation`."""


def near_their_means(
    block: Block, *, scale: bool, ddof: int, double: bool, center: bool = True, variance: bool = False
) -> Columns:
    """Move a block of whole columns near the origin, and divide it by its deviations when asked.

    Near is enough: what is left of the means is one direction, the same for all columns, that of the
    rows' root weights. A A' is freed of it at the end, once, and vectors orthogonal to it never see it.
    Without centring columns stay where they are, and their deviations are from zero.
    """
    values = widen(block.values)
    if double:
        values = values.astype(np.float64, copy=False)
    roots = np.ones(len(values)) if block.weights is None else np.sqrt(block.weights)
    total = float(roots @ roots)
    shift = shift_near_mean(values, block.weights)
    squares = np.zeros(values.shape[1])
    if variance and not center:  # the block's own memory is overwritten below
        squares = _squares_about_mean(values, shift, roots)
    origin = shift if center else np.zeros_like(shift)
    moved = np.subtract(values, origin, out=room_for(values, block))
    if block.weights is not None:
        moved *= roots.astype(moved.dtype)[:, None]
    offset = (roots.astype(moved.dtype) @ moved).astype(np.float64) / (total or 1.0)
    if not np.isfinite(offset).all():
        block.suspect()
    mean = origin.astype(np.float64) + offset
    own = column_squares(moved) if scale or (variance and center) else squares
    if center:
        squares = own = np.maximum(own - total * offset**2, 0.0)
    found = squares / (total or 1.0)
    if not scale:
        return Columns(moved, roots, mean, found, np.ones_like(mean), np.zeros(0, dtype=np.intp))
    spread = own / max(total - ddof, float(np.finfo(np.float64).tiny))  # refused later if it is no more
    constant = constant_columns(spread, mean if center else np.zeros_like(mean))
    deviation = np.sqrt(spread)
    deviation[constant] = 1.0
    moved /= deviation.astype(moved.dtype)
    moved[:, constant] = 0.0
    deviation[constant] = 0.0
    return Columns(moved, roots, mean, found, deviation, constant)


def _squares_about_mean(values: Array, shift: Array, roots: Array) -> Array:
    """The weighted sum of squares of each column about its mean, a slab at a time; nothing is moved."""
    squares, sums = np.zeros(values.shape[1]), np.zeros(values.shape[1])
    for slab in slabs(values):
        heavy = roots[slab].astype(values.dtype)
        here = (values[slab] - shift) * heavy[:, None]
        squares += np.einsum("ij,ij->j", here, here)
        sums += heavy @ here
    about: Array = np.maximum(squares - sums**2 / (float(roots @ roots) or 1.0), 0.0)
    return about


class Gram:
    """A A' summed over blocks of columns, A the centred (and scaled) data: n x n whatever the width.

    With `center=False`, A is the data as it is.
    """

    kind: ClassVar[str] = "gram"
    holes: ClassVar[bool] = False

    def __init__(
        self, n_rows: int, *, scale: bool = False, ddof: int = 1, double: bool = False, center: bool = True
    ) -> None:
        self.n_rows = n_rows
        self.scale = scale
        self.ddof = ddof
        self.double = double
        self.center = center
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
        columns = near_their_means(
            block, scale=self.scale, ddof=self.ddof, double=self.double, center=self.center
        )
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

    @property
    def count(self) -> int:
        """Rows that have any weight."""
        return int(np.count_nonzero(self.roots))

    def products(self) -> Array:
        """A A' with the columns' means taken off, or as it is where they are not to be."""
        return double_centred(self.raw, self.roots) if self.center else self.raw.copy()

    def empty_like(self) -> Self:
        """A fresh one for the same rows."""
        return type(self)(
            self.n_rows, scale=self.scale, ddof=self.ddof, double=self.double, center=self.center
        )

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart before any data."""
        # The products only depend on ddof through the scaling: without it, any ddof shares them.
        ddof = self.ddof if self.scale else None
        given = {"n_rows": self.n_rows, "scale": self.scale, "ddof": ddof, "double": self.double}
        return given if self.center else {**given, "center": False}

    def value(self) -> dict[str, Array]:
        """The weight and the products."""
        return {"weight": np.array(self.weight), "gram": self.products()}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"roots": self.roots, "constant": np.array(self.constant), "raw": self.raw}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take up a saved state."""
        self.roots, self.raw = arrays["roots"], arrays["raw"]
        self.constant = int(arrays["constant"])


class Loadings(Settled):
    """V' A for eigenvectors V of A A', with each column's mean, deviation and variance.

    It becomes the components.
    It keeps something of every column it saw: the answer itself is that large.
    """

    kind: ClassVar[str] = "loadings"
    holes: ClassVar[bool] = False

    def __init__(
        self,
        vectors: Array,
        *,
        scale: bool = False,
        ddof: int = 1,
        double: bool = False,
        center: bool = True,
    ) -> None:
        self.vectors = settled(vectors)
        self.scale = scale
        self.ddof = ddof
        self.double = double
        self.center = center
        self.pieces: list[tuple[Array, Array]] = []
        """Of each block the mean, deviation and variance of its columns, and V' A as it was multiplied."""

    def update(self, block: Block) -> None:
        """Fold one block of columns in."""
        columns = near_their_means(
            block, scale=self.scale, ddof=self.ddof, double=self.double, center=self.center, variance=True
        )
        loadings = self.vectors.T.astype(columns.values.dtype, copy=False) @ columns.values
        self.pieces.append((np.stack([columns.mean, columns.deviation, columns.variance]), loadings))

    def merge(self, later: Self) -> None:
        """Append the columns that follow."""
        self.pieces.extend(later.pieces)

    def take(self) -> tuple[Array, Array]:
        """Hand over mean, deviation and variance, and V'A (a row a vector), keeping nothing.

        It would be held twice.
        """
        length = sum(piece.shape[1] for _, piece in self.pieces)
        levels, loadings = np.empty((3, length)), np.empty((self.vectors.shape[1], length))
        start = 0
        self.pieces.reverse()
        while self.pieces:
            level, piece = self.pieces.pop()
            columns = slice(start, start + piece.shape[1])
            levels[:, columns], loadings[:, columns] = level, piece
            start = columns.stop
        return levels, loadings

    def empty_like(self) -> Self:
        """A fresh one for the same vectors."""
        return type(self)(
            self.vectors, scale=self.scale, ddof=self.ddof, double=self.double, center=self.center
        )

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart before any data."""
        names = ("vectors", "scale", "ddof", "double", "center")
        return {name: getattr(self, name) for name in names}

    def value(self) -> dict[str, Array]:
        """Mean, deviation, variance and loadings of each column."""
        nothing = np.zeros((3, 0)), np.zeros((self.vectors.shape[1], 0))
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
