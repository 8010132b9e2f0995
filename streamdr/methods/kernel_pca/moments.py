"""Moments of kernel features, for several kernels and by folds, in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from streamdr.core.blocks import AlignedArrays, Array, Block, Span, SparseBlock, SparseRows, aligned, widen
from streamdr.core.buffers import scratch
from streamdr.core.linalg import column_squares
from streamdr.methods.kernel_pca.features import SIDE_BYTES, Features
from streamdr.statistics.splits import fold_of

TILE_BYTES = 16 << 20
"""Bytes of features in one product: enough rows to outweigh the addition to the sums."""
_SLAB_BYTES = 1 << 20


class FoldMoments(NamedTuple):
    """The moments of some rows' features: weight, sum k(x,x), mean, and scatter about the mean."""

    weight: float
    trace: float
    mean: Array
    scatter: Array


class KernelMoments(AlignedArrays):
    """Sums and products of features about a fixed origin near their mean, of each map and each fold of rows.

    The origins are the means of a sample, so that the correction afterwards is small, and sums merge by
    addition. Products are taken in the block's own precision (`double`: in float64) and summed
    in float64. A row's fold is drawn by its number.
    """

    kind: ClassVar[str] = "kernel_moments"
    allow_nan: ClassVar[bool] = False

    def __init__(
        self,
        features: Features,
        origins: Sequence[Array],
        *,
        folds: int = 1,
        seed: int = 0,
        double: bool = False,
    ) -> None:
        self.features = features
        self.origins = tuple(aligned(origin) for origin in origins)
        self.folds = folds
        self.seed = seed
        self.double = double
        self.count = 0
        self.weights = np.zeros(folds)
        self.traces = np.zeros((len(self.origins), folds))
        self.sums = [np.zeros((folds, width)) for width in features.widths]
        self.products = [np.zeros((folds, width, width)) for width in features.widths]

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        values = widen(block.values)
        if self.double:
            values = values.astype(np.float64, copy=False)
        if not np.isfinite(column_squares(values)).all():
            block.locate_nonfinite()
        self._fold(values, block)

    def update_sparse(self, block: SparseBlock) -> None:
        """Fold one block of sparse rows in."""
        values = block.values.astype(np.float64, copy=False) if self.double else block.values
        if not np.isfinite(values.data).all():
            block.locate_nonfinite()
        self._fold(values, block)

    def _fold(self, values: Array | SparseRows, block: Block | SparseBlock) -> None:
        """Add the rows of each fold, tile by tile."""
        n_rows = values.shape[0]
        self.count += n_rows
        weights = np.ones(n_rows) if block.weights is None else block.weights
        numbers = block.numbers
        folds = fold_of(numbers, self.folds, self.seed)
        row_bytes = sum(self.features.widths) * values.dtype.itemsize
        for fold in range(self.folds):
            mine = np.flatnonzero(folds == fold) if self.folds > 1 else np.arange(n_rows)
            for tile in Span(0, len(mine)).split(max(1, TILE_BYTES // row_bytes)):
                here = mine[tile.slice] if self.folds > 1 else tile.slice
                self._add(fold, values[here], numbers[here], weights[here])

    def _add(self, fold: int, rows: Array | SparseRows, numbers: Array, weights: Array) -> None:
        n_rows, n_cols = rows.shape
        outs = [
            scratch(f"features {number}", (n_rows, width), rows.dtype)
            for number, width in enumerate(self.features.widths)
        ]
        origins = [origin.astype(rows.dtype) for origin in self.origins]
        roots = np.sqrt(weights).astype(rows.dtype)
        weighted = bool((weights != 1.0).any())
        # A slab at a time, so that it is still in cache when it is shifted and summed.
        # Wide rows are fewer to a slab, since the kernel makes copies of them.
        few = min(_SLAB_BYTES // outs[0][:1].nbytes, SIDE_BYTES // (n_cols * rows.dtype.itemsize))
        for span in Span(0, n_rows).split(max(1, few)):
            slab = span.slice
            parts = [out[slab] for out in outs]
            self.features.fill(rows[slab], parts)
            for sums, part, origin in zip(self.sums, parts, origins, strict=True):
                part -= origin
                if weighted:
                    part *= roots[slab, None]
                sums[fold] += roots[slab] @ part
        self.weights[fold] += weights.sum()
        self.traces[:, fold] += self.features.diagonal(rows, numbers) @ weights
        for products, out in zip(self.products, outs, strict=True):
            product = scratch("product", (out.shape[1], out.shape[1]), rows.dtype)
            np.matmul(out.T, out, out=product)  # detects the symmetric product, and uses syrk
            products[fold] += product

    def merge(self, later: Self) -> None:
        """Fold in the moments of the rows that follow."""
        self.count += later.count
        self.weights += later.weights
        self.traces += later.traces
        for mine, other in zip((*self.sums, *self.products), (*later.sums, *later.products), strict=True):
            mine += other

    def moments(self, number: int = 0, folds: Sequence[int] | None = None) -> FoldMoments:
        """The moments of one map, over some folds or all."""
        chosen = list(range(self.folds) if folds is None else folds)
        weight = float(self.weights[chosen].sum())
        offset = self.sums[number][chosen].sum(axis=0) / (weight or 1.0)
        scatter = self.products[number][chosen].sum(axis=0) - weight * np.outer(offset, offset)
        trace = float(self.traces[number, chosen].sum())
        return FoldMoments(weight, trace, self.origins[number] + offset, scatter)

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.features, self.origins, folds=self.folds, seed=self.seed, double=self.double)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        origins = {f"origin.{number}": origin for number, origin in enumerate(self.origins)}
        own = {"folds": self.folds, "seed": self.seed, "double": self.double}
        return {**self.features.parameters(), **origins, **own}

    def value(self) -> dict[str, Array]:
        """Weights and traces, and the mean and scatter of each map and fold."""
        found = {"count": np.array(self.count), "weights": self.weights, "traces": self.traces}
        for number in range(len(self.origins)):
            for fold in range(self.folds):
                moments = self.moments(number, [fold])
                found[f"mean.{number}.{fold}"] = moments.mean
                found[f"scatter.{number}.{fold}"] = moments.scatter
        return found

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        found = {"count": np.array(self.count), "weights": self.weights, "traces": self.traces}
        for number, (sums, products) in enumerate(zip(self.sums, self.products, strict=True)):
            found |= {f"sums.{number}": sums, f"products.{number}": products}
        return found

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.count, self.weights, self.traces = int(arrays["count"]), arrays["weights"], arrays["traces"]
        for number in range(len(self.origins)):
            self.sums[number] = arrays[f"sums.{number}"]
            self.products[number] = arrays[f"products.{number}"]
