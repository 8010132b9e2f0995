"""The scikit-learn face: one base, one line a method.

A method's dataclass fields are scikit-learn's parameters, since both read `__init__`. The fitted state is
one immutable `model_`; its arrays show under the names that people know, `components_` for `components`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import (
    _check_feature_names_in,
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from streamdr import fitting, methods, store
from streamdr.addresses import Place, parse_place
from streamdr.blocks import Array, MatrixSpec, Span
from streamdr.engines import merged
from streamdr.errors import ParameterError
from streamdr.lazy import RowMap, is_streamed, mapped
from streamdr.methods import Method, Model
from streamdr.segments import BLOCK_BYTES
from streamdr.settings import current
from streamdr.sources import Source, open_source

if TYPE_CHECKING:
    _Method = Method
else:
    _Method = object


def _can_invert(estimator: Any) -> bool:
    return hasattr(type(estimator).model, "inverse_transform")


class Estimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, _Method):  # type: ignore[misc]
    """What scikit-learn expects of a transformer, for any method and for data of any size."""

    model_: Any
    n_features_in_: int

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to the rows of X: an array, or a path, zarr array, dask array or DataArray, which is streamed.

        `sample_weight` counts a row as if it were there that many times. `y` is ignored.
        """
        source = self._source(X, sample_weight, first=True)
        self.__dict__.pop("accumulator_", None)
        self.model_ = fitting.fit(self, source, current()).model
        self.n_rows_ = source.spec.n_rows
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fold more rows in. The model is solved for when it is next asked for, from all rows so far.

        It continues earlier calls of `partial_fit`; `fit` starts over.
        """
        begun = "accumulator_" in vars(self)
        source = self._source(X, sample_weight, first=not begun)
        data = source.spec
        if not begun:
            endless = MatrixSpec(sys.maxsize, data.n_cols, data.dtype)
            self.accumulator_ = next(self._incremental(endless).passes(endless)).empty
            self.dtype_, self.n_rows_ = data.dtype, 0
        self.__dict__.pop("model_", None)
        with fitting.one_blas_thread():
            for span in _blocks(data.n_rows, data.line_bytes("rows")):
                self.accumulator_.update(source.block(span))
                self.n_rows_ += len(span)
        return self

    def transform(self, X: Any) -> Any:
        """Map rows to their embedding: numpy to numpy, lazy to lazy (dask), a DataArray to a labelled one."""
        check_is_fitted(self)
        if is_streamed(X) and not isinstance(X, np.memmap):
            fitting.require_features(self.model_, open_source(X))
            names = self.get_feature_names_out()
            return mapped(X, self.model_.transform, names, keep_features=self.model_.outputs_are_features)
        values = validate_data(self, X, reset=False, dtype="numeric")
        return _in_blocks(self.model_.transform, values, self.model_.n_outputs)

    @available_if(_can_invert)  # type: ignore[untyped-decorator]
    def inverse_transform(self, X: Any) -> Any:
        """Map embedded rows back to the features, as closely as the model can."""
        check_is_fitted(self)
        if is_streamed(X) and not isinstance(X, np.memmap):
            names = [f"x{i}" for i in range(self.n_features_in_)]
            return mapped(X, self.model_.inverse_transform, getattr(self, "feature_names_in_", names))
        return _in_blocks(self.model_.inverse_transform, np.asarray(X), self.n_features_in_)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """The names of the embedding's columns: those of the features where the columns are the features."""
        check_is_fitted(self)
        if self.model_.outputs_are_features:
            return _check_feature_names_in(self, input_features)
        return super().get_feature_names_out(input_features)

    def save(self, path: str | Place, *, overwrite: bool = False) -> Place:
        """Save the fitted model as a zarr group at a path or an address; `streamdr.load_model` reads it."""
        check_is_fitted(self)
        names = vars(self).get("feature_names_in_")
        return store.save_model(
            parse_place(path),
            self.model_,
            method=self.name,
            parameters=self.get_params(deep=False),
            feature_names=None if names is None else [str(name) for name in names],
            input_fingerprint="",
            n_rows=self.n_rows_,
            overwrite=overwrite,
        )

    @property
    def _n_features_out(self) -> int:
        return int(self.model_.n_outputs)

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in vars(self) or "accumulator_" in vars(self)

    def __getattr__(self, name: str) -> Any:
        # Called only for names that are not there: the model's own, with a trailing underscore.
        if self.__sklearn_is_fitted__():
            if name == "model_":
                self.model_ = self._solved()
                return self.model_
            if name.endswith("_") and _shows(type(self).model, name[:-1]):
                return getattr(self.model_, name[:-1])
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _solved(self) -> Model:
        data = MatrixSpec(self.n_rows_, self.n_features_in_, self.dtype_)
        passes = self._incremental(data).passes(data)
        next(passes)
        try:
            passes.send(merged(self.accumulator_.empty_like(), self.accumulator_))
        except StopIteration as finished:
            return cast(Model, finished.value)
        raise AssertionError("a route of one pass asked for another")

    def _incremental(self, data: MatrixSpec) -> Method:
        for route in self.routes(data):
            if route.passes == 1 and route.axis == "rows":
                return route.method
        raise ParameterError(
            "solver", "partial_fit needs a solver that reads rows once, such as 'covariance'"
        )

    def _source(self, X: Any, sample_weight: Any, *, first: bool) -> Source:
        if not is_streamed(X):
            X = validate_data(self, X, reset=first, dtype="numeric")
            if sample_weight is not None:
                sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
            return open_source(X, weights=sample_weight)
        source = open_source(X, weights=sample_weight)
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
        return source


class PCA(Estimator, methods.PCA):  # noqa: D101  (its words are the method's own)
    __doc__ = methods.PCA.__doc__


ESTIMATORS: dict[str, Any] = {estimator.name: estimator for estimator in Estimator.__subclasses__()}


def load_model(path: str | Place) -> Estimator:
    """A fitted estimator from a saved model. Every bit is checked, and no code is run."""
    saved = store.load_model(parse_place(path))
    estimator: Estimator = ESTIMATORS[saved.method](**saved.parameters)
    estimator.model_ = saved.model
    estimator.n_features_in_ = saved.model.n_features
    estimator.n_rows_ = saved.n_rows
    if saved.feature_names is not None:
        estimator.feature_names_in_ = np.array(saved.feature_names, dtype=object)
    return estimator


def _shows(model: type, name: str) -> bool:
    return name in model.__dataclass_fields__ or isinstance(getattr(model, name, None), property)  # type: ignore[attr-defined]


def _blocks(n_rows: int, row_bytes: int) -> list[Span]:
    return list(Span(0, n_rows).split(max(1, BLOCK_BYTES // row_bytes)))


def _in_blocks(function: RowMap, values: Array, n_outputs: int) -> Array:
    """Map rows a block at a time: the copies that a map makes stay small."""
    spans = _blocks(len(values), max(1, values[:1].nbytes))
    if len(spans) == 1:
        return function(values)
    first = function(values[spans[0].slice])
    rows = np.empty((len(values), n_outputs), first.dtype)
    rows[spans[0].slice] = first
    for span in spans[1:]:
        rows[span.slice] = function(values[span.slice])
    return rows
