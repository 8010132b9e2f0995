"""Univariate filters: columns by F statistics or correlations, from one pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array, MatrixSpec
from streamdr.core.method import Model, Pass, Passes, Route, Tags
from streamdr.core.parameters import require_types
from streamdr.errors import DataError
from streamdr.methods.selection.folds import (
    ClassificationFolds,
    ClassificationMoments,
    RegressionFolds,
    RegressionMoments,
    no_variance,
    require_classes,
)
from streamdr.methods.selection.model import SelectionModel, selection_outlines
from streamdr.methods.selection.parameters import (
    Task,
    check_data,
    check_shared,
    constant_mask,
    n_selected,
    product_dtype,
    selected_fields,
    task_of,
)
from streamdr.methods.selection.quadratic_forms import first_best, tolerance_of
from streamdr.methods.selection.routes import by_moments, by_sums
from streamdr.methods.selection.search import nested
from streamdr.methods.selection.univariate import UnivariateStatistics, by_classes, by_numbers
from streamdr.statistics.by_class.classes import class_labels
from streamdr.statistics.by_class.moments import ClassMoments
from streamdr.statistics.by_class.sums import ClassSums
from streamdr.statistics.joint import JointMoments, JointSums
from streamdr.statistics.splits import ByFold


@dataclass(eq=False)
class Filter:
    """The base of the filters: parameters, and the choice of columns by score."""

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
        """The method itself: there is one route only."""
        return self

    @property
    def double(self) -> bool:
        """Whether products are taken in float64 whatever the data's type."""
        return self.precision == "double"

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """Models with the largest possible number of columns."""
        return selection_outlines(data, n_selected(self, data))

    def fold_moments(self, task: str, n_cols: int) -> ByFold:
        """The accumulator of moments by fold, for cross-validation."""
        if task == "regression":
            return ByFold(JointMoments(n_cols + 1, double=self.double), self.n_folds, self.random_state)
        moments = ClassMoments(n_cols, double=self.double, max_classes=self.max_classes)
        return ByFold(moments, self.n_folds, self.random_state)

    def fields(self, scores: Array, data: MatrixSpec, k: int) -> dict[str, Any]:
        """The fields of a model with the k best columns; of equal scores, the first."""
        order = np.argsort(-np.abs(scores), kind="stable")
        return {"scores": scores, "statistic": self.statistic, **selected_fields(order[:k], data.n_cols)}

    def cross_validate(
        self,
        folds: ClassificationFolds | RegressionFolds,
        ranks: Sequence[Array],
        scores: Array,
        dtype: np.dtype[Any],
    ) -> tuple[int, dict[str, Any]]:
        """The best number of columns in cross-validation, and the fields of the path of a model.

        `ranks` are the scores of columns without each of the folds. On that fold, a learner is evaluated with
        the best column, the best two, and so on.
        """
        orders = [np.argsort(-np.abs(each), kind="stable") for each in ranks]
        path = nested(folds.held_out(tolerance=tolerance_of(dtype)), orders)
        order = np.argsort(-np.abs(scores), kind="stable")
        classes = isinstance(folds, ClassificationFolds)
        return first_best(path.mean(axis=1)) + 1, {
            "path_features": order.astype(np.int64),
            "path_added": np.ones(len(order), bool),
            "path_sizes": np.arange(1, len(order) + 1),
            "path_fold_scores": path,
            "learner": "discriminant" if classes else "linear",
            "scoring": "discriminant_r2" if classes else "r2",
        }


@dataclass(eq=False)
class _StatisticFilter(Filter, ABC):
    """Filters by statistics that follow from means and sums of squares."""

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
        """One pass; by folds where cross-validation determines the number of columns."""
        task = task_of(self.task, data)
        if self.k == "cv":
            return (yield from self._cross_validated(data, task))
        if task == "classification":
            sums = cast(ClassSums, (yield Pass(self._sums(task, data), label="means of classes")))
            require_classes(sums.classes)
            statistics, weight = _class_statistics(sums), float(sums.weights.sum())
            classes: dict[str, Any] = {"classes": class_labels(sums.classes, data)}
        else:
            joint = cast(JointSums, (yield Pass(self._sums(task, data), label="products with the target")))
            statistics, weight = _target_statistics(joint), joint.centre.weight
            classes = {}
        self._require_freedom(statistics, weight)
        k = cast(int, n_selected(self, data))
        fields = self.fields(self._score(statistics), data, k)
        return SelectionModel(**fields, **classes, task=task, n_samples=weight, p_values=statistics.p_values)

    def _sums(self, task: str, data: MatrixSpec) -> Accumulator:
        """The accumulator of sums, without cross-validation."""
        if task == "regression":
            return JointSums(data.n_cols, double=self.double)
        return ClassSums(data.n_cols, double=self.double, max_classes=self.max_classes)

    def _cross_validated(
        self, data: MatrixSpec, task: Literal["classification", "regression"]
    ) -> Generator[Pass, Accumulator, SelectionModel]:
        """The model with the number of columns that is best in cross-validation."""
        request = Pass(self.fold_moments(task, data.n_cols), label=f"moments of {self.n_folds} folds")
        parts = cast(ByFold, (yield request)).parts
        classes: dict[str, Any] = {}
        folds: ClassificationFolds | RegressionFolds
        if task == "classification":
            folds = ClassificationFolds(cast(list[ClassMoments], parts))
            classes = {"classes": class_labels(folds.classes, data)}
        else:
            folds = RegressionFolds(cast(list[JointMoments], parts))
        every = range(len(folds))
        statistics, weight = _fold_statistics(folds, every)
        self._require_freedom(statistics, weight)
        ranks = [
            self._score(_fold_statistics(folds, [other for other in every if other != fold])[0])
            for fold in every
        ]
        scores = self._score(statistics)
        k, path = self.cross_validate(folds, ranks, scores, product_dtype(self, data))
        fields = self.fields(scores, data, k) | path
        return SelectionModel(**fields, **classes, task=task, n_samples=weight, p_values=statistics.p_values)

    @abstractmethod
    def _score(self, statistics: UnivariateStatistics) -> Array:
        """The statistic that ranks the columns."""

    def _require_freedom(self, statistics: UnivariateStatistics, weight: float) -> None:
        """Refuse too few degrees of freedom; by default, nothing is refused."""


