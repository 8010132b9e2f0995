"""The generalised eigenvalue problem of discriminants, S_b w = lambda S_w w, by whitening S_w."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from streamdr.core.blocks import Array
from streamdr.core.linalg import eigh_descending, fix_signs, numerical_rank
from streamdr.errors import DataError


@dataclass(frozen=True)
class Solution:
    """Directions, as columns, along which rows have unit variance within classes."""

    scalings: Array
    """The discriminants that are kept, by descending eigenvalue."""
    eigenvalues: Array
    """The ratio of the variance between classes to that within classes, along each discriminant."""
    separation: float
    """The sum of these ratios over all directions."""
    axes: Array
    """A basis of all directions in which class means differ."""
    centroids: Array
    """The class means along `axes`, relative to their mean."""


def whitened(covariance: Array, constant: Array, product_dtype: np.dtype[Any]) -> Array:
    """W such that W' S W = I, with as many columns as the numerical rank of S.

    It is computed from correlations, so that the rank does not depend on the units of columns. `constant`
    columns are left out.
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
    """The discriminants for a covariance between classes; None for that of the class means.

    `apart` holds the class means relative to any common point.
    """
    means = (apart - priors @ apart) @ whitening
    limit = min(len(priors) - 1, whitening.shape[1])
    # The SVD of the means, not eigenvalues of their products: these would lose the digits of classes that are
    # close together where others are far away.
    weighed = means if between is not None else np.sqrt(priors)[:, None] * means
    _, ratios, turned = scipy.linalg.svd(weighed, full_matrices=False, check_finite=False)
    turned = turned[:limit].T
    axes, centroids = whitening @ turned, means @ turned
    if between is None:
        eigenvalues, separation = ratios**2, float(ratios @ ratios)
        if separation == 0.0:
            raise DataError("the means of all classes are the same: no direction separates them")
        scalings = axes[:, :kept]
    else:
        core = whitening.T @ between @ whitening
        eigenvalues, vectors = eigh_descending((core + core.T) / 2)
        separation = float(eigenvalues.sum()) or 1.0  # negative ones count as zero
        scalings = whitening @ vectors[:, :kept]
    return Solution(
        scalings=np.ascontiguousarray(fix_signs(scalings.T.copy()).T),
        eigenvalues=eigenvalues[:kept].copy(),
        separation=separation,
        axes=np.ascontiguousarray(axes),
        centroids=centroids,
    )
