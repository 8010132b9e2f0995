"""Placement of new points in a fixed configuration, by least stress."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from streamdr.core.blocks import Array

_NEAREST = 5
_CANDIDATES = 200
_STARTS = 3
_ITERATIONS = 300
_TOLERANCE = 1e-9


def place_points(wanted: Array, weights: Array, among: Array) -> Array:
    """Positions of rows from their target distances (rows x points): the best of several starts."""
    found = np.zeros((len(wanted), among.shape[1]))
    lowest = np.full(len(wanted), np.inf)
    for start in _starts(wanted, weights, among):
        where, stress = _majorize(start, wanted, weights, among)
        lower = stress < lowest
        found[lower], lowest[lower] = where[lower], stress[lower]
    return found


def _majorize(where: Array, wanted: Array, weights: Array, among: Array) -> tuple[Array, Array]:
    """Majorization from some positions: the final positions and their stress.

    y <- sum w (z + a (y - z) / |y - z|) / sum w never increases the stress.
    """
    totals = weights.sum(axis=1)
    totals[totals == 0] = 1.0
    reach = float(np.abs(among).max(initial=0.0)) or 1.0
    moving = np.arange(len(where))
    for _ in range(_ITERATIONS):
        here, weight = where[moving], weights[moving]
        reached = cdist(here, among)
        pull = np.divide(weight * wanted[moving], reached, out=np.zeros_like(reached), where=reached > 0)
        better = (weight - pull) @ among + pull.sum(axis=1)[:, None] * here
        better /= totals[moving, None]
        where[moving] = better
        # Convergence is checked for each row: its result does not depend on the other rows.
        moving = moving[np.abs(better - here).max(axis=1) > _TOLERANCE * reach]
        if not len(moving):
            break
    return where, np.sum(weights * (cdist(where, among) - wanted) ** 2, axis=1)


def _starts(wanted: Array, weights: Array, among: Array) -> list[Array]:
    """Start positions: a mean of the nearest points, and the points of least stress among some."""
    several = min(_NEAREST, len(among))
    cost = np.where(weights > 0, wanted, np.inf)
    near = np.argpartition(cost, several - 1, axis=1)[:, :several]
    distances = np.take_along_axis(cost, near, axis=1)
    closeness = 1.0 / np.maximum(distances, 1e-12 * max(float(np.abs(among).max(initial=0.0)), 1e-300))
    closeness /= np.maximum(closeness.sum(axis=1, keepdims=True), 1e-300)
    between = np.einsum("ij,ijk->ik", closeness, among[near])
    candidates = among[:: max(1, len(among) // _CANDIDATES)]
    apart = cdist(candidates, among)
    # sum w (a - b)^2 without the constant sum of w a^2.
    stress = weights @ (apart**2).T - 2.0 * (weights * wanted) @ apart.T
    best = np.argsort(stress, axis=1, kind="stable")[:, :_STARTS]
    return [between, *(candidates[best[:, number]] for number in range(best.shape[1]))]
