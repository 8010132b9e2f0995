"""The protocols of methods and models, passes over the data, and the memory that they need."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import KW_ONLY, Field, dataclass
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array, Axis, Block, MatrixSpec, Part, Span, SparseRows
from streamdr.core.facts import Fact, Table
from streamdr.core.linalg import ignore_overflow
from streamdr.core.work import NO_WORK, ONCE, Count, Work
from streamdr.errors import DataError, MissingValuesError, ParameterError


@dataclass(frozen=True)
class Pass:
    """One pass over the data, into one accumulator."""

    empty: Accumulator
    axis: Axis = "rows"
    label: str = ""
    part: Part | None = None
    """The subset of the rows to read; None for all rows."""
    cost_factor: int = 1
    """How much more work a value takes than a multiplication. Expensive passes have smaller tasks."""
    in_memory: Block | None = None
    """Rows that the method has in memory, to be used instead of the data."""
    through: Model | None = None
    """The model that rows are mapped through first, in a chain; None for the rows as they are."""
    steps: tuple[str, ...] = ()
    """The names of the steps of that model."""


def cost_factor(n_products: int, n_cols: int) -> int:
    """The cost factor of a pass that multiplies each row by `n_products` vectors.

    Moments take `n_cols` products per row. Up to four times as many count as usual work.
    """
    return max(1, n_products // (4 * n_cols))


class Model(Protocol):
    """The immutable result: a frozen dataclass whose fields are arrays, scalars, lists of those and None.

    An array field names its dimensions, `field(metadata={"dims": ("component", "feature")})`, and is
    saved under its own name. Nothing else is needed to save, load and label a model.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def allow_nan(self) -> bool:
        """Whether `transform` accepts NaN as a missing value."""

    @property
    def n_features(self) -> int:
        """How many columns `transform` takes."""

    @property
    def n_outputs(self) -> int:
        """How many columns `transform` returns."""

    @property
    def outputs_are_features(self) -> bool:
        """Whether column j of the result of `transform` stands for feature j."""

    def summary(self) -> dict[str, Any]:
        """A few plain values by name, for reports that programs read."""

    def facts(self) -> tuple[Fact, ...]:
        """Facts for reports that people read, the most important first."""

    def tables(self) -> tuple[Table, ...]:
        """Tables for reports; empty if there are none."""

    def transform(self, values: Array) -> Array:
        """Map rows (samples x features) to their embedding, in the floating type of the rows."""

    def scores_by_columns(self, n_rows: int) -> Accumulator | None:
        """`transform` as a pass over columns, for rows too wide for memory; None where that is impossible."""


@runtime_checkable
class UsesScratch(Protocol):
    """A model whose `transform` needs memory besides its argument and its result."""

    def scratch_bytes(self, n_rows: int) -> int:
        """An upper bound of the bytes that mapping `n_rows` rows allocates besides the result."""


@runtime_checkable
class DeclaresWork(Protocol):
    """A model whose operations on rows are not one product of the rows with its components."""

    def mapping_work(self, data: MatrixSpec, operation: str) -> Work:
        """The work of an operation, such as `transform`, on all rows of such data."""


@runtime_checkable
class MapsSparse(Protocol):
    """A model that maps sparse rows without making them dense."""

    @property
    def keeps_zeros(self) -> bool:
        """Whether a value that is zero stays zero, so that `transform_sparse` returns sparse rows."""

    def transform_sparse(self, rows: SparseRows) -> SparseRows | Array:
        """`transform` of sparse rows: sparse if `keeps_zeros`, else dense. `rows` is left alone."""


@runtime_checkable
class HasSparseOutputs(Protocol):
    """A model with other operations on rows, besides `transform`, that take sparse rows as they are."""

    @property
    def sparse_outputs(self) -> frozenset[str]:
        """The names of these operations."""


@runtime_checkable
class MapsColumns(Protocol):
    """A model whose `transform` can be a pass over columns."""

    @property
    def maps_by_columns(self) -> bool:
        """Whether `scores_by_columns` returns an accumulator; the planner needs no more."""


@runtime_checkable
class MapsColumnsThrough(Protocol):
    """A model of several, of which only the last maps columns to scores."""

    @property
    def columns_through(self) -> Model:
        """What maps the columns before the accumulator of `scores_by_columns` is given them."""


@runtime_checkable
class MapsColumnsApart(Protocol):
    """A model that makes each output of one column, in their order: some of them without the others."""

    @property
    def maps_columns_apart(self) -> bool:
        """Whether it does; `for_outputs` needs it."""

    def for_outputs(self, outputs: Span) -> tuple[Span, Model]:
        """The columns of which some outputs are made, and the model that makes these outputs of them."""


