"""The scikit-learn face: one base, one line a method.

A method's dataclass fields are scikit-learn's parameters, since both read `__init__`. The fitted state is
one immutable `model_`; its arrays show under the names that people know, `components_` for `components`.
"""

from __future__ import annotations

import math
from abc import ABCMeta
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_feature_names_in,
    assert_all_finite,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from streamdr import fitting, methods, store
from streamdr.addresses import Place, parse_place
from streamdr.blocks import Array, Span, working_dtype
from streamdr.classifiers import Classifier
from streamdr.errors import DataError, InputError, ParameterError
from streamdr.lazy import RowMap, is_streamed, mapped
from streamdr.linalg import unwarned
from streamdr.methods import Method, OnePass, Stream, Streaming, Supervised
from streamdr.segments import BLOCK_BYTES
from streamdr.selectors import Selector
from streamdr.settings import current
from streamdr.sources import Source, open_source
from streamdr.sources.frames import is_frame, require_numbers, single_matrix

if TYPE_CHECKING:
    _Method = Method
else:
    _Method = object


_KEPT_BYTES = 32 << 20
"""Statistics of a fit that are up to so large are kept, for `partial_fit` to go on from."""


def _of_models_that(name: str) -> Any:
    """Show a method only where the model has one of that name."""
    return available_if(lambda estimator: hasattr(type(estimator).model, name))


class Estimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, _Method):  # type: ignore[misc]
    """What scikit-learn expects of a transformer, for any method and for data of any size."""

    model_: Any
    stream_: Stream
    n_features_in_: int
    n_rows_: int

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to the rows of X: an array, or a path, zarr array, dask array or DataArray, which is streamed.

        `sample_weight` counts a row as if it were there that many times. `y` holds a label a row, in any such
        form, for methods that learn from labels; others ignore it.
        """
        source = self._source(X, y, sample_weight, first=True)
        for name in ("stream_", "_summed"):
            self.__dict__.pop(name, None)
        kept = _KEPT_BYTES if hasattr(self, "partial_fit") else 0
        fitted = fitting.fit(self, source, current(), keep_bytes=kept)
        self.model_ = fitted.model
        self.n_rows_ = source.spec.n_rows
        route = fitted.plan.route
        if fitted.statistics is not None and route.passes == 1:
            self._summed = fitted.statistics, source.spec, route.method
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fold more rows in. The model is solved for when it is next asked for, from all rows so far.

        It continues earlier calls of `partial_fit`, and an earlier `fit`, as far as that has kept its
        statistics: those of one pass over the rows, of up to 32 MiB, until they are pickled or saved. Where
        it has not, that is an error. `fit` starts over.
        """
        fitted = self.__sklearn_is_fitted__()
        source = self._source(X, y, sample_weight, first=not fitted)
        data = source.spec
        if "stream_" in vars(self):
            stream, done = self.stream_, self.n_rows_
        elif fitted:
            stream, done = self._resumed(), self.n_rows_
        else:
            own = self.stream(data.n_cols) if isinstance(self, Streaming) else None
            stream, done = OnePass(self, data) if own is None else own, 0
        with fitting.arithmetic():
            for span in _blocks(data.n_rows, data.line_bytes("rows")):
                stream.update(source.block(span, holes=self._takes_holes))
                done += len(span)
        for name in ("model_", "_summed"):
            self.__dict__.pop(name, None)
        self.stream_, self.n_rows_ = stream, done
        return self

    def _resumed(self) -> Stream:
        """What `fit` has left, to go on from."""
        if isinstance(self, Streaming):
            own: Stream | None = self.stream(self.n_features_in_, self.model_, self.n_rows_)
            if own is not None:
                return own
        if "_summed" in vars(self):
            statistics, data, method = self._summed
            stream = OnePass(method, data)
            if stream.resume(statistics, data.n_rows):
                return stream
        raise ParameterError(
            "partial_fit",
            f"this {type(self).__name__} was fitted by fit, which has kept nothing that rows could be added "
            "to, and partial_fit would forget the rows of fit. Only statistics of one pass over the rows, of "
            f"up to {_KEPT_BYTES >> 20} MiB, are kept (for PCA, with solver='covariance'), and they are not "
            "saved and not pickled. Give all rows to partial_fit of a new estimator, or all of them to fit",
        )

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        state.pop("_summed", None)  # far larger than the model
        return state

    def transform(self, X: Any) -> Any:
        """Map rows to their embedding: numpy to numpy, lazy to lazy (dask), a DataArray to a labelled one."""
        check_is_fitted(self)
        same = self.model_.outputs_are_features
        return self._rows(X, self.model_.transform, self.get_feature_names_out(), keep_features=same)

    @_of_models_that("inverse_transform")  # type: ignore[untyped-decorator]
    def inverse_transform(self, X: Any) -> Any:
        """Map embedded rows back to the features, as closely as the model can."""
        check_is_fitted(self)
        back = partial(_finite_map, self.model_.inverse_transform)
        if is_streamed(X) and not isinstance(X, np.memmap):
            return mapped(X, back, self._names_in(), holes=True)
        with fitting.one_blas_thread():
            return _in_blocks(back, np.asarray(X), self.n_features_in_)

    @_of_models_that("denoise")  # type: ignore[untyped-decorator]
    def denoise(self, X: Any) -> Any:
        """The rows as far as the components of the model tell them."""
        check_is_fitted(self)
        return self._rows(X, self.model_.denoise, self._names_in(), keep_features=True)

    @_of_models_that("impute")  # type: ignore[untyped-decorator]
    def impute(self, X: Any) -> Any:
        """The rows with what is missing (NaN) filled by its expectation given what is there."""
        check_is_fitted(self)
        return self._rows(X, self.model_.impute, self._names_in(), keep_features=True)

    @_of_models_that("impute_variance")  # type: ignore[untyped-decorator]
    def impute_variance(self, X: Any) -> Any:
        """The variance of each value that `impute` fills in; 0 for those that are there."""
        check_is_fitted(self)
        return self._rows(X, self.model_.impute_variance, self._names_in(), keep_features=True)

    @_of_models_that("latent")  # type: ignore[untyped-decorator]
    def latent(self, X: Any) -> tuple[Array, Array]:
        """The mean and the covariance of the latent variables of each row, which must fit in memory."""
        check_is_fitted(self)
        moments: tuple[Array, Array] = self.model_.latent(self._validated(X))
        return moments

    @_of_models_that("score_samples")  # type: ignore[untyped-decorator]
    def score_samples(self, X: Any) -> Any:
        """The log-likelihood of each row, in nats: outliers have little."""
        check_is_fitted(self)
        return self._rows(X, _as_column(self.model_.score_samples), ["log_likelihood"])[:, 0]

    @_of_models_that("score_samples")  # type: ignore[untyped-decorator]
    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-likelihood of the rows. `y` is ignored."""
        return float(self.score_samples(X).mean())

    @_of_models_that("predict")  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> Any:
        """The number of the component that each row most likely comes from."""
        check_is_fitted(self)
        return self._rows(X, _as_column(self.model_.predict), ["label"], dtype=np.dtype(np.int64))[:, 0]

    @_of_models_that("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """The probability of each component for each row: what it is responsible for."""
        check_is_fitted(self)
        names = [f"component{number}" for number in range(self.model_.n_mixtures)]
        return self._rows(X, self.model_.predict_proba, names)

    @_of_models_that("sample")  # type: ignore[untyped-decorator]
    def sample(self, n_samples: int = 1, random_state: int | None = None) -> Any:
        """Rows drawn from the model, by the given seed."""
        check_is_fitted(self)
        return self.model_.sample(n_samples, np.random.default_rng(random_state))

    @_of_models_that("get_covariance")  # type: ignore[untyped-decorator]
    def get_covariance(self) -> Array:
        """The covariance of the features that the model describes."""
        check_is_fitted(self)
        covariance: Array = self.model_.get_covariance()
        return covariance

    @_of_models_that("get_precision")  # type: ignore[untyped-decorator]
    def get_precision(self) -> Array:
        """The inverse of the covariance."""
        check_is_fitted(self)
        precision: Array = self.model_.get_precision()
        return precision

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
    def n_samples_seen_(self) -> int:
        """How many rows the model was fitted to, in all calls of `partial_fit` since the first."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"{type(self).__name__!r} object has no attribute 'n_samples_seen_'")
        return int(self.n_rows_)

    @property
    def _n_features_out(self) -> int:
        return int(self.model_.n_outputs)

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in vars(self) or "stream_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_holes
        tags.input_tags.pairwise = "precomputed" in (vars(self).get("kernel"), vars(self).get("metric"))
        tags.target_tags.required = isinstance(self, Supervised)
        return tags

    def __getattr__(self, name: str) -> Any:
        # Called only for names that are not there: the model's own, with a trailing underscore.
        if self.__sklearn_is_fitted__():
            if name == "model_":
                with fitting.arithmetic():
                    model = self.stream_.model()
                fitting.require_finite(model)
                self.model_ = model
                return self.model_
            if name.endswith("_") and _shows(type(self).model, name[:-1]):
                return getattr(self.model_, name[:-1])
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        model, names = type(self).model, set(super().__dir__())
        if self.__sklearn_is_fitted__():
            fields = model.__dataclass_fields__  # type: ignore[attr-defined]
            names |= {"model_", *(f"{name}_" for name in (*dir(model), *fields) if _shows(model, name))}
        return sorted(names)

    @property
    def _takes_holes(self) -> bool:
        # Some take what is missing only if their rows are distances.
        return bool(getattr(self, "takes_holes", type(self).model.holes))  # type: ignore[attr-defined]

    def _names_in(self) -> Sequence[str]:
        return [str(name) for name in _check_feature_names_in(self)]

    def _validated(self, X: Any, *, first: bool = False) -> Array:
        if isinstance(X, np.ma.MaskedArray):  # scikit-learn would take what is masked for values
            X = np.ma.filled(X.astype(working_dtype(X.dtype)), np.nan)
        X = single_matrix(X)
        if is_frame(X):
            require_numbers(X)
        rows: Array = validate_data(self, _flat(X), reset=first, dtype="numeric", ensure_all_finite=False)
        if rows.dtype.kind == "f":  # looked at here, since scikit-learn's advice is not of our methods
            source = self._in_memory(rows)
            for span in _blocks(len(rows), max(1, rows[:1].nbytes)):
                source.block(span, holes=self._takes_holes)
        return rows

    def _in_memory(self, rows: Array, **beside: Any) -> Source:
        """Rows that are in memory, with the names of their columns if they have any."""
        source = open_source(rows, **beside)
        names = vars(self).get("feature_names_in_")
        if names is not None:
            source.feature_names = tuple(str(name) for name in names)
        return source

    def _labels(self, y: Any, X: Array) -> Any:
        """Labels of rows that are in memory, as scikit-learn wants them checked."""
        if y is None or is_streamed(y):
            return y
        labels = column_or_1d(single_matrix(y), warn=True)
        check_consistent_length(X, labels)
        assert_all_finite(labels, input_name="y")
        if getattr(self, "target", None) == "classes" or labels.dtype.kind == "O":
            check_classification_targets(labels)
        return labels

    def _rows(
        self,
        X: Any,
        function: RowMap,
        names: Sequence[str],
        *,
        keep_features: bool = False,
        dtype: np.dtype[Any] | None = None,
    ) -> Any:
        """Map rows as they were given: what is in memory now, all else lazily."""
        checked = partial(_finite_map, function)
        if is_streamed(X) and not isinstance(X, np.memmap):
            with _by_argument():
                fitting.require_features(self.model_, open_source(X))
            return mapped(
                X, checked, names, keep_features=keep_features, holes=self._takes_holes, dtype=dtype
            )
        with fitting.one_blas_thread():
            return _in_blocks(checked, self._validated(X), len(names))

    def _source(self, X: Any, y: Any, sample_weight: Any, *, first: bool) -> Source:
        if not isinstance(self, Supervised):
            y = None
        elif y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is None"
            )
        if not is_streamed(X):
            X = self._validated(X, first=first)
            if not (sample_weight is None or is_streamed(sample_weight)):
                sample_weight = _weights(sample_weight, len(X))
            with _by_argument():
                source = self._in_memory(X, weights=sample_weight, labels=self._labels(y, X))
            return _called_by_arguments(source, y, sample_weight)
        with _by_argument():
            source = _called_by_arguments(open_source(X, weights=sample_weight, labels=y), y, sample_weight)
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


