"""The columns that vary most: by their variance, or by their dispersion among columns of similar means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec
from streamdr.core.facts import MOST_ROWS, Column, Fact, Table
from streamdr.core.linalg import constant_columns
from streamdr.core.mapping import REPORT
from streamdr.core.method import Model, Pass, Passes, Route, Tags
from streamdr.core.outline import unallocated
from streamdr.core.pictures import Picture
from streamdr.errors import DataError
from streamdr.methods.steps.base import ChoiceModel, StepMethod, one_pass, possible_supports
from streamdr.methods.steps.dispersions import Dispersions, Exponentials, dispersions_of
from streamdr.methods.steps.moments import moments_phase, unbiased, variance_of
from streamdr.methods.steps.plots import SELECTED_VARIANCE
from streamdr.methods.steps.rounding import is_above, is_below, without_rounding
from streamdr.statistics.observed import Observed
from streamdr.statistics.validation import no_values, require

Flavor = Literal["variance", "seurat", "cell_ranger"]
FLAVORS: tuple[Flavor, ...] = ("variance", "seurat", "cell_ranger")
_SCORE = {"dims": ("feature",), **REPORT}


@dataclass(frozen=True, eq=False)
class SelectVarianceModel(ChoiceModel):
    """The columns that vary most, and what they were compared by."""

    pictures: ClassVar[tuple[Picture, ...]] = (SELECTED_VARIANCE,)

    flavor: str = field(metadata=REPORT)
    """What columns are compared by: `"variance"`, `"seurat"` or `"cell_ranger"`."""
    means: Array = field(metadata=_SCORE)
    """The mean of each column; for `"seurat"`, log(1 + m) for the mean m of the counts before they were
    logged. With dispersions, a mean of 0 is 1e-12."""
    variances: Array = field(metadata=_SCORE)
    """The unbiased variance of each column; for `"seurat"`, of the counts before they were logged."""
    dispersions: Array | None = field(default=None, metadata=_SCORE)
    """The variance over the mean; for `"seurat"`, its logarithm."""
    dispersions_norm: Array | None = field(default=None, metadata=_SCORE)
    """The dispersion relative to those of columns with similar means; NaN for a column without variance."""

    @property
    def scores(self) -> Array:
        """What the columns were selected by: normalised dispersions, or variances."""
        return self.variances if self.dispersions_norm is None else self.dispersions_norm

    def facts(self) -> tuple[Fact, ...]:
        """The number of columns that are kept, and by what."""
        return (*super().facts(), Fact("by", self.flavor))

    def tables(self) -> tuple[Table, ...]:
        """The columns that are kept, those that vary most first."""
        scores = self.scores
        order = self.reads[np.argsort(-scores[self.reads], kind="stable")]
        name = "variance" if self.dispersions_norm is None else "normalised dispersion"
        return (
            Table(
                "selected columns",
                (Column("column"), Column("mean"), Column(name)),
                tuple(
                    (int(column), float(self.means[column]), float(scores[column]))
                    for column in order[:MOST_ROWS]
                ),
                about="The columns that are kept, those that vary most first.",
                left_out=max(0, self.n_outputs - MOST_ROWS),
            ),
        )


@dataclass(eq=False)
class SelectVariance(StepMethod):
    """The columns that vary most. Missing values are left out of means and variances, and stay missing.

    The flavors `"seurat"` and `"cell_ranger"` are those of `scanpy.pp.highly_variable_genes`, for logged
    counts: the variance over the mean, relative to columns with similar means. They give the numbers and the
    columns of scanpy.

    Parameters
    ----------
    n_features : int or None
        How many columns to keep. None for all that are within the limits below. With dispersions, columns
        that tie with the last one are kept too, at most `n_bins` of them.
    flavor : "variance", "seurat" or "cell_ranger"
        What columns are compared by: their variance, or their normalised dispersion. `"seurat"` undoes the
        logarithm of the values first.
    min_variance : float
        For `"variance"`: columns whose variance is not above this are left out.
    min_mean : float
        For dispersions without `n_features`: the mean of a column must be above this.
    max_mean : float
        For dispersions without `n_features`: the mean of a column must be below this.
    min_disp : float
        For dispersions without `n_features`: the normalised dispersion must be above this.
    max_disp : float or None
        For dispersions without `n_features`: the normalised dispersion must be below this; None for no limit.
    n_bins : int
        For `"seurat"`: the number of bins of means.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[1.0, 0.0, 5.0], [2.0, 0.0, 9.0], [1.0, 0.0, 1.0]])
    >>> chosen = streamdr.SelectVariance(1).fit(X)
    >>> chosen.get_support(indices=True), chosen.variances_[2]
    (array([2]), np.float64(16.0))
    """

    name: ClassVar[str] = "select_variance"
    model: ClassVar[type] = SelectVarianceModel
    tags: ClassVar[Tags] = Tags(step=True, feature_subset=True)
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ()

    n_features: int | None = None
    _: KW_ONLY
    flavor: Flavor = "variance"
    min_variance: float = 0.0
    min_mean: float = 0.0125
    max_mean: float = 3.0
    min_disp: float = 0.5
    max_disp: float | None = None
    n_bins: int = 20

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Examples, for the laws. Dispersions need logged counts, and more columns than the laws have."""
        return [cls(3), cls(min_variance=1e-30)]

    def check(self) -> None:
        """Refuse impossible parameter values."""
        super().check()
        require(self.flavor in FLAVORS, "flavor", f"{self.flavor!r} is not one of {', '.join(FLAVORS)}")
        if self.n_features is not None:
            require(self.n_features > 0, "n_features", f"{self.n_features} is not above 0")
        require(self.min_variance >= 0, "min_variance", f"{self.min_variance:g} is below 0")
        require(self.n_bins > 0, "n_bins", f"{self.n_bins} is not above 0")
        pairs = (("min_mean", self.min_mean, self.max_mean), ("min_disp", self.min_disp, self.max_disp))
        for name, low, high in pairs:
            if high is not None:
                require(low < high, name, f"{low:g} is not below {name.replace('min', 'max')}, {high:g}")

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """One pass for means and variances."""
        self.check()
        if data.n_rows < 2:
            raise DataError(f"{self.name} needs at least 2 rows, not one sample: n_samples = {data.n_rows}")
        # Means, variances, dispersions, their bins, and copies of them.
        return [one_pass(self, data, moments_phase(data, per_column=128), 6.0 if self._plain else 12.0)]

    def passes(self, data: MatrixSpec, start: Any = None) -> Passes:
        """One pass for means and variances."""
        exponentials = self.flavor == "seurat"
        empty = Exponentials(data.n_cols) if exponentials else Observed(data.n_cols, moments=True)
        label = "means and variances of counts" if exponentials else "means and variances"
        found = cast(Observed, (yield Pass(empty, label=label)))
        if not found.weights.any():
            raise no_values()
        if exponentials and not np.isfinite(found.squares).all():
            raise DataError(
                f"{self.name}: exponentials of the values overflow; the flavor seurat takes logged counts: "
                "put log1p before it"
            )
        variances = variance_of(found) * unbiased(found.weights, 1)
        variances[constant_columns(found.variance, found.mean)] = 0.0
        if self._plain:
            return self._model(self._most_variable(variances), found.mean, variances)
        measured = dispersions_of(found.mean, variances, cast(Any, self.flavor), self.n_bins)
        support = self._within(measured) if self.n_features is None else self._most_dispersed(measured)
        return self._model(support, measured.means, variances, measured)

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """Models with the largest possible number of columns."""
        ties = 0 if self._plain else self.n_bins
        most = data.n_cols if self.n_features is None else min(self.n_features + ties, data.n_cols)
        empty = unallocated(data.n_cols)
        measured = None if self._plain else Dispersions(empty, empty, empty)
        return [
            self._fields(support, empty, empty, measured) for support in possible_supports(data.n_cols, most)
        ]

    @property
    def _plain(self) -> bool:
        return self.flavor == "variance"

    def _most_variable(self, variances: Array) -> Array:
        """The mask of the columns with the largest variances; of equal ones, the first."""
        support = is_above(variances, self.min_variance)
        if self.n_features is not None:
            order = np.argsort(-without_rounding(variances), kind="stable")
            support[order[self.n_features :]] = False
        return support

    def _most_dispersed(self, measured: Dispersions) -> Array:
        """The mask of the columns with the largest normalised dispersions, with those that tie."""
        scores = without_rounding(np.where(np.isnan(measured.normalized), -np.inf, measured.normalized))
        order = np.argsort(-scores, kind="stable")[: np.count_nonzero(~np.isnan(measured.normalized))]
        support = np.zeros(len(scores), np.bool_)
        if len(order):
            assert self.n_features is not None
            last = scores[order[: self.n_features][-1]]
            ties = order[: self.n_features + self.n_bins]
            support[ties[scores[ties] >= last]] = True
        return support

    def _within(self, measured: Dispersions) -> Array:
        """The mask of the columns within the limits. A dispersion that is not defined counts as 0."""
        dispersions, most = np.nan_to_num(measured.normalized), self.max_disp
        within: Array = is_above(measured.means, self.min_mean) & is_below(measured.means, self.max_mean)
        within &= is_above(dispersions, self.min_disp)
        return within if most is None else within & is_below(dispersions, most)

    def _model(
        self, support: Array, means: Array, variances: Array, measured: Dispersions | None = None
    ) -> SelectVarianceModel:
        if not support.any():
            wanted = "a variance above min_variance" if self._plain else "a dispersion within the limits"
            if not self._plain and self.n_features is not None:
                wanted = "a dispersion unlike those of columns with similar means"
            raise DataError(
                f"{self.name}: none of the {len(support):,} columns has {wanted}: is the step in its place, "
                "and are the limits those of this data?"
            )
        return self._fields(support, means, variances, measured)

    def _fields(
        self, support: Array, means: Array, variances: Array, measured: Dispersions | None
    ) -> SelectVarianceModel:
        both = (None, None) if measured is None else (measured.dispersions, measured.normalized)
        return SelectVarianceModel(support, self.flavor, means, variances, *both)
