"""Disparities: the monotone (isotonic) regression of distances on dissimilarities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from streamdr.core.blocks import AlignedArrays, Array, aligned
from streamdr.methods.mds.distance_bins import DistanceBins

_ROUNDING = 1e-14


class StepFunction(AlignedArrays):
    """A non-decreasing step function: one value for each bin of dissimilarities between `edges`."""

    def __init__(self, edges: Array, values: Array) -> None:
        self.bins = DistanceBins(edges) if len(edges) else None
        self.edges = aligned(edges)
        self.values = aligned(values)

    def distances(self, dissimilarities: Array) -> Array:
        """The value of the bin of each dissimilarity; NaN where it is missing."""
        values: Array
        if self.bins is None:  # one step for all
            values = np.full(dissimilarities.shape, self.values[0])
        else:
            values = self.values[self.bins.of(dissimilarities.ravel())].reshape(dissimilarities.shape)
        values[np.isnan(dissimilarities)] = np.nan
        return values

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, for the ledger's key."""
        return {"edges": self.edges, "values": self.values}


def rising(means: Array, weights: Array) -> Array:
    """Isotonic regression; bins of weight zero take the value of the bin before them."""
    positive = weights > 0
    fitted = np.zeros(len(means))
    fitted[positive] = isotonic_regression(means[positive], weights=weights[positive]).x
    last = np.maximum.accumulate(np.where(positive, np.arange(len(means)), 0))
    return fitted[last]


class Ranking(NamedTuple):
    """The ranks of pairs by dissimilarity, and their ties."""

    order: Array
    ties: Array
    """The index of the tie of each pair, in order."""
    weights: Array
    """The weight of each pair, in order."""
    primary: bool

    @classmethod
    def of(cls, dissimilarities: Array, weights: Array, *, primary: bool) -> Ranking:
        """Rank pairs. Tied pairs get equal disparities (secondary approach) or not (`primary`)."""
        order = np.argsort(dissimilarities, kind="stable")
        ranked = dissimilarities[order]
        rounding = _ROUNDING * float(ranked[-1])  # equal dissimilarities may differ by rounding
        ties = np.concatenate([[0], np.cumsum(np.diff(ranked) > rounding)])
        return cls(order, ties, weights[order], primary)

    def disparities(self, distances: Array) -> Array:
        """The isotonic regression of distances on ranks, in the order of the pairs."""
        fitted = np.empty_like(distances)
        ranked = distances[self.order]
        if self.primary:  # tied pairs are ordered by their distances
            within = np.lexsort((ranked, self.ties))
            fitted[self.order[within]] = isotonic_regression(ranked[within], weights=self.weights[within]).x
            return fitted
        if self.ties[-1] == len(ranked) - 1:  # none are tied
            fitted[self.order] = isotonic_regression(ranked, weights=self.weights).x
            return fitted
        counts = np.bincount(self.ties, self.weights)
        totals = np.bincount(self.ties, self.weights * ranked)
        means = np.divide(totals, counts, out=np.zeros_like(totals), where=counts > 0)
        fitted[self.order] = rising(means, counts)[self.ties]
        return fitted
