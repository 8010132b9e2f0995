"""Columns chosen by their mutual information with the target, from histograms of one pass."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array, MatrixSpec
from streamdr.core.method import Pass, Passes, Route, Tags
from streamdr.methods.selection.bins import FEW, FeatureBins
from streamdr.methods.selection.filter import Filter
from streamdr.methods.selection.folds import (
    ClassificationFolds,
    RegressionFolds,
    no_variance,
    require_classes,
)
from streamdr.methods.selection.histograms import Histograms
from streamdr.methods.selection.model import SelectionModel
from streamdr.methods.selection.parameters import check_data, n_selected, product_dtype, task_of
from streamdr.methods.selection.routes import by_histograms
from streamdr.methods.selection.univariate import mutual_information
from streamdr.statistics.by_class.classes import MOST_CLASSES, class_labels
from streamdr.statistics.by_class.moments import ClassMoments
from streamdr.statistics.composite import Composite
from streamdr.statistics.joint import JointMoments
from streamdr.statistics.sample import Sample
from streamdr.statistics.sampling import draw_sample
from streamdr.statistics.splits import ByFold
from streamdr.statistics.validation import require

_SAMPLE_ROWS, _FEWEST_ROWS, _SAMPLE_BYTES = 10_000, 256, 16 << 20
_USUAL_CLASSES, _LEAST_CELLS = 32, 1 << 18


@dataclass(eq=False)
class SelectMutualInfo(Filter):
    """The columns with the largest mutual information with the target.

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
        Seeds the folds, and the sample for the bin edges.
    precision : "mixed" or "double"
        The precision of products for `k="cv"`: `"mixed"` computes those of float32 data in float32.
    max_classes : int
        The largest number of classes; memory is planned for it.
    n_bins : int
        The number of bins of a column, and of a numeric target, with about equally many rows each.
    discrete : bool or "auto"
        Whether every value of a column is a bin. `"auto"` decides for each column: yes if it has few values,
        all of them integers.
    bias_correction : bool
        Subtract the expected bias of the estimate (Miller and Madow).

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> rows = np.arange(40)
    >>> X = np.stack([rows * 7 % 5, rows // 10], axis=1).astype(float)
    >>> streamdr.SelectMutualInfo(1).fit(X, rows // 20).selected_
    array([1])
    """

    name: ClassVar[str] = "select_mutual_info"
    tags: ClassVar[Tags] = Tags(incremental=False)
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ({"k": 10},)
    statistic: ClassVar[str] = "mutual information in nats"

    n_bins: int = 16
    discrete: bool | Literal["auto"] = "auto"
    bias_correction: bool = True

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small examples, for the laws."""
        return [cls(3), cls("cv", n_folds=3), cls(8, n_bins=4)]

    def check(self) -> None:
        """Refuse impossible parameter values."""
        super().check()
        number: Any = self.n_bins
        whole = isinstance(number, Integral) and not isinstance(number, bool)
        require(whole and 2 <= number <= 1024, "n_bins", f"{number!r} is not a whole number from 2 to 1024")
        kind: Any = self.discrete
        require(
            isinstance(kind, bool) or kind == "auto", "discrete", f"{kind!r} is not true, false or 'auto'"
        )

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """A pass for a sample, and one for the histograms."""
        self.check()
        check_data(self, data)
        numbers = task_of(self.task, data) == "regression"
        number = 0 if numbers else min(self.max_classes, data.n_rows)
        sample, parts = self._sample_rows(data), self._parts(data)
        return [by_histograms(self, data, sample, parts, self._most_cells(data), number)]

    def passes(self, data: MatrixSpec, start: SelectionModel | None = None) -> Passes:
        """A pass for the bins, unless an earlier model has them, and one for the histograms."""
        task = task_of(self.task, data)
        if start is not None and start.cuts is not None:
            bins = FeatureBins.from_model(start)
        else:
            bins = yield from self._sampled(data, task)
        folds = self.n_folds if self.k == "cv" else 1
        histograms = Histograms(
            bins.points,
            bins.discrete,
            bins.target,
            n_folds=folds,
            seed=self.random_state,
            max_classes=MOST_CLASSES if task == "regression" else self.max_classes,
            most_cells=self._most_cells(data),
        )
        if folds == 1:
            full = cast(Histograms, (yield Pass(histograms, label="histograms")))
            scores = self._scores(full, np.zeros(1, np.intp))
            return self._model(
                data, task, bins, full, self.fields(scores, data, cast(int, n_selected(self, data)))
            )
        both = Composite([histograms, self.fold_moments(task, data.n_cols)])
        request = Pass(both, label=f"histograms and moments of {folds} folds")
        full, moments = cast(tuple[Histograms, ByFold], cast(Composite, (yield request)).parts)
        some = np.flatnonzero(full.tables[0].sum(axis=(1, 2)) > 0)  # with few rows, folds may be empty
        scores = self._scores(full, some)
        moment_folds: ClassificationFolds | RegressionFolds
        if task == "classification":
            moment_folds = ClassificationFolds(cast(list[ClassMoments], moments.parts))
        else:
            moment_folds = RegressionFolds(cast(list[JointMoments], moments.parts))
        ranks = [self._scores(full, some[some != fold]) for fold in some]
        k, path = self.cross_validate(moment_folds, ranks, scores, product_dtype(self, data))
        return self._model(data, task, bins, full, self.fields(scores, data, k) | path)

    def _sampled(self, data: MatrixSpec, task: str) -> Generator[Pass, Accumulator, FeatureBins]:
        """The bins from a sample of the rows."""
        rows, numbers = self._sample_rows(data), task == "regression"
        empty = Sample(data.n_cols, rows, self.random_state, allow_nan=False, labelled=numbers)
        sample = yield from draw_sample(empty, data, "a sample for the bin edges", self._parts(data))
        target = sample.rows[:, -1] if numbers else None
        features = sample.rows[:, : data.n_cols]
        return FeatureBins.of(features, target, sample.weights, self.n_bins, self.discrete)

    def _scores(self, full: Histograms, folds: Array) -> Array:
        """The mutual information of each column, from the tables of some folds."""
        tables = (table[folds].sum(axis=0) for table in full.tables)
        return np.array([mutual_information(table, corrected=self.bias_correction) for table in tables])

    def _model(
        self, data: MatrixSpec, task: str, bins: FeatureBins, full: Histograms, fields: dict[str, Any]
    ) -> SelectionModel:
        """The model of full histograms."""
        seen = full.tables[0].sum(axis=(0, 2)) > 0
        if task == "classification":
            require_classes(full.classes)
            fields = fields | {"classes": class_labels(full.classes, data)}
        elif np.count_nonzero(seen) < 2:
            raise no_variance()
        weight = float(full.tables[0].sum())
        return SelectionModel(**fields, **bins.fields(), task=task, n_samples=weight)

    def _sample_rows(self, data: MatrixSpec) -> int:
        """The number of rows in the sample."""
        fewest = max(_FEWEST_ROWS, 8 * self.n_bins)
        affordable = _SAMPLE_BYTES // (8 * data.n_cols)
        return min(max(fewest, min(_SAMPLE_ROWS, affordable)), data.n_rows)

    def _parts(self, data: MatrixSpec) -> int:
        """The number of parts of the data, one of which is read for the sample."""
        return data.n_rows // (2 * self._sample_rows(data))

    def _most_cells(self, data: MatrixSpec) -> int:
        """The largest number of cells of all tables; memory is planned for it."""
        folds = self.n_folds if self.k == "cv" else 1
        if task_of(self.task, data) == "regression":
            cells = max(self.n_bins, FEW) ** 2
        else:
            cells = max(self.n_bins * self.max_classes, FEW * _USUAL_CLASSES)
        return max(_LEAST_CELLS, folds * data.n_cols * cells)
