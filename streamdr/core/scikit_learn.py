"""Fitted objects of scikit-learn, made from arrays: the parts of the counterparts of models.

A model that scikit-learn can compute as well has the method `sklearn_steps`. The counterparts contain objects
of scikit-learn and numpy only, so they unpickle where streamdr is not installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import check_array

from streamdr.core.blocks import Array

T = TypeVar("T")
Step = tuple[str, Any]
"""The name of a step of a Pipeline, and its fitted estimator."""


@runtime_checkable
class HasSklearnSteps(Protocol):
    """A model that scikit-learn can compute as well."""

    def sklearn_steps(self) -> Sequence[Step]:
        """Fitted estimators of scikit-learn that, one after another, map rows as `transform` does.

        If the model predicts, the last of them predicts. A ParameterError says why a model of this class has
        no counterpart.
        """


def fitted(estimator: T, **attributes: Any) -> T:
    """Return an estimator with the attributes that `fit` would have set."""
    vars(estimator).update(attributes)
    return estimator


def widening(n_features: int, *, allow_nan: bool, accept_sparse: bool) -> list[Step]:
    """Return the steps that make rows float64.

    Steps of scikit-learn compute in the type of the rows: StandardScaler would round the mean to float32, and
    a logarithm of bytes would be float16.
    """
    to_double: dict[str, Any] = {"dtype": np.float64}
    if not (allow_nan or accept_sparse):
        cast = FunctionTransformer(
            np.asarray, validate=True, kw_args=to_double, feature_names_out="one-to-one"
        )
        return [("widen", fitted(cast, n_features_in_=n_features))]
    # FunctionTransformer refuses missing values where it checks names. A scaler without effect checks them.
    checked = fitted(
        StandardScaler(with_mean=False, with_std=False),
        mean_=None,
        scale_=None,
        var_=None,
        n_samples_seen_=1,
        n_features_in_=n_features,
    )
    to_double |= {"accept_sparse": accept_sparse, "ensure_all_finite": "allow-nan" if allow_nan else True}
    cast = FunctionTransformer(
        check_array, kw_args=to_double, accept_sparse=True, feature_names_out="one-to-one"
    )
    return [("checked", checked), ("widen", fitted(cast, n_features_in_=n_features))]


def moves_rows(step: Step) -> bool:
    """Whether a step subtracts a mean."""
    return isinstance(step[1], StandardScaler) and bool(step[1].with_mean)


def computes(step: Step) -> bool:
    """Whether a step does more than take columns."""
    return not isinstance(step[1], ColumnTransformer)


def shifting(mean: Array | None, scale: Array | None = None) -> Step:
    """Return the step that subtracts a mean and divides by a scale.

    The projections of scikit-learn subtract the mean after the product, which loses the digits of data far
    from the origin. So every counterpart moves rows in a step of its own.
    """
    given = mean if mean is not None else scale
    assert given is not None
    return "shift", fitted(
        StandardScaler(with_mean=mean is not None, with_std=scale is not None),
        mean_=np.zeros(len(given)) if mean is None else mean,
        scale_=scale,
        var_=None if scale is None else scale**2,
        n_samples_seen_=1,
        n_features_in_=len(given),
    )


def taking(columns: Array, n_features: int) -> Step:
    """Return the step that takes some of the columns, in a given order."""
    kept = ColumnTransformer(
        [("kept", "passthrough", columns.tolist())], verbose_feature_names_out=False, sparse_threshold=1.0
    )
    return "columns", kept.fit(np.zeros((1, n_features)))


def multiplying(matrix: Array, inverse: Array | None = None) -> Step:
    """Return the step that multiplies rows by a matrix; its inverse transform multiplies by another one."""
    product = FunctionTransformer(
        np.dot,
        None if inverse is None else np.dot,
        check_inverse=False,
        kw_args={"b": np.asarray(matrix)},
        inv_kw_args=None if inverse is None else {"b": np.asarray(inverse)},
    )
    return "project", fitted(product, n_features_in_=len(matrix))