class Unweighted:
    """For methods that weigh pairs of rows, if anything: what a row weighs is no parameter of `fit`."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to the rows of X: an array, or a path, zarr array, dask array or DataArray, which is streamed.

        `y` is ignored.
        """
        fitted: Self = super().fit(X)  # type: ignore[misc]  # that of the estimator it is mixed into
        return fitted


class PCA(Estimator, methods.PCA):  # noqa: D101  (its words are the method's own)
    __doc__ = methods.PCA.__doc__


class PPCA(Estimator, methods.PPCA):  # noqa: D101
    __doc__ = methods.PPCA.__doc__


class PPCAMixture(Estimator, methods.PPCAMixture):  # noqa: D101
    __doc__ = methods.PPCAMixture.__doc__

    partial_fit = property()  # it is not there: a mixture is not learned row by row


class KernelPCA(Estimator, methods.KernelPCA):  # noqa: D101
    __doc__ = methods.KernelPCA.__doc__

    partial_fit = property()  # landmarks are chosen from a sample of all rows


class SparseKernelPCA(Estimator, methods.SparseKernelPCA):  # noqa: D101
    __doc__ = methods.SparseKernelPCA.__doc__

    partial_fit = property()  # so are candidates


class SelectMutualInfo(Selector, Estimator, methods.SelectMutualInfo):  # noqa: D101
    __doc__ = methods.SelectMutualInfo.__doc__

    partial_fit = property()  # where columns are cut is told by a sample of all rows


