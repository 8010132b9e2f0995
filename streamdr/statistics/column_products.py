"""A A' times a few vectors in passes over columns, and what the vectors give of each column.

A block holds all rows of some columns, in the type in which they are stored. It is widened, and shifted by
values near the means of its columns, a tile at a time: no other copy of a whole block is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import AlignedArrays, Array, Block, Span, aligned, widen, working_dtype
from streamdr.core.buffers import scratch
from streamdr.core.linalg import constant_columns, mean_of_few, shift_rows
from streamdr.statistics.gram import Loadings

_TILE_ROWS, _TILE_COLUMNS = 128, 2048
"""A tile of this size stays in cache while it is shifted, multiplied and summed."""
_TINY = float(np.finfo(np.float64).tiny)


def column_scratch(n_rows: int, width: int) -> int:
    """The bytes that a block of columns takes besides its values, for products with `width` vectors."""
    vectors, strip = n_rows * (width + 2), _TILE_COLUMNS * (width + 8)
    return 8 * (2 * _TILE_ROWS * (_TILE_COLUMNS + width) + 4 * vectors + 4 * strip)


@dataclass(frozen=True)
class _Strip:
    """A few adjacent columns of a block, and their products with vectors."""

    values: Array
    """The columns as they are stored."""
    origin: Array
    """What is subtracted from each column."""
    products: Array
    """V' A, one row per vector."""
    mean: Array
    variance: Array
    """About the mean, over the weight of all rows."""
    deviation: Array
    """The divisors of the columns; zero for a constant column, whose products are zero."""
    factors: Array
    """The reciprocals of the divisors; zero for a constant column."""


@dataclass(frozen=True, eq=False)
class _Columns:
    """How columns become those of A: centred, scaled, times their weights, rows times their root weights."""

    scale: bool
    ddof: int
    double: bool
    center: bool
    feature_weights: Array | None

    def strips(self, block: Block, vectors: Array, *, levels: bool) -> Iterator[tuple[Span, _Strip]]:
        """Yield the columns of a block with their products, and their means and variances if `levels`."""
        dtype = np.dtype(np.float64) if self.double else working_dtype(block.values.dtype)
        roots = row_roots(block)
        weights, thin = np.square(roots), aligned((vectors * roots[:, None]).T.astype(dtype))
        few = shift_rows(len(block.values), block.weights)
        for columns in Span(0, block.values.shape[1]).split(_TILE_COLUMNS):
            values = block.values[:, columns.slice]
            shift = mean_of_few(widen(values[few])).astype(dtype)
            origin = shift if self.center else np.zeros_like(shift)
            products, (sums, squares) = np.zeros((len(thin), len(columns))), np.zeros((2, len(columns)))
            for rows, tile in _tiles(values, origin):
                products += thin[:, rows] @ tile
                if levels and self.center:
                    _add_levels(sums, squares, weights[rows], tile)
            if not np.isfinite(products).all():
                block.locate_nonfinite()
            if levels and not self.center:
                for rows, tile in _tiles(values, shift):
                    _add_levels(sums, squares, weights[rows], tile)
            total = float(weights.sum())
            offset = sums / (total or 1.0)
            mean, about_mean = shift + offset, np.maximum(squares - total * offset**2, 0.0)
            at = Span(block.span.start + columns.start, block.span.start + columns.stop)
            deviation, factors = self._divisors(mean, about_mean, total, at)
            products *= factors
            yield (
                columns,
                _Strip(values, origin, products, mean, about_mean / (total or 1.0), deviation, factors),
            )

    def _divisors(self, mean: Array, squares: Array, total: float, at: Span) -> tuple[Array, Array]:
        """The divisors of columns and their reciprocals, from their squares about the mean."""
        deviation = np.ones(len(mean))
        if self.scale:
            own = squares if self.center else squares + total * mean**2
            variance = own / max(total - self.ddof, _TINY)  # checked by the caller
            constant = constant_columns(variance, mean if self.center else np.zeros_like(mean))
            deviation = np.sqrt(variance)
            deviation[constant] = 0.0
        if self.feature_weights is not None:
            deviation = deviation / self.feature_weights[at.slice]
        return deviation, np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)

    def parameters(self) -> dict[str, Any]:
        """The parameters that are part of the ledger's key. Only scaled products depend on ddof."""
        given = {"scale": self.scale, "ddof": self.ddof if self.scale else None, "double": self.double}
        weighted = {} if self.feature_weights is None else {"feature_weights": self.feature_weights}
        return given | {"center": self.center} | weighted


