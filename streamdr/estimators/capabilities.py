"""The capabilities of estimators: one class for each operation that a model, or a method, may have.

The registry gives an estimator the classes for the operations of its model. So `help` and `dir` show what an
estimator has, and nothing else.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streamdr.core.axes import FeatureAxes
from streamdr.core.blocks import Array
from streamdr.core.method import OnlineFit, SupportsOnlineFit
from streamdr.data.labelled.opening import UNLABELLED, Labelled
from streamdr.data.sparse.scipy_matrices import is_sparse
from streamdr.engine import fitting
from streamdr.engine.incremental import OnePass
from streamdr.errors import ParameterError
from streamdr.estimators import all_features
from streamdr.estimators.labelled import is_labelled
from streamdr.estimators.lazy import is_streamed, mapped
from streamdr.estimators.row_maps import as_column, finite_map, in_blocks, row_blocks

if TYPE_CHECKING:
    from streamdr.estimators.base import Estimator

    _Estimator = Estimator
else:
    _Estimator = object

KEPT_BYTES = 32 << 20
"""Statistics of a fit up to this size are kept, so that `partial_fit` can continue from them."""


def _require_plain(axes: FeatureAxes | None) -> None:
    """Refuse to add rows where features are left out or weighed: which ones depends on all rows."""
    if axes is not None and (axes.selects or axes.balanced or axes.min_observed is not None):
        raise ParameterError(
            "partial_fit",
            "rows cannot be added to a fit that leaves out features or weighs them; give all rows to fit",
        )


class PartialFit(_Estimator):
    """Fitting with rows that arrive in batches."""

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add more rows to the fit, and return the estimator.

        The model is computed from all rows so far, when it is next used. The call continues earlier calls of
        `partial_fit`, and also an earlier `fit` if that has kept its statistics: those of one pass over the
        rows, up to 32 MiB, which are not pickled or saved. `fit` starts again.

        Parameters
        ----------
        X : array, sparse matrix, data frame, AnnData, path, address, zarr array, dask array or DataArray
            The rows. Data that is not in memory is streamed.
        y : array, path, zarr array or dask array
            A label for each row, for methods that learn from labels; others ignore it.
        sample_weight : array, path, zarr array or dask array
            The weight of each row: a row of weight 2 counts like two equal rows.

        Returns
        -------
        self : estimator
            The estimator itself.

        Raises
        ------
        ParameterError
            If an earlier `fit` has kept no statistics to add rows to.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> pca = streamdr.PCA(2).partial_fit(X[:3]).partial_fit(X[3:])
        >>> pca.n_samples_seen_
        6
        """
        fitted, method = self.__sklearn_is_fitted__(), self._method
        source = self._source(X, y, sample_weight, first=not fitted)
        _require_plain(self._axes if fitted else source.axes)
        if not fitted:
            self.feature_axes_ = source.axes
        data = source.named_spec
        if "stream_" in vars(self):
            stream, done = self.stream_, self.n_rows_
        elif fitted:
            stream, done = self._resumed(), self.n_rows_
        else:
            own = method.stream(data.n_cols) if isinstance(method, SupportsOnlineFit) else None
            stream, done = OnePass(method, data) if own is None else own, 0
        with fitting.arithmetic():
            for span in row_blocks(data.n_rows, data.line_bytes("rows")):
                stream.update(source.block(span, allow_nan=self._allows_nan))
                done += len(span)
        for name in ("model_", "_summed"):
            self.__dict__.pop(name, None)
        self.stream_, self.n_rows_ = stream, done
        return self

    def _resumed(self) -> OnlineFit:
        """Return the state that `fit` has kept, to continue from."""
        method = self._method
        if isinstance(method, SupportsOnlineFit):
            own: OnlineFit | None = method.stream(self.n_features_in_, self.model_, self.n_rows_)
            if own is not None:
                return own
        if "_summed" in vars(self):
            statistics, data, solver = self._summed
            stream = OnePass(solver, data)
            if stream.resume(statistics, data.n_rows):
                return stream
        raise ParameterError(
            "partial_fit",
            f"this {type(self).__name__} was fitted by fit, which kept no statistics to which rows can be "
            "added, and partial_fit would forget the rows of fit. Only statistics of one pass over the rows, "
            f"up to {KEPT_BYTES >> 20} MiB, are kept (for PCA, with solver='covariance'), and they are not "
            "saved and not pickled. Give all rows to partial_fit of a new estimator, or all of them to fit",
        )


