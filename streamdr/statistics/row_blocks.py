"""The covariance times a few vectors for each block of consecutive rows, for a block bootstrap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import AlignedArrays, Array, Block, Span, SparseBlock, aligned
from streamdr.statistics.products import Products
from streamdr.statistics.sparse_rows import rows_of


class BlockProducts(AlignedArrays):
    """`Products` with one basis, for each `block_rows` consecutive rows: by the numbers of the rows.

    Only blocks with rows take memory, so a task that reads some rows holds their blocks only.
    """

    kind: ClassVar[str] = "block_products"
    allow_nan: ClassVar[bool] = False

    def __init__(self, basis: Array, block_rows: int, *, double: bool = False) -> None:
        self.basis = aligned(basis)
        self.block_rows = block_rows
        self.double = double
        self.parts: dict[int, Products] = {}
        """The statistics of each block, by its number."""

    def update(self, block: Block) -> None:
        """Fold one block of the reading in, cut where blocks of the bootstrap begin."""
        for number, rows in self._runs(block.numbers):
            weights = None if block.weights is None else block.weights[rows]
            own = replace(
                block,
                span=Span(0, rows.stop - rows.start),
                values=block.values[rows],
                labels=None,
                weights=weights,
                rows=block.numbers[rows],
            )
            self._part(number).update(own)

    def update_sparse(self, block: SparseBlock) -> None:
        """Fold one block of sparse rows in, cut in the same way."""
        for number, rows in self._runs(block.numbers):
            self._part(number).update_sparse(rows_of(block, rows))

    def _runs(self, numbers: Array) -> Iterator[tuple[int, slice]]:
        """The number of each block of the bootstrap, and the consecutive rows that belong to it."""
        owners = numbers // self.block_rows
        edges = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(owners)]
        for start, stop in pairwise(edges):
            if start < stop:
                yield int(owners[start]), slice(start, stop)

    def merge(self, later: Self) -> None:
        """Fold in the statistics of the rows that follow."""
        for number, part in later.parts.items():
            self._part(number).merge(part)

    def _part(self, number: int) -> Products:
        """The statistics of a block, empty ones if it is new."""
        if number not in self.parts:
            self.parts[number] = Products(self.basis, squares=False, double=self.double)
        return self.parts[number]

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.basis, self.block_rows, double=self.double)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        return {"basis": self.basis, "block_rows": self.block_rows, "double": self.double}

    def value(self) -> dict[str, Array]:
        """The statistics of each block; its number precedes each name."""
        return {
            f"{n}.{name}": array for n in sorted(self.parts) for name, array in self.parts[n].value().items()
        }

    def arrays(self) -> dict[str, Array]:
        """The states of all blocks as plain arrays."""
        return {
            f"{n}.{name}": array for n in sorted(self.parts) for name, array in self.parts[n].arrays().items()
        }

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.parts = {}
        states: dict[int, dict[str, Array]] = {}
        for key, array in arrays.items():
            owner, name = key.split(".", 1)
            states.setdefault(int(owner), {})[name] = array
        for number, state in states.items():
            self._part(number).restore(state)
