"""Placement of new points in a fixed configuration, by least stress."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from streamdr.core.blocks import Array

_NEAREST = 5
"""The number of nearest points whose mean is the first start."""
_CANDIDATES = 200
"""The number of points that are candidates for the other starts."""
_STARTS = 3
"""The number of candidates that are used as starts."""
_ITERATIONS = 300
_TOLERANCE = 1e-9


def place_points(targets: Array, weights: Array, anchors: Array) -> Array:
    """Positions of rows from their target distances (rows x points): the best of several starts."""
    found = np.zeros((len(targets), anchors.shape[1]))
    lowest = np.full(len(targets), np.inf)
    for start in _starts(targets, weights, anchors):
        where, stress = _majorize(start, targets, weights, anchors)
        lower = stress < lowest
        found[lower], lowest[lower] = where[lower], stress[lower]
    return found


def _majorize(where: Array, targets: Array, weights: Array, anchors: Array) -> tuple[Array, Array]:
    """Majorization from some positions: the final positions and their stress.

    y <- sum w (z + a (y - z) / |y - z|) / sum w never increases the stress.
    """
    totals = weights.sum(axis=1)
    totals[totals == 0] = 1.0
    scale = float(np.abs(anchors).max(initial=0.0)) or 1.0
    moving = np.arange(len(where))
    for _ in range(_ITERATIONS):
        here, weight = where[moving], weights[moving]
        fitted = cdist(here, anchors)
        ratios = np.divide(weight * targets[moving], fitted, out=np.zeros_like(fitted), where=fitted > 0)
        moved = (weight - ratios) @ anchors + ratios.sum(axis=1)[:, None] * here
        moved /= totals[moving, None]
        where[moving] = moved
        # Convergence is checked for each row: its result does not depend on the other rows.
        moving = moving[np.abs(moved - here).max(axis=1) > _TOLERANCE * scale]
        if not len(moving):
            break
    return where, np.sum(weights * (cdist(where, anchors) - targets) ** 2, axis=1)


def _starts(targets: Array, weights: Array, anchors: Array) -> list[Array]:
    """Start positions: a mean of the nearest points, and the points of least stress among some."""
    several = min(_NEAREST, len(anchors))
    cost = np.where(weights > 0, targets, np.inf)
    near = np.argpartition(cost, several - 1, axis=1)[:, :several]
    distances = np.take_along_axis(cost, near, axis=1)
    closeness = 1.0 / np.maximum(distances, 1e-12 * max(float(np.abs(anchors).max(initial=0.0)), 1e-300))
    closeness /= np.maximum(closeness.sum(axis=1, keepdims=True), 1e-300)
    between = np.einsum("ij,ijk->ik", closeness, anchors[near])
    candidates = anchors[:: max(1, len(anchors) // _CANDIDATES)]
    apart = cdist(candidates, anchors)
    # sum w (a - b)^2 without the constant sum of w a^2.
    stress = weights @ (apart**2).T - 2.0 * (weights * targets) @ apart.T
    best = np.argsort(stress, axis=1, kind="stable")[:, :_STARTS]
    return [between, *(candidates[best[:, number]] for number in range(best.shape[1]))]
