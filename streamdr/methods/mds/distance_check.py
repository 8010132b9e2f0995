"""Validation of a stored distance matrix, in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import Array, Block
from streamdr.methods.mds.distances import require_distances
from streamdr.methods.mds.tiles import row_tiles


class DistanceCheck:
    """A check of every stored distance, which refuses invalid distances and names their pair.

    Symmetry is checked with one random vector: its products with the matrix and with the transpose differ in
    the rows in which the two matrices differ. The distances of `pairs` of points (two columns of indices) are
    kept, and for every point its weight and its connected component in the graph of observed distances.
    """

    kind: ClassVar[str] = "survey"

    def __init__(
        self, n_points: int, pairs: Array, seed: int = 0, *, single: bool = False, allow_nan: bool = False
    ) -> None:
        self.n_points = n_points
        self.single = single
        self.pairs = pairs
        self.seed = seed
        self.allow_nan = allow_nan
        self.across = np.zeros(n_points)
        self.along = np.zeros(n_points)
        self.sizes = np.zeros(n_points)
        self.weights = np.zeros(n_points)
        self.parts = np.arange(n_points)
        self.found = np.zeros(len(pairs))
        self.known = np.zeros((), np.int64)
        self._columns = np.arange(n_points)
        self._signs = np.random.default_rng([seed, n_points]).standard_normal(n_points)

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        numbers = block.numbers
        self.weights[numbers] += 1.0 if block.weights is None else block.weights
        for tile in row_tiles(len(block.values), self.n_points):
            rows, here = block.values[tile].astype(np.float64), numbers[tile]
            observed = ~np.isnan(rows)
            self._require_valid(rows, observed, here, block)
            values = np.where(observed, rows, 0.0)
            self.across[here] += values @ self._signs
            self.along += self._signs[here] @ values
            self.sizes[here] += np.abs(values) @ np.abs(self._signs)
            self.known += observed.sum()
            self._connect(observed, here)
            # Pairs are sorted by their first point.
            first, last = np.searchsorted(self.pairs[:, 0], [here[0], here[-1] + 1])
            selected = slice(int(first), int(last))
            indices = np.searchsorted(here, self.pairs[selected, 0])
            self.found[selected] += rows[indices, self.pairs[selected, 1]]

    def _require_valid(self, rows: Array, observed: Array, numbers: Array, block: Block) -> None:
        """Refuse distances that are not finite, negative distances, and diagonals that are not zero."""
        if not self.allow_nan and not observed.all():
            block.locate_nonfinite()
        if np.isinf(rows).any():
            block.locate_nonfinite()
        require_distances(rows, numbers, self._columns)

    def _connect(self, observed: Array, numbers: Array) -> None:
        """Join the connected components of points with an observed distance."""
        for row_observed, number in zip(observed, numbers, strict=True):
            if not self.parts.any():  # all are connected
                return
            row_observed[number] = True
            joined = np.unique(self.parts[row_observed])
            if len(joined) > 1:
                self.parts[np.isin(self.parts, joined)] = joined[0]

    def merge(self, later: Self) -> None:
        """Fold in the statistics of the rows that follow."""
        for own, other in zip(self._sums(), later._sums(), strict=True):
            own += other
        parts, sizes = np.unique(later.parts, return_counts=True)
        for part in parts[sizes > 1]:
            joined = np.unique(self.parts[later.parts == part])
            if len(joined) > 1:
                self.parts[np.isin(self.parts, joined)] = joined[0]

    def _sums(self) -> list[Array]:
        """The arrays that are added when accumulators merge."""
        return [self.across, self.along, self.sizes, self.weights, self.found, self.known]

    def asymmetric_row(self) -> int | None:
        """A row that differs from its column by more than rounding; None if there is none."""
        tolerance = symmetry_tolerance(single=self.single)
        gap = np.abs(self.across - self.along)
        worst = int(np.argmax(gap - tolerance * self.sizes))
        return worst if gap[worst] > tolerance * self.sizes[worst] else None

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.n_points, self.pairs, self.seed, single=self.single, allow_nan=self.allow_nan)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        settings = {"seed": self.seed, "single": self.single, "holes": self.allow_nan}
        return {"n_points": self.n_points, "pairs": self.pairs, **settings}

    def value(self) -> dict[str, Array]:
        """The state. A connected component is numbered by its lowest point."""
        return self.arrays()

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {
            "across": self.across,
            "along": self.along,
            "sizes": self.sizes,
            "weights": self.weights,
            "parts": self.parts,
            "found": self.found,
            "known": self.known,
        }

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        for name, array in arrays.items():
            setattr(self, name, array)


def symmetry_tolerance(*, single: bool) -> float:
    """The relative difference allowed between the two distances of a pair, by precision."""
    return 4 * float(np.finfo(np.float32).eps) if single else 1e-10
