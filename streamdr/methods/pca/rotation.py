"""Varimax and promax: rotations of the loadings, so that each component has few large ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.linalg import fix_signs
from streamdr.errors import DataError, ParameterError
from streamdr.statistics.validation import require

if TYPE_CHECKING:
    from streamdr.methods.pca.pca import PCA

ROTATIONS = ("varimax", "promax")
_TOLERANCE = 1e-8
"""Varimax stops when a step raises its criterion by less than this share of it."""
_MOST_STEPS = 10_000
_NO_LOADING = 16 * float(np.finfo(np.float64).eps)
"""Features whose loadings are below this share of the largest ones have none: theirs are rounding errors."""


class Rotation(NamedTuple):
    """A rotation of loadings A to A R, and components on one side of it.

    Rotated components have unit length, and stand by descending variance, with fixed signs.
    """

    components: Array
    variances: Array
    """The sum of the squared loadings of each component."""
    matrix: Array
    """R: orthogonal for varimax."""


def check_rotation(pca: PCA) -> None:
    """Refuse impossible parameters of a rotation."""
    known = pca.rotation is None or pca.rotation in ROTATIONS
    require(known, "rotation", f"{pca.rotation!r} is not 'varimax', 'promax' or None")
    require(pca.rotation_power > 1, "rotation_power", f"{pca.rotation_power} is not more than 1")
    if pca.n_rotated is not None:
        require(
            pca.rotation is not None,
            "n_rotated",
            f"{pca.n_rotated} components are to be rotated, but rotation is not set: set it to varimax or "
            "promax",
        )
        require(pca.n_rotated >= 2, "n_rotated", f"{pca.n_rotated} is not at least 2")
        if pca.wanted is not None:
            require_rotatable(pca.n_rotated, pca.wanted)
    if pca.rotation is None or pca.whitening is None:
        return
    require(
        pca.whitening != "zca",
        "rotation",
        "zca whitening is the same for rotated components: leave out rotation, or set whiten to pca",
    )
    require(
        pca.rotation != "promax",
        "rotation",
        "scores of promax are correlated and cannot be whitened: set it to varimax, or leave out whiten",
    )


def require_rotatable(n_rotated: int, k: int) -> None:
    """Refuse to rotate more components than there are."""
    require(
        n_rotated <= k,
        "n_rotated",
        f"{n_rotated} components cannot be rotated where there are {k}: set it to {k} or fewer, or raise "
        "n_components",
    )


def require_loadings(n_rotated: int, rank: int) -> None:
    """Refuse to rotate components without variance."""
    require(
        n_rotated <= rank,
        "n_rotated",
        f"{n_rotated} components cannot be rotated, because the data has rank {rank} and the others have no "
        f"loadings: set it to {rank} or fewer",
    )


def rotate(components: Array, variances: Array, power: float | None = None) -> Rotation:
    """Rotate the loadings A, principal axes times the roots of their variances, by varimax or promax.

    Rows of A are scaled to unit length first (Kaiser 1958). `power` is that of promax (Hendrickson and White
    1964), None for varimax.
    """
    loadings = components.T * np.sqrt(variances)
    lengths = np.linalg.norm(loadings, axis=1, keepdims=True)
    has_loading = lengths > _NO_LOADING * lengths.max(initial=0.0)
    scaled = np.divide(loadings, lengths, out=np.zeros_like(loadings), where=has_loading)
    matrix = _varimax(scaled)
    if power is not None:
        matrix = matrix @ _promax(scaled @ matrix, power)
    patterns = (loadings @ matrix).T
    found = np.einsum("ij,ij->i", patterns, patterns)
    order = np.argsort(-found, kind="stable")
    unsigned = patterns[order] / np.sqrt(found[order])[:, None]
    signed = fix_signs(unsigned.copy())
    signs = np.where(np.einsum("ij,ij->i", signed, unsigned) < 0, -1.0, 1.0)
    return Rotation(signed, found[order], matrix[:, order] * signs)


def score_rotation(matrix: Array, principal_variances: Array, variances: Array) -> Array:
    """The matrix that takes principal scores to rotated ones: L^-1/2 R^-T times the roots of new variances.

    Scores of unit variance are rotated by R^-T, so that scores times loadings stay what they are.
    """
    contrary: Array = np.linalg.inv(matrix).T
    return contrary / np.sqrt(principal_variances)[:, None] * np.sqrt(variances)


def _varimax(loadings: Array) -> Array:
    """The orthogonal matrix that makes the squared loadings of each component vary most.

    Each step takes the orthogonal matrix nearest to the gradient of the criterion.
    """
    matrix: Array = np.eye(loadings.shape[1])
    reached = 0.0
    for _ in range(_MOST_STEPS):
        turned = loadings @ matrix
        squares = turned**2
        squares -= squares.mean(axis=0)
        turned *= squares
        left, singular, right = np.linalg.svd(loadings.T @ turned)
        matrix = np.asarray(left @ right)
        before, reached = reached, float(singular.sum())
        if abs(reached - before) <= _TOLERANCE * reached:
            return matrix
    raise DataError(
        f"varimax has not converged in {_MOST_STEPS:,} steps, because the loadings have no simple structure: "
        "rotate fewer components (n_rotated), or none"
    )


def _promax(loadings: Array, power: float) -> Array:
    """The oblique matrix that takes loadings closest to their own powers, for scores of unit variance."""
    target = loadings / np.abs(loadings).max(axis=0)
    target *= np.abs(target) ** (power - 1)
    try:
        fitted = np.linalg.solve(loadings.T @ loadings, loadings.T @ target)
        spread = np.diag(np.linalg.inv(fitted.T @ fitted))
    except np.linalg.LinAlgError as error:
        raise ParameterError(
            "rotation", "promax has no solution for these components: rotate fewer of them, or use varimax"
        ) from error
    oblique: Array = fitted * np.sqrt(spread)
    return oblique
