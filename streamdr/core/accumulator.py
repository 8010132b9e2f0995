"""The protocol of a statistic that is streamed: update with a block, merge, save and restore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

from streamdr.core.blocks import Array, Axis, Block, MatrixSpec, Span, SparseBlock


class Accumulator(Protocol):
    """Sufficient statistics of the blocks seen so far. Mutable, owned by one task, never shared.

    The laws (`streamdr.testing`) are the contract: empty is the identity, merging is associative, any
    split of the rows gives the same result, the block is not modified (unless it is disposable), values that
    are not finite are detected, and the state does not grow with the number of rows.
    """

    kind: ClassVar[str]
    """The name of this statistic in the ledger and in the registry."""

    @property
    def allow_nan(self) -> bool:
        """Whether NaN is a missing value, and not an error."""

    def update(self, block: Block) -> None:
        """Fold one block in."""

    def merge(self, later: Self) -> None:
        """Fold in the statistics of the blocks that come after this one's. `later` is left alone."""

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""

    def parameters(self) -> Mapping[str, Any]:
        """The parameters that distinguish two empty accumulators of one kind: scalars, arrays and functions.

        They are part of the ledger's key. Two accumulators of one kind with equal parameters that saw
        the same blocks hold the same bits. Functions are compared by their code and what it refers to. A
        pass with a function that cannot be compared is not stored in the ledger.
        """

    def value(self) -> dict[str, Array]:
        """The statistics, independent of how the state represents them. The laws compare these."""

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays, without the parameters. `restore` is the inverse."""

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a state that `arrays` returned. The accumulator then owns these arrays."""


@runtime_checkable
class UpdatesSparse(Protocol):
    """An accumulator that takes sparse rows without making them dense."""

    def update_sparse(self, block: SparseBlock) -> None:
        """Fold one block of sparse rows in. The result is that of `update` to rounding."""


def takes_sparse(accumulator: object, data: MatrixSpec, axis: Axis) -> bool:
    """Whether a pass over such data gives an accumulator sparse rows.

    An accumulator of others says by `takes_sparse` whether these take them.
    """
    able = isinstance(accumulator, UpdatesSparse) and getattr(accumulator, "takes_sparse", True)
    return data.density is not None and axis == "rows" and able


@runtime_checkable
class UpdatesTiles(Protocol):
    """An accumulator of each column alone: it takes the columns of a block a few at a time."""

    def update_tile(self, block: Block, columns: Span) -> None:
        """Fold in some columns of a block of rows. `block` has the values of these columns only."""


def takes_stored(accumulator: object) -> bool:
    """Whether an accumulator widens blocks itself, a little at a time, from the type that is stored."""
    return bool(getattr(accumulator, "takes_stored", False))


A = TypeVar("A", bound=Accumulator)


def copied(accumulator: A) -> A:
    """A deep copy of an accumulator."""
    copy = accumulator.empty_like()
    copy.restore({name: array.copy() for name, array in accumulator.arrays().items()})
    return copy
