"""Values replaced by the numbers of their bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec, widen
from streamdr.core.facts import Fact
from streamdr.core.linalg import slabs
from streamdr.core.method import Model, Pass, Passes, Route, Tags
from streamdr.core.outline import unallocated
from streamdr.methods.steps.base import StepMethod, StepModel
from streamdr.statistics.bins import equal_edges, quantile_edges
from streamdr.statistics.sample import Sample
from streamdr.statistics.sampling import gather_phase
from streamdr.statistics.validation import no_values, no_weight, require

Strategy = Literal["quantile", "uniform"]
STRATEGIES: tuple[Strategy, ...] = ("quantile", "uniform")
_MOST_BINS = 256
_SAMPLE_ROWS, _SAMPLE_BYTES, _FEWEST_ROWS = 100_000, 128 << 20, 1_000
"""The rows of the sample: fewer where they are wide, down to the fewest."""


@dataclass(frozen=True, eq=False)
class BinModel(StepModel):
    """The inner edges of the bins of each column."""

    allow_nan: ClassVar[bool] = True

    edges: Array = field(metadata={"dims": ("edge", "feature")})
    """The ascending inner edges of each column: a value at an edge is in the bin above it. The last ones are
    NaN where a column has fewer."""

    @property
    def n_bins_per_column(self) -> Array:
        """The number of bins of each column."""
        counts: Array = 1 + np.count_nonzero(~np.isnan(self.edges), axis=0)
        return counts

    def facts(self) -> tuple[Fact, ...]:
        """The number of bins."""
        return (*super().facts(), Fact("bins", int(self.n_bins_per_column.max())))

    def transform(self, values: Array) -> Array:
        """The number of the bin of each value, in the floating-point type of the rows."""
        values = widen(values)
        mapped = np.zeros(values.shape, values.dtype)
        edges = self.edges.astype(values.dtype)
        exact = np.array_equal(edges, self.edges, equal_nan=True)
        for slab in slabs(values):
            rows, here = values[slab], mapped[slab]
            if not exact:  # a rounded edge could move values to another bin
                rows = rows.astype(np.float64)
            for edge in edges if exact else self.edges:
                here += rows >= edge
            missing = np.isnan(rows)
            if missing.any():
                np.copyto(here, np.nan, where=missing)
        return mapped


@dataclass(eq=False)
class Bin(StepMethod):
    """Each value replaced by the number of its bin, from 0. Missing values stay missing.

    The edges of the bins are those of a sample of the rows, which is drawn by row number. So they do not
    depend on chunks or workers. The sample has all rows up to 100,000, or fewer where rows are wide.

    Parameters
    ----------
    n_bins : int
        The number of bins of each column. There are fewer where a value is frequent, and one for a constant
        column.
    strategy : "quantile" or "uniform"
        Bins with equally many rows of the sample, or bins of equal width between its least and its largest
        value. Values beyond these are in the outer bins.
    random_state : int
        Seeds the sample.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[0.0], [1.0], [2.0], [10.0]])
    >>> streamdr.Bin(2).fit_transform(X).T, streamdr.Bin(2, strategy="uniform").fit_transform(X).T
    (array([[0., 1., 1., 1.]]), array([[0., 0., 0., 1.]]))
    """

    name: ClassVar[str] = "bin"
    model: ClassVar[type] = BinModel
    tags: ClassVar[Tags] = Tags(incremental=False, step=True, feature_subset=True)
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ()

    n_bins: int = 5
    _: KW_ONLY
    strategy: Strategy = "quantile"
    random_state: int = 0

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Examples, for the laws."""
        return [cls(), cls(3, strategy="uniform", random_state=1)]

    def check(self) -> None:
        """Refuse impossible parameter values."""
        super().check()
        require(2 <= self.n_bins <= _MOST_BINS, "n_bins", f"{self.n_bins} is not between 2 and {_MOST_BINS}")
        named = ", ".join(STRATEGIES)
        require(self.strategy in STRATEGIES, "strategy", f"{self.strategy!r} is not one of {named}")

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """One pass that gathers a sample."""
        self.check()
        size, d = self._sample_rows(data), data.n_cols
        solve = 8 * d * self.n_bins + 64 * size
        phase = gather_phase(data, size, solve_bytes=solve)
        flops = 1.0 * data.n_rows * d
        exact = size == data.n_rows
        return [Route(method=self, name="sample", exact=exact, passes=1, flops=flops, phases=(phase,))]

    def passes(self, data: MatrixSpec, start: Any = None) -> Passes:
        """One pass that gathers a sample."""
        empty = Sample(data.n_cols, self._sample_rows(data), self.random_state)
        sample = cast(Sample, (yield Pass(empty, label="a sample for the edges of bins")))
        if not len(sample.rows):
            raise no_weight()
        edges = np.full((self.n_bins - 1, data.n_cols), np.nan)
        any_observed = False
        for column, values in enumerate(sample.rows.T):
            observed = ~np.isnan(values)
            if observed.any():
                any_observed = True
                found = self._edges(values[observed], sample.weights[observed])
                edges[: len(found), column] = found
        if not any_observed:
            raise no_values()
        return BinModel(data.n_cols, edges)

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """A model of the same size."""
        return [BinModel(data.n_cols, unallocated(self.n_bins - 1, data.n_cols))]

    def _edges(self, values: Array, weights: Array) -> Array:
        """The inner edges of the bins of some values."""
        if self.strategy == "uniform":
            return equal_edges(float(values.min()), float(values.max()), self.n_bins)
        return quantile_edges(values, weights, self.n_bins)

    def _sample_rows(self, data: MatrixSpec) -> int:
        affordable = _SAMPLE_BYTES // (8 * data.n_cols)
        return min(max(_FEWEST_ROWS, min(_SAMPLE_ROWS, affordable)), data.n_rows)
