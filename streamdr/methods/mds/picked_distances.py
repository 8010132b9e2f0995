"""Selected distances of a stored matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import AlignedArrays, Array, Block, aligned


class PickedDistances(AlignedArrays):
    """For each row of a stored matrix, the values in some columns, which differ by row."""

    kind: ClassVar[str] = "picked_distances"

    def __init__(self, columns: Array, *, allow_nan: bool = False) -> None:
        self.columns = aligned(columns)
        self.allow_nan = allow_nan
        self.found = np.zeros(columns.shape)

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        if np.isinf(block.values).any() or (not self.allow_nan and np.isnan(block.values).any()):
            block.locate_nonfinite()
        numbers = block.numbers
        rows = np.arange(len(numbers))[:, None]
        self.found[numbers] += block.values[rows, self.columns[numbers]]

    def merge(self, later: Self) -> None:
        """Fold in the statistics of the rows that follow."""
        self.found += later.found

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.columns, allow_nan=self.allow_nan)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        return {"columns": self.columns, "holes": self.allow_nan}

    def value(self) -> dict[str, Array]:
        """The selected values."""
        return self.arrays()

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"found": self.found}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.found = arrays["found"]
