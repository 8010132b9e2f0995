"""Several statistics of one reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

from streamdr.accumulators.base import Accumulator
from streamdr.blocks import Array, Block


class Several:
    """Accumulators that are all shown every block."""

    kind: ClassVar[str] = "several"

    def __init__(self, parts: Sequence[Accumulator]) -> None:
        self.parts = tuple(parts)

    @property
    def holes(self) -> bool:
        """Whether all of them can do with values that are missing."""
        return all(part.holes for part in self.parts)

    def update(self, block: Block) -> None:
        """Fold one block in. Only the last of them may use it up."""
        kept = replace(block, disposable=False)
        for part in self.parts[:-1]:
            part.update(kept)
        self.parts[-1].update(block)

    def merge(self, later: Self) -> None:
        """Fold in what comes after."""
        for mine, other in zip(self.parts, later.parts, strict=True):
            mine.merge(other)

    def empty_like(self) -> Self:
        """Fresh ones."""
        return type(self)([part.empty_like() for part in self.parts])

    def parameters(self) -> Mapping[str, Any]:
        """Those of each."""
        return self._named(lambda part: {"kind": part.kind, **part.parameters()})

    def value(self) -> dict[str, Array]:
        """The statistics of each."""
        return self._named(lambda part: part.value())

    def arrays(self) -> dict[str, Array]:
        """The states of all as plain arrays."""
        return self._named(lambda part: part.arrays())

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take up a saved state."""
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
        return {
            f"{number}.{name}": value
            for number, part in enumerate(self.parts)
            for name, value in entries(part).items()
        }
