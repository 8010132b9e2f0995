"""Greedy selection of columns by the cross-validated score of a learner, from one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar, Literal, Self, cast

from streamdr.core.blocks import MatrixSpec
from streamdr.core.method import Model, Pass, Passes, Route, Tags
from streamdr.core.parameters import require_types
from streamdr.errors import ParameterError
from streamdr.methods.selection.folds import ClassificationFolds, RegressionFolds
from streamdr.methods.selection.model import SelectionModel, selection_outlines
from streamdr.methods.selection.parameters import (
    Task,
    check_data,
    check_shared,
    n_selected,
    path_fields,
    product_dtype,
    selected_fields,
    task_of,
)
from streamdr.methods.selection.quadratic_forms import tolerance_of
from streamdr.methods.selection.routes import by_moments
from streamdr.methods.selection.search import SEARCHES, Fold, alone
from streamdr.statistics.by_class.classes import class_labels
from streamdr.statistics.by_class.moments import ClassMoments
from streamdr.statistics.joint import JointMoments
from streamdr.statistics.splits import ByFold
from streamdr.statistics.validation import require


@dataclass(eq=False)
class SelectForward:
    """Greedy selection of the columns with the best cross-validated score of a learner.

    The data is read once. The search after that does not depend on the number of rows.

    Parameters
    ----------
    k : int, "all", "cv" or None
        The number of columns to keep, `"all"`, or `"cv"` for the best number on the path of the search. None
        for 10, or for all if there are fewer.
    learner : "auto", "linear", "ridge" or "discriminant"
        The learner that scores subsets: linear regression, ridge regression, or linear discriminants.
        `"auto"` uses discriminants for classes, and linear regression for a numeric target.
    direction : "forward", "backward" or "floating"
        Add columns one by one, remove them one by one, or add columns and remove some again if that gives a
        better subset.
    alpha : float
        The ridge parameter of `"ridge"`.
    n_folds : int
        The number of folds.
    scoring : "r2", "neg_mean_squared_error" or None
        The score of regressions on the held-out fold; None for R^2. Discriminants have their own score, and
        require None.
    task : "auto", "classification" or "regression"
        Whether labels are classes or a numeric target. `"auto"` decides by the learner if that is set,
        otherwise by the type of the labels: floating types are a numeric target.
    random_state : int
        Seeds the folds, which `streamdr.folds` returns.
    precision : "mixed" or "double"
        `"mixed"` computes products of float32 data in float32 and sums them in float64; `"double"` computes
        them in float64.
    max_classes : int
        The largest number of classes; memory is planned for it.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> rows = np.arange(40)
    >>> X = np.stack([rows * 7 % 5, rows % 2, rows], axis=1).astype(float)
    >>> chosen = streamdr.SelectForward(2, learner="linear").fit(X, X[:, 2] + 3 * X[:, 1])
    >>> sorted(chosen.selected_.tolist())
    [1, 2]
    """

    name: ClassVar[str] = "select_forward"
    model: ClassVar[type] = SelectionModel
    tags: ClassVar[Tags] = Tags()
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ({"k": 10, "learner": "discriminant"},)
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

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small examples, for the laws."""
        return [
            cls(3),
            cls("cv", n_folds=3),
            cls(2, direction="backward", n_folds=3),
            cls(3, direction="floating", n_folds=3, precision="double"),
            cls("cv", direction="floating", learner="ridge", n_folds=3),
        ]

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
            message = (
                "discriminants are scored by the held-out share of variance between classes: set it to None"
            )
            require(self.scoring is None, "scoring", message)
        tasks = {"linear": "regression", "ridge": "regression", "discriminant": "classification"}
        fits = self.task in ("auto", tasks.get(self.learner, self.task))
        require(fits, "learner", f"{self.learner!r} is for {tasks.get(self.learner)}, not {self.task}")

    def using(self, route: str) -> Self:
        """The method itself: there is one route only."""
        return self

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """One pass over the rows, and a search in memory."""
        self.check()
        check_data(self, data)
        classes = self._learner(data) == "discriminant"
        number = min(self.max_classes, data.n_rows) if classes else 0
        steps = n_selected(self, data) or data.n_cols
        whole = self.direction == "backward"
        return [by_moments(self, data, number, data.n_cols if whole else steps, whole=whole)]

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """Models with the largest possible number of columns."""
        return selection_outlines(data, n_selected(self, data))

    def passes(self, data: MatrixSpec, start: SelectionModel | None = None) -> Passes:
        """One pass, and the search."""
        learner, double = self._learner(data), self.precision == "double"
        tolerance = tolerance_of(product_dtype(self, data))
        label = f"moments of {self.n_folds} folds"
        folds: Sequence[Fold]
        fields: dict[str, Any] = {"learner": learner}
        if learner == "discriminant":
            moments = ClassMoments(data.n_cols, double=double, max_classes=self.max_classes)
            full = cast(ByFold, (yield Pass(self._by_fold(moments), label=label)))
            classes = ClassificationFolds(cast(list[ClassMoments], full.parts))
            folds = classes.held_out(tolerance)
            fields |= {"classes": class_labels(classes.classes, data), "scoring": "discriminant_r2"}
            fields |= {"task": "classification", "n_samples": classes.weight}
        else:
            joint = JointMoments(data.n_cols + 1, double=double)
            full = cast(ByFold, (yield Pass(self._by_fold(joint), label=label)))
            numbers = RegressionFolds(cast(list[JointMoments], full.parts))
            alpha, scoring = self.alpha if learner == "ridge" else 0.0, self.scoring or "r2"
            folds = numbers.held_out(tolerance, scoring, alpha)
            fields |= {"scoring": scoring, "task": "regression", "n_samples": numbers.weight}
        k = n_selected(self, data)
        end = 1 if self.direction == "backward" else data.n_cols
        path = SEARCHES[self.direction](folds, end if k is None else k)
        return SelectionModel(
            scores=alone(folds),
            statistic=f"{fields['scoring']} of each column alone",
            **selected_fields(path.chosen(k), data.n_cols),
            **path_fields(path),
            **fields,
        )

    def _by_fold(self, moments: ClassMoments | JointMoments) -> ByFold:
        """The accumulator of moments by fold."""
        return ByFold(moments, self.n_folds, self.random_state)

    def _learner(self, data: MatrixSpec) -> str:
        """The learner, by the labels if it is "auto"."""
        if self.learner == "auto":
            return "discriminant" if task_of(self.task, data) == "classification" else "linear"
        if self.learner != "discriminant" and data.labels is not None and data.labels.kind not in "biuf":
            raise ParameterError(
                "learner",
                f"{self.learner} regression predicts numbers, and the labels are text: use discriminant",
            )
        return self.learner
