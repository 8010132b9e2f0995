"""What a run can write of every row: the embedding, and what some models say besides. One table of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from streamdr.accumulators.base import Accumulator
from streamdr.blocks import Array, MatrixSpec
from streamdr.methods.base import MapsColumns, Model, UsesScratch

RowKind = Literal[
    "embedding",
    "denoised",
    "imputed",
    "imputed_variance",
    "log_likelihood",
    "responsibilities",
    "predicted",
    "probabilities",
]
_LENGTHS = {
    "component": "n_outputs",
    "feature": "n_features",
    "mixture": "n_mixtures",
    "class": "n_classes",
}
"""What a model calls the number of columns, by what they stand for."""


@dataclass(frozen=True)
class RowOutput:
    """A kind of output that has a row for every row of the input."""

    name: RowKind
    """Its key in the section `output`, what its record is called, and its array."""
    title: str
    """What people call it."""
    method: str
    """The method of a model that makes it."""
    columns: Literal["component", "feature", "mixture", "class"] | None
    """What a column stands for; None where a row has one value."""
    lacking: str
    """What is to be said of a model that cannot make it."""
    dtype: Literal["float64", "label"] | None = None
    """The type of its values, whatever is asked for: a number's, or that of labels."""
    fills: bool = False
    """Whether the model decides only those values that the input does not have."""
    centred: bool = True
    """Whether change is measured by how widely values are spread; otherwise by how large they are."""
    blind: bool = False
    """Whether what was observed does not show in it, so that a value that is bad has to be looked for."""
    advice: str = ""
    """What may make it smaller than is expected before the fit."""

    def made_by(self, model: type) -> bool:
        """Whether models of a class can make it."""
        return hasattr(model, self.method) and (
            self.columns is None or hasattr(model, _LENGTHS[self.columns])
        )

    def of(self, model: Model) -> RowView:
        """A model as what makes this."""
        return RowView(model, self)

    def change(self, values: Array, old: Array, new: Array) -> float | None:
        """How far what a model makes of some rows is from what an earlier one made of them.

        Root mean square, as a part of how widely it is spread, or of how large it is. None where nothing can
        be told: models decide what is missing, and nothing is.
        """
        known = ~np.isnan(old)
        if not np.array_equal(known, ~np.isnan(new)):
            return float("inf")  # of some feature nothing was known, and now something is
        decided = known & np.isnan(values) if self.fills else known
        if not decided.any():
            return None
        if self.centred:
            level = np.where(known, old, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
            scale = (old - level)[known]
        else:
            scale = old[decided]
        moved, size = (float(np.sqrt(np.mean(x**2))) for x in ((new - old)[decided], scale))
        return moved / size if size else float("inf" if moved else 0.0)


EMBEDDING = RowOutput("embedding", "embedding", "transform", "component", "does not transform")
ROW_OUTPUTS = (
    EMBEDDING,
    RowOutput("denoised", "denoised values", "denoise", "feature", "does not denoise"),
    RowOutput("imputed", "imputed values", "impute", "feature", "does not impute", fills=True),
    RowOutput(
        "imputed_variance",
        "variance of imputed values",
        "impute_variance",
        "feature",
        "does not impute",
        fills=True,
        centred=False,
        blind=True,
    ),
    RowOutput(
        "log_likelihood", "log-likelihood", "score_samples", None, "has no likelihood", dtype="float64"
    ),
    RowOutput(
        "responsibilities", "responsibilities", "predict_proba", "mixture", "is no mixture", centred=False
    ),
    RowOutput(
        "predicted", "predicted classes", "predict", None, "predicts no class", dtype="label", blind=True
    ),
    RowOutput(
        "probabilities",
        "probabilities of classes",
        "predict_proba",
        "class",
        "has no classes",
        centred=False,
        advice="set max_classes to how many classes there are",
    ),
)


@dataclass(frozen=True, eq=False)
class RowView:
    """A model as the maker of one kind of output: what a transform needs to know of it."""

    model: Any
    kind: RowOutput

    @property
    def n_features(self) -> int:
        """How many columns `transform` takes."""
        return int(self.model.n_features)

    @property
    def n_outputs(self) -> int:
        """How many columns `transform` gives."""
        if self.kind.columns is None:
            return 1
        return int(getattr(self.model, _LENGTHS[self.kind.columns]))

    @property
    def holes(self) -> bool:
        """Whether `transform` takes NaN for a value that is missing."""
        return bool(self.model.holes)

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The type of its values; None where it is to be chosen.

        Labels that are numbers keep their type; classes that are text, and parts of a mixture, are counted.
        """
        if self.kind.dtype != "label":
            return None if self.kind.dtype is None else np.dtype(self.kind.dtype)
        classes = getattr(self.model, "classes", None)
        return classes.dtype if isinstance(classes, np.ndarray) else np.dtype(np.int64)

    def stored(self, wanted: str | None, data: MatrixSpec) -> np.dtype[Any]:
        """The type in which it is written: its own, the wanted one, or that of the rows as they come."""
        return self.dtype or np.dtype(wanted or data.working)

    def made_bytes(self, n_rows: int, data: MatrixSpec) -> int:
        """What `transform` gives for so many rows takes: in their type, or in double precision."""
        plain = self.kind.columns in ("component", "feature")
        return n_rows * self.n_outputs * (data.working.itemsize if plain else 8)

    def scratch_bytes(self, n_rows: int, row_bytes: int) -> int:
        """What `transform` allocates besides its result for so many rows: a copy of them, if not told."""
        if isinstance(self.model, UsesScratch):
            return self.model.scratch_bytes(n_rows)
        return n_rows * row_bytes

    def transform(self, values: Array) -> Array:
        """Map rows to rows, of one column where there is one value a row. Text is told by its number."""
        text = self.kind.dtype == "label" and isinstance(getattr(self.model, "classes", None), list)
        mapped: Array = getattr(self.model, "likeliest" if text else self.kind.method)(values)
        return mapped.reshape(len(mapped), self.n_outputs)

    def frame(
        self, n_rows: int, sample_shape: tuple[int, ...] | None, dims: Sequence[str | None] | None
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """The shape and the names of dimensions that so many rows are stored in.

        Where columns are features, these are the input's, of which the shape of a sample and the names of
        dimensions are given, samples first, as far as they are known.
        """
        kind = self.kind
        if kind.columns is None:
            return (n_rows,), ("sample",)
        if kind.columns != "feature" or sample_shape is None:
            return (n_rows, self.n_outputs), ("sample", kind.columns)
        number = len(sample_shape)
        unnamed = ("feature",) if number == 1 else tuple(f"axis_{axis + 1}" for axis in range(number))
        plain = ("sample", *unnamed)
        names = tuple(name or other for name, other in zip(dims or plain, plain, strict=True))
        return (n_rows, *sample_shape), names if len(set(names)) == len(names) else plain

    def shaped(self, rows: Array, sample_shape: tuple[int, ...] | None) -> Array:
        """Rows in the shape that they are stored in."""
        return rows.reshape(self.frame(len(rows), sample_shape, None)[0])

    @property
    def maps_by_columns(self) -> bool:
        """Whether `transform` can be a pass over columns."""
        embeds = self.kind == EMBEDDING and isinstance(self.model, MapsColumns)
        return embeds and bool(self.model.maps_by_columns)

    def scores_by_columns(self, n_rows: int) -> Accumulator | None:
        """`transform` as a pass over columns, where there is one."""
        embeds = self.kind == EMBEDDING
        found: Accumulator | None = self.model.scores_by_columns(n_rows) if embeds else None
        return found

    @cached_property
    def blank(self) -> Array | None:
        """The columns that stay NaN where nothing was observed, since the model knows nothing of them."""
        if not (self.kind.fills and self.holes):
            return None
        nothing = np.full((1, self.n_features), np.nan)
        unknown: Array = np.isnan(self.transform(nothing)[0])
        return unknown if unknown.any() else None

    def overlooks(self, values: Array) -> bool:
        """Whether rows hold a value that is bad, and that what they are mapped to does not show."""
        bad = np.isinf if self.holes else lambda values: ~np.isfinite(values)
        return self.kind.blind and bool(bad(values).any())

    def is_sound(self, mapped: Array) -> bool:
        """Whether all values are finite but those that the model cannot know."""
        finite = np.isfinite(mapped)
        if self.blank is not None:
            finite |= self.blank & np.isnan(mapped)
        return bool(finite.all())
