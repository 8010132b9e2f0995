"""Mean distances of pairs by bins of their dissimilarity, for isotonic regression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from scipy.spatial.distance import cdist

from streamdr.core.blocks import AlignedArrays, Array, Block, aligned
from streamdr.methods.mds.distance_bins import DistanceBins
from streamdr.methods.mds.distances import Distances
from streamdr.methods.mds.stress import PairWeights
from streamdr.methods.mds.tiles import row_tiles


class BinnedDistances(AlignedArrays):
    """Weights of pairs, and sums of their distances in a configuration, by bins of their dissimilarities."""

    kind: ClassVar[str] = "binned_distances"

    def __init__(
        self,
        distances: Distances,
        embedding: Array,
        weights: PairWeights,
        edges: Array,
        *,
        allow_nan: bool = False,
    ) -> None:
        self.distances = distances
        self.embedding = aligned(embedding)
        self.weights = weights
        self.bins = DistanceBins(edges)
        self.allow_nan = allow_nan
        self.counts = np.zeros(len(edges) + 1)
        self.totals = np.zeros(len(edges) + 1)

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        for tile in row_tiles(len(block.values), self.distances.n_points):
            values, numbers = block.values[tile], block.numbers[tile]
            if np.isinf(values).any() or (not self.allow_nan and np.isnan(values).any()):
                block.locate_nonfinite()
            dissimilarities = self.distances.between(values)
            weights = self.weights.of(dissimilarities, numbers)
            fitted = cdist(self.embedding[numbers], self.embedding)
            bins = self.bins.of(dissimilarities.ravel())
            self.counts += np.bincount(bins, weights.ravel(), len(self.counts))
            fitted *= weights
            self.totals += np.bincount(bins, fitted.ravel(), len(self.counts))

    def merge(self, later: Self) -> None:
        """Fold in the statistics of the rows that follow."""
        self.counts += later.counts
        self.totals += later.totals

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(
            self.distances, self.embedding, self.weights, self.bins.edges, allow_nan=self.allow_nan
        )

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        given = {**self.distances.parameters(), **self.weights.parameters()}
        return {**given, "embedding": self.embedding, "edges": self.bins.edges, "holes": self.allow_nan}

    def value(self) -> dict[str, Array]:
        """The sums."""
        return self.arrays()

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"counts": self.counts, "totals": self.totals}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.counts, self.totals = arrays["counts"], arrays["totals"]
