"""Fourth powers of the rows' lengths, which Ledoit and Wolf's shrinkage needs besides the scatter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import AlignedArrays, Array, Block, SparseBlock, aligned, widen
from streamdr.core.linalg import slabs
from streamdr.statistics.sparse_rows import dense_blocks


class ClassLengths(AlignedArrays):
    """For each class, and for all rows, sum_i w_i |z_i|^4, where z is a centred row in units of deviations.

    Means are an origin, exact in the data's type, plus a small offset. Means and deviations have a row for
    each class, and a last one for all rows. Classes must be those of the data.
    """

    kind: ClassVar[str] = "class_lengths"
    allow_nan: ClassVar[bool] = False

    def __init__(
        self, classes: Array, origins: Array, offsets: Array, deviations: Array, *, double: bool = False
    ) -> None:
        self.classes = classes
        self.origins = aligned(origins)
        self.offsets = aligned(offsets)
        self.deviations = aligned(deviations)
        self.double = double
        self.sums = np.zeros(len(origins))

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        assert block.labels is not None  # methods that need labels are never run without them
        values = widen(block.values)
        dtype = np.dtype(np.float64) if self.double else values.dtype
        tables = [table.astype(dtype) for table in (self.origins, self.offsets, 1 / self.deviations)]
        weights = np.ones(len(values)) if block.weights is None else block.weights
        last = len(self.classes)
        codes = np.minimum(np.searchsorted(self.classes, block.labels), last - 1)
        sums = np.zeros(last + 1)
        for slab in slabs(values):
            rows, row_weights = values[slab].astype(dtype, copy=False), weights[slab]
            for numbers in (codes[slab], np.full(len(row_weights), last)):
                origins, offsets, inverses = (np.take(table, numbers, axis=0) for table in tables)
                scaled = np.subtract(rows, origins, out=origins)
                scaled -= offsets
                scaled *= inverses
                squares = np.einsum("ij,ij->i", scaled, scaled).astype(np.float64)
                sums += np.bincount(numbers, row_weights * squares**2, minlength=last + 1)
        if not np.isfinite(sums).all():
            block.locate_nonfinite()
        self.sums += sums

    def update_sparse(self, block: SparseBlock) -> None:
        """Fold one block of sparse rows in. A few at a time are dense: all of their columns are scaled."""
        for dense in dense_blocks(block):
            self.update(dense)

    def merge(self, later: Self) -> None:
        """Fold in the sums of the rows that follow."""
        self.sums += later.sums

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.classes, self.origins, self.offsets, self.deviations, double=self.double)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        names = ("classes", "origins", "offsets", "deviations", "double")
        return {name: getattr(self, name) for name in names}

    def value(self) -> dict[str, Array]:
        """The sums."""
        return {"sums": self.sums}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"sums": self.sums}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.sums = arrays["sums"]
