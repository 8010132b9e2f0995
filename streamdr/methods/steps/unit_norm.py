"""Rows scaled to norm one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec, SparseRows, widen
from streamdr.core.facts import Fact
from streamdr.core.linalg import slabs
from streamdr.core.method import Tags
from streamdr.core.plain_maps import PlainMap, ScaleNorms
from streamdr.methods.steps.base import StepModel, WithoutPasses, with_values
from streamdr.statistics.validation import require

if TYPE_CHECKING:
    from streamdr.core.scikit_learn import Step

Norm = Literal["l2", "l1", "max"]
NORMS: tuple[Norm, ...] = ("l2", "l1", "max")


@dataclass(frozen=True, eq=False)
class UnitNormModel(StepModel):
    """The norm by which each row is divided."""

    allow_nan: ClassVar[bool] = False
    keeps_zeros: ClassVar[bool] = True

    norm: str
    """The norm: `"l2"`, `"l1"` or `"max"`."""

    def facts(self) -> tuple[Fact, ...]:
        """The norm."""
        return (*super().facts(), Fact("norm", self.norm))

    def transform(self, values: Array) -> Array:
        """The rows divided by their norms, in their floating-point type. A row of zeros stays as it is."""
        values = widen(values)
        mapped = np.empty(values.shape, values.dtype)
        for slab in slabs(values):
            rows = values[slab].astype(np.float64)
            level = _divisor(np.abs(rows).max(axis=1, initial=0.0))[:, None]
            rows /= level  # first: squares of large values overflow, those of small ones vanish
            if self.norm != "max":
                rows /= _divisor(_norms(rows, self.norm))[:, None]
            mapped[slab] = rows
        return mapped

    def plain_maps(self) -> tuple[PlainMap, ...]:
        """`transform` as elementary maps."""
        return (ScaleNorms(cast(Norm, self.norm)),)

    def transform_sparse(self, rows: SparseRows) -> SparseRows:
        """The same for sparse rows."""
        values = rows.data.astype(np.float64)
        lengths = np.diff(rows.indptr)
        level = np.zeros(len(lengths))
        if len(values):
            filled = np.flatnonzero(lengths)
            level[filled] = np.maximum.reduceat(np.abs(values), rows.indptr[filled])
        values /= np.repeat(_divisor(level), lengths)
        if self.norm != "max":
            numbers = np.repeat(np.arange(len(lengths)), lengths)
            parts = np.square(values) if self.norm == "l2" else np.abs(values)
            norms = np.bincount(numbers, parts, len(lengths))
            norms = np.sqrt(norms) if self.norm == "l2" else norms
            values /= np.repeat(_divisor(norms), lengths)
        return with_values(rows, values.astype(widen(rows.data[:0]).dtype))

    def sklearn_steps(self) -> list[Step]:
        """Estimators of scikit-learn that map rows in the same way."""
        from streamdr.methods.steps.scikit_learn import unit_norm_steps

        return unit_norm_steps(self)


def _norms(rows: Array, norm: str) -> Array:
    """The l1 or l2 norms of rows."""
    sums: Array = np.abs(rows).sum(axis=1) if norm == "l1" else np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return sums


def _divisor(norms: Array) -> Array:
    """The norms, with one for zero."""
    return np.where(norms == 0, 1.0, norms)


@dataclass(eq=False)
class UnitNorm(WithoutPasses):
    """Each row divided by its norm. A row of zeros stays as it is.

    Parameters
    ----------
    norm : "l2", "l1" or "max"
        The root of the sum of squares, the sum of magnitudes, or the largest magnitude.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> streamdr.UnitNorm().fit_transform(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """

    name: ClassVar[str] = "unit_norm"
    model: ClassVar[type] = UnitNormModel
    tags: ClassVar[Tags] = Tags(incremental=False, step=True, feature_subset=True)
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ()

    norm: Norm = "l2"

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """One example for each norm, for the laws."""
        return [cls(norm) for norm in NORMS]

    def check(self) -> None:
        """Refuse an unknown norm."""
        super().check()
        require(self.norm in NORMS, "norm", f"{self.norm!r} is not one of {', '.join(NORMS)}")

    def fitted(self, data: MatrixSpec) -> UnitNormModel:
        """The norm."""
        return UnitNormModel(data.n_cols, self.norm)
