"""Kernels of sparse rows are those of the same dense rows, also far from zero and in single precision."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from scipy.spatial.distance import cdist

from streamdr.methods.kernel_pca.features import KernelColumns
from streamdr.methods.kernel_pca.kernels import Kernel


def far_counts(n: int, d: int) -> np.ndarray:
    """Counts beside a full column of a large mean, which single precision rounds to sixteenths."""
    rng = np.random.default_rng(0)
    rows = rng.poisson(3, (n, d)) * (rng.random((n, d)) < 0.15)
    return np.column_stack([1e6 + rng.normal(size=n), rows[:, 1:]])


@pytest.mark.parametrize(("dtype", "tolerance"), [("f8", 1e-13), ("f4", 2e-6)])
@pytest.mark.parametrize("hold", [np.asarray, scipy.sparse.csr_array])
def test_distances_are_about_one_origin(hold, dtype, tolerance):
    rows = far_counts(500, 20).astype(dtype)
    exact = rows.astype(float)
    landmarks, gamma = exact[:30], 1 / 20
    columns = KernelColumns([Kernel("rbf", gamma=gamma)], landmarks, exact.mean(axis=0))
    found = np.empty((len(rows), len(landmarks)), dtype)
    columns.fill(hold(rows), [found])
    expected = np.exp(-gamma * cdist(exact, landmarks, "sqeuclidean"))
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
