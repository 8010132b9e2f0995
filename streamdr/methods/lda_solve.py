"""The generalised eigenvalue problem of discriminants, S_b w = lambda S_w w, by way of whitened rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from streamdr.blocks import Array
from streamdr.errors import DataError
from streamdr.linalg import eigh_descending, fix_signs, numerical_rank


@dataclass(frozen=True)
class Solution:
    """Directions, a column each, along which rows have unit variance within classes."""

    scalings: Array
    """The discriminants that are kept, from the one that tells most."""
    eigenvalues: Array
    """How many times as large the variance between classes is as that within, along each of them."""
    separation: float
    """The sum of that over all directions."""
    axes: Array
    """As many directions as it takes to tell all classes apart."""
    centroids: Array
    """Where the means of classes are along these, from their own mean."""


def whitened(covariance: Array, constant: Array, product_dtype: np.dtype[Any]) -> Array:
    """W such that W' S W = 1, with as many columns as S has directions of any variance.

    It is found by way of correlations, so that what has small units is not taken for nothing. Columns that
    are `constant` have none.
    """
    deviations = np.sqrt(np.diag(covariance))
    deviations[constant] = 1.0
    correlations = covariance / deviations / deviations[:, None]
    correlations[constant] = correlations[:, constant] = 0.0
    values, vectors = eigh_descending(correlations)
    rank = numerical_rank(values, len(values), product_dtype)
    whitening: Array = vectors[:, :rank] / np.sqrt(values[:rank])
    whitening /= deviations[:, None]
    return whitening


def solved(whitening: Array, between: Array | None, apart: Array, priors: Array, kept: int) -> Solution:
    """The discriminants of a covariance between classes, or (None) of that of their means.

    `apart` is how far the mean of each class is from any point that they have in common.
    """
    means = (apart - priors @ apart) @ whitening
    limit = min(len(priors) - 1, whitening.shape[1])
    # The means themselves, not their products: these would have no digits left for classes that are close
    # together where others are far away.
    weighed = means if between is not None else np.sqrt(priors)[:, None] * means
    _, ratios, turned = scipy.linalg.svd(weighed, full_matrices=False, check_finite=False)
    turned = turned[:limit].T
    axes, centroids = whitening @ turned, means @ turned
    if between is None:
        eigenvalues, separation = ratios**2, float(ratios @ ratios)
        if separation == 0.0:
            raise DataError("the means of all classes are the same: no direction tells them apart")
        scalings = axes[:, :kept]
    else:
        core = whitening.T @ between @ whitening
        eigenvalues, vectors = eigh_descending((core + core.T) / 2)
        separation = float(eigenvalues.sum()) or 1.0  # those below zero count as zero
        scalings = whitening @ vectors[:, :kept]
    return Solution(
        scalings=np.ascontiguousarray(fix_signs(scalings.T.copy()).T),
        eigenvalues=eigenvalues[:kept].copy(),
        separation=separation,
        axes=np.ascontiguousarray(axes),
        centroids=centroids,
    )
