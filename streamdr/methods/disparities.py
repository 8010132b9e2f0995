"""Disparities: the distances that are nearest to those of a configuration and rise with dissimilarity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from streamdr.bins import Bins
from streamdr.blocks import Array, Settled, settled

_ROUNDING = 1e-14


class Steps(Settled):
    """A rising step function: one value for each bin of dissimilarities, which end at the edges."""

    def __init__(self, edges: Array, values: Array) -> None:
        self.bins = Bins(edges) if len(edges) else None
        self.edges = settled(edges)
        self.values = settled(values)

    def wanted(self, dissimilarities: Array) -> Array:
        """The value of each one's bin, NaN where it is missing."""
        found: Array
        if self.bins is None:  # one step for all
            found = np.full(dissimilarities.shape, self.values[0])
        else:
            found = self.values[self.bins.of(dissimilarities.ravel())].reshape(dissimilarities.shape)
        found[np.isnan(dissimilarities)] = np.nan
        return found

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart."""
        return {"edges": self.edges, "values": self.values}


def rising(means: Array, weights: Array) -> Array:
    """Isotonic regression; bins of no weight take the value of the one before them."""
    there = weights > 0
    fitted = np.zeros(len(means))
    fitted[there] = isotonic_regression(means[there], weights=weights[there]).x
    last = np.maximum.accumulate(np.where(there, np.arange(len(means)), 0))
    return fitted[last]


class Ranking(NamedTuple):
    """Pairs by how unlike they are: their order, and which of them are tied."""

    order: Array
    ties: Array
    """The number of the group of equals that each belongs to, in order."""
    weights: Array
    """Of each pair, in order."""
    primary: bool

    @classmethod
    def of(cls, dissimilarities: Array, weights: Array, *, primary: bool) -> Ranking:
        """Rank pairs. Those of the same dissimilarity stay together (secondary), or may part (primary)."""
        order = np.argsort(dissimilarities, kind="stable")
        ranked = dissimilarities[order]
        rounding = _ROUNDING * float(ranked[-1])  # what should be equal may differ by that much
        ties = np.concatenate([[0], np.cumsum(np.diff(ranked) > rounding)])
        return cls(order, ties, weights[order], primary)

    def disparities(self, distances: Array) -> Array:
        """What is nearest to distances and rises with rank, for pairs as they were given."""
        fitted = np.empty_like(distances)
        ranked = distances[self.order]
        if self.primary:  # equals may come in any order: the one that suits their distances
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
