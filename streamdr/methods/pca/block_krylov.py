"""Block Krylov iteration for the top eigenpairs of a covariance, from products with a few vectors."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array
from streamdr.core.linalg import nystrom_eigh, orthonormal, ritz_residuals
from streamdr.core.method import Pass

Product = Callable[[Array, str], Generator[Pass, Accumulator, Array]]
"""Multiplies the covariance by some vectors, in a pass with a label."""


class Eigenpairs(NamedTuple):
    """Eigenvalues in descending order, their vectors as columns, and the norms of S u - lambda u."""

    values: Array
    vectors: Array
    residuals: Array
    further: Array
    """More vectors, after the leading k."""


@dataclass(frozen=True)
class BlockKrylov:
    """Block Krylov iteration for the top k eigenpairs of S, from products of S with vectors.

    It stops when each residual is below `tol` times its eigenvalue, or below `rounding` times the largest
    one: residuals cannot become smaller than the errors of the products.
    """

    k: int
    max_passes: int
    tol: float
    rounding: float
    n_further: int = 0

    def iterate(
        self, basis: Array, images: Array, product: Product
    ) -> Generator[Pass, Accumulator, Eigenpairs]:
        """Iterate from an orthonormal basis Q and S Q of a first pass."""
        newest = images
        ritz, residuals = ritz_residuals(basis, images, self.k)
        for number in range(2, self.max_passes + 1):
            least = self.rounding * ritz[0]
            room = len(basis) - basis.shape[1]
            if (residuals <= np.maximum(self.tol * ritz, least)).all() or room == 0:
                break
            worst = float(np.max(residuals / np.maximum(ritz, least or 1.0)))
            block = orthonormal(newest[:, :room], against=basis)
            newest = yield from product(block, f"block Krylov {number}, residual {worst:.1e}")
            basis = np.hstack([basis, block])
            images = np.hstack([images, newest])
            ritz, residuals = ritz_residuals(basis, images, self.k)
        further = np.zeros((len(basis), 0))
        if self.n_further:
            copies = [basis.copy(), images.copy()]
            further = nystrom_eigh(copies, self.k + self.n_further, self.rounding)[1][:, self.k :]
        subspace = [basis, images]
        del basis, images, newest
        return Eigenpairs(*nystrom_eigh(subspace, self.k, self.rounding), residuals, further)
