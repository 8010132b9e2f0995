"""Columns with mean zero and variance one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec, SparseRows, widen
from streamdr.core.facts import Fact
from streamdr.core.linalg import constant_columns, slabs
from streamdr.core.method import Model, Pass, Passes, Route, Tags
from streamdr.core.outline import unallocated
from streamdr.core.plain_maps import Limit, PlainMap, Scale, Subtract
from streamdr.methods.steps.base import ApartModel, StepMethod, one_pass, with_values
from streamdr.methods.steps.moments import moments_phase, unbiased, variance_of
from streamdr.statistics.observed import Observed
from streamdr.statistics.validation import no_values, require

if TYPE_CHECKING:
    from streamdr.core.scikit_learn import Step


@dataclass(frozen=True, eq=False)
class StandardiseModel(ApartModel):
    """The mean and the scale of each column."""

    allow_nan: ClassVar[bool] = True

    mean: Array | None = field(metadata={"dims": ("feature",)})
    """What is subtracted from each column; None if nothing is."""
    scale: Array | None = field(metadata={"dims": ("feature",)})
    """What each column is divided by: its standard deviation, or 1 if it is constant; None if nothing is."""
    max_value: float | None
    """The largest magnitude of a result; None for no limit."""

    @property
    def keeps_zeros(self) -> bool:
        """Whether no mean is subtracted."""
        return self.mean is None

    def facts(self) -> tuple[Fact, ...]:
        """The number of columns, and how many of them have a scale."""
        limit = () if self.max_value is None else (Fact("largest magnitude", self.max_value),)
        return (*super().facts(), Fact("centred", "no" if self.mean is None else "yes"), *limit)

    def transform(self, values: Array) -> Array:
        """The standardised rows, in their floating-point type. Missing values stay missing."""
        values = widen(values)
        mapped = np.empty(values.shape, values.dtype)
        for slab in slabs(values):
            rows = values[slab].astype(np.float64)
            if self.mean is not None:
                rows -= self.mean
            if self.scale is not None:
                rows /= self.scale
            mapped[slab] = self._limited(rows)
        return mapped

    def plain_maps(self) -> tuple[PlainMap, ...]:
        """`transform` as elementary maps."""
        maps: list[PlainMap] = []
        if self.mean is not None:
            maps.append(Subtract(self.mean))
        if self.scale is not None:
            maps.append(Scale(1.0 / self.scale))
        if self.max_value is not None:
            maps.append(Limit(None if self.mean is None else -self.max_value, self.max_value))
        return tuple(maps)

    def transform_sparse(self, rows: SparseRows) -> SparseRows | Array:
        """The same for sparse rows; dense if a mean is subtracted."""
        if self.mean is not None:
            return self.transform(rows.toarray())
        values = rows.data.astype(np.float64)
        if self.scale is not None:
            values /= self.scale[rows.indices]
        return with_values(rows, self._limited(values).astype(widen(rows.data[:0]).dtype))

    def inverse_transform(self, scaled: Array) -> Array:
        """The rows before they were standardised, in their floating-point type. Limits are not undone."""
        scaled = widen(scaled)
        rows = np.empty(scaled.shape, scaled.dtype)
        for slab in slabs(scaled):
            values = scaled[slab].astype(np.float64)
            if self.scale is not None:
                values *= self.scale
            if self.mean is not None:
                values += self.mean
            rows[slab] = values
        return rows

    def _limited(self, values: Array) -> Array:
        """The values within the largest magnitude. Without a mean, only large positive values are limited."""
        if self.max_value is None:
            return values
        return np.clip(values, -self.max_value if self.mean is not None else None, self.max_value, out=values)

    def sklearn_steps(self) -> list[Step]:
        """Estimators of scikit-learn that map rows in the same way."""
        from streamdr.methods.steps.scikit_learn import standardise_steps

        return standardise_steps(self)


@dataclass(eq=False)
class Standardise(StepMethod):
    """Columns with mean zero and variance one. Missing values are left out of both, and stay missing.

    A constant column is divided by one.

    Parameters
    ----------
    with_mean : bool
        Subtract the mean of each column. Sparse rows are then made dense.
    with_std : bool
        Divide each column by its standard deviation.
    max_value : float or None
        The largest value of a result, as in `scanpy.pp.scale`: larger ones are set to it. If the mean is
        subtracted, its negative is the least. None for no limit.
    ddof : int
        The variance divides by the number of rows minus this: 0 as scikit-learn's StandardScaler, 1 as
        `scanpy.pp.scale`.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> streamdr.Standardise().fit_transform(np.array([[1.0, 5.0], [3.0, 5.0]]))
    array([[-1.,  0.],
           [ 1.,  0.]])
    """

    name: ClassVar[str] = "standardise"
    model: ClassVar[type] = StandardiseModel
    tags: ClassVar[Tags] = Tags(step=True, feature_subset=True)
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ()

    with_mean: bool = True
    with_std: bool = True
    _: KW_ONLY
    max_value: float | None = None
    ddof: int = 0

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Examples, for the laws: one keeps zeros."""
        return [cls(), cls(with_mean=False, max_value=10.0, ddof=1)]

    def check(self) -> None:
        """Refuse impossible parameter values."""
        super().check()
        require(self.ddof in (0, 1), "ddof", f"{self.ddof} is neither 0 nor 1")
        if self.max_value is not None:
            require(self.max_value > 0, "max_value", f"{self.max_value:g} is not above 0")

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """One pass for means and variances."""
        self.check()
        return [one_pass(self, data, moments_phase(data), 6.0)]

    def passes(self, data: MatrixSpec, start: Any = None) -> Passes:
        """One pass for means and variances."""
        found = cast(Observed, (yield Pass(Observed(data.n_cols, moments=True), label="means and variances")))
        if not found.weights.any():
            raise no_values()
        scale = np.sqrt(variance_of(found) * unbiased(found.weights, self.ddof))
        scale[constant_columns(found.variance, found.mean)] = 1.0
        return self._fitted(data, found.mean, scale)

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """A model of the same size."""
        return [self._fitted(data, unallocated(data.n_cols), unallocated(data.n_cols))]

    def _fitted(self, data: MatrixSpec, mean: Array, scale: Array) -> StandardiseModel:
        return StandardiseModel(
            data.n_cols,
            mean if self.with_mean else None,
            scale if self.with_std else None,
            None if self.max_value is None else float(self.max_value),
        )
