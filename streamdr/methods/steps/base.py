"""What steps share: models whose columns stay features, methods without passes, and sparse rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import SPARSE_PIECE, AlignedArrays, Array, MatrixSpec, Span, SparseRows, widen
from streamdr.core.facts import MOST_ROWS, Column, Fact, Table
from streamdr.core.linalg import slabs
from streamdr.core.method import Model, Pass, Passes, Phase, Route
from streamdr.core.parameters import require_types
from streamdr.core.plain_maps import PlainMap, TakeColumns
from streamdr.core.work import Work
from streamdr.errors import RowError

if TYPE_CHECKING:
    from streamdr.core.scikit_learn import Step

SLAB_BYTES = 4 << 20
"""A bound of the temporary arrays of maps that work on a slab of rows at a time, for rows of usual length."""
_PER_OPERATION = 2.0
"""How often a value is read or written for an operation."""


@dataclass(frozen=True, eq=False)
class StepModel(AlignedArrays):
    """A model whose output column j is feature j."""

    outputs_are_features: ClassVar[bool] = True

    n_features: int
    """The number of columns."""

    @property
    def n_outputs(self) -> int:
        """The number of columns, which stays the same."""
        return self.n_features

    def summary(self) -> dict[str, Any]:
        """The facts by name."""
        return {fact.name: fact.value for fact in self.facts()}

    def facts(self) -> tuple[Fact, ...]:
        """The number of columns."""
        return (Fact("columns", self.n_features),)

    def tables(self) -> tuple[Table, ...]:
        """No tables."""
        return ()

    def scores_by_columns(self, n_rows: int) -> None:
        """None: rows are mapped by rows."""

    def scratch_bytes(self, n_rows: int) -> int:
        """The temporary arrays for a few rows, or for one row if it is long; and a few numbers per row."""
        return SLAB_BYTES + 64 * self.n_features + 64 * n_rows


@dataclass(frozen=True, eq=False)
class ApartModel(StepModel):
    """The base of step models that map each column without the others."""

    maps_columns_apart: ClassVar[bool] = True

    def for_outputs(self, outputs: Span) -> tuple[Span, Self]:
        """The same columns, and the model of these."""
        return outputs, replace(self, n_features=len(outputs), **feature_fields(self, outputs.slice))


def feature_fields(model: Any, columns: Array | slice) -> dict[str, Any]:
    """The fields of a model that have a value for each feature, for some of the features."""
    found = {
        field.name: getattr(model, field.name)
        for field in fields(model)
        if field.metadata.get("dims") == ("feature",)
    }
    return {name: values[columns] for name, values in found.items() if values is not None}


@dataclass(frozen=True, eq=False)
class KeptColumns(AlignedArrays):
    """The base of models that keep some columns, in the order of the data, and may change their values."""

    allow_nan: ClassVar[bool] = True
    maps_columns_apart: ClassVar[bool] = True

    support: Array = field(metadata={"dims": ("feature",)})
    """The mask of the columns that are kept."""

    @property
    def n_features(self) -> int:
        """The number of columns that `transform` takes."""
        return len(self.support)

    @property
    def n_outputs(self) -> int:
        """The number of columns that are kept."""
        return len(self.reads)

    @property
    def outputs_are_features(self) -> bool:
        """Whether all columns are kept."""
        return self.n_outputs == self.n_features

    @cached_property
    def reads(self) -> Array:
        """The indices of the columns that `transform` uses, ascending."""
        return np.flatnonzero(self.support)

    def narrowed(self) -> Self:
        """The same model for rows that hold the kept columns only."""
        return replace(self, **feature_fields(self, self.reads))

    def for_outputs(self, outputs: Span) -> tuple[Span, Self]:
        """The columns from the first to the last that is kept of them, and the model of these."""
        reads = self.reads[outputs.slice]
        columns = Span(int(reads[0]), int(reads[-1]) + 1)
        return columns, replace(self, **feature_fields(self, columns.slice))

    def summary(self) -> dict[str, Any]:
        """The number of columns that are kept, and the first of them."""
        return {
            "kept": f"{self.n_outputs:,} of {self.n_features:,} columns",
            "columns": [int(column) for column in self.reads[:MOST_ROWS]],
        }

    def facts(self) -> tuple[Fact, ...]:
        """The number of columns that are kept."""
        return (Fact("kept", self.n_outputs, f"of {self.n_features:,} columns"),)


@dataclass(frozen=True, eq=False)
class ChoiceModel(KeptColumns):
    """A model that keeps some columns, in the order of the data, as they are."""

    keeps_zeros: ClassVar[bool] = True

    def transform(self, values: Array) -> Array:
        """The kept columns, in the order of the data, in the floating-point type of the rows."""
        return widen(np.take(values, self.reads, axis=1))

    def transform_sparse(self, rows: SparseRows) -> SparseRows | Array:
        """The kept columns of sparse rows."""
        return self.chosen(rows)

    def tables(self) -> tuple[Table, ...]:
        """The columns that are kept."""
        return (
            Table(
                "kept columns",
                (Column("column"),),
                tuple((int(column),) for column in self.reads[:MOST_ROWS]),
                about="The columns that are kept, in the order of the data.",
                left_out=max(0, self.n_outputs - MOST_ROWS),
            ),
        )

    def plain_maps(self) -> tuple[PlainMap, ...]:
        """`transform` as elementary maps."""
        return (TakeColumns(self.reads),)

    def sklearn_steps(self) -> list[Step]:
        """Estimators of scikit-learn that map rows in the same way."""
        from streamdr.methods.steps.scikit_learn import choice_steps

        return choice_steps(self)

    def scores_by_columns(self, n_rows: int) -> None:
        """None: a transform reads the columns that are kept only."""

    def chosen(self, rows: SparseRows) -> SparseRows:
        """The kept columns of sparse rows, in the floating-point type of the rows."""
        kept = rows if self.outputs_are_features else rows[:, self.reads]
        kept = SparseRows((widen(kept.data), kept.indices, kept.indptr), shape=kept.shape)
        kept.has_canonical_format = True  # columns ascend in the rows, and among those that are kept
        return kept


def possible_supports(n_cols: int, n_kept: int) -> tuple[Array, ...]:
    """Masks of `n_kept` columns that are not known yet, for outlines.

    Adjacent columns make the longest blocks, and distant ones read most. The first and the last column read
    least, as the last chunk may be narrow.
    """
    ends = np.arange(n_cols) < n_kept
    apart = np.zeros(n_cols, np.bool_)
    apart[np.linspace(0, n_cols - 1, n_kept).astype(np.int64)] = True
    return ends, ends[::-1].copy(), apart


class StepMethod:
    """The base of steps: one route."""

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)

    def using(self, route: str) -> Self:
        """The method itself: there is one route only."""
        return self


class WithoutPasses(StepMethod, ABC):
    """The base of steps whose parameters determine the model."""

    @abstractmethod
    def fitted(self, data: MatrixSpec) -> Model:
        """The model for such data; a ParameterError if the parameters do not fit it."""

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """One route, which reads nothing."""
        self.check()
        self.fitted(data)
        return [Route(method=self, name="parameters", exact=True, passes=0, flops=0.0, phases=())]  # type: ignore[arg-type]

    def passes(self, data: MatrixSpec, start: Any = None) -> Passes:
        """No passes."""
        nothing: tuple[Pass, ...] = ()
        yield from nothing
        return self.fitted(data)

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """The model itself."""
        return [self.fitted(data)]


def one_pass(method: Any, data: MatrixSpec, phase: Phase, work: float) -> Route:
    """The route of a step with one pass over the rows, of `work` operations per value."""
    flops = work * data.n_rows * data.n_cols
    moved = Work(moved=_PER_OPERATION * work * data.n_rows * data.line_bytes("rows") * (data.density or 1.0))
    phase = replace(phase, work=moved)
    return Route(method=method, name="one pass", exact=True, passes=1, flops=flops, phases=(phase,))


def most_stored(data: MatrixSpec) -> int:
    """The most values that a block of sparse rows has."""
    return min(max(SPARSE_PIECE, data.n_cols), data.n_rows * data.n_cols)


def with_values(rows: SparseRows, values: Array) -> SparseRows:
    """Sparse rows with other stored values at the same places. The indices are shared, not copied."""
    mapped = SparseRows((values, rows.indices, rows.indptr), shape=rows.shape)
    mapped.has_canonical_format = True  # else scipy looks again whether columns ascend
    return mapped


def row_of(rows: SparseRows, place: int) -> int:
    """The row of a stored value."""
    return int(np.searchsorted(rows.indptr, place, side="right")) - 1


def refuse_negative(step: str, values: Array) -> None:
    """Refuse rows with a negative value."""
    for slab in slabs(values):
        negative = values[slab] < 0
        if negative.any():
            row, column = np.unravel_index(int(np.argmax(negative)), negative.shape)
            found = values[slab.start + row, column]
            raise _negative(step, slab.start + int(row), int(column), found)


def refuse_negative_sparse(step: str, rows: SparseRows) -> None:
    """Refuse sparse rows with a negative value."""
    negative = rows.data < 0
    if negative.any():
        place = int(np.argmax(negative))
        raise _negative(step, row_of(rows, place), int(rows.indices[place]), rows.data[place])


def _negative(step: str, row: int, column: int, value: Any) -> RowError:
    return RowError(
        row,
        f"the value {value:g} in {{column}} is negative; {step} takes counts: is the input raw, and is the "
        "step in its place?",
        step,
        column,
    )
