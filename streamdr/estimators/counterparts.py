"""The counterpart of a fitted estimator in scikit-learn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sklearn.pipeline import Pipeline

from streamdr.core.axes import FeatureAxes
from streamdr.core.blocks import Array
from streamdr.core.method import Model
from streamdr.core.scikit_learn import (
    HasSklearnSteps,
    Step,
    computes,
    fitted,
    moves_rows,
    shifting,
    taking,
    widening,
)
from streamdr.errors import ParameterError


def counterpart(model: Model, method: str, axes: FeatureAxes | None, names: Array | None) -> Any:
    """Return a plain estimator of scikit-learn that gives the same numbers, or a Pipeline of some.

    `axes` says which features the model sees, and how they are weighted; `names` are those of all features.
    """
    makes_features = model.outputs_are_features
    if not isinstance(model, HasSklearnSteps):
        raise ParameterError(
            "to_sklearn",
            f"scikit-learn has nothing that gives the numbers of {method}; save the model, and use "
            "streamdr.load_model",
        )
    own = model.sklearn_steps()
    if axes is not None and axes.selects and makes_features:
        raise ParameterError(
            "to_sklearn",
            "its rows have all features again, and the model leaves some out or weighs them, which no "
            "estimator of scikit-learn does: fit without min_observed and feature_weights",
        )
    sparse = not any(map(moves_rows, own))
    widen = widening(model.n_features, allow_nan=model.allow_nan, accept_sparse=sparse)
    widen = widen if any(map(computes, own)) else []
    steps = [*_used_features(axes), *widen, *_weights(axes), *own]
    if names is not None:
        fitted(steps[0][1], feature_names_in_=names)
    return steps[0][1] if len(steps) == 1 else Pipeline(steps)


def _used_features(axes: FeatureAxes | None) -> Iterator[Step]:
    """Yield the step that takes the features that the model sees, if it leaves some out."""
    if axes is not None and axes.kept is not None:
        yield "used", taking(axes.columns, axes.n_features)[1]


def _weights(axes: FeatureAxes | None) -> Iterator[Step]:
    """Yield the step that multiplies them by their weights, if they have some."""
    if axes is not None and axes.weighted and axes.kept_weights is not None:
        yield "weights", shifting(None, 1 / axes.kept_weights)[1]
