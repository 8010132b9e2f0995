"""Genotypes scaled by the frequencies of alleles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec, SparseRows, widen
from streamdr.core.facts import MOST_ROWS, Column, Fact, Table
from streamdr.core.linalg import slabs
from streamdr.core.mapping import REPORT
from streamdr.core.method import Model, Pass, Passes, Phase, Route, Tags
from streamdr.core.outline import unallocated
from streamdr.errors import DataError
from streamdr.methods.steps.allele_counts import AlleleCounts, require_counts
from streamdr.methods.steps.base import (
    SLAB_BYTES,
    KeptColumns,
    StepMethod,
    most_stored,
    one_pass,
    possible_supports,
)
from streamdr.methods.steps.rounding import is_below
from streamdr.statistics.validation import no_values, require

if TYPE_CHECKING:
    from streamdr.core.scikit_learn import Step

Scaling = Literal["binomial", "patterson"]
SCALINGS: tuple[Scaling, ...] = ("binomial", "patterson")
_ROUNDING = 16 * float(np.finfo(np.float64).eps)
"""A frequency of the rarer allele up to this is the rounding of a sum of weights."""


@dataclass(frozen=True, eq=False)
class ScaleGenotypesModel(KeptColumns):
    """The mean and the scale of each column, and which columns are kept."""

    fills_missing: ClassVar[bool] = True
    keeps_zeros: ClassVar[bool] = False

    mean: Array = field(metadata={"dims": ("feature",)})
    """The mean number of alleles in each column."""
    scale: Array = field(metadata={"dims": ("feature",)})
    """What each column is divided by; 1 for a column that is left out."""
    ploidy: int
    """The number of alleles per genotype."""
    n_monomorphic: int = field(metadata=REPORT)
    """The number of columns with one allele only."""

    @property
    def frequencies(self) -> Array:
        """The frequency of the allele that is counted, in each column."""
        return self.mean / self.ploidy

    def facts(self) -> tuple[Fact, ...]:
        """The number of columns that are kept, and why others are not."""
        rare = self.n_features - self.n_outputs - self.n_monomorphic
        return (
            *super().facts(),
            Fact("monomorphic", self.n_monomorphic, "columns"),
            Fact("rare alleles", rare, "columns"),
        )

    def tables(self) -> tuple[Table, ...]:
        """The columns that are kept, with the frequencies of their alleles."""
        frequencies = self.frequencies
        return (
            Table(
                "kept columns",
                (Column("column"), Column("allele frequency")),
                tuple((int(column), float(frequencies[column])) for column in self.reads[:MOST_ROWS]),
                about="The columns that are kept, in the order of the data.",
                left_out=max(0, self.n_outputs - MOST_ROWS),
            ),
        )

    def sklearn_steps(self) -> list[Step]:
        """Estimators of scikit-learn that map rows in the same way."""
        from streamdr.methods.steps.scikit_learn import genotypes_steps

        return genotypes_steps(self)

    def scores_by_columns(self, n_rows: int) -> None:
        """None: rows are mapped by rows."""

    @cached_property
    def _kept(self) -> tuple[Array, Array]:
        """The means of the columns that are kept, and the factors by which they are multiplied."""
        return self.mean[self.reads], 1.0 / self.scale[self.reads]

    def transform(self, values: Array) -> Array:
        """The scaled columns, in the floating-point type of the rows. A missing value becomes 0, the mean."""
        kind = widen(values[:0]).dtype
        mapped = np.empty((len(values), self.n_outputs), kind)
        mean, factors = (each.astype(kind) for each in self._kept)
        for slab in slabs(values):
            rows, here = values[slab], mapped[slab]
            counts = rows if self.outputs_are_features else np.take(rows, self.reads, axis=1)
            require_counts(widen(rows), self.ploidy, slab.start)
            np.subtract(counts, mean, out=here, casting="unsafe")
            here *= factors
            missing = np.isnan(here)
            if missing.any():
                np.copyto(here, 0.0, where=missing)
        return mapped

    def transform_sparse(self, rows: SparseRows) -> Array:
        """The same for sparse rows, which are made dense."""
        return self.transform(rows.toarray())

    def inverse_transform(self, scaled: Array) -> Array:
        """The numbers of alleles of scaled rows. Columns that are left out have their mean."""
        rows = widen(scaled)
        kind = rows.dtype
        counts = np.empty((len(rows), self.n_features), kind)
        counts[:] = self.mean.astype(kind)
        counts[:, self.reads] += rows * self.scale[self.reads].astype(kind)
        return counts

    def scratch_bytes(self, n_rows: int) -> int:
        """The temporary arrays for a few rows, or for one row if it is long."""
        return SLAB_BYTES + 64 * self.n_features


@dataclass(eq=False)
class ScaleGenotypes(StepMethod):
    """Genotypes, as numbers of alleles from 0 to the ploidy, centred and scaled by allele frequencies.

    With p the mean over the ploidy, a value x becomes (x - ploidy p) / sqrt(ploidy p (1 - p)). A missing
    value becomes 0, as if it were the mean. Columns with one allele only are left out.

    Parameters
    ----------
    min_maf : float
        The least minor allele frequency, min(p, 1 - p): columns below it are left out, as by `--maf` of
        PLINK.
    ploidy : int
        The number of alleles per genotype, which is the largest value.
    scaling : "binomial" or "patterson"
        The divisor: sqrt(ploidy p (1 - p)), or sqrt(p (1 - p)) as by Patterson, Price and Reich (2006).

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[0.0, 2.0, 1.0], [1.0, 2.0, np.nan], [2.0, 2.0, 0.0], [1.0, 2.0, 2.0]])
    >>> streamdr.ScaleGenotypes().fit_transform(X).round(4)
    array([[-1.4142,  0.    ],
           [ 0.    ,  0.    ],
           [ 1.4142, -1.4142],
           [ 0.    ,  1.4142]])
    """

    name: ClassVar[str] = "scale_genotypes"
    model: ClassVar[type] = ScaleGenotypesModel
    tags: ClassVar[Tags] = Tags(step=True, feature_subset=True, nonnegative=True)
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ()

    min_maf: float = 0.0
    _: KW_ONLY
    ploidy: int = 2
    scaling: Scaling = "binomial"

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Examples, for the laws."""
        return [cls(), cls(0.01, ploidy=4, scaling="patterson")]

    def check(self) -> None:
        """Refuse impossible parameter values."""
        super().check()
        require(0 <= self.min_maf <= 0.5, "min_maf", f"{self.min_maf:g} is not between 0 and 0.5")
        require(self.ploidy > 0, "ploidy", f"{self.ploidy} is not above 0")
        named = ", ".join(SCALINGS)
        require(self.scaling in SCALINGS, "scaling", f"{self.scaling!r} is not one of {named}")

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """One pass for the sums of alleles."""
        self.check()
        held = 16 * data.n_cols
        scratch = 2 * held + SLAB_BYTES
        phase = Phase(
            held,
            scratch_bytes=scratch,
            solve_bytes=64 * data.n_cols,
            takes_tiles=True,
            takes_sparse=True,
            sparse_scratch_bytes=scratch + 48 * most_stored(data),
        )
        return [one_pass(self, data, phase, 3.0)]

    def passes(self, data: MatrixSpec, start: Any = None) -> Passes:
        """One pass for the sums of alleles."""
        empty = AlleleCounts(data.n_cols, self.ploidy)
        found = cast(AlleleCounts, (yield Pass(empty, label="frequencies of alleles")))
        if not found.weights.any():
            raise no_values()
        mean = found.mean
        frequency = mean / self.ploidy
        rarer = np.minimum(frequency, 1.0 - frequency)
        monomorphic = rarer <= _ROUNDING
        support = ~monomorphic & ~is_below(rarer, self.min_maf)
        if not support.any():
            raise DataError(
                f"{self.name}: none of the {data.n_cols:,} columns has two alleles with frequencies of at "
                f"least min_maf ({self.min_maf:g}); are the columns the variants, and the rows the samples?"
            )
        copies = self.ploidy if self.scaling == "binomial" else 1
        scale = np.where(support, np.sqrt(copies * frequency * (1.0 - frequency)), 1.0)
        return self._model(support, mean, scale, int(np.count_nonzero(monomorphic)))

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """A model that keeps all columns."""
        empty = unallocated(data.n_cols)
        (support, *_) = possible_supports(data.n_cols, data.n_cols)
        return [self._model(support, empty, empty, 0)]

    def _model(self, support: Array, mean: Array, scale: Array, n_monomorphic: int) -> ScaleGenotypesModel:
        return ScaleGenotypesModel(support, mean, scale, self.ploidy, n_monomorphic)