class InverseTransform(_Estimator):
    """The map from an embedding back to features."""

    def inverse_transform(self, X: Any) -> Any:
        """Map embedded rows back to the features, as closely as the model can.

        Parameters
        ----------
        X : array, dask array or DataArray
            Rows of an embedding.

        Returns
        -------
        rows : array
            One row of features per embedded row.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> pca = streamdr.PCA(3).fit(X)
        >>> bool(np.allclose(pca.inverse_transform(pca.transform(X)), X))
        True
        """
        check_is_fitted(self)
        X = X if hasattr(X, "shape") else np.asarray(X)
        if X.ndim and X.shape[-1] != self._n_features_out:
            raise ValueError(
                f"X has {X.shape[-1]} columns, and transform of this {type(self).__name__} returns "
                f"{self._n_features_out}"
            )
        back = all_features.map_to_all(partial(finite_map, self._from_scores), self._axes)
        if is_streamed(X) and not isinstance(X, np.memmap):
            # The rows of scores go along all dimensions but the last.
            labelled = Labelled(sample_dims=X.dims[:-1]) if is_labelled(X) else UNLABELLED
            axes = self._labelled_axes
            return mapped(X, back, self._names_in(), allow_nan=True, labelled=labelled, axes=axes)
        with fitting.one_blas_thread():
            scores = X.toarray() if is_sparse(X) else np.asarray(X)
            return in_blocks(back, scores, self.n_features_in_)

    def _from_scores(self, scores: Array) -> Array:
        """Return the features that the model uses. Scores along features are NaN where one is left out."""
        axes = self._axes
        if self.model_.outputs_are_features and axes is not None:
            scores = np.take(scores, axes.columns, axis=1)
        rows: Array = self.model_.inverse_transform(scores)
        return rows


class Denoise(_Estimator):
    """The reconstruction of rows from their components."""

    def denoise(self, X: Any) -> Any:
        """Project rows onto the components of the model, in the units of the features.

        Parameters
        ----------
        X : array, path, zarr array, dask array or DataArray
            The rows, with the features of the fit.

        Returns
        -------
        rows : array
            The part of the rows that the components explain, in the shape of the rows.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> pca = streamdr.PCA(2).fit(X)
        >>> pca.denoise(X)[0].round(1)
        array([1.9, 0.2, 0.8])
        """
        check_is_fitted(self)
        return self._rows(X, self.model_.denoise, self._names_in(), keep_features=True)


class Impute(_Estimator):
    """The imputation of missing values."""

    def impute(self, X: Any) -> Any:
        """Fill missing values (NaN) by their expectation given the observed ones.

        Parameters
        ----------
        X : array, path, zarr array, dask array or DataArray
            The rows, with the features of the fit.

        Returns
        -------
        rows : array
            The rows without missing values; observed values are unchanged.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> X[1, 2] = np.nan
        >>> ppca = streamdr.PPCA(1).fit(X)
        >>> ppca.impute(X)[1].round(1)
        array([0. , 1. , 3.4])
        """
        check_is_fitted(self)
        return self._rows(X, self.model_.impute, self._names_in(), keep_features=True)

    def impute_variance(self, X: Any) -> Any:
        """Return the variance of each value that `impute` fills in.

        Parameters
        ----------
        X : array, path, zarr array, dask array or DataArray
            The rows, with the features of the fit.

        Returns
        -------
        variances : array
            The variances, in the shape of the rows; 0 for observed values.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> X[1, 2] = np.nan
        >>> ppca = streamdr.PPCA(1).fit(X)
        >>> ppca.impute_variance(X)[1].round(1)
        array([0. , 0. , 4.2])
        """
        check_is_fitted(self)
        variance = self.model_.impute_variance
        return self._rows(X, variance, self._names_in(), keep_features=True, power=2)


class LatentPosterior(_Estimator):
    """The posterior of latent variables."""

    def latent(self, X: Any) -> tuple[Array, Array]:
        """Return the posterior of the latent variables of each row.

        Parameters
        ----------
        X : array
            The rows, which must fit in memory. NaN is a missing value.

        Returns
        -------
        means : ndarray (row, component)
            The posterior means.
        covariances : ndarray (row, component, component)
            The posterior covariances.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> means, covariances = streamdr.PPCA(2).fit(X).latent(X)
        >>> means.shape, covariances.shape
        ((6, 2), (6, 2, 2))
        """
        check_is_fitted(self)
        moments: tuple[Array, Array] = self.model_.latent(all_features.used(self._dense(X), self._axes))
        return moments


