"""The kinds of output with one row per input row: the embedding, and others for some models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol, cast

import numpy as np

from streamdr.core import mapping
from streamdr.core.accumulator import Accumulator
from streamdr.core.axes import FeatureAxes
from streamdr.core.blocks import BLOCK_BYTES, Array, MatrixSpec, Span, SparseRows
from streamdr.core.linalg import slabs
from streamdr.core.mapping import fills_missing
from streamdr.core.method import (
    HasSparseOutputs,
    MapsColumns,
    MapsColumnsThrough,
    MapsSparse,
    Model,
    UsesScratch,
)
from streamdr.errors import RowError

RowKind = Literal[
    "embedding",
    "denoised",
    "imputed",
    "imputed_variance",
    "log_likelihood",
    "responsibilities",
    "predicted",
    "probabilities",
    "anndata",
]
_LENGTHS = {
    "component": "n_outputs",
    "feature": "n_features",
    "mixture": "n_mixtures",
    "class": "n_classes",
}
"""The attribute of a model that holds the number of columns, by what these stand for."""


def step_key(name: str) -> str:
    """Return the key of the output of a step of a chain."""
    return f"steps.{name}"


@dataclass(frozen=True)
class RowOutput:
    """A kind of output that has one row per row of the input."""

    name: RowKind
    """The name of its record and of its array. Except for steps, also its key in the section `output`."""
    title: str
    """Its title, for people."""
    method: str
    """The method of a model that computes it."""
    columns: Literal["component", "feature", "mixture", "class"] | None
    """What a column stands for; None where a row has one value."""
    refusal: str
    """The message for models that cannot compute it."""
    dtype: Literal["float64", "label"] | None = None
    """The type of its values, where that is fixed: a floating type, or that of the labels."""
    imputes: bool = False
    """Whether the model computes only the missing values of the input."""
    centred: bool = True
    """Whether change is relative to the standard deviation of values; otherwise to their root mean square."""
    hides_invalid: bool = False
    """Whether an invalid input value does not show in the output, so that the input must be checked."""
    power: int = 1
    """The power of the units of the features in which its values are: 2 for variances."""
    advice: str = ""
    """How the user can reduce its expected size before the fit."""
    step: str | None = None
    """The step of a chain that makes it; None for the whole model."""

    @property
    def key(self) -> str:
        """Its key in the section `output`."""
        return self.name if self.step is None else step_key(self.step)

    @property
    def embeds(self) -> bool:
        """Whether it is the embedding, wherever it is written."""
        return self.method == EMBEDDING.method

    def supported_by(self, model: type) -> bool:
        """Whether models of a class can compute it."""
        if self.step is not None:
            return hasattr(model, "up_to")
        return hasattr(model, self.method) and (
            self.columns is None or hasattr(model, _LENGTHS[self.columns])
        )

    def made_by(self, model: Model) -> bool:
        """Whether a model can compute it: whether its class can, and a chain has the step."""
        return self.supported_by(type(model)) and (
            self.step is None or self.step in cast(HasSteps, model).names
        )

    def of(self, model: Model, axes: FeatureAxes | None = None) -> RowView:
        """A view of a model that computes this output, for features with these axes."""
        return RowView(self.maker(model), self, axes)

    def maker(self, model: Model) -> Model:
        """The part of a model that makes the output: all of it, or a chain up to the step."""
        return cast(HasSteps, model).up_to(self.step) if self.step is not None else model

    def change(self, values: Array, old: Array, new: Array) -> float | None:
        """The relative difference between the outputs of two models, `old` and `new`, for the same rows.

        The root mean square of the difference, relative to the standard deviation (or the root mean square)
        of the old output. None where the models have computed nothing: no value was missing.
        """
        observed = ~np.isnan(old)
        if not np.array_equal(observed, ~np.isnan(new)):
            return float("inf")  # a feature that was never observed is observed now, or the reverse
        computed = observed & np.isnan(values) if self.imputes else observed
        if not computed.any():
            return None
        if self.centred:
            level = np.where(observed, old, 0.0).sum(axis=0) / np.maximum(observed.sum(axis=0), 1)
            scale = (old - level)[observed]
        else:
            scale = old[computed]
        moved, size = (float(np.sqrt(np.mean(x**2))) for x in ((new - old)[computed], scale))
        return moved / size if size else float("inf" if moved else 0.0)


class HasSteps(Protocol):
    """A model that maps rows in steps with names."""

    names: tuple[str, ...]
    """The names of the steps."""

    def up_to(self, name: str) -> Model:
        """The model of the first steps, the last of which has this name."""


EMBEDDING = RowOutput("embedding", "embedding", "transform", "component", "does not transform")
ROW_OUTPUTS = (
    EMBEDDING,
    RowOutput("denoised", "denoised values", "denoise", "feature", "does not denoise"),
    RowOutput("imputed", "imputed values", "impute", "feature", "does not impute", imputes=True),
    RowOutput(
        "imputed_variance",
        "variance of imputed values",
        "impute_variance",
        "feature",
        "does not impute",
        imputes=True,
        centred=False,
        hides_invalid=True,
        power=2,
    ),
    RowOutput(
        "log_likelihood", "log-likelihood", "score_samples", None, "has no likelihood", dtype="float64"
    ),
    RowOutput(
        "responsibilities", "responsibilities", "predict_proba", "mixture", "is not a mixture", centred=False
    ),
    RowOutput(
        "predicted", "predictions", "predict", None, "predicts nothing", dtype="label", hides_invalid=True
    ),
    RowOutput(
        "probabilities",
        "probabilities of classes",
        "predict_proba",
        "class",
        "has no classes",
        centred=False,
        advice="set max_classes to the number of classes",
    ),
    RowOutput("anndata", "scores in AnnData", "transform", "component", "does not transform"),
)


def of_step(name: str) -> RowOutput:
    """Return the kind of output with the rows of a step of a chain: stored like an embedding."""
    return replace(EMBEDDING, title=f"rows after {name}", refusal=f"has no step {name!r}", step=name)


@dataclass(frozen=True, eq=False)
class RowView:
    """A model together with one kind of output: all that a transform needs."""

    model: Any
    kind: RowOutput
    axes: FeatureAxes | None = None
    """The axes of the features, if the model leaves some of them out or weighs them."""

    @property
    def n_features(self) -> int:
        """How many columns `transform` takes."""
        return int(self.model.n_features)

    @property
    def n_outputs(self) -> int:
        """How many columns `transform` returns."""
        if self.kind.columns is None:
            return 1
        if self.axes is not None and self.makes_features:
            return self.axes.n_features
        return int(getattr(self.model, _LENGTHS[self.kind.columns]))

    @property
    def columns(self) -> str | None:
        """What a column stands for; None where a row has one value. A step may leave or select features."""
        of_step = self.kind.step is not None
        return "feature" if of_step and mapping.columns_kept(self.model) is not None else self.kind.columns

    @property
    def makes_features(self) -> bool:
        """Whether column j of the result stands for feature j of the input."""
        embeds_features = self.kind.embeds and self.model.outputs_are_features
        return self.kind.columns == "feature" or embeds_features

    @property
    def allow_nan(self) -> bool:
        """Whether `transform` accepts NaN as a missing value."""
        return bool(self.model.allow_nan)

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The type of its values; None where the user chooses.

        Numeric labels keep their type. Text labels, and components of a mixture, are stored as indices.
        """
        if self.kind.dtype != "label":
            return None if self.kind.dtype is None else np.dtype(self.kind.dtype)
        classes = getattr(self.model, "classes", None)
        return classes.dtype if isinstance(classes, np.ndarray) else np.dtype(np.int64)

    def stored(self, requested: str | None, data: MatrixSpec) -> np.dtype[Any]:
        """The stored type: the fixed one, the requested one, or that of the rows."""
        return self.dtype or np.dtype(requested or data.working)

    def made_bytes(self, n_rows: int, data: MatrixSpec) -> int:
        """Bytes of the result of `transform` for `n_rows` rows, in their type or in double precision."""
        plain = self.kind.columns in ("component", "feature")
        return n_rows * self.n_outputs * (data.working.itemsize if plain else 8)

    def scratch_bytes(self, n_rows: int, row_bytes: int) -> int:
        """Bytes that `transform` allocates besides its result: by default, a copy of the rows.

        Where features are left out or weighted, also the result before it is expanded.
        """
        selects = self.axes is not None and self.axes.selects
        compact = 2 * n_rows * row_bytes if selects and self.makes_features else 0
        return compact + self._model_scratch_bytes(n_rows, row_bytes)

    def _model_scratch_bytes(self, n_rows: int, row_bytes: int) -> int:
        if isinstance(self.model, UsesScratch):
            return self.model.scratch_bytes(n_rows)
        return n_rows * row_bytes

    def transform(self, values: Array) -> Array:
        """Map rows to rows: one column where a row has one value. Text labels become indices."""
        return self._shaped(getattr(self.model, self._operation)(values))

    @property
    def _operation(self) -> str:
        """The name of the model's operation. Text labels become indices."""
        text = self.kind.dtype == "label" and isinstance(getattr(self.model, "classes", None), list)
        return "likeliest" if text else self.kind.method

    def _shaped(self, mapped: Array) -> Array:
        """The result of the operation with a column where a row has one value, and all features."""
        if self.axes is not None and self.makes_features:
            return self.axes.expanded(self.axes.unweighted(mapped, self.kind.power))
        return mapped.reshape(len(mapped), self.n_outputs)

    @property
    def takes_sparse(self) -> bool:
        """Whether the model maps sparse rows without making them dense."""
        if self.kind.embeds:
            return isinstance(self.model, MapsSparse)
        return isinstance(self.model, HasSparseOutputs) and self._operation in self.model.sparse_outputs

    def transform_sparse(self, rows: SparseRows) -> Array:
        """`transform` of sparse rows, a slab of rows at a time; rows that must be dense are made so."""
        mapped: Array | None = None
        for span in Span(0, rows.shape[0]).split(self.slab_rows):
            here = rows if len(span) == rows.shape[0] else rows[span.slice]
            try:
                part = self._mapped_slab(here)
            except RowError as error:
                raise error.at_row(span.start + error.row) from None
            if mapped is None:
                mapped = np.empty((rows.shape[0], part.shape[1]), part.dtype)
            mapped[span.slice] = part
        return np.empty((0, self.n_outputs), rows.dtype) if mapped is None else mapped

    def _mapped_slab(self, rows: SparseRows) -> Array:
        if not self.takes_sparse:
            return self.transform(rows.toarray())
        if self.kind.embeds:
            found = self.model.transform_sparse(rows)
            return self._shaped(found if isinstance(found, np.ndarray) else found.toarray())
        return self._shaped(getattr(self.model, self._operation)(rows))

    @property
    def slab_rows(self) -> int:
        """The number of sparse rows that are mapped together: dense, they would take little memory."""
        return max(1, BLOCK_BYTES // (8 * (self.n_features + self.n_outputs)))

    def sparse_scratch_bytes(self, n_rows: int) -> int:
        """Bytes that `transform_sparse` of `n_rows` rows allocates besides its result."""
        rows = min(n_rows, self.slab_rows)
        row_bytes = 8 * self.n_features
        # Sparse, no row takes more than twice what it takes when it is dense.
        return 3 * rows * row_bytes + 8 * rows * self.n_outputs + self.scratch_bytes(rows, row_bytes)

    def frame(
        self, n_rows: int, sample_shape: tuple[int, ...] | None, dims: Sequence[str | None] | None
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """The shape and the dimension names of the stored array.

        Where columns are features, these are those of the input: `sample_shape` is the shape of a sample, and
        `dims` are its dimension names, samples first, as far as they are known.
        """
        columns = self.columns
        if columns is None:
            return (n_rows,), ("sample",)
        if columns != "feature" or sample_shape is None or not self.makes_features:
            return (n_rows, self.n_outputs), ("sample", columns)
        number = len(sample_shape)
        unnamed = ("feature",) if number == 1 else tuple(f"axis_{axis + 1}" for axis in range(number))
        plain = ("sample", *unnamed)
        names = tuple(name or other for name, other in zip(dims or plain, plain, strict=True))
        return (n_rows, *sample_shape), names if len(set(names)) == len(names) else plain

    def shaped(self, rows: Array, sample_shape: tuple[int, ...] | None) -> Array:
        """Rows reshaped to the stored shape."""
        return rows.reshape(self.frame(len(rows), sample_shape, None)[0])

    @property
    def maps_by_columns(self) -> bool:
        """Whether `transform` can be a pass over columns."""
        embeds = self.kind.embeds and isinstance(self.model, MapsColumns)
        return embeds and bool(self.model.maps_by_columns)

    def scores_by_columns(self, n_rows: int) -> Accumulator | None:
        """`transform` as a pass over columns, where that is possible."""
        embeds = self.kind.embeds
        accumulator: Accumulator | None = self.model.scores_by_columns(n_rows) if embeds else None
        return accumulator

    @property
    def columns_through(self) -> Model | None:
        """The model that maps columns before their scores are summed; None if there is none."""
        return self.model.columns_through if isinstance(self.model, MapsColumnsThrough) else None

    @cached_property
    def never_observed(self) -> Array | None:
        """The columns that stay NaN, since they were never observed in the fit; None if there are none."""
        left_out = None
        if self.axes is not None and self.makes_features and self.axes.kept is not None:
            left_out = ~self.axes.kept
        if not (self.kind.imputes and self.allow_nan):
            return left_out
        empty_row = np.full((1, self.n_features), np.nan)
        unobserved: Array = np.isnan(self.transform(empty_row)[0])
        return unobserved if unobserved.any() else None

    @property
    def _lets_missing_through(self) -> bool:
        return self.kind.embeds and self.allow_nan and not fills_missing(self.model)

    def hides_bad_value(self, values: Array | SparseRows) -> bool:
        """Whether rows hold an invalid value that their output does not show."""
        if not self.kind.hides_invalid:
            return False
        if not isinstance(values, np.ndarray):
            values = values.data[:, None]
        bad = np.isinf if self.allow_nan else lambda values: ~np.isfinite(values)
        # Slab by slab: the memory plan does not include a mask of the whole block.
        return any(bool(bad(values[slab]).any()) for slab in slabs(values))

    def is_valid(self, mapped: Array) -> bool:
        """Whether all values are finite, except those of columns that were never observed.

        A step may let missing values through.
        """
        finite = np.isfinite(mapped)
        if self._lets_missing_through:
            finite |= np.isnan(mapped)
        if self.never_observed is not None:
            finite |= self.never_observed & np.isnan(mapped)
        return bool(finite.all())
