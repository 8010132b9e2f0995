"""The base class of all estimators: a scikit-learn transformer for any method and data of any size.

An estimator has the `__init__` of the dataclass of its method, so their parameters are the same. It makes a
method from them when it is fitted. It does not inherit from the method, whose protocol is internal.
The fitted state is one immutable `model_`; its arrays have the usual names, `components_` for `components`.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_feature_names_in,
    assert_all_finite,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from streamdr import store
from streamdr.core.addresses import Address, Location, parse_location
from streamdr.core.axes import FeatureAxes
from streamdr.core.blocks import Array, Span, SparseRows, working_dtype
from streamdr.core.execution import current
from streamdr.core.method import MapsSparse, Method, OnlineFit, Supervised
from streamdr.data import Source, open_source
from streamdr.data.anndata_objects import empty_frame, is_anndata, matrix_of, variable_names
from streamdr.data.expanding import is_path_list
from streamdr.data.features import for_model
from streamdr.data.frames import is_frame, require_numbers, single_matrix, without_fill
from streamdr.data.labelled.opening import UNLABELLED, Labelled
from streamdr.data.same_features import require_grid_of_model, require_names_of_model
from streamdr.data.sparse.scipy_matrices import by_rows, is_sparse, like
from streamdr.engine import fitting
from streamdr.errors import DataError, InputError, ParameterError
from streamdr.estimators import all_features
from streamdr.estimators.annotating import annotate, require_variables
from streamdr.estimators.capabilities import KEPT_BYTES
from streamdr.estimators.counterparts import counterpart
from streamdr.estimators.datasets import dataset_of
from streamdr.estimators.fitted import fitted_attributes
from streamdr.estimators.labelled import in_order_of, is_labelled
from streamdr.estimators.lazy import RowMap, is_streamed, mapped
from streamdr.estimators.mapped_rows import MappedRows, mapped_rows_of, remember
from streamdr.estimators.row_maps import (
    finite_map,
    in_blocks,
    row_blocks,
    sparse_in_blocks,
    sparse_in_pieces,
)


class Estimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn transformer, for any method and for data of any size."""

    _method_class: ClassVar[type[Method]]
    model_: Any
    stream_: OnlineFit
    n_features_in_: int
    n_rows_: int
    feature_axes_: FeatureAxes | None
    """The axes of the features, if they are labelled, weighted, or some of them were left out."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        variable: str | Sequence[str] | None = None,
        sample_dims: str | Sequence[str] | None = None,
        select: Mapping[str, Any] | None = None,
        feature_weights: Any = None,
        min_observed: float | None = None,
        balance_variables: bool = False,
    ) -> Self:
        """Fit the model to any number of rows, and return the estimator.

        Parameters
        ----------
        X : array, sparse matrix, data frame, AnnData, path, address, zarr or dask array, DataArray or Dataset
            The rows. Data that is not in memory is streamed.
        y : array, path, zarr array or dask array
            A label for each row, for methods that learn from labels; others ignore it.
        sample_weight : array, path, zarr array or dask array
            The weight of each row: a row of weight 2 counts like two equal rows.
        variable : str, list of str or None
            The variable of a data set, or several, whose features are side by side.
        sample_dims : str, list of str or None
            The dimensions of the samples, such as `"time"`; None for the first.
        select : mapping or None
            What to use of a dimension: a label, or a range such as `{"lat": [-60, 60]}`.
        feature_weights : "coslat", str, array or None
            The weight of each feature: see `open_source`.
        min_observed : float or None
            Leave out features that are observed in a smaller share of the rows.
        balance_variables : bool
            Give each of several variables the same total variance.

        Returns
        -------
        self : estimator
            The estimator itself.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> streamdr.PCA(2).fit(X).components_.shape
        (2, 3)
        """
        self._labelled = Labelled(variable, sample_dims, select)
        features = {
            "feature_weights": feature_weights,
            "min_observed": min_observed,
            "balance_variables": balance_variables,
        }
        source = self._source(X, y, sample_weight, first=True, features=features)
        for name in ("stream_", "_summed"):
            self.__dict__.pop(name, None)
        method = self._method
        kept = KEPT_BYTES if method.tags.incremental else 0
        fitted = fitting.fit(method, source, current(), keep_bytes=kept)
        self.model_ = fitted.model
        self.feature_axes_ = fitted.axes
        self.n_rows_ = source.spec.n_rows
        route = fitted.plan.route
        if fitted.statistics is not None and route.passes == 1:
            self._summed = fitted.statistics, source.named_spec, route.method
        return self

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        state.pop("_summed", None)  # far larger than the model
        return state

    def transform(self, X: Any) -> Any:
        """Map rows to their embedding.

        Parameters
        ----------
        X : array, path, zarr array, dask array or DataArray
            The rows, with the features of the fit.

        Returns
        -------
        embedding : array
            One row per input row, in the floating type of the input: a numpy array for data in memory, a
            lazy dask array for streamed data, a labelled DataArray for a DataArray.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> pca = streamdr.PCA(2).fit(X)
        >>> pca.transform(X).shape
        (6, 2)
        """
        check_is_fitted(self)
        same = self.model_.outputs_are_features
        return self._rows(X, self.model_.transform, self.get_feature_names_out(), keep_features=same)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the columns of the embedding.

        Parameters
        ----------
        input_features : array of str or None
            The names of the features, for embeddings whose columns are features.

        Returns
        -------
        names : ndarray of str
            The name of each column.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> streamdr.PCA(2).fit(X).get_feature_names_out().tolist()
        ['pca0', 'pca1']
        """
        check_is_fitted(self)
        if self.model_.outputs_are_features:
            return _check_feature_names_in(self, input_features)
        return super().get_feature_names_out(input_features)

    def save(self, path: str | Location, *, overwrite: bool = False) -> Location:
        """Save the fitted model as a zarr group, which `streamdr.load_model` reads.

        Parameters
        ----------
        path : str, Path or Address
            A path, or an address such as `s3://bucket/model.zarr`.
        overwrite : bool
            Replace an existing model.

        Returns
        -------
        place : Path or Address
            Where the model is.

        Raises
        ------
        StoreError
            If something else exists there, or it cannot be written.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     place = streamdr.PCA(2).fit(X).save(f"{folder}/model.zarr")
        ...     place.name, streamdr.load_model(place).n_components_
        ('model.zarr', 2)
        """
        check_is_fitted(self)
        names = vars(self).get("feature_names_in_")
        return store.save_model(
            parse_location(path),
            self.model_,
            method=self._method_class.name,
            parameters=self._parameters,
            feature_names=None if names is None else [str(name) for name in names],
            input_fingerprint="",
            n_rows=self.n_rows_,
            axes=self._axes,
            extra=self._recorded,
            overwrite=overwrite,
        )

    def to_xarray(self) -> Any:
        """Return the fitted model as an xarray Dataset.

        It holds the arrays of the model under their dimensions, and its scalars and parameters as attributes.
        Arrays of features have the dimensions and coordinates of the features, with NaN where a feature was
        left out. The names of features in a table are the coordinate `feature`. A saved model is opened by
        `xarray.open_zarr` with the same arrays.

        Returns
        -------
        dataset : xarray.Dataset
            A copy of the model.

        Raises
        ------
        ImportError
            If xarray is not installed.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> dataset = streamdr.PCA(2).fit(X).to_xarray()
        >>> dataset.components.sel(component=0).dims, dataset.attrs["method"]
        (('feature',), 'pca')
        """
        check_is_fitted(self)
        names = vars(self).get("feature_names_in_")
        return dataset_of(
            self.model_,
            method=self._method_class.name,
            parameters=self._parameters,
            n_rows=self.n_rows_,
            feature_names=None if names is None else [str(name) for name in names],
            axes=self._axes,
        )

    def to_sklearn(self) -> Any:
        """Return the fitted model as a plain estimator of scikit-learn, or a Pipeline of some.

        It gives the same numbers for rows in memory, and contains objects of scikit-learn and numpy only. Its
        pickle can be loaded where streamdr is not installed.

        Returns
        -------
        estimator : estimator or Pipeline
            Fitted. It maps rows by `transform`, and predicts if the model does.

        Raises
        ------
        ParameterError
            If scikit-learn has nothing that gives the same numbers.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> pca = streamdr.PCA(2).fit(X)
        >>> plain = pca.to_sklearn()
        >>> [name for name, _ in plain.steps], plain[-1]
        (['widen', 'shift', 'pca'], PCA(n_components=2))
        >>> bool(np.allclose(plain.transform(X), pca.transform(X)))
        True
        """
        check_is_fitted(self)
        return counterpart(
            self.model_, self._method_class.name, self._axes, vars(self).get("feature_names_in_")
        )

    def to_anndata(self, adata: Any) -> Any:
        """Map `adata.X`, and put the scores and the annotations of the model into the object.

        Scores go to `obsm`, named after the method as in `X_pca`. Loadings of PCA go to `varm["PCs"]` and its
        variances to `uns["pca"]`, as `scanpy.pp.pca` arranges them, so `scanpy.pp.neighbors` goes on from
        there. Entries of these names are replaced.

        Parameters
        ----------
        adata : AnnData
            An object in memory with the variables of the fit. Any object with `X`, `var_names`, `obsm`,
            `varm`, `var` and `uns` will do.

        Returns
        -------
        adata : AnnData
            The same object.

        Raises
        ------
        InputError
            If its variables are not those of the fit.

        Examples
        --------
        >>> from types import SimpleNamespace
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> adata = SimpleNamespace(X=X, var_names="abc", obsm={}, varm={}, var={}, uns={})
        >>> adata = streamdr.PCA(2).fit(X).to_anndata(adata)
        >>> adata.obsm["X_pca"].shape, adata.varm["PCs"].shape, sorted(adata.uns["pca"])
        ((6, 2), (3, 2), ['params', 'variance', 'variance_ratio'])
        """
        check_is_fitted(self)
        require_variables(adata, vars(self).get("feature_names_in_"))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names")  # they were compared
            scores = self.transform(adata.X)
        annotate(adata, scores, self._method_class.name, self.model_, self._axes)
        return adata

    @property
    def _parameters(self) -> dict[str, Any]:
        """The parameters as they are saved."""
        parameters: dict[str, Any] = self.get_params(deep=False)
        return parameters

    @property
    def _recorded(self) -> dict[str, Any]:
        """What is saved with the model: how labelled rows are opened."""
        how: Labelled = vars(self).get("_labelled", UNLABELLED)
        return {"labelled": how.record} if how.record else {}

    @property
    def n_samples_seen_(self) -> int:
        """The number of rows that the model was fitted to, in all calls of `partial_fit`."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"{type(self).__name__!r} object has no attribute 'n_samples_seen_'")
        return int(self.n_rows_)

    @property
    def _method(self) -> Method:
        """The method with the parameters of this estimator."""
        method: Method = self._method_class(**self.get_params(deep=False))
        return method

    @property
    def _n_features_out(self) -> int:
        return self.n_features_in_ if self.model_.outputs_are_features else int(self.model_.n_outputs)

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in vars(self) or "stream_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._allows_nan
        tags.input_tags.positive_only = self._takes_counts
        tags.input_tags.pairwise = "precomputed" in (vars(self).get("kernel"), vars(self).get("metric"))
        tags.target_tags.required = isinstance(self._method, Supervised)
        return tags

    def __getattr__(self, name: str) -> Any:
        # Called only for missing names: attributes of the model have a trailing underscore here.
        if self.__sklearn_is_fitted__():
            if name == "model_":
                with fitting.arithmetic():
                    model = self.stream_.model()
                fitting.require_finite(model)
                self.model_ = model
                return self.model_
            if name.endswith("_") and _has_attribute(self._method_class.model, name[:-1]):
                field = self._method_class.model.__dataclass_fields__.get(name[:-1])  # type: ignore[attr-defined]
                value = getattr(self.model_, name[:-1])
                return value if field is None else all_features.attribute(value, field.metadata, self._axes)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def _axes(self) -> FeatureAxes | None:
        """The axes of the features of the fit; None for plain columns."""
        axes: FeatureAxes | None = vars(self).get("feature_axes_")
        return axes

    @property
    def _labelled_axes(self) -> FeatureAxes | None:
        """The axes of the features of the fit, if they have names."""
        axes = self._axes
        return axes if axes is not None and (axes.coords or axes.dims != ("feature",)) else None

    def __dir__(self) -> list[str]:
        names = set(super().__dir__())
        if self.__sklearn_is_fitted__():
            names |= {"model_", *fitted_attributes(self._method_class.model)}
        return sorted(names)

    @property
    def _allows_nan(self) -> bool:
        # Some methods accept missing values only if their rows are distances.
        return bool(getattr(self._method, "allows_nan", self._method_class.model.allow_nan))  # type: ignore[attr-defined]

    def _names_in(self) -> Sequence[str]:
        return [str(name) for name in _check_feature_names_in(self)]

    def _validated(self, X: Any, *, first: bool = False, allow_nan: bool = False) -> Any:
        """Return rows in memory, with the checks of scikit-learn: an array, or sparse rows."""
        if isinstance(X, np.ma.MaskedArray):  # scikit-learn would use masked values
            X = np.ma.filled(X.astype(working_dtype(X.dtype)), np.nan)
        X = single_matrix(X)
        if is_frame(X):
            require_numbers(X)
            X = without_fill(X)
        checks: Any = {"dtype": "numeric", "accept_sparse": "csr", "ensure_all_finite": False}
        if is_anndata(X):
            validate_data(self, empty_frame(variable_names(X)), reset=first, skip_check_array=True)
            rows = check_array(matrix_of(X), **checks)
        else:
            rows = validate_data(self, _flat(X), reset=first, **checks)
        rows = by_rows(rows, "X") if is_sparse(rows) else rows
        if rows.dtype.kind == "f":  # checked here, because the advice of scikit-learn does not fit
            source = self._in_memory(rows)
            source = source if first else for_model(source, self._axes)
            if is_sparse(rows):
                source.check_sparse(Span(0, rows.shape[0]), allow_nan=allow_nan or self._allows_nan)
            else:
                for span in row_blocks(len(rows), max(1, rows[:1].nbytes)):
                    source.block(span, allow_nan=allow_nan or self._allows_nan)
        if first and self._takes_counts:
            _refuse_negative(rows, type(self).__name__, may_be_missing=self._allows_nan)
        return rows

    def _dense(self, X: Any) -> Array:
        """Return rows in memory as an array, also if they are sparse."""
        rows = self._validated(X)
        dense: Array = rows.toarray() if is_sparse(rows) else rows
        return dense

    @property
    def _takes_counts(self) -> bool:
        return self._method_class.tags.nonnegative

    def _in_memory(self, rows: Array, **beside: Any) -> Source:
        """Return a source of rows in memory, with the names of their columns if they have any."""
        source = open_source(rows, **beside)
        names = vars(self).get("feature_names_in_")
        if names is not None:
            source.feature_names = tuple(str(name) for name in names)
        return source

    def _labels(self, y: Any, X: Array) -> Any:
        """Return labels in memory, with the checks of scikit-learn."""
        if y is None or is_streamed(y):
            return y
        labels = column_or_1d(single_matrix(y), warn=True)
        check_consistent_length(X, labels)
        assert_all_finite(labels, input_name="y")
        if getattr(self._method, "target", None) == "classes" or labels.dtype.kind == "O":
            check_classification_targets(labels)
        return labels

    def _rows(
        self,
        X: Any,
        function: RowMap,
        names: Sequence[str],
        *,
        keep_features: bool = False,
        power: int = 1,
        dtype: np.dtype[Any] | None = None,
    ) -> Any:
        """Map rows: data in memory at once, other data lazily."""
        is_transform = function == self.model_.transform
        is_lazy = is_streamed(X) and not isinstance(X, np.memmap)
        earlier = mapped_rows_of(X) if is_lazy and not self._selects else None
        checked = all_features.map_of_all(
            partial(finite_map, function if earlier is None else earlier.composed(function, self.model_)),
            self._axes,
            power if keep_features else 0,
            like_rows=keep_features or is_transform,
            allow_nan=self._allows_nan,
        )
        if is_lazy:
            rows = earlier or MappedRows(in_order_of(X, self._axes), self._how(X))
            with _arguments_named():
                source = rows.source()
            fitting.require_features(self.model_, source, self._axes, vars(self).get("feature_names_in_"))
            made = rows.then(self.model_)
            found = mapped(
                rows.data,
                checked,
                names,
                keep_features=keep_features,
                allow_nan=self._allows_missing if earlier is None else made.model.allow_nan,
                dtype=dtype,
                labelled=rows.labelled,
            )
            if is_transform and not self._selects:
                remember(found, made)
            return found
        rows = self._validated(X)
        with fitting.one_blas_thread():
            if is_sparse(rows):
                return self._mapped_sparse(X, rows, function, checked, len(names))
            return in_blocks(checked, rows, len(names))

    @property
    def _selects(self) -> bool:
        """Whether features are left out, or weighed."""
        return self._axes is not None and self._axes.selects

    @property
    def _allows_missing(self) -> bool:
        """Whether rows may have missing values: in features that are left out, if nowhere else."""
        return self._allows_nan or (self._axes is not None and self._axes.kept is not None)

    def _mapped_sparse(
        self, X: Any, rows: SparseRows, function: RowMap, checked: RowMap, n_outputs: int
    ) -> Any:
        """Map sparse rows in memory: to sparse rows, if the model keeps zeros."""
        source, model = self._in_memory(rows), self.model_
        if not self._selects and function == model.transform and isinstance(model, MapsSparse):
            found = sparse_in_pieces(model.transform_sparse, source)
            return found if isinstance(found, np.ndarray) else like(found, X)
        return sparse_in_blocks(checked, source, n_outputs, allow_nan=self._allows_nan)

    def _how(self, X: Any) -> Labelled:
        """Return how the fit opened labelled data, for data that may be labelled."""
        how: Labelled = vars(self).get("_labelled", UNLABELLED)
        is_place = isinstance(X, str | os.PathLike | Address) or is_path_list(X)
        return how if is_place or is_labelled(X) else UNLABELLED

    def _source(
        self, X: Any, y: Any, sample_weight: Any, *, first: bool, features: Mapping[str, Any] | None = None
    ) -> Source:
        if not isinstance(self._method, Supervised):
            y = None
        elif y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is None"
            )
        if not is_streamed(X):
            # Which values must be observed is known when the features are chosen, in the fit.
            chooses = any(given is not None and given is not False for given in (features or {}).values())
            X = self._validated(X, first=first, allow_nan=chooses)
            if not (sample_weight is None or is_streamed(sample_weight)):
                sample_weight = _weights(sample_weight, X.shape[0])
            with _arguments_named():
                beside = {"weights": sample_weight, "labels": self._labels(y, X)}
                source = self._in_memory(X, **beside, **(features or {}))
            return _named_by_arguments(source, y, sample_weight)
        X = X if first else in_order_of(X, self._axes)
        with _arguments_named():
            rows = mapped_rows_of(X) or MappedRows(X, self._how(X))
            opened = rows.source(weights=sample_weight, labels=y, features=features or {})
            source = _named_by_arguments(opened, y, sample_weight)
        if first:
            self.n_features_in_ = source.spec.n_cols
            self.__dict__.pop("feature_names_in_", None)
            if source.feature_names is not None:
                self.feature_names_in_ = np.array(source.feature_names, dtype=object)
        elif source.spec.n_cols != self.n_features_in_:
            raise ValueError(
                f"{source.name}: has {source.spec.n_cols} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        else:
            require_grid_of_model(source, self._axes)
            require_names_of_model(source, vars(self).get("feature_names_in_"), self._axes)
        return source


@contextmanager
def _arguments_named() -> Iterator[None]:
    """Name the argument in errors of the input, not the key of a configuration."""
    names = {"path": "X", "array": "X", "weights": "sample_weight", "labels": "y"}
    try:
        yield
    except InputError as error:
        message = error.message.removeprefix(f"{error.parameter}: ")  # the name of data in memory is the key
        raise InputError(names.get(error.parameter, error.parameter), message) from error


def _named_by_arguments(source: Source, y: Any, sample_weight: Any) -> Source:
    """Return the source. Its labels and weights, if in memory, get the names of the arguments."""
    for beside, given, name in ((source.labels, y, "y"), (source.weights, sample_weight, "sample_weight")):
        if beside is not None and not is_streamed(given):
            beside.name = name
    return source


def _has_attribute(model: type, name: str) -> bool:
    """Whether a class of models has a field or a property of that name."""
    return name in model.__dataclass_fields__ or isinstance(getattr(model, name, None), property)  # type: ignore[attr-defined]


def _refuse_negative(rows: Any, name: str, *, may_be_missing: bool) -> None:
    """Refuse counts below zero, which may stand for missing values where these are allowed."""
    values = rows.data if is_sparse(rows) else rows
    if not (negative := values < 0).any():
        return
    at = int(np.argmax(negative))
    if is_sparse(rows):
        row, column = int(np.searchsorted(rows.indptr, at, side="right")) - 1, rows.indices[at]
    else:
        row, column = divmod(at, rows.shape[1])
    value = f"{values.flat[at]:g}"
    advice = f"; where it stands for missing values: open_source(X, missing_value={value})"
    raise DataError(
        f"Negative values in data passed to {name}: row {row}, column {column} is {value}, and it takes "
        f"counts{advice if may_be_missing else ''}"
    )


def _flat(X: Any) -> Any:
    """Return an array of more than two dimensions as a matrix: its trailing dimensions are features."""
    if isinstance(X, list | tuple):
        with suppress(ValueError):  # it is ragged, which scikit-learn reports
            X = np.asarray(X)
    if isinstance(X, np.ndarray) and X.ndim > 2:
        return X.reshape(len(X), math.prod(X.shape[1:]))
    return X


def _weights(given: Any, n_rows: int) -> Array:
    """Return one number per row, or one for all rows. The source checks whether they are valid weights."""
    given = single_matrix(given)
    try:
        weights = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError("sample_weight", f"weights are numbers, one per row: {error}") from error
    return np.full(n_rows, float(weights)) if weights.ndim == 0 else weights
