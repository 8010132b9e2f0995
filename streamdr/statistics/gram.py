"""Passes over columns, for wide data. A block holds all rows of some columns, and so their means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import AlignedArrays, Array, Block, Span, aligned, widen
from streamdr.core.buffers import output_buffer, scratch
from streamdr.core.linalg import constant_columns, double_centred, shift_near_mean, slabs
from streamdr.core.solving import by_slices


@dataclass(frozen=True)
class ShiftedColumns:
    """Whole columns, shifted by values near their means, scaled if requested, rows times their root weights.

    The values are in the block's own memory if it is disposable, else in a scratch buffer of the thread. They
    are valid until the thread shifts another block.
    """

    values: Array
    roots: Array
    """The square roots of the rows' weights."""
    mean: Array
    variance: Array
    """About the mean, over the weight of all rows; zero unless requested."""
    deviation: Array
    """The divisors of the columns: ones if they were not scaled."""
    constant: Array
    """The indices of constant columns: zero in `values` and in `deviation`."""


def shift_columns(
    block: Block,
    *,
    scale: bool,
    ddof: int,
    double: bool,
    center: bool = True,
    variance: bool = False,
    feature_weights: Array | None = None,
) -> ShiftedColumns:
    """Shift a block of whole columns near the origin, and divide it by its deviations if `scale`.

    `feature_weights` are those of all columns of the matrix. Deviations are divided by them.

    An approximate mean is enough: the remaining means lie along one direction, the same for all columns,
    that of the rows' root weights. A A' is projected off it once, at the end. Vectors orthogonal to it are
    not affected. Without centring, columns are not shifted, and deviations are from zero.
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
    moved = output_buffer(values, block)
    own = squares
    squared = scale or (variance and center)
    if squared:
        own = np.zeros(values.shape[1])
    # A slab at a time, so that it is squared while it is still in cache.
    for slab in slabs(values):
        here = np.subtract(values[slab], origin, out=moved[slab])
        if block.weights is not None:
            here *= roots[slab].astype(moved.dtype)[:, None]
        if squared:
            own += np.einsum("ij,ij->j", here, here)
    offset = (roots.astype(moved.dtype) @ moved).astype(np.float64) / (total or 1.0)
    if not np.isfinite(offset).all():
        block.locate_nonfinite()
    mean = origin.astype(np.float64) + offset
    if center:
        squares = own = np.maximum(own - total * offset**2, 0.0)
    about_mean = squares / (total or 1.0)
    factors = None if feature_weights is None else feature_weights[block.span.slice]
    if factors is not None:
        moved *= factors.astype(moved.dtype)
    if not scale:
        divisors = np.ones_like(mean) if factors is None else 1.0 / factors
        return ShiftedColumns(moved, roots, mean, about_mean, divisors, np.zeros(0, dtype=np.intp))
    scale_variance = own / max(total - ddof, float(np.finfo(np.float64).tiny))  # checked by the caller
    constant = constant_columns(scale_variance, mean if center else np.zeros_like(mean))
    deviation = np.sqrt(scale_variance)
    deviation[constant] = 1.0
    moved /= deviation.astype(moved.dtype)
    moved[:, constant] = 0.0
    if factors is not None:
        deviation /= factors
    deviation[constant] = 0.0
    return ShiftedColumns(moved, roots, mean, about_mean, deviation, constant)


def _squares_about_mean(values: Array, shift: Array, roots: Array) -> Array:
    """The weighted sum of squares of each column about its mean, slab by slab; values are not modified."""
    squares, sums = np.zeros(values.shape[1]), np.zeros(values.shape[1])
    for slab in slabs(values):
        row_weights = roots[slab].astype(values.dtype)
        here = (values[slab] - shift) * row_weights[:, None]
        squares += np.einsum("ij,ij->j", here, here)
        sums += row_weights @ here
    about: Array = np.maximum(squares - sums**2 / (float(roots @ roots) or 1.0), 0.0)
    return about


class Gram:
    """A A' summed over blocks of columns, A the centred (and scaled) data: n x n whatever the width.

    With `center=False`, A is the data as it is.
    """

    kind: ClassVar[str] = "gram"
    allow_nan: ClassVar[bool] = False

    def __init__(
        self,
        n_rows: int,
        *,
        scale: bool = False,
        ddof: int = 1,
        double: bool = False,
        center: bool = True,
        feature_weights: Array | None = None,
    ) -> None:
        self.n_rows = n_rows
        self.feature_weights = feature_weights
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
        columns = shift_columns(
            block,
            scale=self.scale,
            ddof=self.ddof,
            double=self.double,
            center=self.center,
            feature_weights=self.feature_weights,
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
        """The number of rows of positive weight."""
        return int(np.count_nonzero(self.roots))

    def products(self) -> Array:
        """A A', centred if `center`."""
        return double_centred(self.raw, self.roots) if self.center else self.raw.copy()

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(
            self.n_rows,
            scale=self.scale,
            ddof=self.ddof,
            double=self.double,
            center=self.center,
            feature_weights=self.feature_weights,
        )

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        # The products depend on ddof only if they are scaled.
        ddof = self.ddof if self.scale else None
        given = {"n_rows": self.n_rows, "scale": self.scale, "ddof": ddof, "double": self.double}
        centred = {} if self.center else {"center": False}
        return given | centred | _weight_parameter(self.feature_weights)

    def value(self) -> dict[str, Array]:
        """The weight and the products."""
        return {"weight": np.array(self.weight), "gram": self.products()}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"roots": self.roots, "constant": np.array(self.constant), "raw": self.raw}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.roots, self.raw = arrays["roots"], arrays["raw"]
        self.constant = int(arrays["constant"])


