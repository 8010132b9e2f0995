"""What scikit-learn expects of a classifier, beside what it expects of any estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from streamdr.blocks import Array, Span
from streamdr.fitting import arithmetic
from streamdr.segments import BLOCK_BYTES

if TYPE_CHECKING:
    from streamdr.estimators import Estimator

    _Estimator = Estimator
else:
    _Estimator = object


class Classifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """Predictions of classes for data of any size: numpy in memory now, all else lazily."""

    @property
    def classes_(self) -> Array:
        """The labels, sorted."""
        return np.asarray(self.model_.classes)

    def partial_fit(  # type: ignore[override]  # classes come third, as scikit-learn has it
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Fold more rows in. The model is solved for when it is next asked for, from all rows so far.

        Classes are met as they come: `classes` need not be given, and is ignored.
        """
        return super().partial_fit(X, y, sample_weight)

    def predict(self, X: Any) -> Any:
        """The class that each row is most likely of."""
        check_is_fitted(self)
        return self._rows(
            X, lambda rows: self.model_.predict(rows)[:, None], ["label"], dtype=self.classes_.dtype
        )[:, 0]

    def predict_proba(self, X: Any) -> Any:
        """The probability of each class for each row."""
        check_is_fitted(self)
        return self._rows(X, self.model_.predict_proba, self._class_names, dtype=np.dtype(np.float64))

    def predict_log_proba(self, X: Any) -> Any:
        """The logarithm of the probability of each class for each row."""
        check_is_fitted(self)
        return self._rows(X, self.model_.predict_log_proba, self._class_names, dtype=np.dtype(np.float64))

    def decision_function(self, X: Any) -> Any:
        """A linear function of each row for each class; of two, the one that is positive for the second."""
        check_is_fitted(self)
        if len(self.classes_) > 2:
            return self._rows(X, self.model_.decision_function, self._class_names)
        second = self._class_names[1:]
        return self._rows(X, lambda rows: self.model_.decision_function(rows)[:, None], second)[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The part of the rows whose class is predicted. X and y may be streamed: they are read once."""
        check_is_fitted(self)
        source = self._source(X, y, sample_weight, first=False)
        right = total = 0.0
        rows = max(1, BLOCK_BYTES // source.spec.line_bytes("rows"))
        with arithmetic():
            for span in Span(0, source.spec.n_rows).split(rows):
                block = source.block(span, holes=self._takes_holes)
                weights = np.ones(len(span)) if block.weights is None else block.weights
                right += float(weights[self.model_.predict(block.values) == block.labels].sum())
                total += float(weights.sum())
        return right / total

    @property
    def _class_names(self) -> list[str]:
        return [str(label) for label in self.classes_]
