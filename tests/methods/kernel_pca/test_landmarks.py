"""The choice of landmarks: the captured trace, and the probabilities of rows."""

from __future__ import annotations

import numpy as np
import pytest
from plain_kernel_pca import captured_by, kernel_matrix, rp_cholesky

from streamdr import KernelPCA

GAMMA = 0.5


def unequal(n=400, seed=0):
    """Three quarters of the rows in one cluster, the others in twelve small ones far from each other."""
    rng = np.random.default_rng(seed)
    middles = 12.0 * rng.normal(size=(12, 3))
    small = middles[rng.integers(12, size=n // 4)]
    middle = np.vstack([np.zeros((n - len(small), 3)), small])
    return (middle + 0.3 * rng.normal(size=(n, 3)))[rng.permutation(n)]


def chosen(rows, m, landmarks="rpcholesky", seed=0, **parameters):
    """The fitted estimator with m landmarks."""
    given = {"gamma": GAMMA, **parameters}
    return KernelPCA(
        1, approximation="nystrom", n_landmarks=m, landmarks=landmarks, random_state=seed, **given
    ).fit(rows)


def numbers_of(rows, landmarks):
    return [int(np.argmin(np.abs(rows - row).sum(axis=1))) for row in landmarks]


@pytest.mark.parametrize("m", [20, 40])
def test_pivots_capture_what_a_uniform_choice_misses(m):
    found = np.array(
        [
            [chosen(unequal(seed=seed), m, how, seed).captured_trace_ for how in ("rpcholesky", "uniform")]
            for seed in range(8)
        ]
    )
    pivots, uniform = found.T
    assert (pivots >= uniform).all()
    assert pivots.mean() > uniform.mean() + 0.05


def test_kmeans_captures_nearly_as_much_as_a_uniform_choice():
    rows = unequal()
    found = chosen(rows, 20, "kmeans")
    assert found.landmarks_.shape == (20, 3)
    assert found.captured_trace_ > chosen(rows, 20, "uniform").captured_trace_ - 0.02


@pytest.mark.parametrize("landmarks", ["rpcholesky", "uniform"])
def test_landmarks_are_distinct_rows(landmarks):
    rows = unequal(150)
    for seed in range(5):
        found = chosen(rows, 60, landmarks, seed).landmarks_
        numbers = numbers_of(rows, found)
        np.testing.assert_array_equal(rows[numbers], found)
        assert len(set(numbers)) == 60


@pytest.mark.parametrize("m", [12, 40])
def test_pivots_end_at_the_rank(m):
    """Ten distinct rows, each ten times: after ten pivots the residual is zero."""
    different = unequal(100)[:10]
    rows = np.tile(different, (10, 1))
    found = chosen(rows, m, gamma=5.0)
    assert len(found.landmarks_) == 10
    assert len(np.unique(found.landmarks_, axis=0)) == 10
    assert found.captured_trace_ == pytest.approx(1.0, abs=1e-12)
    assert found.trace_error_ == pytest.approx(0.0, abs=1e-9)


def test_pivots_of_a_linear_kernel_are_as_many_as_features():
    found = chosen(unequal(100), 30, kernel="linear")
    assert len(found.landmarks_) == 3
    assert found.captured_trace_ == pytest.approx(1.0, abs=1e-12)


def test_pivots_are_distributed_as_sequential_ones():
    """The accelerated form has the same distribution: the captured trace has the same mean and deviation."""
    rows = unequal(120, seed=1)
    kernel = kernel_matrix(rows, gamma=GAMMA)
    seeds = 150
    ours = np.array([chosen(rows, 8, seed=seed).captured_trace_ for seed in range(seeds)])
    rng = np.random.default_rng(0)
    plain = np.array([captured_by(kernel, rp_cholesky(kernel, 8, rng)) for _ in range(seeds)])
    error = np.sqrt(ours.var() / seeds + plain.var() / seeds)
    assert abs(ours.mean() - plain.mean()) < 3 * error
    assert 0.6 < ours.std() / plain.std() < 1.6


def test_pivots_are_drawn_in_proportion_to_the_diagonal():
    """The first pivot of a kernel of products is drawn in proportion to |x|^2."""
    products = {"kernel": "poly", "degree": 1, "coef0": 0.0, "gamma": 1.0}
    lengths = np.array([1.0, 2.0, 3.0])
    rows = np.eye(3) * lengths
    rows = np.repeat(rows, 4, axis=0)
    draws = np.array([np.argmax(chosen(rows, 1, **products, seed=seed).landmarks_[0]) for seed in range(200)])
    share = np.bincount(draws, minlength=3) / 200
    want = lengths**2 / np.sum(lengths**2)
    assert (np.abs(share - want) < 3 * np.sqrt(want * (1 - want) / 200)).all()


def test_uniform_landmarks_are_uniform():
    rows = np.arange(20.0)[:, None]
    counts = np.zeros(20)
    for seed in range(200):
        counts[chosen(rows, 5, "uniform", seed).landmarks_[:, 0].astype(int)] += 1
    assert counts.sum() == 1000
    spread = np.sqrt(200 * 0.25 * 0.75)
    assert (np.abs(counts - 50) < 4 * spread).all()


def test_the_seed_determines_the_landmarks():
    rows = unequal(200)
    for landmarks in ("rpcholesky", "uniform", "kmeans"):
        one, same, other = (chosen(rows, 15, landmarks, seed).landmarks_ for seed in (0, 0, 1))
        np.testing.assert_array_equal(one, same)
        assert not np.array_equal(one, other)
