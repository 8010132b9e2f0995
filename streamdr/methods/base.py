"""What a method is: parameters, the passes they ask for, and the model that comes out."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from streamdr.accumulators.base import Accumulator
from streamdr.blocks import Array, Axis, MatrixSpec


@dataclass(frozen=True)
class Pass:
    """One reading of the data into one accumulator."""

    empty: Accumulator
    axis: Axis = "rows"
    label: str = ""


class Model(Protocol):
    """The immutable result: a frozen dataclass whose fields are arrays, scalars and None.

    An array field names its dimensions, `field(metadata={"dims": ("component", "feature")})`, and is
    saved under its own name. Nothing else is needed to save, load and label a model.
    """

    @property
    def n_features(self) -> int:
        """How many columns `transform` takes."""

    @property
    def n_outputs(self) -> int:
        """How many columns `transform` gives."""

    @property
    def outputs_are_features(self) -> bool:
        """Whether each column that `transform` gives stands for the feature in its place."""

    def summary(self) -> dict[str, Any]:
        """What a report says of it: a few plain values."""

    def transform(self, values: Array) -> Array:
        """Map rows (samples x features) to their embedding, in the floating type of the rows."""

    def scores_by_columns(self, n_rows: int) -> Accumulator | None:
        """`transform` as a pass over columns, for rows too wide to hold; None where that cannot be."""


Passes = Generator[Pass, Accumulator, Model]


@dataclass(frozen=True)
class Route:
    """One way of computing a method, with what it would take. The plan picks among a method's routes."""

    method: Method
    name: str
    exact: bool
    """Whether it ends at the answer, not merely close to it."""
    axis: Axis
    passes: int
    """How often the data is read, at most."""
    accumulator_bytes: int
    """The largest accumulator."""
    scratch_bytes: int
    """What one `update` allocates besides the accumulator, whatever the block's size."""
    scratch_per_block: float
    """What one `update` allocates, in multiples of the block's own bytes."""
    solve_bytes: int
    """The peak of the solve, the full accumulator not counted, the model included."""
    flops: float
    """Arithmetic over all passes and the solve: what `auto` weighs."""
    gathered_bytes: int = 0
    """What a last pass collects that is as large as the model: it grows while reading."""


class Method(Protocol):
    """A dataclass of parameters. Its fields are the parameters everywhere: Python, YAML, schema."""

    name: ClassVar[str]
    model: ClassVar[type]

    def check(self) -> None:
        """Refuse impossible parameter values with a ParameterError, without seeing data."""

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """The ways to compute this on such data, or a ParameterError when there is none."""

    def passes(self, data: MatrixSpec) -> Passes:
        """Yield the passes one by one, receive each accumulator full, return the model.

        Deterministic: resuming replays finished passes by `send`. Called on a route's method only.
        """

    def using(self, route: str) -> Self:
        """The same method, tied to one of its routes."""
