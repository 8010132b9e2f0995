"""Columns chosen together: by what a learner makes of them in cross-validation, from one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar, Literal, Self, cast

from streamdr.accumulators import ByFold, ClassMoments, JointMoments
from streamdr.blocks import MatrixSpec
from streamdr.errors import ParameterError
from streamdr.methods.base import Model, Pass, Passes, Route
from streamdr.methods.checks import require
from streamdr.methods.outlines import selection_outlines
from streamdr.methods.parameters import require_types
from streamdr.methods.select_common import (
    Task,
    check_data,
    check_shared,
    chosen,
    how_many,
    product_dtype,
    task_of,
    told,
    walked,
)
from streamdr.methods.select_folds import ClassFolds, NumberFolds
from streamdr.methods.select_forms import tolerance_of
from streamdr.methods.select_model import SelectionModel
from streamdr.methods.select_routes import by_moments
from streamdr.methods.select_search import SEARCHES, Fold, alone


@dataclass(eq=False)
class SelectForward:
    """Columns that serve a learner best together, found greedily, as cross-validation judges them.

    The data is read once. After that nothing depends on how many rows there are.

    Parameters
    ----------
    k : int, "all", "cv" or None
        How many columns to keep: a number, all of them, or `"cv"` for the best number on the path of the
        search. None for 10, or for all where there are fewer.
    learner : "auto", "linear", "ridge" or "discriminant"
        Who learns from columns: linear regression, ridge regression, or linear discriminants. `"auto"` takes
        discriminants for classes, and linear regression for numbers.
    direction : "forward", "backward" or "floating"
        Add columns one by one, or remove them one by one from all, or add, and remove again where that finds
        a better subset than before.
    alpha : float
        What `"ridge"` adds to the squares of every column.
    n_folds : int
        How many folds of the rows are held out in turn.
    scoring : "r2", "neg_mean_squared_error" or None
        How regressions are scored on the fold that is held out; None for the share of variance explained.
        Discriminants have a score of their own, and take None.
    task : "auto", "classification" or "regression"
        What the labels are. `"auto"` goes by the learner, or takes floating numbers for numbers, and all else
        for classes.
    random_state : int
        Seeds the folds: `streamdr.folds` tells them.
    precision : "mixed" or "double"
        `"mixed"` takes products of float32 data in float32 and sums them in float64; `"double"` takes
        them in float64.
    max_classes : int
        The most classes there may be: memory is planned for so many.
    """

    name: ClassVar[str] = "select_forward"
    model: ClassVar[type] = SelectionModel
    target: ClassVar[Literal["any"]] = "any"

    k: int | Literal["all", "cv"] | None = None
    _: KW_ONLY
    learner: Literal["auto", "linear", "ridge", "discriminant"] = "auto"
    direction: Literal["forward", "backward", "floating"] = "forward"
    alpha: float = 1.0
    n_folds: int = 5
    scoring: Literal["r2", "neg_mean_squared_error"] | None = None
    task: Task = "auto"
    random_state: int = 0
    precision: Literal["mixed", "double"] = "mixed"
    max_classes: int = 200

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)
        check_shared(self)
        learners = ("auto", "linear", "ridge", "discriminant")
        require(self.learner in learners, "learner", f"{self.learner!r} is not one of {', '.join(learners)}")
        require(
            self.direction in SEARCHES, "direction", f"{self.direction!r} is not one of {', '.join(SEARCHES)}"
        )
        number: Any = self.alpha
        real = isinstance(number, Real) and not isinstance(number, bool)
        require(real and number >= 0, "alpha", f"{number!r} is not a number of at least 0")
        known = (None, "r2", "neg_mean_squared_error")
        require(self.scoring in known, "scoring", f"{self.scoring!r} is not 'r2' or 'neg_mean_squared_error'")
        if self.learner == "discriminant" or (self.learner == "auto" and self.task == "classification"):
            told = "discriminants are scored by the share of held-out spread between classes: leave it out"
            require(self.scoring is None, "scoring", told)
        wanted = {"linear": "regression", "ridge": "regression", "discriminant": "classification"}
        fits = self.task in ("auto", wanted.get(self.learner, self.task))
        require(fits, "learner", f"{self.learner!r} is for {wanted.get(self.learner)}, not {self.task}")

    def using(self, route: str) -> Self:
        """There is one route only."""
        return self

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """One pass over the rows, and a search in memory."""
        self.check()
        check_data(self, data)
        classes = self._learner(data) == "discriminant"
        number = min(self.max_classes, data.n_rows) if classes else 0
        steps = how_many(self, data) or data.n_cols
        whole = self.direction == "backward"
        return [by_moments(self, data, number, data.n_cols if whole else steps, whole=whole)]

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """Models of as many columns as there may be."""
        return selection_outlines(data, how_many(self, data))

    def passes(self, data: MatrixSpec, start: SelectionModel | None = None) -> Passes:
        """One pass, and the search."""
        learner, double = self._learner(data), self.precision == "double"
        tolerance = tolerance_of(product_dtype(self, data))
        label = f"moments of {self.n_folds} folds"
        judges: Sequence[Fold]
        fields: dict[str, Any] = {"learner": learner}
        if learner == "discriminant":
            moments = ClassMoments(data.n_cols, double=double, max_classes=self.max_classes)
            full = cast(ByFold, (yield Pass(self._by_fold(moments), label=label)))
            classes = ClassFolds(cast(list[ClassMoments], full.parts))
            judges = classes.held_out(tolerance)
            fields |= {"classes": told(classes.classes, data), "scoring": "discriminant_r2"}
            fields |= {"task": "classification", "n_samples": classes.weight}
        else:
            joint = JointMoments(data.n_cols + 1, double=double)
            full = cast(ByFold, (yield Pass(self._by_fold(joint), label=label)))
            numbers = NumberFolds(cast(list[JointMoments], full.parts))
            alpha, scoring = self.alpha if learner == "ridge" else 0.0, self.scoring or "r2"
            judges = numbers.held_out(tolerance, scoring, alpha)
            fields |= {"scoring": scoring, "task": "regression", "n_samples": numbers.weight}
        k = how_many(self, data)
        end = 1 if self.direction == "backward" else data.n_cols
        path = SEARCHES[self.direction](judges, end if k is None else k)
        return SelectionModel(
            scores=alone(judges),
            statistic=f"{fields['scoring']} of each column alone",
            **chosen(path.chosen(k), data.n_cols),
            **walked(path),
            **fields,
        )

    def _by_fold(self, moments: ClassMoments | JointMoments) -> ByFold:
        return ByFold(moments, self.n_folds, self.random_state)

    def _learner(self, data: MatrixSpec) -> str:
        if self.learner == "auto":
            return "discriminant" if task_of(self.task, data) == "classification" else "linear"
        if self.learner != "discriminant" and data.labels is not None and data.labels.kind not in "biuf":
            raise ParameterError(
                "learner",
                f"{self.learner} regression predicts numbers, and the labels are text: use discriminant",
            )
        return self.learner
