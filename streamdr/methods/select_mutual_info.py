"""Columns chosen by their mutual information with the target, from histograms of one pass."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Literal, cast

import numpy as np

from streamdr.accumulators import Accumulator, ByFold, ClassMoments, Histograms, JointMoments, Sample, Several
from streamdr.accumulators.class_moments import MOST_CLASSES
from streamdr.blocks import Array, MatrixSpec
from streamdr.methods.base import Pass, Passes, Route
from streamdr.methods.checks import require
from streamdr.methods.sampling import sampled
from streamdr.methods.select_bins import FEW, Bins
from streamdr.methods.select_common import check_data, how_many, product_dtype, task_of, told
from streamdr.methods.select_filter import Filter
from streamdr.methods.select_folds import ClassFolds, NumberFolds, no_variance, require_classes
from streamdr.methods.select_model import SelectionModel
from streamdr.methods.select_routes import by_histograms
from streamdr.methods.select_scores import mutual_information

_SAMPLE_ROWS, _FEWEST_ROWS, _SAMPLE_BYTES = 10_000, 256, 16 << 20
_USUAL_CLASSES, _LEAST_CELLS = 32, 1 << 18


@dataclass(eq=False)
class SelectMutualInfo(Filter):
    """The columns that tell most of the target: those of the largest mutual information with it.

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
        Seeds the folds, and the sample that tells where columns are cut.
    precision : "mixed" or "double"
        In which precision products are taken for `k="cv"`: `"mixed"` takes those of float32 data in float32.
    max_classes : int
        The most classes there may be: memory is planned for so many.
    n_bins : int
        How many bins of about as many rows a column is cut into, and a target of numbers.
    discrete : bool or "auto"
        Whether every value of a column is a bin of its own. `"auto"` decides for each column: if it has few
        values, all of them whole numbers.
    bias_correction : bool
        Take off what so many bins are expected to seem to tell by chance (Miller and Madow).
    """

    name: ClassVar[str] = "select_mutual_info"
    statistic: ClassVar[str] = "mutual information in nats"

    n_bins: int = 16
    discrete: bool | Literal["auto"] = "auto"
    bias_correction: bool = True

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
        """A sample, and one pass."""
        self.check()
        check_data(self, data)
        numbers = task_of(self.task, data) == "regression"
        number = 0 if numbers else min(self.max_classes, data.n_rows)
        sample, parts = self._sample_rows(data), self._parts(data)
        return [by_histograms(self, data, sample, parts, self._most_cells(data), number)]

    def passes(self, data: MatrixSpec, start: SelectionModel | None = None) -> Passes:
        """The bins, from a sample or from the model of the first of these rows; and the histograms."""
        task = task_of(self.task, data)
        if start is not None and start.cuts is not None:
            bins = Bins.kept(start)
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
                data, task, bins, full, self.fields(scores, data, cast(int, how_many(self, data)))
            )
        both = Several([histograms, self.fold_moments(task, data.n_cols)])
        request = Pass(both, label=f"histograms and moments of {folds} folds")
        full, moments = cast(tuple[Histograms, ByFold], cast(Several, (yield request)).parts)
        some = np.flatnonzero(full.tables[0].sum(axis=(1, 2)) > 0)  # where rows are few, folds may be empty
        scores = self._scores(full, some)
        judges: ClassFolds | NumberFolds
        if task == "classification":
            judges = ClassFolds(cast(list[ClassMoments], moments.parts))
        else:
            judges = NumberFolds(cast(list[JointMoments], moments.parts))
        ranks = [self._scores(full, some[some != fold]) for fold in some]
        k, path = self.judged(judges, ranks, scores, product_dtype(self, data))
        return self._model(data, task, bins, full, self.fields(scores, data, k) | path)

    def _sampled(self, data: MatrixSpec, task: str) -> Generator[Pass, Accumulator, Bins]:
        rows, numbers = self._sample_rows(data), task == "regression"
        empty = Sample(data.n_cols, rows, self.random_state, holes=False, labelled=numbers)
        sample = yield from sampled(empty, data, "a sample to cut columns by", self._parts(data))
        target = sample.rows[:, -1] if numbers else None
        features = sample.rows[:, : data.n_cols]
        return Bins.of(features, target, sample.weights, self.n_bins, self.discrete)

    def _scores(self, full: Histograms, folds: Array) -> Array:
        tables = (table[folds].sum(axis=0) for table in full.tables)
        return np.array([mutual_information(table, corrected=self.bias_correction) for table in tables])

    def _model(
        self, data: MatrixSpec, task: str, bins: Bins, full: Histograms, fields: dict[str, Any]
    ) -> SelectionModel:
        seen = full.tables[0].sum(axis=(0, 2)) > 0
        if task == "classification":
            require_classes(full.classes)
            fields = fields | {"classes": told(full.classes, data)}
        elif np.count_nonzero(seen) < 2:
            raise no_variance()
        weight = float(full.tables[0].sum())
        return SelectionModel(**fields, **bins.fields(), task=task, n_samples=weight)

    def _sample_rows(self, data: MatrixSpec) -> int:
        fewest = max(_FEWEST_ROWS, 8 * self.n_bins)
        affordable = _SAMPLE_BYTES // (8 * data.n_cols)
        return min(max(fewest, min(_SAMPLE_ROWS, affordable)), data.n_rows)

    def _parts(self, data: MatrixSpec) -> int:
        """One of how many parts of the data is read to sample from."""
        return data.n_rows // (2 * self._sample_rows(data))

    def _most_cells(self, data: MatrixSpec) -> int:
        """How large the tables may become: what is planned for is kept to."""
        folds = self.n_folds if self.k == "cv" else 1
        if task_of(self.task, data) == "regression":
            cells = max(self.n_bins, FEW) ** 2
        else:
            cells = max(self.n_bins * self.max_classes, FEW * _USUAL_CLASSES)
        return max(_LEAST_CELLS, folds * data.n_cols * cells)