class ColumnProducts(AlignedArrays):
    """A A' V summed over blocks of columns, A the centred (and scaled) data and V a thin basis.

    With `center=False`, A is the data as it is. Centring is completed at the end: columns are shifted near
    their means, and what remains of these lies along the root weights of the rows.
    """

    kind: ClassVar[str] = "column products"
    allow_nan: ClassVar[bool] = False
    takes_stored: ClassVar[bool] = True

    def __init__(
        self,
        basis: Array,
        *,
        scale: bool = False,
        ddof: int = 1,
        double: bool = False,
        center: bool = True,
        feature_weights: Array | None = None,
    ) -> None:
        self.basis = aligned(basis)
        self.columns = _Columns(scale, ddof, double, center, feature_weights)
        self.roots = np.zeros(len(basis))
        self.constant = -1
        """The first column that could not be scaled, or -1."""
        self.images = np.zeros(basis.shape)

    @property
    def weight(self) -> float:
        """The sum of the rows' weights."""
        return float(self.roots @ self.roots)

    @property
    def count(self) -> int:
        """The number of rows of positive weight."""
        return int(np.count_nonzero(self.roots))

    def update(self, block: Block) -> None:
        """Fold one block of columns in."""
        if block.values.shape[1] == 0:
            return
        self.roots = row_roots(block)
        vectors = _off(self.basis, self.roots) if self.columns.center else self.basis
        for columns, strip in self.columns.strips(block, vectors, levels=self.columns.scale):
            thin = aligned((strip.products * strip.factors).T.astype(strip.origin.dtype))
            for rows, tile in _tiles(strip.values, strip.origin):
                self.images[rows] += tile @ thin * self.roots[rows, None]
            constant = np.flatnonzero(strip.deviation == 0.0)
            if self.constant < 0 and len(constant):
                self.constant = block.span.start + columns.start + int(constant[0])

    def merge(self, later: Self) -> None:
        """Fold in the products of the columns that follow."""
        self.images += later.images
        self.roots = np.maximum(self.roots, later.roots)
        self.constant = later.constant if self.constant < 0 else self.constant

    def products(self) -> Array:
        """A A' V, centred if `center`."""
        return _off(self.images, self.roots) if self.columns.center else self.images.copy()

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        how = self.columns
        return type(self)(
            self.basis,
            scale=how.scale,
            ddof=how.ddof,
            double=how.double,
            center=how.center,
            feature_weights=how.feature_weights,
        )

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        return {"basis": self.basis} | self.columns.parameters()

    def value(self) -> dict[str, Array]:
        """The weight and the products."""
        return {"weight": np.array(self.weight), "products": self.products()}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"roots": self.roots, "constant": np.array(self.constant), "images": self.images}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.roots, self.images = arrays["roots"], arrays["images"]
        self.constant = int(arrays["constant"])


class TiledLoadings(Loadings):
    """The same as `Loadings`, of columns that are widened and shifted a tile at a time."""

    kind: ClassVar[str] = "tiled loadings"
    takes_stored: ClassVar[bool] = True

    def update(self, block: Block) -> None:
        """Fold one block of columns in."""
        how = _Columns(self.scale, self.ddof, self.double, self.center, self.feature_weights)
        vectors = _off(self.vectors, row_roots(block)) if self.center else self.vectors
        for _, strip in how.strips(block, vectors, levels=True):
            levels = np.stack([strip.mean, strip.deviation, strip.variance])
            self.pieces.append((levels, strip.products))


def row_roots(block: Block) -> Array:
    """The square roots of the weights of a block's rows."""
    return np.ones(len(block.values)) if block.weights is None else np.sqrt(block.weights)


def _off(vectors: Array, direction: Array) -> Array:
    """Vectors as columns, projected off a direction."""
    unit = direction / (np.linalg.norm(direction) or 1.0)
    return vectors - np.outer(unit, unit @ vectors)


def _tiles(values: Array, origin: Array) -> Iterator[tuple[slice, Array]]:
    """Yield values minus their origins, a few rows at a time, in scratch memory, and which rows they are."""
    memory = scratch("tile", (_TILE_ROWS, values.shape[1]), origin.dtype)
    moved = bool(origin.any())
    for start in range(0, len(values), _TILE_ROWS):
        rows = slice(start, min(start + _TILE_ROWS, len(values)))
        tile = memory[: rows.stop - start]
        np.copyto(tile, values[rows])
        if moved:
            tile -= origin
        yield rows, tile


def _add_levels(sums: Array, squares: Array, weights: Array, tile: Array) -> None:
    """Add the weighted sums and squares of a tile, which is overwritten."""
    weights = weights.astype(tile.dtype)
    sums += weights @ tile
    squares += weights @ np.square(tile, out=tile)
