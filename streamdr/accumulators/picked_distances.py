"""A few distances of many, at places that are known beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.blocks import Array, Block, Settled, settled


class PickedDistances(Settled):
    """Of each row of a stored matrix the values in some columns of its own."""

    kind: ClassVar[str] = "picked_distances"

    def __init__(self, columns: Array, *, holes: bool = False) -> None:
        self.columns = settled(columns)
        self.holes = holes
        self.found = np.zeros(columns.shape)

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        if np.isinf(block.values).any() or (not self.holes and np.isnan(block.values).any()):
            block.suspect()
        numbers = block.numbers
        rows = np.arange(len(numbers))[:, None]
        self.found[numbers] += block.values[rows, self.columns[numbers]]

    def merge(self, later: Self) -> None:
        """Fold in what comes after."""
        self.found += later.found

    def empty_like(self) -> Self:
        """A fresh one for the same places."""
        return type(self)(self.columns, holes=self.holes)

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart before any data."""
        return {"columns": self.columns, "holes": self.holes}

    def value(self) -> dict[str, Array]:
        """What was found."""
        return self.arrays()

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"found": self.found}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take up a saved state."""
        self.found = arrays["found"]
