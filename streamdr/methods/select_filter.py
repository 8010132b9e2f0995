"""Columns chosen one by one: by F statistics or correlations, from one pass."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from streamdr.accumulators import Accumulator, ByFold, ClassMoments, ClassSums, JointMoments, JointSums
from streamdr.blocks import Array, MatrixSpec
from streamdr.errors import DataError
from streamdr.methods.base import Model, Pass, Passes, Route
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
    which_constant,
)
from streamdr.methods.select_folds import (
    Classes,
    ClassFolds,
    NumberFolds,
    Numbers,
    no_variance,
    require_classes,
)
from streamdr.methods.select_forms import first_best, tolerance_of
from streamdr.methods.select_model import SelectionModel
from streamdr.methods.select_routes import by_moments, by_sums
from streamdr.methods.select_scores import Tested, by_classes, by_numbers
from streamdr.methods.select_search import nested


@dataclass(eq=False)
class Filter:
    """What the filters share: parameters, and the way from a score of each column to the best of them."""

    model: ClassVar[type] = SelectionModel
    target: ClassVar[Literal["any"]] = "any"
    statistic: ClassVar[str]

    k: int | Literal["all", "cv"] | None = None
    _: KW_ONLY
    task: Task = "auto"
    n_folds: int = 5
    random_state: int = 0
    precision: Literal["mixed", "double"] = "mixed"
    max_classes: int = 200

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)
        check_shared(self)

    def using(self, route: str) -> Self:
        """There is one route only."""
        return self

    @property
    def double(self) -> bool:
        """Whether products are taken in float64 whatever the data's type."""
        return self.precision == "double"

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """Models of as many columns as there may be."""
        return selection_outlines(data, how_many(self, data))

    def fold_moments(self, task: str, n_cols: int) -> ByFold:
        """What cross-validation learns from and is judged by."""
        if task == "regression":
            return ByFold(JointMoments(n_cols + 1, double=self.double), self.n_folds, self.random_state)
        moments = ClassMoments(n_cols, double=self.double, max_classes=self.max_classes)
        return ByFold(moments, self.n_folds, self.random_state)

    def fields(self, scores: Array, data: MatrixSpec, k: int) -> dict[str, Any]:
        """The fields of a model that keeps the k best columns; of equals, the first."""
        order = np.argsort(-np.abs(scores), kind="stable")
        return {"scores": scores, "statistic": self.statistic, **chosen(order[:k], data.n_cols)}

    def judged(
        self, folds: ClassFolds | NumberFolds, ranks: Sequence[Array], scores: Array, dtype: np.dtype[Any]
    ) -> tuple[int, dict[str, Any]]:
        """How many columns are best in cross-validation, and the fields of a model that tell of it.

        `ranks` are the scores of columns without each of the folds: that fold judges the best one, the best
        two, and so on, as a learner uses them.
        """
        orders = [np.argsort(-np.abs(each), kind="stable") for each in ranks]
        path = nested(folds.held_out(tolerance=tolerance_of(dtype)), orders)
        order = np.argsort(-np.abs(scores), kind="stable")
        classes = isinstance(folds, ClassFolds)
        return first_best(path.mean(axis=1)) + 1, {
            "path_features": order.astype(np.int64),
            "path_added": np.ones(len(order), bool),
            "path_sizes": np.arange(1, len(order) + 1),
            "path_fold_scores": path,
            "learner": "discriminant" if classes else "linear",
            "scoring": "discriminant_r2" if classes else "r2",
        }


@dataclass(eq=False)
class _Tests(Filter):
    """Filters by statistics that follow from means and squares."""

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """One pass over the rows."""
        self.check()
        check_data(self, data)
        task = task_of(self.task, data)
        number = min(self.max_classes, data.n_rows) if task == "classification" else 0
        if self.k == "cv":
            return [by_moments(self, data, number, data.n_cols, whole=False)]
        return [by_sums(self, data, number)]

    def passes(self, data: MatrixSpec, start: SelectionModel | None = None) -> Passes:
        """One pass, by folds where these decide how many columns to keep."""
        task = task_of(self.task, data)
        if self.k == "cv":
            return (yield from self._cross_validated(data, task))
        if task == "classification":
            sums = cast(ClassSums, (yield Pass(self._sums(task, data), label="means of classes")))
            require_classes(sums.classes)
            tested, weight = _of_class_sums(sums), float(sums.weights.sum())
            classes: dict[str, Any] = {"classes": told(sums.classes, data)}
        else:
            joint = cast(JointSums, (yield Pass(self._sums(task, data), label="products with the target")))
            tested, weight = _of_joint_sums(joint), joint.centre.weight
            classes = {}
        self._require_freedom(tested, weight)
        k = cast(int, how_many(self, data))
        fields = self.fields(self._of(tested), data, k)
        return SelectionModel(**fields, **classes, task=task, n_samples=weight, p_values=tested.p_values)

    def _sums(self, task: str, data: MatrixSpec) -> Accumulator:
        if task == "regression":
            return JointSums(data.n_cols, double=self.double)
        return ClassSums(data.n_cols, double=self.double, max_classes=self.max_classes)

    def _cross_validated(
        self, data: MatrixSpec, task: Literal["classification", "regression"]
    ) -> Generator[Pass, Accumulator, SelectionModel]:
        request = Pass(self.fold_moments(task, data.n_cols), label=f"moments of {self.n_folds} folds")
        parts = cast(ByFold, (yield request)).parts
        classes: dict[str, Any] = {}
        folds: ClassFolds | NumberFolds
        if task == "classification":
            folds = ClassFolds(cast(list[ClassMoments], parts))
            classes = {"classes": told(folds.classes, data)}
        else:
            folds = NumberFolds(cast(list[JointMoments], parts))
        every = range(len(folds))
        tested, weight = _of_folds(folds, every)
        self._require_freedom(tested, weight)
        ranks = [self._of(_of_folds(folds, [other for other in every if other != fold])[0]) for fold in every]
        scores = self._of(tested)
        k, path = self.judged(folds, ranks, scores, product_dtype(self, data))
        fields = self.fields(scores, data, k) | path
        return SelectionModel(**fields, **classes, task=task, n_samples=weight, p_values=tested.p_values)

    def _of(self, tested: Tested) -> Array:
        raise NotImplementedError

    def _require_freedom(self, tested: Tested, weight: float) -> None:
        """Nothing is asked of who does not divide by what is left within classes."""