@runtime_checkable
class HasOutlines(Protocol):
    """A method that knows the size of its models before they are fitted."""

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """Models of the largest size that a fit to such data may return. Their arrays take no memory.

        Several models, where the data decides which of them needs most memory to map rows. Called on a
        route's method.
        """


@runtime_checkable
class SelectsColumns(Protocol):
    """A model whose `transform` may use some columns only: the others need not be read."""

    @property
    def reads(self) -> Array | None:
        """The indices of these columns, ascending; None if it uses all."""

    def narrowed(self) -> Model:
        """The same model for rows that hold these columns only."""


Passes = Generator[Pass, Accumulator, Model]


class OnlineFit(Protocol):
    """A fit to rows that arrive a few at a time."""

    def update(self, block: Block) -> None:
        """Add more rows."""

    def model(self) -> Model:
        """The model of all rows so far."""


@runtime_checkable
class SupportsOnlineFit(Protocol):
    """A method with an online algorithm for `partial_fit`."""

    def stream(self, n_cols: int, start: Any = None, n_rows: int = 0) -> OnlineFit | None:
        """An online fit to rows of `n_cols` columns; None where the statistics of one pass are enough.

        It continues from `start`, a model of `n_rows` rows, where that is given.
        """


@runtime_checkable
class Supervised(Protocol):
    """A method that learns from labels."""

    target: ClassVar[Literal["classes", "numbers", "any"]]
    """How it uses labels: as classes, as numbers, or as either, depending on their type."""


def require_labels(method: Method, data: MatrixSpec) -> None:
    """Refuse data without the labels that a method learns from."""
    if not isinstance(method, Supervised):
        return
    if data.labels is None:
        raise ParameterError(
            "labels",
            f"{method.name} learns from labels, one per row, and there are none: set input.labels to their "
            "zarr array, or input.label_column to the column that holds them (in Python, pass y)",
        )
    if method.target == "numbers" and data.labels.kind not in "biuf":
        raise ParameterError("labels", f"{method.name} needs numeric labels, and these are text")


@runtime_checkable
class ConditionalOutputs(Protocol):
    """A method whose parameters decide what its models can do."""

    def lacks(self, what: str) -> str | None:
        """Why models with these parameters lack an operation of their class; None where they have it."""


@dataclass(frozen=True)
class Phase:
    """Passes of one kind, and the computation after them: an upper bound of their memory, and their work.

    The work serves to tell how long it will take. Nothing is chosen by it.
    """

    accumulator_bytes: int
    """The largest accumulator."""
    _: KW_ONLY
    empty_bytes: int | None = None
    """Its size while it is empty, where that is less. The size of tasks depends on it."""
    total_accumulator_bytes: int | None = None
    """An upper bound of all accumulators together, where that is less than their number times their size."""
    axis: Axis = "rows"
    part: Part | None = None
    """The subset of the rows that is read; None for all rows."""
    scratch_bytes: int = 0
    """Bytes that one `update` allocates besides the accumulator, independent of the block's size."""
    scratch_per_block: float = 0.0
    """Bytes that one `update` allocates, in multiples of the block's bytes."""
    max_scratch_bytes: int | None = None
    """An upper bound of the bytes that one `update` allocates, where there is one for blocks of any size."""
    gathered_bytes: int = 0
    """Bytes that grow during the pass besides: the model itself, or copies that a merge makes."""
    held_bytes: int = 0
    """Bytes that the method holds during the pass: parameters of accumulators, results of earlier passes."""
    solve_bytes: int = 0
    """Peak bytes of the solve, including the model, without the full accumulator."""
    cost_factor: int = 1
    """The cost factor of its passes."""
    in_memory: bool = False
    """Whether its passes use rows in memory. Then all workers run, also where the data is a single block."""
    through: Model | None = None
    """An outline of the model that rows are mapped through first, in a chain."""
    takes_sparse: bool = False
    """Whether its accumulator is `UpdatesSparse`."""
    sparse_scratch_bytes: int = 0
    """Bytes that one `update_sparse` allocates besides the accumulator."""
    work: Work = NO_WORK
    """The work of one pass over all rows, without reading them: it is divided among workers."""
    solve_work: Work = NO_WORK
    """The work after each pass, on one core."""
    count: Count = ONCE
    """How often there is such a pass."""
    takes_tiles: bool = False
    """Whether its accumulator is `UpdatesTiles`."""
    takes_stored: bool = False
    """Whether its accumulator takes blocks in the type in which they are stored."""


