"""The features that a method sees: those that are never observed are left out, and weights are applied."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamdr.core.axes import FeatureAxes, named_features
from streamdr.core.blocks import Array
from streamdr.core.method import Method
from streamdr.data.feature_subset import FeatureSubset, unobserved_features
from streamdr.data.source import Source
from streamdr.errors import DataError, ParameterError


def axes_of(source: Source) -> FeatureAxes:
    """Return the axes of the features of a source: unlabelled ones, if it has no labels."""
    if source.axes is not None:
        return source.axes
    shape = source.sample_shape or (source.spec.n_cols,)
    plain = ("feature",) if len(shape) == 1 else tuple(f"axis_{axis + 1}" for axis in range(len(shape)))
    names = (source.dims or (None, *plain))[1:]
    dims = tuple(name or other for name, other in zip(names, plain, strict=True))
    dims = dims if len(set(dims)) == len(dims) else plain
    return FeatureAxes(dims, shape, named_features(dims[0], source.feature_names) if len(dims) == 1 else ())


def features_for(method: Method, source: Source) -> Source:
    """Return the source as a method sees it. The first rows are read, to find features without values.

    A feature of weight 0 is left out, and so is one that is never observed, unless the method takes missing
    values. A feature that has a value in later rows is missing in some rows only, which is an error when the
    value is read.
    """
    weights = None if source.axes is None else source.axes.weights
    if not method.tags.feature_subset or _takes_products(method):
        if weights is not None:
            raise ParameterError(
                "feature_weights", f"{method.name} has no weights of features; leave feature_weights out"
            )
        return source
    unobserved = None if method.model.allow_nan else unobserved_features(source)  # type: ignore[attr-defined]
    if unobserved is None and weights is None:
        return source
    kept = _kept(source, unobserved, weights)
    axes = axes_of(source).keeping(kept)
    weighted = weights is not None and not method.tags.weighs_features
    return FeatureSubset(source, replace(axes, weighted=weighted), strict=unobserved is not None)


def _kept(source: Source, unobserved: Array | None, weights: Array | None) -> Array:
    """Return which features are kept. At least one must be."""
    kept = np.ones(source.spec.n_cols, dtype=np.bool_)
    if unobserved is not None:
        kept &= ~unobserved
    if weights is not None:
        kept &= weights > 0
    if not kept.any():
        raise DataError(
            f"{source.name}: no observed feature has a positive weight, so there is nothing to fit"
        )
    return kept


def _takes_products(method: Method) -> bool:
    """Whether the columns are samples: a matrix of kernels or distances."""
    return "precomputed" in (getattr(method, "kernel", None), getattr(method, "metric", None))


def for_model(source: Source, axes: FeatureAxes | None) -> Source:
    """Return the features of a source that a model uses, for a model that was fitted with these axes."""
    if axes is None or (axes.kept is None and axes.weights is None):
        return source
    return FeatureSubset(source, axes)
