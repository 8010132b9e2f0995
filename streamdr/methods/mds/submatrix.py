"""Some rows and columns of a matrix that is too large for memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import AlignedArrays, Array, Block, aligned


class Submatrix(AlignedArrays):
    """The submatrix of the given rows and columns; row numbers ascend."""

    kind: ClassVar[str] = "submatrix"

    def __init__(self, rows: Array, columns: Array, *, allow_nan: bool = False) -> None:
        self.rows = aligned(rows)
        self.columns = aligned(columns)
        self.allow_nan = allow_nan
        self.found = np.zeros((len(rows), len(columns)))

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        numbers = block.numbers
        indices = np.searchsorted(self.rows, numbers)
        selected = np.flatnonzero(self.rows[np.minimum(indices, len(self.rows) - 1)] == numbers)
        picked = block.values[np.ix_(selected, self.columns)].astype(np.float64)
        values = block.values
        if np.isinf(values).any() or (not self.allow_nan and np.isnan(values).any()):
            block.locate_nonfinite()
        self.found[indices[selected]] += picked

    def merge(self, later: Self) -> None:
        """Fold in the statistics of the rows that follow."""
        self.found += later.found

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.rows, self.columns, allow_nan=self.allow_nan)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        return {"rows": self.rows, "columns": self.columns, "holes": self.allow_nan}

    def value(self) -> dict[str, Array]:
        """The submatrix."""
        return self.arrays()

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"found": self.found}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.found = arrays["found"]