@dataclass(frozen=True)
class Route:
    """One way to compute a method, with its costs. The planner chooses among a method's routes."""

    method: Method
    name: str
    exact: bool
    """Whether the result is exact and not an approximation."""
    passes: int
    """The largest number of passes over the data."""
    flops: float
    """Arithmetic of all passes and the solve: `auto` compares these."""
    phases: tuple[Phase, ...]
    """The phases, in order."""
    note: str = ""
    """How it reads, where that follows from the layout of the data; part of the plan's reason."""
    advice: str = ""
    """What to try where this route does not fit into memory."""
    usual_passes: int = 0
    """The usual number of passes, where that is less than the largest."""
    sampling_passes: int = 0
    """The number of passes that draw a sample. They come first, and usually read a part of the data."""
    continuing_passes: int = 0
    """The largest number of passes of a fit that starts from an earlier model, where that is less."""
    fallback: Route | None = None
    """The route that continues where a missing value is found, if there is one."""


@dataclass(frozen=True)
class Tags:
    """Capabilities of a method that its parameters and its model do not show.

    Parameters
    ----------
    incremental : bool
        Whether rows can be added to a fit a few at a time: whether its estimator has `partial_fit`.
    sample_weight : bool
        Whether a row can have a weight.
    inexact_on : tuple of str
        The hostile data (`streamdr.testing.HOSTILE`) whose scores are small differences of large numbers.
        There, scores of a block and of the whole may differ by more than rounding.
    feature_subset : bool
        Whether features that are never observed may be left out, and features may have weights.
    weighs_features : bool
        Whether it applies `MatrixSpec.feature_weights` itself. Otherwise, columns are multiplied by them
        before it sees them.
    step : bool
        Whether it only prepares rows for the method after it in a chain: a chain cannot end in one.
    nonnegative : bool
        Whether negative values are errors.
    """

    incremental: bool = True
    sample_weight: bool = True
    inexact_on: tuple[str, ...] = ()
    feature_subset: bool = False
    weighs_features: bool = False
    step: bool = False
    nonnegative: bool = False


class Method(Protocol):
    """A dataclass of parameters. Its fields are the parameters everywhere: Python, YAML, schema.

    Attributes
    ----------
    name : str
        Its name in configurations.
    model : type
        The class of its models.
    tags : Tags
        What it can do.
    gallery : sequence of mappings
        Its entries in `configs/gallery.yaml`: parameters for images of digits, and `as` for a second one.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    name: ClassVar[str]
    model: ClassVar[type]
    tags: ClassVar[Tags]
    gallery: ClassVar[Sequence[Mapping[str, Any]]]

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Instances with parameters for few rows, at least one for each route. The laws run over them."""

    def check(self) -> None:
        """Refuse impossible parameter values with a ParameterError, without seeing data."""

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """The routes for such data; a ParameterError if there is none."""

    def passes(self, data: MatrixSpec, start: Any = None) -> Passes:
        """Yield the passes one by one, receive each accumulator full, return the model.

        Deterministic: resuming replays finished passes by `send`. Called on a route's method only. If an
        accumulator that does not allow NaN meets a missing value, a MissingValuesError is thrown at the
        yield. An iterative method may begin at `start`, a model of the first of these rows. A method whose
        parameters determine its model yields nothing.
        """

    def using(self, route: str) -> Self:
        """The same method, restricted to one of its routes."""


def in_memory(
    method: Method, rows: Array, weights: Array | None = None, labels: Array | None = None
) -> Model:
    """Fit a route's method to rows in memory: each pass updates with one block."""
    kind = None if labels is None else labels.dtype
    passes = method.passes(MatrixSpec(rows.shape[0], rows.shape[1], rows.dtype, kind))
    if labels is not None and labels.dtype.kind != "U":
        labels = labels.astype(np.float64)
    try:
        request = next(passes)
        while True:
            full = request.empty.empty_like()
            try:
                with ignore_overflow():
                    seen = rows if request.through is None else request.through.transform(rows)
                    full.update(_block_of(request, seen, weights, labels))
                    request = passes.send(full)
            except MissingValuesError as missing:
                request = passes.throw(missing)
    except StopIteration as finished:
        model: Model = finished.value
        return model


def _block_of(request: Pass, rows: Array, weights: Array | None, labels: Array | None) -> Block:
    def locate_nonfinite() -> None:
        if not request.empty.allow_nan and np.isnan(rows).any():
            raise MissingValuesError("there are missing values")
        if np.isinf(rows).any():
            raise DataError("there are infinite values")

    if request.in_memory is not None:
        return request.in_memory
    if request.axis == "columns":
        return Block(Span(0, rows.shape[1]), rows, labels, weights, locate_nonfinite=locate_nonfinite)
    if request.part is None:
        return Block(Span(0, len(rows)), rows, labels, weights, locate_nonfinite=locate_nonfinite)
    bands = request.part.bands(len(rows), 1, rows[:1].nbytes)
    chosen = np.concatenate([np.arange(band.start, band.stop) for band in bands])
    weights = None if weights is None else weights[chosen]
    labels = None if labels is None else labels[chosen]
    return Block(Span(0, len(chosen)), rows[chosen], labels, weights, True, locate_nonfinite, chosen)
