"""Values limited to a range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec, SparseRows, widen
from streamdr.core.facts import Fact
from streamdr.core.method import Tags
from streamdr.core.plain_maps import Limit, PlainMap
from streamdr.methods.steps.base import ApartModel, WithoutPasses, with_values
from streamdr.statistics.validation import require

if TYPE_CHECKING:
    from streamdr.core.scikit_learn import Step


@dataclass(frozen=True, eq=False)
class ClipModel(ApartModel):
    """The limits."""

    allow_nan: ClassVar[bool] = True

    min: float | None
    """The least value; None for no limit."""
    max: float | None
    """The largest value; None for no limit."""

    @property
    def keeps_zeros(self) -> bool:
        """Whether zero is in the range."""
        return (self.min is None or self.min <= 0) and (self.max is None or self.max >= 0)

    def facts(self) -> tuple[Fact, ...]:
        """The limits."""
        limits = (("least", self.min), ("largest", self.max))
        return (*super().facts(), *(Fact(name, limit) for name, limit in limits if limit is not None))

    def transform(self, values: Array) -> Array:
        """The values, limited to the range, in the floating-point type of the rows."""
        limited: Array = values.astype(widen(values[:0]).dtype)
        if self.min is not None:
            np.maximum(limited, limited.dtype.type(self.min), out=limited)
        if self.max is not None:
            np.minimum(limited, limited.dtype.type(self.max), out=limited)
        return limited

    def plain_maps(self) -> tuple[PlainMap, ...]:
        """`transform` as elementary maps."""
        return (Limit(self.min, self.max),)

    def transform_sparse(self, rows: SparseRows) -> SparseRows | Array:
        """The same for sparse rows; dense if zero is outside the range."""
        return (
            with_values(rows, self.transform(rows.data))
            if self.keeps_zeros
            else self.transform(rows.toarray())
        )

    def sklearn_steps(self) -> list[Step]:
        """Estimators of scikit-learn that map rows in the same way."""
        from streamdr.methods.steps.scikit_learn import clip_steps

        return clip_steps(self)


@dataclass(eq=False)
class Clip(WithoutPasses):
    """Values below a limit are set to it, and so are values above another. Missing values stay missing.

    Parameters
    ----------
    min : float or None
        The least value; None for no limit.
    max : float or None
        The largest value; None for no limit.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> streamdr.Clip(max=10.0).fit_transform(np.array([[0.0, 7.0, 30.0]]))
    array([[ 0.,  7., 10.]])
    """

    name: ClassVar[str] = "clip"
    model: ClassVar[type] = ClipModel
    tags: ClassVar[Tags] = Tags(incremental=False, step=True, feature_subset=True)
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ()

    min: float | None = None
    max: float | None = None

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Examples, for the laws: one keeps zeros."""
        return [cls(-1.0, 1.0), cls(min=0.5)]

    def check(self) -> None:
        """Refuse limits that are in the wrong order."""
        super().check()
        if self.min is not None and self.max is not None:
            require(self.min <= self.max, "min", f"{self.min:g} is above max, which is {self.max:g}")

    def fitted(self, data: MatrixSpec) -> ClipModel:
        """The limits."""
        limits = (None if limit is None else float(limit) for limit in (self.min, self.max))
        return ClipModel(data.n_cols, *limits)