class Loadings(AlignedArrays):
    """V' A for eigenvectors V of A A', with each column's mean, deviation and variance.

    They become the components. Their size grows with the number of columns, like that of the result.
    """

    kind: ClassVar[str] = "loadings"
    allow_nan: ClassVar[bool] = False

    def __init__(
        self,
        vectors: Array,
        *,
        scale: bool = False,
        ddof: int = 1,
        double: bool = False,
        center: bool = True,
        feature_weights: Array | None = None,
    ) -> None:
        self.vectors = aligned(vectors)
        self.feature_weights = feature_weights
        self.scale = scale
        self.ddof = ddof
        self.double = double
        self.center = center
        self.pieces: list[tuple[Array, Array]] = []
        """For each block: mean, deviation and variance of its columns, and V' A."""

    def update(self, block: Block) -> None:
        """Fold one block of columns in."""
        columns = shift_columns(
            block,
            scale=self.scale,
            ddof=self.ddof,
            double=self.double,
            center=self.center,
            variance=True,
            feature_weights=self.feature_weights,
        )
        loadings = self.vectors.T.astype(columns.values.dtype, copy=False) @ columns.values
        self.pieces.append((np.stack([columns.mean, columns.deviation, columns.variance]), loadings))

    def merge(self, later: Self) -> None:
        """Append the columns that follow."""
        self.pieces.extend(later.pieces)

    def take(self) -> tuple[Array, Array]:
        """Return mean, deviation and variance, and V'A (one row per vector), and empty the accumulator.

        The pieces are joined in double precision by the threads of the solve. Each is freed as soon as it is
        copied. Otherwise the result would be in memory twice.
        """
        stops = np.cumsum([piece.shape[1] for _, piece in self.pieces], dtype=np.intp).tolist()
        length = stops[-1] if stops else 0
        levels, loadings = np.empty((3, length)), np.empty((self.vectors.shape[1], length))
        pieces: list[tuple[Array, Array] | None] = [*self.pieces]
        self.pieces = []

        def copy(numbers: Span) -> None:
            for number in range(numbers.start, numbers.stop):
                found, pieces[number] = pieces[number], None
                assert found is not None  # each is copied once
                level, piece = found
                columns = slice(stops[number] - piece.shape[1], stops[number])
                levels[:, columns], loadings[:, columns] = level, piece

        by_slices(copy, len(pieces), 1)
        return levels, loadings

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(
            self.vectors,
            scale=self.scale,
            ddof=self.ddof,
            double=self.double,
            center=self.center,
            feature_weights=self.feature_weights,
        )

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        names = ("vectors", "scale", "ddof", "double", "center")
        return {name: getattr(self, name) for name in names} | _weight_parameter(self.feature_weights)

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
        """Restore a saved state."""
        names = sorted(name.removeprefix("piece") for name in arrays if name.startswith("piece"))
        self.pieces = [(arrays[f"level{name}"], arrays[f"piece{name}"]) for name in names]


def _weight_parameter(feature_weights: Array | None) -> dict[str, Any]:
    """The parameter of weights of features. Without them there is none, as in earlier versions."""
    return {} if feature_weights is None else {"feature_weights": feature_weights}


class Scores(AlignedArrays):
    """(X - mean) W summed over blocks of columns: the projection of wide rows, without a wide row."""

    kind: ClassVar[str] = "scores"
    allow_nan: ClassVar[bool] = False

    def __init__(self, n_rows: int, mean: Array, projection: Array) -> None:
        self.n_rows = n_rows
        self.mean = mean
        self.projection = aligned(projection)
        self.scores = np.zeros((n_rows, projection.shape[1]))

    def update(self, block: Block) -> None:
        """Fold one block of columns in."""
        values = widen(block.values)
        columns = block.span.slice
        shift = self.mean[columns].astype(values.dtype)
        projection = self.projection[columns]
        scores = np.subtract(values, shift, out=output_buffer(values, block)) @ projection.astype(
            values.dtype, copy=False
        )
        if not np.isfinite(scores).all():
            block.locate_nonfinite()
        self.scores += scores
        self.scores += (shift - self.mean[columns]) @ projection

    def merge(self, later: Self) -> None:
        """Fold in the columns that follow."""
        self.scores += later.scores

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.n_rows, self.mean, self.projection)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        return {"n_rows": self.n_rows, "mean": self.mean, "projection": self.projection}

    def value(self) -> dict[str, Array]:
        """The scores."""
        return {"scores": self.scores}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"scores": self.scores}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.scores = arrays["scores"]
