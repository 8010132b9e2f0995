"""What a method is: parameters, the passes they ask for, and the model that comes out."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import numpy as np

from streamdr.accumulators.base import Accumulator
from streamdr.blocks import Array, Axis, Block, MatrixSpec, Part, Span
from streamdr.errors import DataError, MissingValuesError, ParameterError
from streamdr.linalg import unwarned


@dataclass(frozen=True)
class Pass:
    """One reading of the data into one accumulator."""

    empty: Accumulator
    axis: Axis = "rows"
    label: str = ""
    part: Part | None = None
    """Read only this much of the rows; None for all of them."""
    labour: int = 1
    """How much more is done with a value than to multiply it: such a pass is cut finer."""
    at_hand: Block | None = None
    """Rows that the method itself has in memory: they are looked at instead of the data."""


class Model(Protocol):
    """The immutable result: a frozen dataclass whose fields are arrays, scalars, lists of those and None.

    An array field names its dimensions, `field(metadata={"dims": ("component", "feature")})`, and is
    saved under its own name. Nothing else is needed to save, load and label a model.
    """

    @property
    def holes(self) -> bool:
        """Whether `transform` takes NaN for a value that is missing."""

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


@runtime_checkable
class UsesScratch(Protocol):
    """A model that takes more memory to map rows than they and what they become."""

    def scratch_bytes(self, n_rows: int) -> int:
        """What mapping so many rows allocates besides the result, in any of its ways: an upper bound."""


@runtime_checkable
class MapsColumns(Protocol):
    """A model whose `transform` can be a pass over columns."""

    @property
    def maps_by_columns(self) -> bool:
        """Whether `scores_by_columns` gives one: what a plan asks, which has no use for the pass itself."""


@runtime_checkable
class Foreseeable(Protocol):
    """A method whose models can be told the size of before they are fitted."""

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """Models as large as a fit to such data may give, whose arrays take no memory.

        Several where it depends on the data which of them takes more to map rows by. Called on a route's
        method.
        """


@runtime_checkable
class Picks(Protocol):
    """A model that looks at some columns only: no others need be read."""

    @property
    def reads(self) -> Array:
        """The numbers of these columns, ascending."""

    def narrowed(self) -> Model:
        """The same for rows of these columns alone."""


Passes = Generator[Pass, Accumulator, Model]


class Stream(Protocol):
    """Rows that arrive a few at a time, and a model of all so far."""

    def update(self, block: Block) -> None:
        """Take more rows."""

    def model(self) -> Model:
        """What they come to."""


@runtime_checkable
class Streaming(Protocol):
    """A method with a way of its own to learn from rows as they come."""

    def stream(self, n_cols: int, start: Any = None, n_rows: int = 0) -> Stream | None:
        """A stream for rows of so many columns; None where the statistics of one pass will do.

        It goes on from `start`, a model of so many rows, where there is one.
        """


@runtime_checkable
class Supervised(Protocol):
    """A method that learns from labels."""

    target: ClassVar[Literal["classes", "numbers", "any"]]
    """What labels are to it: classes whatever they look like, numbers, or either, by their type."""


def require_labels(method: Method, data: MatrixSpec) -> None:
    """Refuse data without the labels that a method learns from."""
    if not isinstance(method, Supervised):
        return
    if data.labels is None:
        raise ParameterError(
            "labels",
            f"{method.name} learns from labels, one a row, and there are none: set input.labels to their "
            "zarr array, or input.label_column to the column that holds them (in Python, pass y)",
        )
    if method.target == "numbers" and data.labels.kind not in "biuf":
        raise ParameterError("labels", f"{method.name} learns from numbers, and the labels are text")


@runtime_checkable
class Choosy(Protocol):
    """A method whose parameters decide what its models can do."""

    def lacks(self, what: str) -> str | None:
        """Why models of these parameters cannot do a thing that their class can; None where they can."""


@dataclass(frozen=True)
class Phase:
    """Passes of one kind and what is computed from them: the memory that they take, at most."""

    accumulator_bytes: int
    """The largest accumulator."""
    _: KW_ONLY
    empty_bytes: int | None = None
    """What it takes before it has seen anything, where that is less: passes are cut by this."""
    together_bytes: int | None = None
    """The most that all accumulators together hold, where that is less than so many full ones: rows, say."""
    axis: Axis = "rows"
    part: Part | None = None
    """The part of the rows that is read."""
    scratch_bytes: int = 0
    """What one `update` allocates besides the accumulator, whatever the block's size."""
    scratch_per_block: float = 0.0
    """What one `update` allocates, in multiples of the block's own bytes."""
    most_scratch_bytes: int | None = None
    """The most that one `update` allocates, where that does not grow with the block for ever."""
    gathered_bytes: int = 0
    """What is collected besides, and grows while reading: the model itself, or what a merge makes anew."""
    held_bytes: int = 0
    """What the method holds meanwhile: parameters of the accumulators, results of earlier passes."""
    solve_bytes: int = 0
    """The peak of the solve, the full accumulator not counted, the model included."""
    labour: int = 1
    """That of its passes."""


