"""The bins from the lookup table equal those of a binary search."""

from __future__ import annotations

import numpy as np
import pytest

from streamdr.methods.mds.distance_bins import DistanceBins

RNG = np.random.default_rng(0)
VALUES = {
    "normal": np.abs(RNG.normal(size=20_000)),
    "skewed": np.exp(3 * RNG.normal(size=20_000)),
    "few": RNG.integers(0, 9, 5_000).astype(float),
    "tiny": np.abs(1e-300 * RNG.normal(size=1_000)),
    "far from zero": 1e8 + RNG.random(20_000),
    "all sizes": np.exp(100 * RNG.normal(size=5_000)),
    "one": np.array([2.0, 3.0]),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("number", [2, 50, 3_000])
def test_the_lookup_table_equals_a_binary_search(kind, number):
    values = VALUES[kind]
    edges = np.unique(np.quantile(values, np.linspace(0, 1, number + 1)[1:-1]))
    queries = np.concatenate(
        [values, edges, np.nextafter(edges, np.inf), np.nextafter(edges, 0), [0.0, 1e300]]
    )
    bins = DistanceBins(edges)
    np.testing.assert_array_equal(bins.of(queries), np.searchsorted(edges, queries))
    assert bins.of(np.array([np.nan]))[0] <= len(edges)