class Likelihood(_Estimator):
    """The log-likelihood of rows."""

    def score_samples(self, X: Any) -> Any:
        """Return the log-likelihood of each row, in nats. It is low for outliers.

        Parameters
        ----------
        X : array, path, zarr array, dask array or DataArray
            The rows, with the features of the fit.

        Returns
        -------
        log_likelihoods : array
            One number for each row.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> pca = streamdr.PCA(2).fit(X)
        >>> pca.score_samples(X[:3]).round(1)
        array([-5.4, -5.6, -5.5])
        """
        check_is_fitted(self)
        return self._rows(X, as_column(self.model_.score_samples), ["log_likelihood"])[..., 0]

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-likelihood of the rows, in nats.

        Parameters
        ----------
        X : array, path, zarr array, dask array or DataArray
            The rows, with the features of the fit.
        y : object
            Ignored.

        Returns
        -------
        score : float
            The mean over all rows.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> round(streamdr.PCA(2).fit(X).score(X), 2)
        -5.94
        """
        return float(self.score_samples(X).mean())


class Predict(_Estimator):
    """A group for each row."""

    def predict(self, X: Any) -> Any:
        """Return the number of the group of each row: of the component of a mixture, or of the unit of a map.

        Parameters
        ----------
        X : array, path, zarr array, dask array or DataArray
            The rows, with the features of the fit.

        Returns
        -------
        numbers : array of int
            One for each row: the most probable component, or the nearest unit.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.random.default_rng(0).normal(size=(40, 3)) + 20.0 * (np.arange(40) % 2)[:, None]
        >>> found = streamdr.PPCAMixture(1, n_mixtures=2).fit(X).predict(X)
        >>> bool(np.all(found[::2] == found[0])), bool(np.all(found[1::2] == 1 - found[0]))
        (True, True)
        """
        check_is_fitted(self)
        return self._rows(X, as_column(self.model_.predict), ["label"], dtype=np.dtype(np.int64))[..., 0]


class PredictProba(_Estimator):
    """The probability of each group for each row."""

    def predict_proba(self, X: Any) -> Any:
        """Return the posterior probability of each component of the mixture for each row.

        Parameters
        ----------
        X : array, path, zarr array, dask array or DataArray
            The rows, with the features of the fit.

        Returns
        -------
        probabilities : array (row, component)
            Rows that sum to 1.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.random.default_rng(0).normal(size=(40, 3)) + 20.0 * (np.arange(40) % 2)[:, None]
        >>> mixture = streamdr.PPCAMixture(1, n_mixtures=2).fit(X)
        >>> mixture.predict_proba(X[:1]).max().round(3)
        np.float64(1.0)
        """
        check_is_fitted(self)
        names = [f"component{number}" for number in range(self.model_.n_mixtures)]
        return self._rows(X, self.model_.predict_proba, names)


class Sampling(_Estimator):
    """Rows drawn from the model."""

    def sample(self, n_samples: int = 1, random_state: int | None = None) -> Any:
        """Draw rows from the model.

        Parameters
        ----------
        n_samples : int
            The number of rows.
        random_state : int or None
            The seed; None for another draw at every call.

        Returns
        -------
        rows : ndarray (row, feature)
            The rows that were drawn.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> streamdr.PPCA(1).fit(X).sample(4, random_state=0).shape
        (4, 3)
        """
        check_is_fitted(self)
        rng = np.random.default_rng(random_state)
        return all_features.map_to_all(lambda number: self.model_.sample(number, rng), self._axes)(n_samples)


class Covariance(_Estimator):
    """The covariance that the model describes."""

    def get_covariance(self) -> Array:
        """Return the covariance of the features that the model describes.

        Returns
        -------
        covariance : ndarray (feature, feature)
            The covariance; for a mixture, that of all its components together.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> streamdr.PCA(3).fit(X).get_covariance()[0].round(2)
        array([ 4.67,  0.2 , -1.33])
        """
        check_is_fitted(self)
        return all_features.between(self.model_.get_covariance(), self._axes, 1)


class Precision(_Estimator):
    """The inverse of the covariance that the model describes."""

    def get_precision(self) -> Array:
        """Return the inverse of the covariance of the model.

        Returns
        -------
        precision : ndarray (feature, feature)
            The inverse of `get_covariance()`.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> pca = streamdr.PCA(2).fit(X)
        >>> bool(np.allclose(pca.get_precision() @ pca.get_covariance(), np.eye(3)))
        True
        """
        check_is_fitted(self)
        return all_features.between(self.model_.get_precision(), self._axes, -1)


BY_OPERATION: dict[str, type] = {
    "inverse_transform": InverseTransform,
    "denoise": Denoise,
    "impute": Impute,
    "latent": LatentPosterior,
    "score_samples": Likelihood,
    "predict": Predict,
    "predict_proba": PredictProba,
    "sample": Sampling,
    "get_covariance": Covariance,
    "get_precision": Precision,
}
"""The capability that an operation of a model gives its estimator."""