@dataclass(frozen=True)
class Route:
    """One way of computing a method, with what it would take. The plan picks among a method's routes."""

    method: Method
    name: str
    exact: bool
    """Whether it ends at the answer, not merely close to it."""
    passes: int
    """How often the data is read, at most."""
    flops: float
    """Arithmetic over all passes and the solve: what `auto` weighs."""
    phases: tuple[Phase, ...]
    """One after the other: the first is where the route begins."""
    advice: str = ""
    """What else could be done where this does not fit."""
    usual_passes: int = 0
    """How often the data is usually read, where that is less than the most."""
    sampling_passes: int = 0
    """How many of these, the first ones, draw a sample: for that a part of the data is mostly enough."""
    fallback: Route | None = None
    """What it goes on with when it finds a value missing, if it can."""


class Method(Protocol):
    """A dataclass of parameters. Its fields are the parameters everywhere: Python, YAML, schema."""

    name: ClassVar[str]
    model: ClassVar[type]

    def check(self) -> None:
        """Refuse impossible parameter values with a ParameterError, without seeing data."""

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """The ways to compute this on such data, or a ParameterError when there is none."""

    def passes(self, data: MatrixSpec, start: Any = None) -> Passes:
        """Yield the passes one by one, receive each accumulator full, return the model.

        Deterministic: resuming replays finished passes by `send`. Called on a route's method only. A value
        that is missing, met by an accumulator that has no use for holes, is thrown at the yield. What
        iterates may begin at `start`, its own model of rows that were the first of these.
        """

    def using(self, route: str) -> Self:
        """The same method, tied to one of its routes."""


def in_memory(
    method: Method, rows: Array, weights: Array | None = None, labels: Array | None = None
) -> Model:
    """Fit a route's method to rows that are at hand, each pass over one block: the plainest driver."""
    kind = None if labels is None else labels.dtype
    passes = method.passes(MatrixSpec(rows.shape[0], rows.shape[1], rows.dtype, kind))
    if labels is not None and labels.dtype.kind != "U":
        labels = labels.astype(np.float64)
    request = next(passes)
    while True:
        full = request.empty.empty_like()
        try:
            with unwarned():
                full.update(_asked_for(request, rows, weights, labels))
                request = passes.send(full)
        except MissingValuesError as missing:
            request = passes.throw(missing)
        except StopIteration as finished:
            model: Model = finished.value
            return model


def _asked_for(request: Pass, rows: Array, weights: Array | None, labels: Array | None) -> Block:
    def suspect() -> None:
        if not request.empty.holes and np.isnan(rows).any():
            raise MissingValuesError("there are values missing")
        if np.isinf(rows).any():
            raise DataError("there are values that are infinite")

    if request.at_hand is not None:
        return request.at_hand
    if request.axis == "columns":
        return Block(Span(0, rows.shape[1]), rows, labels, weights, suspect=suspect)
    if request.part is None:
        return Block(Span(0, len(rows)), rows, labels, weights, suspect=suspect)
    bands = request.part.bands(len(rows), 1, rows[:1].nbytes)
    chosen = np.concatenate([np.arange(band.start, band.stop) for band in bands])
    weights = None if weights is None else weights[chosen]
    labels = None if labels is None else labels[chosen]
    return Block(Span(0, len(chosen)), rows[chosen], labels, weights, True, suspect, chosen)
