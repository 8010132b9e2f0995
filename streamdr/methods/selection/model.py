"""The selected columns, their scores, and the path of the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from streamdr.core.blocks import AlignedArrays, Array, MatrixSpec, SparseRows, widen
from streamdr.core.facts import MOST_ROWS, Column, Fact, Table
from streamdr.core.mapping import REPORT
from streamdr.core.method import Model
from streamdr.core.outline import unallocated
from streamdr.core.pictures import Picture
from streamdr.core.plain_maps import PlainMap, TakeColumns
from streamdr.methods.selection.parameters import selected_fields
from streamdr.methods.selection.plots import SELECTION_PATH

if TYPE_CHECKING:
    from streamdr.core.scikit_learn import Step

_FEATURE = {"dims": ("feature",)}
_SCORE = {**_FEATURE, **REPORT}
_STEP = {"dims": ("step",), **REPORT}


@dataclass(frozen=True, eq=False)
class SelectionModel(AlignedArrays):
    """The selected columns, the scores of all columns, and the path of the search if there was one."""

    pictures: ClassVar[tuple[Picture, ...]] = (SELECTION_PATH,)
    allow_nan: ClassVar[bool] = False

    support: Array = field(metadata=_FEATURE)
    """The mask of the selected columns."""
    selected: Array = field(metadata={"dims": ("selected",), **REPORT})
    """The indices of the selected columns: the best first, or in the order in which they were chosen."""
    scores: Array = field(metadata=_SCORE)
    """The score of each column by itself."""
    statistic: str = field(metadata=REPORT)
    """The name of the statistic in `scores`."""
    task: str = field(metadata=REPORT)
    """The task: "classification" or "regression"."""
    n_samples: float = field(metadata=REPORT)
    """The number of rows, or the sum of their weights."""
    p_values: Array | None = field(default=None, metadata=_SCORE)
    """The p-value of the score of each column."""
    classes: Array | list[str] | None = field(default=None, metadata={"dims": ("class",), **REPORT})
    """The sorted labels, if they are classes."""
    learner: str | None = field(default=None, metadata=REPORT)
    """The learner that was cross-validated on subsets."""
    scoring: str | None = field(default=None, metadata=REPORT)
    """The name of the score in `path_fold_scores`."""
    path_features: Array | None = field(default=None, metadata=_STEP)
    """The column that each step added or removed; -1 where a search starts with all columns."""
    path_added: Array | None = field(default=None, metadata=_STEP)
    """Whether each step added its column: false if it removed the column."""
    path_sizes: Array | None = field(default=None, metadata=_STEP)
    """The number of columns after each step."""
    path_fold_scores: Array | None = field(default=None, metadata={"dims": ("step", "fold"), **REPORT})
    """The score after each step in each fold."""
    cuts: Array | None = field(default=None, metadata={"dims": ("cut",), **REPORT})
    """The bin edges of all columns, concatenated; the values of a discrete column."""
    n_cuts: Array | None = field(default=None, metadata=_SCORE)
    """The number of entries of `cuts` for each column."""
    discrete: Array | None = field(default=None, metadata=_SCORE)
    """Whether each value of a column is a bin."""
    target_cuts: Array | None = field(default=None, metadata={"dims": ("target_cut",), **REPORT})
    """The bin edges of a numeric target."""

    @property
    def n_features(self) -> int:
        """The number of columns that `transform` takes."""
        return len(self.support)

    @property
    def n_outputs(self) -> int:
        """The number of selected columns."""
        return len(self.selected)

    @property
    def outputs_are_features(self) -> bool:
        """Whether all columns are selected."""
        return self.n_outputs == self.n_features

    @property
    def path_scores(self) -> Array | None:
        """The score after each step: the mean of all folds."""
        return None if self.path_fold_scores is None else self.path_fold_scores.mean(axis=1)

    @property
    def pvalues(self) -> Array | None:
        """The p-values, under the name that scikit-learn uses."""
        return self.p_values

    @cached_property
    def reads(self) -> Array:
        """The indices of the columns that `transform` uses, ascending."""
        return np.flatnonzero(self.support)

    def narrowed(self) -> SelectionModel:
        """The same model for rows that hold the selected columns only."""
        own = {
            each.name: getattr(self, each.name)[self.support]
            for each in fields(self)
            if each.metadata.get("dims") == ("feature",) and getattr(self, each.name) is not None
        }
        places = np.searchsorted(self.reads, self.selected)
        return replace(self, **{**own, "selected": places, "cuts": None, "n_cuts": None, "discrete": None})

    def summary(self) -> dict[str, Any]:
        """The number of selected columns, their scores, and the criterion."""
        facts: dict[str, Any] = {
            "task": self.task,
            "kept": f"{self.n_outputs:,} of {self.n_features:,} columns",
            "statistic": self.statistic,
            "columns": [
                {"column": int(column), "score": float(self.scores[column])}
                for column in self.selected[:MOST_ROWS]
            ],
        }
        if (best := self._best_score) is not None:
            facts |= {"learner": self.learner, "cross_validated": f"{best:.6g} ({self.scoring})"}
        return facts

    @property
    def _best_score(self) -> float | None:
        """The best cross-validated score of the subsets that are as large as the selected one."""
        if self.path_scores is None or self.path_sizes is None:
            return None
        return float(self.path_scores[self.path_sizes == self.n_outputs].max())

    def facts(self) -> tuple[Fact, ...]:
        """The number of selected columns, and the criterion."""
        found = (
            Fact("task", self.task),
            Fact("kept", self.n_outputs, f"of {self.n_features:,} columns"),
            Fact("statistic", self.statistic),
        )
        best = self._best_score
        if best is None:
            return found
        return (
            *found,
            Fact("learner", str(self.learner)),
            Fact("cross-validated", best, f"({self.scoring})"),
        )

    def tables(self) -> tuple[Table, ...]:
        """The selected columns, in the order of their choice, with their scores."""
        return (
            Table(
                "selected columns",
                (Column("column"), Column("score", bars=True)),
                tuple((int(column), float(self.scores[column])) for column in self.selected[:MOST_ROWS]),
                about="The columns that are kept, and the score of each by itself.",
                left_out=max(0, self.n_outputs - MOST_ROWS),
            ),
        )

    def transform(self, values: Array) -> Array:
        """The selected columns, in the order of the data, in the floating-point type of the rows."""
        return widen(values)[:, self.reads]

    keeps_zeros: ClassVar[bool] = True

    def transform_sparse(self, rows: SparseRows) -> SparseRows:
        """The selected columns of sparse rows."""
        kept = SparseRows(rows[:, self.reads])
        kept.has_canonical_format = True
        return kept

    def inverse_transform(self, kept: Array) -> Array:
        """Rows with the selected columns in their places; the other columns are zero."""
        columns = widen(kept)
        rows = np.zeros((len(columns), self.n_features), columns.dtype)
        rows[:, self.reads] = columns
        return rows

    def plain_maps(self) -> tuple[PlainMap, ...]:
        """`transform` as elementary maps."""
        return (TakeColumns(self.reads),)

    def sklearn_steps(self) -> list[Step]:
        """The model as estimators of scikit-learn."""
        from streamdr.methods.selection.scikit_learn import selection_steps

        return selection_steps(self)

    def scores_by_columns(self, n_rows: int) -> None:
        """None: a transform reads the selected columns only."""


def selection_outlines(data: MatrixSpec, k: int | None) -> Sequence[Model]:
    """Outlines with adjacent columns, which make the longest blocks, and with distant ones, which read most.

    Where the data decides the number of columns (`k` is None), it may be one, or all. The first and the last
    column read least: the last chunk may be narrow.
    """
    d = data.n_cols
    most = d if k is None else min(k, d)
    apart = np.unique(np.linspace(0, d - 1, most).astype(np.int64))
    together = np.arange(1 if k is None else most)
    return [
        SelectionModel(
            **selected_fields(columns, d),
            scores=unallocated(d),
            statistic="",
            task="",
            n_samples=float(data.n_rows),
        )
        for columns in (together, d - together[::-1] - 1, apart)
    ]
