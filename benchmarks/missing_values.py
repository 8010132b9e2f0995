"""Stores with missing values, and the log-likelihood of their rows under a model: in float64, by LAPACK."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zarr

from benchmarks.contender import Solution
from benchmarks.data import build, chunk_slices
from benchmarks.harness import Judge

HEIGHT, FEWEST_CHUNKS = 4096, 24
NOISE = 0.5
NATS = "nats per row"


@dataclass(frozen=True)
class IncompleteRows:
    """Rows with k latent directions, noise and a mean; a fraction of the values, chosen at random, is NaN."""

    rows: int
    cols: int
    k: int
    missing: float
    dtype: str

    @property
    def title(self) -> str:
        """The title of a report."""
        kind = np.dtype(self.dtype).name
        return f"{self.rows:,} x {self.cols:,} {kind}, {self.missing:.0%} missing, k={self.k}"

    def store(self, folder: Path) -> Path:
        """Make the store, unless it exists."""
        rng = np.random.default_rng(3)
        loadings = rng.standard_normal((self.k, self.cols)) / np.sqrt(np.arange(1, self.k + 1))[:, None]
        mean = rng.standard_normal(self.cols)

        def fill(r: slice, c: slice) -> np.ndarray:
            n = r.stop - r.start
            values = rng.standard_normal((n, self.k)) @ loadings + mean
            values += NOISE * rng.standard_normal((n, self.cols))
            values[rng.random((n, self.cols)) < self.missing] = np.nan
            return values

        height = min(HEIGHT, max(1, self.rows // FEWEST_CHUNKS))  # minibatches need several chunks
        name = f"missing-{self.rows}x{self.cols}-rank{self.k}-share{self.missing:g}-{self.dtype}.zarr"
        return build(folder / name, (self.rows, self.cols), (height, self.cols), fill, self.dtype)


def log_likelihood(store: Path, found: Solution) -> float:
    """Return the mean log-likelihood of the rows of a store under probabilistic PCA, in nats."""
    array = zarr.open_array(store, mode="r")
    k, cols = found.components.shape
    loadings = found.components.T * np.sqrt(np.maximum(found.variances - found.noise, 0.0))
    squares = (loadings[:, :, None] * loadings[:, None, :]).reshape(cols, k * k)
    total = 0.0
    for span in chunk_slices(array.shape, (HEIGHT, cols)):
        rows = np.asarray(array[span], np.float64) - found.mean
        there = ~np.isnan(rows)
        rows[~there] = 0.0
        observed = there.sum(axis=1)
        inner = (there.astype(np.float64) @ squares).reshape(-1, k, k) + found.noise * np.eye(k)
        lower = np.linalg.cholesky(inner)
        halves = np.linalg.solve(lower, (rows @ loadings)[:, :, None])[:, :, 0]
        log_det = 2 * np.log(np.einsum("nii->ni", lower)).sum(axis=1) + (observed - k) * np.log(found.noise)
        distance = ((rows**2).sum(axis=1) - (halves**2).sum(axis=1)) / found.noise
        total -= 0.5 * float((observed * np.log(2 * np.pi) + log_det + distance).sum())
    return total / array.shape[0]


def likelihood_of(store: Path) -> Judge:
    """Return the judge of the mean log-likelihood, with enough digits to distinguish models."""
    return lambda found: {NATS: f"{log_likelihood(store, found):.6f}"}
