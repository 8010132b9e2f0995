"""Several statistics in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self, cast

from streamdr.core.accumulator import Accumulator, UpdatesSparse
from streamdr.core.blocks import Array, Block, SparseBlock


class Composite:
    """Several accumulators that are all updated with every block."""

    kind: ClassVar[str] = "several"

    def __init__(self, parts: Sequence[Accumulator]) -> None:
        self.parts = tuple(parts)

    @property
    def allow_nan(self) -> bool:
        """Whether all of them allow missing values."""
        return all(part.allow_nan for part in self.parts)

    def update(self, block: Block) -> None:
        """Fold one block in. Only the last accumulator may overwrite it."""
        read_only = replace(block, disposable=False)
        for part in self.parts[:-1]:
            part.update(read_only)
        self.parts[-1].update(block)

    @property
    def takes_sparse(self) -> bool:
        """Whether all of them take sparse rows."""
        return all(isinstance(part, UpdatesSparse) for part in self.parts)

    def update_sparse(self, block: SparseBlock) -> None:
        """Fold one block of sparse rows in."""
        for part in self.parts:
            cast(UpdatesSparse, part).update_sparse(block)

    def merge(self, later: Self) -> None:
        """Fold in the statistics of the rows that follow."""
        for mine, other in zip(self.parts, later.parts, strict=True):
            mine.merge(other)

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)([part.empty_like() for part in self.parts])

    def parameters(self) -> Mapping[str, Any]:
        """The parameters of each."""
        return self._named(lambda part: {"kind": part.kind, **part.parameters()})

    def value(self) -> dict[str, Array]:
        """The statistics of each."""
        return self._named(lambda part: part.value())

    def arrays(self) -> dict[str, Array]:
        """The states as plain arrays."""
        return self._named(lambda part: part.arrays())

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        for number, part in enumerate(self.parts):
            prefix = f"{number}."
            part.restore(
                {
                    name.removeprefix(prefix): array
                    for name, array in arrays.items()
                    if name.startswith(prefix)
                }
            )

    def _named(self, entries: Any) -> dict[str, Any]:
        """The entries of all parts; the number of a part precedes each name."""
        return {
            f"{number}.{name}": value
            for number, part in enumerate(self.parts)
            for name, value in entries(part).items()
        }
