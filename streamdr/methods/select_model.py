"""The chosen columns, why they were chosen, and how the search for them went."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from streamdr.blocks import Array, Settled, widen

_FEATURE = {"dims": ("feature",)}
_STEP = {"dims": ("step",)}
_LISTED = 1000


@dataclass(frozen=True, eq=False)
class SelectionModel(Settled):
    """Which columns are kept, the score of every one, and the path of the search where there was one."""

    holes: ClassVar[bool] = False

    support: Array = field(metadata=_FEATURE)
    """Whether a column is kept."""
    selected: Array = field(metadata={"dims": ("selected",)})
    """The columns that are kept, the best first, or in the order in which they were chosen."""
    scores: Array = field(metadata=_FEATURE)
    """Of each column by itself."""
    statistic: str
    """What the scores are."""
    task: str
    n_samples: float
    """Rows, or the sum of their weights."""
    p_values: Array | None = field(default=None, metadata=_FEATURE)
    classes: Array | list[str] | None = field(default=None, metadata={"dims": ("class",)})
    learner: str | None = None
    """What judged subsets by cross-validation."""
    scoring: str | None = None
    """What the scores of the path are."""
    path_features: Array | None = field(default=None, metadata=_STEP)
    """The column that each step added or removed; -1 where a search begins with all of them."""
    path_added: Array | None = field(default=None, metadata=_STEP)
    path_sizes: Array | None = field(default=None, metadata=_STEP)
    """How many columns there were after each step."""
    path_fold_scores: Array | None = field(default=None, metadata={"dims": ("step", "fold")})
    cuts: Array | None = field(default=None, metadata={"dims": ("cut",)})
    """Where columns were cut, one after the other; of a discrete one, its values."""
    n_cuts: Array | None = field(default=None, metadata=_FEATURE)
    """How many of these belong to each column."""
    discrete: Array | None = field(default=None, metadata=_FEATURE)
    """Whether a column's values are bins themselves."""
    target_cuts: Array | None = field(default=None, metadata={"dims": ("target_cut",)})
    """Where the target was cut, if it was."""

    @property
    def n_features(self) -> int:
        """How many columns `transform` takes."""
        return len(self.support)

    @property
    def n_outputs(self) -> int:
        """How many columns are kept."""
        return len(self.selected)

    @property
    def outputs_are_features(self) -> bool:
        """Columns do not keep their places, unless all are kept."""
        return self.n_outputs == self.n_features

    @property
    def path_scores(self) -> Array | None:
        """The score after each step, the mean of all folds."""
        return None if self.path_fold_scores is None else self.path_fold_scores.mean(axis=1)

    @property
    def pvalues(self) -> Array | None:
        """How likely chance alone would give each column its score, as scikit-learn calls it."""
        return self.p_values

    @cached_property
    def reads(self) -> Array:
        """The numbers of the columns that `transform` looks at, ascending."""
        return np.flatnonzero(self.support)

    def narrowed(self) -> SelectionModel:
        """The same for rows that hold the columns that are kept, and no others."""
        own = {
            each.name: getattr(self, each.name)[self.support]
            for each in fields(self)
            if each.metadata.get("dims") == ("feature",) and getattr(self, each.name) is not None
        }
        places = np.searchsorted(self.reads, self.selected)
        return replace(self, **{**own, "selected": places, "cuts": None, "n_cuts": None, "discrete": None})

    def summary(self) -> dict[str, Any]:
        """How many columns are kept, which, and by what."""
        facts: dict[str, Any] = {
            "task": self.task,
            "kept": f"{self.n_outputs:,} of {self.n_features:,} columns",
            "statistic": self.statistic,
            "columns": [
                {"column": int(column), "score": float(self.scores[column])}
                for column in self.selected[:_LISTED]
            ],
        }
        if self.path_scores is not None and self.path_sizes is not None:
            here = self.path_sizes == self.n_outputs
            best = float(self.path_scores[here].max())
            facts |= {"learner": self.learner, "cross_validated": f"{best:.6g} ({self.scoring})"}
        return facts

    def transform(self, values: Array) -> Array:
        """The columns that are kept, in the order of the data, in the floating type of the rows."""
        return widen(values)[:, self.reads]

    def inverse_transform(self, kept: Array) -> Array:
        """The columns that are kept in their places among others, which are zero."""
        columns = widen(kept)
        rows = np.zeros((len(columns), self.n_features), columns.dtype)
        rows[:, self.reads] = columns
        return rows

    def scores_by_columns(self, n_rows: int) -> None:
        """Only columns that are kept are read: reading by columns would not help."""
