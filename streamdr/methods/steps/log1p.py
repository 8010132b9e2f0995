"""The logarithm of one plus each value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec, SparseRows, widen
from streamdr.core.method import Tags
from streamdr.core.plain_maps import LogOnePlus, PlainMap
from streamdr.methods.steps.base import (
    ApartModel,
    WithoutPasses,
    refuse_negative,
    refuse_negative_sparse,
    with_values,
)

if TYPE_CHECKING:
    from streamdr.core.scikit_learn import Step


@dataclass(frozen=True, eq=False)
class Log1pModel(ApartModel):
    """ln(1 + x) of each value."""

    allow_nan: ClassVar[bool] = True
    keeps_zeros: ClassVar[bool] = True

    def transform(self, values: Array) -> Array:
        """The logarithm of one plus each value, in the floating-point type of the rows."""
        values = widen(values)
        refuse_negative(Log1p.name, values)
        return np.log1p(values)

    def inverse_transform(self, logged: Array) -> Array:
        """exp(x) - 1 of each value, in the floating-point type of the rows."""
        return np.expm1(widen(logged))

    def plain_maps(self) -> tuple[PlainMap, ...]:
        """`transform` as elementary maps."""
        return (LogOnePlus(),)

    def transform_sparse(self, rows: SparseRows) -> SparseRows:
        """The same for sparse rows."""
        refuse_negative_sparse(Log1p.name, rows)
        return with_values(rows, np.log1p(widen(rows.data)))

    def sklearn_steps(self) -> list[Step]:
        """Estimators of scikit-learn that map rows in the same way."""
        from streamdr.methods.steps.scikit_learn import log1p_steps

        return log1p_steps(self)


@dataclass(eq=False)
class Log1p(WithoutPasses):
    """The natural logarithm of one plus each value, for counts. Negative values are errors.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> streamdr.Log1p().fit_transform(np.array([[0.0, np.e - 1]]))
    array([[0., 1.]])
    """

    name: ClassVar[str] = "log1p"
    model: ClassVar[type] = Log1pModel
    tags: ClassVar[Tags] = Tags(incremental=False, step=True, feature_subset=True, nonnegative=True)
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ()

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """An example, for the laws."""
        return [cls()]

    def fitted(self, data: MatrixSpec) -> Log1pModel:
        """The model, which only knows the number of columns."""
        return Log1pModel(data.n_cols)
