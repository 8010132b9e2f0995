"""What a statistic must do to be streamed: take a block, merge with a neighbour, be written down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self, TypeVar

from streamdr.blocks import Array, Block


class Accumulator(Protocol):
    """Sufficient statistics of the blocks seen so far. Mutable, owned by one task, never shared.

    The laws (`streamdr.testing`) are the contract: empty is the identity, merging is associative, any
    split of the rows gives the whole, the block is not touched (unless it is disposable), values that are
    not finite are noticed, and the state does not grow with rows.
    """

    kind: ClassVar[str]
    """The name under which the ledger and the registry know this statistic."""

    @property
    def holes(self) -> bool:
        """Whether NaN stands for a value that is missing, and is no error."""

    def update(self, block: Block) -> None:
        """Fold one block in."""

    def merge(self, later: Self) -> None:
        """Fold in the statistics of the blocks that come after this one's. `later` is left alone."""

    def empty_like(self) -> Self:
        """A fresh accumulator with the same parameters that has seen nothing."""

    def parameters(self) -> Mapping[str, Any]:
        """What makes two accumulators of one kind differ before any data: scalars, arrays and functions.

        The ledger's key is made of these. Two accumulators of one kind with equal parameters that saw
        the same blocks hold the same bits. Functions are told apart by their code and what it refers to;
        a pass with one that cannot be told apart is not remembered.
        """

    def value(self) -> dict[str, Array]:
        """The statistics themselves, free of how the state happens to hold them. The laws compare these."""

    def arrays(self) -> dict[str, Array]:
        """The state, as plain arrays, without the parameters. `restore` on an empty one undoes it."""

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take up a state that `arrays` gave. The arrays are its own from now on: it will add to them."""


A = TypeVar("A", bound=Accumulator)


def copied(accumulator: A) -> A:
    """Another accumulator in the same state, that shares nothing with it."""
    copy = accumulator.empty_like()
    copy.restore({name: array.copy() for name, array in accumulator.arrays().items()})
    return copy
