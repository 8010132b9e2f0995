"""Some rows and columns of a matrix that is too large to be held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.blocks import Array, Block, Settled, settled


class Submatrix(Settled):
    """The values where rows and columns of given numbers meet; the rows' numbers are in ascending order."""

    kind: ClassVar[str] = "submatrix"

    def __init__(self, rows: Array, columns: Array, *, holes: bool = False) -> None:
        self.rows = settled(rows)
        self.columns = settled(columns)
        self.holes = holes
        self.found = np.zeros((len(rows), len(columns)))

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        numbers = block.numbers
        places = np.searchsorted(self.rows, numbers)
        mine = np.flatnonzero(self.rows[np.minimum(places, len(self.rows) - 1)] == numbers)
        picked = block.values[np.ix_(mine, self.columns)].astype(np.float64)
        values = block.values
        if np.isinf(values).any() or (not self.holes and np.isnan(values).any()):
            block.suspect()
        self.found[places[mine]] += picked

    def merge(self, later: Self) -> None:
        """Fold in what comes after."""
        self.found += later.found

    def empty_like(self) -> Self:
        """A fresh one for the same places."""
        return type(self)(self.rows, self.columns, holes=self.holes)

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart before any data."""
        return {"rows": self.rows, "columns": self.columns, "holes": self.holes}

    def value(self) -> dict[str, Array]:
        """What was found."""
        return self.arrays()

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"found": self.found}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take up a saved state."""
        self.found = arrays["found"]
