"""Stochastic gradient descent on a stress: random pairs are moved towards their target distance.

After Zheng, Pawar and Goodman (2018). Every round uses a random matching, in which no point is in two pairs.
All pairs of a round move at once, independent of their order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamdr.core.blocks import Array
from streamdr.methods.mds.parameters import lengths

PairSampler = Callable[[int, int], tuple[Array, Array, Array, Array]]
"""For an epoch and a round: the two points of each pair, their target distances and their weights."""

_LAST_STEP = 0.01
"""The last step size, relative to 1 / the largest weight."""


def matching(n_points: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """A random matching: each point is in at most one pair."""
    order = rng.permutation(n_points)
    half = n_points // 2
    return order[:half], order[half : 2 * half]


def round_robin(n_points: int, rounds: int, rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """Disjoint matchings: the rounds of a round-robin tournament of all points.

    In round r of n - 1 (n even), the points whose positions sum to r modulo n - 1 are paired. The point that
    would be paired with itself is paired with the last one.
    """
    n_even = n_points + n_points % 2
    order = rng.permutation(n_points)
    chosen = rng.permutation(n_even - 1)[:rounds]
    positions = np.arange(n_even - 1)
    matchings = []
    for number in chosen:
        others = (number - positions) % (n_even - 1)
        others[others == positions] = n_even - 1
        once = (positions < others) & (others < n_points)
        matchings.append((order[positions[once]], order[others[once]]))
    return matchings


def pair_descent(
    start: Array,
    pairs: PairSampler,
    rounds: int,
    epochs: int,
    extremes: tuple[float, float],
    stress: Callable[[Array], float],
) -> tuple[Array, Array]:
    """The final configuration and the stress after every epoch.

    `extremes` are the smallest and the largest weight: step sizes decrease from 1 / smallest to
    0.01 / largest.
    """
    embedding, history = start.copy(), []
    smallest, largest = extremes
    steps = np.geomspace(1.0 / smallest, _LAST_STEP / largest, epochs)
    for epoch, step in enumerate(steps):
        for number in range(rounds):
            left, right, targets, weights = pairs(epoch, number)
            difference = embedding[left] - embedding[right]
            fitted = np.sqrt(np.einsum("ij,ij->i", difference, difference))
            share = np.minimum(step * weights, 1.0) / 2.0
            share *= fitted - targets
            np.divide(share, fitted, out=share, where=fitted > 0)
            share[(fitted == 0) | (weights == 0)] = 0.0
            difference *= share[:, None]
            embedding[left] -= difference
            embedding[right] += difference
        history.append(stress(embedding))
    return embedding, np.array(history)


def stress_of(embedding: Array, pairs: Array, targets: Array, weights: Array, norm: float) -> float:
    """The stress of some pairs, normalised by `norm`."""
    fitted = lengths(embedding[pairs[:, 0]], embedding[pairs[:, 1]])
    positive = weights > 0
    return float(np.sum(weights[positive] * (targets - fitted)[positive] ** 2)) / norm
