"""The interface of scikit-learn classifiers, for methods that predict classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from streamdr.core.blocks import BLOCK_BYTES, Array, Span
from streamdr.engine.fitting import arithmetic

if TYPE_CHECKING:
    from streamdr.estimators.capabilities import PartialFit

    _Estimator = PartialFit
else:
    _Estimator = object


class Classifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """Predictions of classes for data of any size: for data in memory at once, otherwise lazily."""

    @property
    def classes_(self) -> Array:
        """The labels, sorted."""
        return np.asarray(self.model_.classes)

    def partial_fit(  # type: ignore[override]  # classes come third, as in scikit-learn
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Add more rows to the fit, and return the estimator.

        The model is computed from all rows so far, when it is next used.

        Parameters
        ----------
        X : array, sparse matrix, data frame, AnnData, path, address, zarr array, dask array or DataArray
            The rows. Data that is not in memory is streamed.
        y : array, path, zarr array or dask array
            A label for each row.
        classes : object
            Ignored: classes are found in the labels.
        sample_weight : array, path, zarr array or dask array
            The weight of each row: a row of weight 2 counts like two equal rows.

        Returns
        -------
        self : estimator
            The estimator itself.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> lda = streamdr.LDA().partial_fit(X[:4], [0, 1, 0, 1]).partial_fit(X[4:], [0, 1])
        >>> lda.n_samples_seen_
        6
        """
        fitted: Self = super().partial_fit(X, y, sample_weight)
        return fitted

    def predict(self, X: Any) -> Any:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : array, path, zarr array, dask array or DataArray
            The rows, with the features of the fit.

        Returns
        -------
        labels : array
            A label for each row.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> y = [0, 0, 1, 1, 2, 2]
        >>> lda = streamdr.LDA().fit(X, y)
        >>> lda.predict(X)
        array([0, 0, 1, 1, 2, 2])
        """
        check_is_fitted(self)
        return self._rows(
            X, lambda rows: self.model_.predict(rows)[:, None], ["label"], dtype=self.classes_.dtype
        )[..., 0]

    def predict_proba(self, X: Any) -> Any:
        """Return the posterior probability of each class for each row.

        Parameters
        ----------
        X : array, path, zarr array, dask array or DataArray
            The rows, with the features of the fit.

        Returns
        -------
        probabilities : array (row, class)
            Rows that sum to 1, in the order of `classes_`.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> y = [0, 0, 1, 1, 2, 2]
        >>> lda = streamdr.LDA().fit(X, y)
        >>> lda.predict_proba(X).sum(axis=1).round(6)
        array([1., 1., 1., 1., 1., 1.])
        """
        check_is_fitted(self)
        return self._rows(X, self.model_.predict_proba, self._class_names, dtype=np.dtype(np.float64))

    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithm of the posterior probability of each class for each row.

        Parameters
        ----------
        X : array, path, zarr array, dask array or DataArray
            The rows, with the features of the fit.

        Returns
        -------
        log_probabilities : array (row, class)
            The logarithms, in the order of `classes_`.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> y = [0, 0, 1, 1, 2, 2]
        >>> lda = streamdr.LDA().fit(X, y)
        >>> bool(np.allclose(np.exp(lda.predict_log_proba(X)), lda.predict_proba(X)))
        True
        """
        check_is_fitted(self)
        return self._rows(X, self.model_.predict_log_proba, self._class_names, dtype=np.dtype(np.float64))

    def decision_function(self, X: Any) -> Any:
        """Return the linear discriminant functions of each row: the largest is that of the predicted class.

        Parameters
        ----------
        X : array, path, zarr array, dask array or DataArray
            The rows, with the features of the fit.

        Returns
        -------
        values : array (row, class)
            The values. For two classes there is one number per row, positive for the second class.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> y = [0, 0, 1, 1, 2, 2]
        >>> lda = streamdr.LDA().fit(X, y)
        >>> lda.decision_function(X).argmax(axis=1)
        array([0, 0, 1, 1, 2, 2])
        """
        check_is_fitted(self)
        if len(self.classes_) > 2:
            return self._rows(X, self.model_.decision_function, self._class_names)
        second = self._class_names[1:]
        return self._rows(X, lambda rows: self.model_.decision_function(rows)[:, None], second)[..., 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy: the share of rows whose class is predicted correctly.

        Parameters
        ----------
        X : array, path, zarr array, dask array or DataArray
            The rows, with the features of the fit. Streamed data is read once.
        y : array, path, zarr array or dask array
            The label of each row.
        sample_weight : array, path, zarr array or dask array
            The weight of each row.

        Returns
        -------
        accuracy : float
            From 0 to 1.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> y = [0, 0, 1, 1, 2, 2]
        >>> lda = streamdr.LDA().fit(X, y)
        >>> lda.score(X, y)
        1.0
        """
        check_is_fitted(self)
        source = self._source(X, y, sample_weight, first=False)
        right = total = 0.0
        rows = max(1, BLOCK_BYTES // source.spec.line_bytes("rows"))
        with arithmetic():
            for span in Span(0, source.spec.n_rows).split(rows):
                block = source.block(span, allow_nan=self._allows_nan)
                weights = np.ones(len(span)) if block.weights is None else block.weights
                right += float(weights[self.model_.predict(block.values) == block.labels].sum())
                total += float(weights.sum())
        return right / total

    @property
    def _class_names(self) -> list[str]:
        return [str(label) for label in self.classes_]