class SelectFScore(Selector, Estimator, methods.SelectFScore):  # noqa: D101
    __doc__ = methods.SelectFScore.__doc__


class SelectCorrelation(Selector, Estimator, methods.SelectCorrelation):  # noqa: D101
    __doc__ = methods.SelectCorrelation.__doc__


class SelectForward(Selector, Estimator, methods.SelectForward):  # noqa: D101
    __doc__ = methods.SelectForward.__doc__


class LDA(Classifier, Estimator, methods.LDA):  # noqa: D101
    __doc__ = methods.LDA.__doc__


class ClassicalMDS(Estimator, methods.ClassicalMDS):  # noqa: D101
    __doc__ = methods.ClassicalMDS.__doc__

    partial_fit = property()  # it is not there: every point has a distance to every other


class LandmarkMDS(Unweighted, Estimator, methods.LandmarkMDS):  # type: ignore[misc]  # noqa: D101
    __doc__ = methods.LandmarkMDS.__doc__

    partial_fit = property()  # landmarks are chosen from a sample of all rows


class MetricMDS(Unweighted, Estimator, methods.MetricMDS):  # type: ignore[misc]  # noqa: D101
    __doc__ = methods.MetricMDS.__doc__

    partial_fit = property()  # all pairs count


class NonmetricMDS(Unweighted, Estimator, methods.NonmetricMDS):  # type: ignore[misc]  # noqa: D101
    __doc__ = methods.NonmetricMDS.__doc__

    partial_fit = property()  # all pairs count


class MDS(metaclass=ABCMeta):  # noqa: B024  (which the four kinds are registered with)
    """Multidimensional scaling of one of four kinds: `MDS(2, kind="landmark")` is `LandmarkMDS(2)`."""

    def __new__(
        cls,
        n_components: int = 2,
        *,
        kind: Literal["classical", "landmark", "metric", "nonmetric"] = "metric",
        **parameters: Any,
    ) -> Any:
        """An estimator of that kind, with its parameters."""
        kinds = {
            "classical": ClassicalMDS,
            "landmark": LandmarkMDS,
            "metric": MetricMDS,
            "nonmetric": NonmetricMDS,
        }
        if kind not in kinds:
            raise ParameterError("kind", f"{kind!r} is not one of {', '.join(kinds)}")
        return kinds[kind](n_components, **parameters)


for _kind in (ClassicalMDS, LandmarkMDS, MetricMDS, NonmetricMDS):
    MDS.register(_kind)

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


@contextmanager
def _by_argument() -> Iterator[None]:
    """Let errors of the input name the argument that they are about, not the key of a configuration."""
    names = {"path": "X", "array": "X", "weights": "sample_weight", "labels": "y"}
    try:
        yield
    except InputError as error:
        message = error.message.removeprefix(f"{error.parameter}: ")  # what is in memory is called by its key
        raise InputError(names.get(error.parameter, error.parameter), message) from error


def _called_by_arguments(source: Source, y: Any, sample_weight: Any) -> Source:
    """The source, of which labels and weights that are in memory are called as the arguments are."""
    for beside, given, name in ((source.labels, y, "y"), (source.weights, sample_weight, "sample_weight")):
        if beside is not None and not is_streamed(given):
            beside.name = name
    return source


def _shows(model: type, name: str) -> bool:
    return name in model.__dataclass_fields__ or isinstance(getattr(model, name, None), property)  # type: ignore[attr-defined]


def _flat(X: Any) -> Any:
    """An array of more than two dimensions as a matrix: its trailing dimensions are features."""
    if isinstance(X, list | tuple):
        with suppress(ValueError):  # it is ragged, which scikit-learn says
            X = np.asarray(X)
    if isinstance(X, np.ndarray) and X.ndim > 2:
        return X.reshape(len(X), math.prod(X.shape[1:]))
    return X


def _as_column(function: Callable[[Array], Array]) -> RowMap:
    """A map that gives one value a row, as one that gives one column."""
    return lambda rows: function(rows)[:, None]


def _weights(given: Any, n_rows: int) -> Array:
    """One number a row, or one for all: whether they can be weights is looked at where they are read."""
    given = single_matrix(given)
    try:
        weights = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError("sample_weight", f"weights are numbers, one a row: {error}") from error
    return np.full(n_rows, float(weights)) if weights.ndim == 0 else weights


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


def _finite_map(function: RowMap, values: Array) -> Array:
    """What rows are mapped to; refused where rows of finite values become others."""
    with unwarned():
        rows = function(values)
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        before, after = (np.isfinite(each.reshape(len(each), -1)).all(axis=1) for each in (values, rows))
        if np.any(before & ~after):
            raise DataError(
                f"what rows are mapped to overflows {rows.dtype}: are these rows like those that the model "
                "was fitted to?"
            )
    return rows