@dataclass(eq=False)
class SelectFScore(_StatisticFilter):
    """The columns with the largest F statistics: of class means, or of regressions on a single column.

    Parameters
    ----------
    k : int, "all", "cv" or None
        The number of columns to keep, `"all"`, or `"cv"` for the number with the best score of a linear
        learner in cross-validation. None for 10, or for all if there are fewer.
    task : "auto", "classification" or "regression"
        Whether labels are classes or a numeric target. `"auto"` decides by the type of the labels: floating
        types are a numeric target.
    n_folds : int
        The number of folds for `k="cv"`.
    random_state : int
        Seeds the folds.
    precision : "mixed" or "double"
        `"mixed"` computes products of float32 data in float32 and sums them in float64; `"double"` computes
        them in float64.
    max_classes : int
        The largest number of classes; memory is planned for it.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> rows = np.arange(40)
    >>> X = np.stack([rows * 7 % 5, rows // 10], axis=1).astype(float)
    >>> streamdr.SelectFScore(1).fit(X, rows // 20).selected_
    array([1])
    """

    name: ClassVar[str] = "select_f_score"
    tags: ClassVar[Tags] = Tags()
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ({"k": 10},)
    statistic: ClassVar[str] = "F"

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small examples, for the laws."""
        return [cls(3), cls("cv", n_folds=3), cls(2, precision="double")]

    def _score(self, statistics: UnivariateStatistics) -> Array:
        """The F statistics."""
        return statistics.f

    def _require_freedom(self, statistics: UnivariateStatistics, weight: float) -> None:
        """Refuse data without degrees of freedom."""
        if not statistics.freedom > 0:
            raise DataError(
                f"the sum of weights is {weight:g}, which leaves no degrees of freedom for F: use more rows "
                "than classes, or than 2 for regression; weights count rows, and may have to be scaled"
            )


@dataclass(eq=False)
class SelectCorrelation(_StatisticFilter):
    """The columns with the largest absolute correlation with the target.

    With classes it is the correlation ratio: the root of the share of a column's variance between classes.

    Parameters
    ----------
    k : int, "all", "cv" or None
        The number of columns to keep, `"all"`, or `"cv"` for the number with the best score of a linear
        learner in cross-validation. None for 10, or for all if there are fewer.
    task : "auto", "classification" or "regression"
        Whether labels are classes or a numeric target. `"auto"` decides by the type of the labels: floating
        types are a numeric target.
    n_folds : int
        The number of folds for `k="cv"`.
    random_state : int
        Seeds the folds.
    precision : "mixed" or "double"
        `"mixed"` computes products of float32 data in float32 and sums them in float64; `"double"` computes
        them in float64.
    max_classes : int
        The largest number of classes; memory is planned for it.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> rows = np.arange(40)
    >>> X = np.stack([rows * 7 % 5, rows // 10], axis=1).astype(float)
    >>> streamdr.SelectCorrelation(1).fit(X, rows // 20).selected_
    array([1])
    """

    name: ClassVar[str] = "select_correlation"
    tags: ClassVar[Tags] = Tags()
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ({"k": 10},)
    statistic: ClassVar[str] = "correlation"

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small examples, for the laws."""
        return [cls(3), cls("cv", n_folds=3)]

    def _score(self, statistics: UnivariateStatistics) -> Array:
        """The correlations."""
        return statistics.correlation


def _class_statistics(sums: ClassSums) -> UnivariateStatistics:
    """The statistics from the sums of classes."""
    weights = sums.weights
    origin = sums.centres[0].origin
    means = np.array([centre.origin - origin + centre.offset for centre in sums.centres])
    mean = weights @ means / weights.sum()
    between = weights @ (means - mean) ** 2
    total = weights.sum()
    constant = constant_mask((sums.squares + between) / total, origin + mean)
    return by_classes(sums.squares, between, float(total), len(weights), constant)


def _target_statistics(joint: JointSums) -> UnivariateStatistics:
    """The statistics from the sums with a numeric target."""
    weight = joint.centre.weight
    constant = constant_mask(joint.squares / weight, joint.centre.mean)
    if constant[-1]:
        raise no_variance()
    return by_numbers(joint.squares[:-1], joint.products, float(joint.squares[-1]), weight, constant[:-1])


def _fold_statistics(
    folds: ClassificationFolds | RegressionFolds, some: Sequence[int]
) -> tuple[UnivariateStatistics, float]:
    """The statistics of some folds, and the weight of their rows."""
    rows: ClassificationMoments | RegressionMoments = folds.together(some)
    if isinstance(rows, ClassificationMoments):
        within, between = rows.within.diagonal(), np.square(rows.between).sum(axis=0)
        total = float(rows.weights.sum())
        constant = constant_mask((within + between) / total, folds.origin + rows.mean)
        return by_classes(within, between, total, len(rows.weights), constant), total
    squares, products = rows.scatter.diagonal(), rows.scatter.row(len(rows.mean) - 1)
    constant = constant_mask(squares / rows.weight, folds.origin + rows.mean)[:-1]
    statistics = by_numbers(squares[:-1], products[:-1], float(squares[-1]), rows.weight, constant)
    return statistics, rows.weight
