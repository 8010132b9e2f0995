"""What has to be known of a matrix of distances before anything is made of it: is it one, and is it whole?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.accumulators.tiles import row_tiles
from streamdr.blocks import Array, Block
from streamdr.distances import require_distances


class Survey:
    """A look at every distance that is stored: bad ones are refused where they stand, with their pair.

    Whether the matrix equals its transpose is told by one random vector: the products of the two with it
    differ in those rows that differ. Of `pairs` of points (two columns of numbers) the distances are kept,
    and of every point its weight and the part that it is connected to by known distances.
    """

    kind: ClassVar[str] = "survey"

    def __init__(
        self, n_points: int, pairs: Array, seed: int = 0, *, single: bool = False, holes: bool = False
    ) -> None:
        self.n_points = n_points
        self.single = single
        self.pairs = pairs
        self.seed = seed
        self.holes = holes
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
            there = ~np.isnan(rows)
            self._refuse(rows, there, here, block)
            values = np.where(there, rows, 0.0)
            self.across[here] += values @ self._signs
            self.along += self._signs[here] @ values
            self.sizes[here] += np.abs(values) @ np.abs(self._signs)
            self.known += there.sum()
            self._connect(there, here)
            # Pairs are sorted by their first point.
            first, last = np.searchsorted(self.pairs[:, 0], [here[0], here[-1] + 1])
            mine = slice(int(first), int(last))
            places = np.searchsorted(here, self.pairs[mine, 0])
            self.found[mine] += rows[places, self.pairs[mine, 1]]

    def _refuse(self, rows: Array, there: Array, numbers: Array, block: Block) -> None:
        if not self.holes and not there.all():
            block.suspect()
        if np.isinf(rows).any():
            block.suspect()
        require_distances(rows, numbers, self._columns)

    def _connect(self, there: Array, numbers: Array) -> None:
        for known, number in zip(there, numbers, strict=True):
            if not self.parts.any():  # all are connected
                return
            known[number] = True
            joined = np.unique(self.parts[known])
            if len(joined) > 1:
                self.parts[np.isin(self.parts, joined)] = joined[0]

    def merge(self, later: Self) -> None:
        """Fold in what comes after."""
        for mine, others in zip(self._sums(), later._sums(), strict=True):
            mine += others
        parts, sizes = np.unique(later.parts, return_counts=True)
        for part in parts[sizes > 1]:
            joined = np.unique(self.parts[later.parts == part])
            if len(joined) > 1:
                self.parts[np.isin(self.parts, joined)] = joined[0]

    def _sums(self) -> list[Array]:
        return [self.across, self.along, self.sizes, self.weights, self.found, self.known]

    def lopsided(self) -> int | None:
        """A row that differs from its column by more than rounding, if there is one."""
        tolerance = symmetry_tolerance(single=self.single)
        gap = np.abs(self.across - self.along)
        worst = int(np.argmax(gap - tolerance * self.sizes))
        return worst if gap[worst] > tolerance * self.sizes[worst] else None

    def empty_like(self) -> Self:
        """A fresh one for the same points."""
        return type(self)(self.n_points, self.pairs, self.seed, single=self.single, holes=self.holes)

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart before any data."""
        settings = {"seed": self.seed, "single": self.single, "holes": self.holes}
        return {"n_points": self.n_points, "pairs": self.pairs, **settings}

    def value(self) -> dict[str, Array]:
        """The state. A part is called by the lowest number in it."""
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
        """Take up a saved state."""
        for name, array in arrays.items():
            setattr(self, name, array)


def symmetry_tolerance(*, single: bool) -> float:
    """By how much distances of a pair may differ that were rounded in single, or in double precision."""
    return 4 * float(np.finfo(np.float32).eps) if single else 1e-10