@dataclass(eq=False)
class SelectFScore(_Tests):
    """The columns with the largest F statistics: of the means of classes, or of regressions on each alone.

    Parameters
    ----------
    k : int, "all", "cv" or None
        How many columns to keep: a number, all of them, or `"cv"` for the number that serves a linear learner
        best in cross-validation. None for 10, or for all where there are fewer.
    task : "auto", "classification" or "regression"
        What the labels are. `"auto"` takes floating numbers for numbers, and all else for classes.
    n_folds : int
        How many folds `k="cv"` holds out in turn.
    random_state : int
        Seeds the folds.
    precision : "mixed" or "double"
        `"mixed"` takes products of float32 data in float32 and sums them in float64; `"double"` takes
        them in float64.
    max_classes : int
        The most classes there may be: memory is planned for so many.
    """

    name: ClassVar[str] = "select_f_score"
    statistic: ClassVar[str] = "F"

    def _of(self, tested: Tested) -> Array:
        return tested.f

    def _require_freedom(self, tested: Tested, weight: float) -> None:
        if not tested.freedom > 0:
            raise DataError(
                f"the rows weigh {weight:g} in all, which leaves nothing to judge F by: more rows than "
                "classes are needed, or than 2 for numbers; weights count rows, and may have to be scaled"
            )


@dataclass(eq=False)
class SelectCorrelation(_Tests):
    """The columns that correlate most with the target, whatever the sign.

    With classes it is the correlation ratio: the root of the share of a column's variance between classes.

    Parameters
    ----------
    k : int, "all", "cv" or None
        How many columns to keep: a number, all of them, or `"cv"` for the number that serves a linear learner
        best in cross-validation. None for 10, or for all where there are fewer.
    task : "auto", "classification" or "regression"
        What the labels are. `"auto"` takes floating numbers for numbers, and all else for classes.
    n_folds : int
        How many folds `k="cv"` holds out in turn.
    random_state : int
        Seeds the folds.
    precision : "mixed" or "double"
        `"mixed"` takes products of float32 data in float32 and sums them in float64; `"double"` takes
        them in float64.
    max_classes : int
        The most classes there may be: memory is planned for so many.
    """

    name: ClassVar[str] = "select_correlation"
    statistic: ClassVar[str] = "correlation"

    def _of(self, tested: Tested) -> Array:
        return tested.correlation


def _of_class_sums(sums: ClassSums) -> Tested:
    weights = sums.weights
    origin = sums.centres[0].origin
    means = np.array([centre.origin - origin + centre.offset for centre in sums.centres])
    middle = weights @ means / weights.sum()
    between = weights @ (means - middle) ** 2
    total = weights.sum()
    constant = which_constant((sums.squares + between) / total, origin + middle)
    return by_classes(sums.squares, between, float(total), len(weights), constant)


def _of_joint_sums(joint: JointSums) -> Tested:
    weight = joint.centre.weight
    constant = which_constant(joint.squares / weight, joint.centre.mean)
    if constant[-1]:
        raise no_variance()
    return by_numbers(joint.squares[:-1], joint.products, float(joint.squares[-1]), weight, constant[:-1])


def _of_folds(folds: ClassFolds | NumberFolds, some: Sequence[int]) -> tuple[Tested, float]:
    rows: Classes | Numbers = folds.together(some)
    if isinstance(rows, Classes):
        within, between = rows.within.diagonal(), np.square(rows.between).sum(axis=0)
        total = float(rows.weights.sum())
        constant = which_constant((within + between) / total, folds.origin + rows.mean)
        return by_classes(within, between, total, len(rows.weights), constant), total
    squares, products = rows.scatter.diagonal(), rows.scatter.row(len(rows.mean) - 1)
    constant = which_constant(squares / rows.weight, folds.origin + rows.mean)[:-1]
    tested = by_numbers(squares[:-1], products[:-1], float(squares[-1]), rows.weight, constant)
    return tested, rows.weight
