"""How rows spread within classes, and classes among each other: what discriminants weigh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from streamdr.accumulators import ClassLengths, ClassMoments
from streamdr.accumulators.centred import Centre
from streamdr.blocks import Array
from streamdr.linalg import constant_columns


@dataclass(frozen=True)
class Classes:
    """Where the classes of some rows are, exactly: about the mean of all, which may be large."""

    weights: Array
    centres: list[Centre]
    overall: Centre

    @classmethod
    def of(cls, moments: ClassMoments) -> Classes:
        """Those of accumulated rows."""
        overall = Centre(moments.n_cols)
        for centre in moments.centres:
            overall.absorb(centre, moments_about_origin=False)
        return cls(moments.weights, moments.centres, overall)

    @property
    def shares(self) -> Array:
        """The part of all rows that each class has."""
        shares: Array = self.weights / self.weights.sum()
        return shares

    @property
    def apart(self) -> Array:
        """How far the mean of each class is from that of all rows."""
        whole = self.overall
        rows = [(each.origin - whole.origin) + (each.offset - whole.offset) for each in self.centres]
        return np.array(rows)

    def between(self) -> Array:
        """The covariance of classes' means about the mean of all rows."""
        apart = self.apart
        products: Array = (apart.T * self.shares) @ apart
        return products


def shrunk(covariance: Array, shrinkage: float) -> Array:
    """A covariance on the way to a sphere of the same trace."""
    order = len(covariance)
    found = (1.0 - shrinkage) * covariance
    found.flat[:: order + 1] += shrinkage * float(np.trace(covariance)) / order
    return found


def unit_deviations(covariance: Array, mean: Array) -> Array:
    """The standard deviation of each column, 1 for those that do not vary."""
    variance: Array = np.diag(covariance).copy()
    variance[constant_columns(variance, mean)] = 1.0
    return np.sqrt(variance)


def ledoit_wolf(covariance: Array, deviations: Array, fourths: float, weight: float) -> tuple[Array, float]:
    """A covariance on the way to a diagonal one, and how far (Ledoit and Wolf 2004).

    It is that of columns in units of their deviations which is shrunk, to a multiple of one. `fourths` is the
    sum of the fourth powers of rows' lengths, about the mean and in these units.
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


def lengths(moments: ClassMoments, places: Classes, *, double: bool) -> ClassLengths:
    """What the second pass of the Ledoit-Wolf shrinkage gathers, about the means that the first one found."""
    centres = [*places.centres, places.overall]
    covariances = chain(class_covariances(moments), [total_covariance(moments, places)])
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
    """That of each class, of moments that are not pooled, one after the other."""
    for scatter, weight in zip(moments.scatters, moments.weights, strict=True):
        yield scatter / weight


def within_covariance(moments: ClassMoments, shares: Array) -> Array:
    """The mean of the classes' covariances, by their shares; pooled moments are by those of the rows."""
    within: Array = np.zeros((moments.n_cols, moments.n_cols))
    if moments.pooled:
        within = moments.scatters[0] / moments.weights.sum()
    else:
        for covariance, share in zip(class_covariances(moments), shares, strict=True):
            within += share * covariance
    np.fill_diagonal(within, np.maximum(np.diag(within), 0.0))  # below zero by rounding, of constant columns
    return within


def total_covariance(moments: ClassMoments, places: Classes) -> Array:
    """That of all rows, about the mean of all."""
    total = within_covariance(moments, places.shares)
    total += places.between()
    return total
