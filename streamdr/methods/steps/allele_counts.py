"""The sum of the alleles of each column, where some may be missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import Array, Block, Span, SparseBlock, widen
from streamdr.core.buffers import scratch
from streamdr.core.linalg import slabs
from streamdr.errors import RowError


class AlleleCounts:
    """The weight of the rows in which each column is observed, and the weighted sum of its alleles.

    Alleles are counted from 0 to `ploidy`. Another value is an error.
    """

    kind: ClassVar[str] = "allele counts"
    allow_nan: ClassVar[bool] = True

    def __init__(self, n_cols: int, ploidy: int = 2) -> None:
        self.n_cols, self.ploidy = n_cols, ploidy
        self.weights, self.sums = np.zeros(n_cols), np.zeros(n_cols)

    @property
    def mean(self) -> Array:
        """The mean number of alleles in each column; 0 where there are none."""
        return self.sums / np.where(self.weights > 0, self.weights, 1.0)

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        self.update_tile(block, Span(0, self.n_cols))

    def update_tile(self, block: Block, columns: Span) -> None:
        """Fold in some columns of a block of rows."""
        weights, at = block.weights, columns.slice
        for slab in slabs(block.values):
            rows = widen(block.values[slab])
            self._require_counts(rows, block, slab.start, columns.start)
            missing = np.isnan(rows)
            some = bool(missing.any())
            if some:
                counts = scratch("observed alleles", rows.shape, rows.dtype)
                np.copyto(counts, rows)
                np.copyto(counts, 0.0, where=missing)
                rows = counts
            if weights is None:  # sums of so few counts are exact in single precision
                self.sums[at] += rows.sum(axis=0)
                self.weights[at] += len(rows)
                if some:
                    self.weights[at] -= np.add.reduce(missing, axis=0, dtype=np.uint16)  # of at most 256 rows
            else:
                self.sums[at] += weights[slab] @ rows
                self.weights[at] += weights[slab] @ ~missing

    def update_sparse(self, block: SparseBlock) -> None:
        """Fold one block of sparse rows in."""
        rows = block.values
        values = widen(rows.data)
        if not _within(values, self.ploidy):
            block.locate_nonfinite()
            place = _first_outside(values, self.ploidy)
            if place is not None:
                row = int(np.searchsorted(rows.indptr, place, side="right")) - 1
                raise outside(row, int(rows.indices[place]), values[place], self.ploidy)
        weights = np.ones(rows.shape[0]) if block.weights is None else block.weights
        of_values = np.repeat(weights, np.diff(rows.indptr))
        missing = np.isnan(values)
        self.weights += weights.sum() - np.bincount(rows.indices, of_values * missing, self.n_cols)
        counts = np.where(missing, 0.0, values)
        self.sums += np.bincount(rows.indices, of_values * counts, self.n_cols)

    def _require_counts(self, rows: Array, block: Block, start: int, first_column: int) -> None:
        if not _within(rows, self.ploidy):
            block.locate_nonfinite()
            place = _first_outside(rows, self.ploidy)
            if place is not None:
                row, column = divmod(place, rows.shape[1])
                raise outside(start + row, first_column + column, rows[row, column], self.ploidy)

    def merge(self, later: Self) -> None:
        """Fold in the rows that follow."""
        self.weights, self.sums = self.weights + later.weights, self.sums + later.sums

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.n_cols, self.ploidy)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        return {"n_cols": self.n_cols, "ploidy": self.ploidy}

    def value(self) -> dict[str, Array]:
        """The weights and the means."""
        return {"weights": self.weights, "mean": self.mean}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"weights": self.weights, "sums": self.sums}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.weights, self.sums = arrays["weights"], arrays["sums"]


def outside(row: int, column: int, value: Any, ploidy: int) -> RowError:
    """The error for a value that is no number of alleles."""
    return RowError(
        row,
        f"the value {value:g} in {{column}} is not between 0 and {ploidy}, the ploidy; name the number that "
        "marks missing genotypes in input.missing_value",
        "scale_genotypes",
        column,
    )


def require_counts(rows: Array, ploidy: int, start: int) -> None:
    """Refuse rows with a value that is no number of alleles. Missing values are left to the caller.

    `start` is the number of the first row, for the message.
    """
    if not _within(rows, ploidy) and (place := _first_outside(rows, ploidy)) is not None:
        row, column = divmod(place, rows.shape[1])
        raise outside(start + row, column, rows[row, column], ploidy)


def _within(values: Array, ploidy: int) -> bool:
    """Whether all values are finite or missing, and none is too small or too large."""
    low = np.fmin.reduce(values, axis=None, initial=0.0)
    high = np.fmax.reduce(values, axis=None, initial=0.0)
    return bool(low >= 0 and high <= ploidy)


def _first_outside(values: Array, ploidy: int) -> int | None:
    """The first finite value that is too small or too large; None if there is none."""
    bad = ((values < 0) | (values > ploidy)) & np.isfinite(values)
    return int(np.argmax(bad)) if bad.any() else None
