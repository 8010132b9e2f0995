"""k-means: as good as scikit-learn from the same centres."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris, make_blobs

from streamdr.statistics.kmeans import _kmeans_plus_plus, _lloyd, kmeans

DATA = {
    "digits": (load_digits().data, 10),
    "iris": (load_iris().data, 3),
    "blobs": (make_blobs(2000, 20, centers=12, random_state=1)[0], 12),
    "noise": (np.random.default_rng(0).standard_normal((1000, 30)), 40),
    "far from zero": (np.random.default_rng(1).standard_normal((1000, 5)) + 1e4, 8),
}


def inertia(rows, weights, labels):
    """The sum of weighted squared distances from the cluster means, by definition."""
    total = 0.0
    for label in np.unique(labels):
        members, w = rows[labels == label], weights[labels == label]
        total += w @ ((members - np.average(members, axis=0, weights=w)) ** 2).sum(axis=1)
    return total


def scikit_learn_kmeans(rows, weights, centres):
    return KMeans(len(centres), init=centres, n_init=1, tol=0).fit(rows, sample_weight=weights)


def weights_of(rows, weighted, seed=2):
    rng = np.random.default_rng(seed)
    return rng.uniform(0.5, 2.0, len(rows)) if weighted else np.ones(len(rows))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", DATA)
def test_clusters_are_as_tight_as_those_of_scikit_learn_from_the_same_centres(name, weighted):
    rows, n_clusters = DATA[name]
    weights = weights_of(rows, weighted)
    centres = _kmeans_plus_plus(rows, weights, n_clusters, np.random.default_rng(3))
    reference = scikit_learn_kmeans(rows, weights, centres)
    labels, _ = _lloyd(rows, weights, centres.copy())
    assert inertia(rows, weights, labels) <= 1.01 * inertia(rows, weights, reference.labels_)


def test_with_many_tied_distances_clusters_are_as_tight_on_average():
    # A row between two centres may join either cluster, and then the two results diverge.
    rng = np.random.default_rng(5)
    ratios = []
    for _ in range(20):
        rows = np.round(2 * rng.standard_normal((500, 4)))
        weights = np.ones(len(rows))
        centres = _kmeans_plus_plus(rows, weights, 20, rng)
        reference = scikit_learn_kmeans(rows, weights, centres)
        labels, _ = _lloyd(rows, weights, centres.copy())
        ratios.append(inertia(rows, weights, labels) / inertia(rows, weights, reference.labels_))
    assert np.mean(ratios) < 1.01


def test_several_starts_find_the_true_clusters():
    rows, truth = make_blobs(600, 5, centers=6, cluster_std=0.5, random_state=4)
    labels = kmeans(rows, np.ones(len(rows)), 6, np.random.default_rng(0))
    assert len({(here, there) for here, there in zip(labels, truth, strict=True)}) == 6


def test_clusters_beyond_the_number_of_different_rows_stay_empty():
    rows = np.repeat(np.arange(6.0).reshape(3, 2), 5, axis=0)
    labels = kmeans(rows, np.ones(15), 5, np.random.default_rng(0), starts=1)
    assert inertia(rows, np.ones(15), labels) == 0.0
