"""Rows scaled to the same total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec, SparseRows, widen
from streamdr.core.facts import Fact
from streamdr.core.method import Model, Pass, Passes, Phase, Route, Tags
from streamdr.core.plain_maps import PlainMap, ScaleTotals
from streamdr.core.work import Count, Work
from streamdr.errors import DataError, RowError
from streamdr.methods.steps.base import SLAB_BYTES, StepMethod, StepModel, most_stored, with_values
from streamdr.statistics.row_totals import MOST_KEYS, RowTotals, row_totals
from streamdr.statistics.validation import require

if TYPE_CHECKING:
    from streamdr.core.scikit_learn import Step


@dataclass(frozen=True, eq=False)
class NormalizeTotalModel(StepModel):
    """The total that every row is scaled to."""

    allow_nan: ClassVar[bool] = False
    keeps_zeros: ClassVar[bool] = True

    target_sum: float
    """The total of every row."""
    empty_rows: str
    """What is done with a row whose total is zero: `"refuse"`, or `"keep"` it as it is."""

    def facts(self) -> tuple[Fact, ...]:
        """The total."""
        return (*super().facts(), Fact("total", self.target_sum))

    def transform(self, values: Array) -> Array:
        """The rows scaled to the total, in their floating-point type."""
        values = widen(values)
        totals = self._checked(row_totals(values))
        divisors, odd = self._divisors(totals, values.dtype)
        scaled: Array = values / divisors[:, None]
        if odd.any():
            scaled[odd] = values[odd].astype(np.float64) / totals[odd, None] * self.target_sum
        return scaled

    def plain_maps(self) -> tuple[PlainMap, ...]:
        """`transform` as elementary maps."""
        return (ScaleTotals(self.target_sum),)

    def transform_sparse(self, rows: SparseRows) -> SparseRows:
        """The same for sparse rows."""
        values, lengths = widen(rows.data), np.diff(rows.indptr)
        totals = self._checked(row_totals(rows))
        divisors, odd = self._divisors(totals, values.dtype)
        scaled = values / np.repeat(divisors, lengths)
        if odd.any():
            places = np.repeat(odd, lengths)
            scaled[places] = (
                values[places].astype(np.float64) / np.repeat(totals, lengths)[places] * self.target_sum
            )
        return with_values(rows, scaled)

    def _checked(self, totals: Array) -> Array:
        """The totals. Whoever reads the rows finds totals that are NaN."""
        bad = (totals < 0) | np.isinf(totals)
        if self.empty_rows == "refuse":
            bad |= totals == 0
        if bad.any():
            row = int(np.argmax(bad))
            advice = "it takes counts: is the step in its place?"
            if totals[row] == 0:
                advice = "leave out rows without counts, or set empty_rows to keep"
            elif totals[row] > 0:
                advice = "rescale the data"
            raise RowError(row, f"the total is {totals[row]:g}; {advice}", NormalizeTotal.name)
        return totals

    def _divisors(self, totals: Array, kind: np.dtype[Any]) -> tuple[Array, Array]:
        """The number by which each row is divided, and the mask of the rows for which there is none.

        The ratio of a total to the target may be too small, or too large, for a number of full precision.
        """
        with np.errstate(over="ignore", under="ignore"):
            divisors = np.where(totals == 0, 1.0, totals / self.target_sum).astype(kind)
        odd = (divisors < np.finfo(kind).tiny) | np.isinf(divisors)
        return np.where(odd, kind.type(1), divisors), odd

    def sklearn_steps(self) -> list[Step]:
        """Estimators of scikit-learn that map rows in the same way."""
        from streamdr.methods.steps.scikit_learn import normalize_total_steps

        return normalize_total_steps(self)


@dataclass(eq=False)
class NormalizeTotal(StepMethod):
    """Each row scaled to the same total, as counts of cells that were sequenced to different depths.

    Parameters
    ----------
    target_sum : float or None
        The total of every row. None for the median of the totals of the rows that are not empty, which takes
        a pass over the rows.
    empty_rows : "refuse" or "keep"
        What is done with a row whose total is zero: it is an error, or it stays as it is.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> streamdr.NormalizeTotal().fit_transform(np.array([[1.0, 1.0], [1.0, 3.0], [0.0, 4.0]]))
    array([[2., 2.],
           [1., 3.],
           [0., 4.]])
    """

    name: ClassVar[str] = "normalize_total"
    model: ClassVar[type] = NormalizeTotalModel
    tags: ClassVar[Tags] = Tags(incremental=False, step=True, feature_subset=True, nonnegative=True)
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ()

    target_sum: float | None = None
    _: KW_ONLY
    empty_rows: Literal["refuse", "keep"] = "refuse"

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Examples, for the laws: with a pass, and without."""
        return [cls(), cls(1e4, empty_rows="keep")]

    def check(self) -> None:
        """Refuse impossible parameter values."""
        super().check()
        if self.target_sum is not None:
            require(self.target_sum > 0, "target_sum", f"{self.target_sum:g} is not above 0")
        ways = ("refuse", "keep")
        require(self.empty_rows in ways, "empty_rows", f"{self.empty_rows!r} is not one of {', '.join(ways)}")

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """A pass for the median, and further ones where there are very many different totals."""
        self.check()
        if self.target_sum is not None:
            return [Route(method=self, name="parameters", exact=True, passes=0, flops=0.0, phases=())]
        held = 32 * MOST_KEYS
        phase = Phase(
            held,
            empty_bytes=0,
            scratch_bytes=2 * held + SLAB_BYTES,
            scratch_per_block=64.0 / data.line_bytes("rows"),
            solve_bytes=held,
            takes_sparse=True,
            sparse_scratch_bytes=2 * held + SLAB_BYTES + 64 * most_stored(data),
            work=Work(moved=3.0 * data.n_rows * data.line_bytes("rows") * (data.density or 1.0)),
            count=Count(1, 1, 4),
        )
        return [
            Route(
                method=self,
                name="median of totals",
                exact=True,
                passes=4,
                usual_passes=1,
                flops=2.0 * data.n_rows * data.n_cols,
                phases=(phase,),
            )
        ]

    def passes(self, data: MatrixSpec, start: Any = None) -> Passes:
        """Passes that narrow the range of the median, until it is exact. The first usually is."""
        if self.target_sum is not None:
            return self._fitted(data, float(self.target_sum))
        empty = RowTotals()
        while True:
            found = cast(RowTotals, (yield Pass(empty, label="totals of rows")))
            if not found.total > 0:
                raise DataError(f"{self.name}: no row of positive weight has a positive total")
            if not len(found.value()["keys"]):
                raise DataError(f"{self.name}: the totals of rows overflow: rescale the data")
            low, high = found.median_range()
            if found.exact:
                return self._fitted(data, low if low == high else low / 2 + high / 2)
            empty = RowTotals(low, high)

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """A model of the same size."""
        return [self._fitted(data, 1.0)]

    def _fitted(self, data: MatrixSpec, total: float) -> NormalizeTotalModel:
        return NormalizeTotalModel(data.n_cols, total, self.empty_rows)
