"""Batch training of a map: the initial codebook, the radius of each epoch, and the step after a pass."""

from __future__ import annotations

from typing import Literal

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.linalg import eigh_descending, fix_signs
from streamdr.methods.som.grid import Grid, Neighborhood
from streamdr.methods.som.statistics import UnitSums

_DEVIATIONS = 2.0
"""How far an initial map in the plane reaches to each side, in standard deviations."""


def radii(start: float, end: float, n_epochs: int, decay: Literal["exponential", "linear"]) -> Array:
    """The radius of each epoch, from the first to the last."""
    share = np.linspace(0.0, 1.0, n_epochs)
    shrunk: Array = (
        start * (end / start) ** share if decay == "exponential" else start + (end - start) * share
    )
    return shrunk


def stepped(full: UnitSums, neighborhood: Neighborhood, sigma: float) -> Array:
    """The codebook after an epoch: c_j = sum_u h(j, u) S_u / sum_u h(j, u) W_u.

    S_u and W_u are the sum and the weight of the rows of unit u, h is the kernel on the grid. Sums are about
    the origin. A unit without rows in its neighbourhood does not move.
    """
    origin, grid = full.origin, full.grid
    sums = full.codebook - origin
    sums *= full.weights[:, None]
    sums += full.sums
    codebook = full.codebook.copy()
    occupied = full.weights > 0
    for units in grid.tiles():
        kernel = grid.kernel(units, neighborhood, sigma, occupied)
        weights = kernel @ full.weights
        learning = weights > 0
        moved = kernel @ sums
        moved[learning] /= weights[learning, None]
        moved += origin
        codebook[units.slice][learning] = moved[learning]
    return codebook


def change(before: Array, full: UnitSums, after: Array) -> float:
    """How far the units with rows moved, as a fraction of the quantisation error: root mean squares."""
    moved = np.zeros(len(before))
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        moved[number] = np.sum((new - old) ** 2)
    distance, error = float(full.weights @ moved), float(full.errors[1])
    if error > 0:
        return float(np.sqrt(distance / error))
    return float("inf") if distance > 0 else 0.0


def sample_mean(rows: Array, weights: Array) -> Array:
    """The mean of the rows of a sample, from differences to its first row, which lose no digits."""
    first = rows[0].copy()
    mean: Array = first + (weights / weights.sum()) @ (rows - first)
    return mean


def in_plane(rows: Array, weights: Array, grid: Grid) -> Array:
    """A codebook in the plane of the first two principal components of a sample.

    The longer side of the grid lies along the first component. Each side reaches two standard deviations
    from the mean. If the rows vary in one direction only, or in none, the units lie on a line or a point.
    """
    mean = sample_mean(rows, weights)
    centred = rows - mean
    scale = float(np.abs(centred).max(initial=0.0))
    if scale == 0.0:
        return np.tile(mean, (grid.n_units, 1))
    centred *= (np.sqrt(weights / weights.sum()) / scale)[:, None]
    axes = _principal_axes(centred) * scale
    places = grid.coordinates - grid.coordinates.mean(axis=0)
    half = np.abs(places).max(axis=0)
    places /= np.where(half > 0, half, 1.0)
    if grid.height > grid.width:
        axes = axes[::-1]
    codebook: Array = mean + _DEVIATIONS * (places @ axes)
    return codebook


def _principal_axes(centred: Array) -> Array:
    """The first two principal axes of centred rows, each as long as the standard deviation along it."""
    n_rows, n_cols = centred.shape
    axes = np.zeros((2, n_cols))
    found = min(2, n_rows, n_cols)
    if n_cols <= n_rows:
        values, vectors = eigh_descending(centred.T @ centred, found)
        directions = vectors[:, :found].T
    else:
        values, vectors = eigh_descending(centred @ centred.T, found)
        directions = vectors[:, :found].T @ centred
        lengths = np.sqrt(np.einsum("ij,ij->i", directions, directions))
        directions = directions / np.where(lengths > 0, lengths, 1.0)[:, None]
    rank = values[:found] > 64 * np.finfo(np.float64).eps * values[0]
    deviations = np.where(rank, np.sqrt(values[:found]), 0.0)  # the others are rounding errors
    axes[:found] = fix_signs(np.array(directions)) * deviations[:, None]
    return axes


def at_rows(rows: Array, grid: Grid, rng: np.random.Generator) -> Array:
    """A codebook of rows of a sample, drawn at random; repeated if there are fewer rows than units."""
    order = rng.permutation(len(rows))
    return rows[np.resize(order, grid.n_units)].copy()
