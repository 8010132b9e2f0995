"""A self-organising map in plain numpy, row by row and unit by unit: slow, and easily seen to be right."""

from __future__ import annotations

import itertools

import numpy as np


def places(height: int, width: int, topology: str) -> np.ndarray:
    """Where the units lie in the plane."""
    found = []
    for row in range(height):
        for column in range(width):
            if topology == "hexagonal":
                found.append((column + (0.5 if row % 2 else 0.0), row * np.sqrt(3) / 2))
            else:
                found.append((float(column), float(row)))
    return np.array(found)


def grid_distance(first: int, second: int, height: int, width: int, topology: str, toroidal: bool) -> float:
    """How far apart two units are; on a torus, by trying every copy of the second."""
    where = places(height, width, topology)
    tall = height * (np.sqrt(3) / 2 if topology == "hexagonal" else 1.0)
    copies = itertools.product((-1, 0, 1), repeat=2) if toroidal else [(0, 0)]
    moved = [where[second] + np.array([across * width, down * tall]) for across, down in copies]
    return float(min(np.linalg.norm(where[first] - other) for other in moved))


def best_two(row: np.ndarray, codebook: np.ndarray) -> tuple[int, int]:
    """The units nearest to a row: the best and the second best, the first of those equally near."""
    distances = np.linalg.norm(codebook - row, axis=1)
    order = np.argsort(distances, kind="stable")
    return int(order[0]), int(order[1]) if len(order) > 1 else int(order[0])


def epoch(rows, weights, codebook, distances, neighborhood: str, sigma: float) -> np.ndarray:
    """One step of batch training: every unit becomes the mean of all rows, by what it learns from each."""
    best = [best_two(row, codebook)[0] for row in rows]
    after = codebook.copy()
    for unit in range(len(codebook)):
        apart = np.array([distances[unit, other] for other in best])
        if neighborhood == "gaussian":
            learns = np.exp(-(apart**2) / (2 * sigma**2))
        else:
            learns = (apart <= sigma + 1e-9).astype(float)
        learns = learns * weights
        if learns.sum() > 0:
            after[unit] = (learns[:, None] * rows).sum(axis=0) / learns.sum()
    return after


def all_distances(height: int, width: int, topology: str, toroidal: bool) -> np.ndarray:
    """How far apart all units are on the grid."""
    units = range(height * width)
    return np.array([[grid_distance(a, b, height, width, topology, toroidal) for b in units] for a in units])


def errors(rows, weights, codebook, distances, topology: str) -> tuple[float, float, np.ndarray]:
    """The quantisation error, the topographic error, and the weight of the rows of each unit."""
    near = 1.0 if topology == "hexagonal" else np.sqrt(2)
    far, torn, hits = 0.0, 0.0, np.zeros(len(codebook))
    for row, weight in zip(rows, weights, strict=True):
        best, second = best_two(row, codebook)
        hits[best] += weight
        far += weight * np.linalg.norm(row - codebook[best])
        torn += weight * (distances[best, second] > near + 1e-9)
    return far / weights.sum(), torn / weights.sum(), hits
