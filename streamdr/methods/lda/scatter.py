"""Covariances within and between classes, and their shrinkage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.linalg import constant_columns
from streamdr.statistics.by_class.lengths import ClassLengths
from streamdr.statistics.by_class.moments import ClassMoments
from streamdr.statistics.centring import Centre


@dataclass(frozen=True)
class ClassCentres:
    """The centres of the classes, and of all rows."""

    weights: Array
    centres: list[Centre]
    overall: Centre

    @classmethod
    def of(cls, moments: ClassMoments) -> ClassCentres:
        """The centres of accumulated rows."""
        overall = Centre(moments.n_cols)
        for centre in moments.centres:
            overall.absorb(centre, moments_about_origin=False)
        return cls(moments.weights, moments.centres, overall)

    @property
    def shares(self) -> Array:
        """The share of each class in the weight of all rows."""
        shares: Array = self.weights / self.weights.sum()
        return shares

    @property
    def apart(self) -> Array:
        """The mean of each class minus the mean of all rows, without cancellation."""
        whole = self.overall
        rows = [(each.origin - whole.origin) + (each.offset - whole.offset) for each in self.centres]
        return np.array(rows)

    def between(self) -> Array:
        """The covariance of the class means about the mean of all rows."""
        apart = self.apart
        products: Array = (apart.T * self.shares) @ apart
        return products


def shrunk(covariance: Array, shrinkage: float) -> Array:
    """A covariance shrunk towards a multiple of the identity with the same trace."""
    order = len(covariance)
    result = (1.0 - shrinkage) * covariance
    result.flat[:: order + 1] += shrinkage * float(np.trace(covariance)) / order
    return result


def unit_deviations(covariance: Array, mean: Array) -> Array:
    """The standard deviation of each column; 1 for constant columns."""
    variance: Array = np.diag(covariance).copy()
    variance[constant_columns(variance, mean)] = 1.0
    return np.sqrt(variance)


def ledoit_wolf(covariance: Array, deviations: Array, fourths: float, weight: float) -> tuple[Array, float]:
    """A shrunk covariance and its shrinkage (Ledoit and Wolf 2004).

    The covariance of columns in units of their deviations is shrunk towards a multiple of the identity.
    `fourths` is the sum of the fourth powers of the lengths of centred rows, in these units.
    """
    order = len(covariance)
    if order == 1:
        return covariance, 0.0
    scaled = covariance / deviations / deviations[:, None]
    trace, squares = float(np.trace(scaled)), float(np.einsum("ij,ij->", scaled, scaled))
    level = trace / order
    noise = (fourths / weight - squares) / (order * weight)
    distance = (squares - 2.0 * level * trace + order * level**2) / order
    noise = min(noise, distance)
    shrinkage = noise / distance if noise else 0.0
    scaled *= 1.0 - shrinkage
    scaled.flat[:: order + 1] += shrinkage * level
    scaled *= deviations
    scaled *= deviations[:, None]
    return scaled, shrinkage


def lengths(moments: ClassMoments, class_centres: ClassCentres, *, double: bool) -> ClassLengths:
    """The accumulator for the second pass of Ledoit-Wolf shrinkage, about the means of the first pass."""
    centres = [*class_centres.centres, class_centres.overall]
    covariances = chain(class_covariances(moments), [total_covariance(moments, class_centres)])
    deviations = [
        unit_deviations(covariance, centre.mean)
        for covariance, centre in zip(covariances, centres, strict=True)
    ]
    return ClassLengths(
        moments.classes,
        np.array([centre.origin for centre in centres]),
        np.array([centre.offset for centre in centres]),
        np.array(deviations),
        double=double,
    )


def class_covariances(moments: ClassMoments) -> Iterator[Array]:
    """The covariance of each class, from moments that are not pooled."""
    for scatter, weight in zip(moments.scatters, moments.weights, strict=True):
        yield scatter / weight


def within_covariance(moments: ClassMoments, shares: Array) -> Array:
    """The mean of the class covariances, weighted by `shares`; pooled moments are weighted by rows."""
    within: Array = np.zeros((moments.n_cols, moments.n_cols))
    if moments.pooled:
        within = moments.scatters[0] / moments.weights.sum()
    else:
        for covariance, share in zip(class_covariances(moments), shares, strict=True):
            within += share * covariance
    np.fill_diagonal(within, np.maximum(np.diag(within), 0.0))  # rounding may make constant columns negative
    return within


def total_covariance(moments: ClassMoments, class_centres: ClassCentres) -> Array:
    """The covariance of all rows about their mean."""
    total = within_covariance(moments, class_centres.shares)
    total += class_centres.between()
    return total
