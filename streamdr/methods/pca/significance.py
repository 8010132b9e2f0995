"""Which components are more than noise, and how accurate their variances are."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal

from streamdr.core.blocks import Array
from streamdr.core.facts import MOST_ROWS, Column, Table

CRITERIA = {"parallel": "parallel analysis", "broken_stick": "the broken stick"}
"""The criteria that compare the variances of components with those of noise, with their names for people."""
_DRAWS = 200
_QUANTILE = 0.95
_FURTHER = 5
"""How many candidates are kept after the first one that is no more than noise."""


class Comparison(NamedTuple):
    """The shares of the leading components in the total variance, and those that noise reaches."""

    shares: Array
    noise: Array

    @property
    def n_above(self) -> int:
        """The number of leading components that are more than noise."""
        below = np.flatnonzero(self.shares <= self.noise)
        return int(below[0]) if len(below) else len(self.shares)


def compare(criterion: str, shares: Array, n_cols: int, freedom: float, seed: int) -> Comparison:
    """Compare shares of the variance, in descending order, with those that noise reaches.

    `freedom` is the number of independent rows, without the one that centring takes. As many candidates are
    compared as are needed to find the first that is no more than noise, and a few more.
    """
    most = min(len(shares), n_cols, max(1, int(freedom)))
    number = min(16, most)
    while True:
        if criterion == "broken_stick":
            noise = broken_stick(number, most)
        else:
            noise = noise_shares(number, n_cols, freedom, seed)
        found = Comparison(shares[:number], noise)
        if number == most or found.n_above + _FURTHER <= number:
            kept = min(found.n_above + _FURTHER, number)
            return Comparison(found.shares[:kept].copy(), found.noise[:kept].copy())
        number = min(2 * number, most)


def broken_stick(number: int, pieces: int) -> Array:
    """The expected lengths of the longest of some pieces of a stick of length 1, broken at random."""
    harmonic = np.cumsum(1.0 / np.arange(pieces, 0, -1))[::-1]
    return harmonic[:number] / pieces


def noise_shares(number: int, n_cols: int, freedom: float, seed: int) -> Array:
    """The shares that the leading components of noise exceed in 5 % of the draws (Horn 1965, Glorfeld 1995).

    The noise is normal, with the same variance in every feature. The eigenvalues of its covariance are those
    of a tridiagonal matrix of independent variables (Dumitriu and Edelman 2002): no rows are drawn.
    """
    small, large = min(n_cols, int(freedom)), max(float(n_cols), freedom)
    if small < 1:
        return np.ones(number)
    draws = np.empty((_DRAWS, number))
    for draw in range(_DRAWS):
        rng = np.random.default_rng((seed, draw))
        diagonal = rng.chisquare(large - np.arange(small))
        below = rng.chisquare(np.arange(small - 1, 0, -1.0)) if small > 1 else np.zeros(0)
        main, beside = diagonal.copy(), np.sqrt(diagonal[:-1] * below)
        main[1:] += below
        top = eigvalsh_tridiagonal(main, beside, select="i", select_range=(small - number, small - 1))
        draws[draw] = top[::-1] / main.sum()
    return np.asarray(np.quantile(draws, _QUANTILE, axis=0))


def comparison_table(criterion: str, compared: Comparison, kept: int) -> Table:
    """What was compared to choose the number of components."""
    about = "The share of each component in the variance, and that of the longest pieces of a broken stick."
    if criterion == "parallel":
        about = (
            "The share of each component in the variance, and the share that noise with as many rows and "
            f"features exceeds in {100 * (1 - _QUANTILE):.0f} % of {_DRAWS} draws."
        )
    rows = zip(compared.shares[:MOST_ROWS], compared.noise[:MOST_ROWS], strict=True)
    return Table(
        "components and noise",
        (Column("component"), Column("ratio", "%"), Column("noise", "%"), Column("kept")),
        tuple((n, float(share), float(noise), n <= kept) for n, (share, noise) in enumerate(rows, 1)),
        about=about,
        left_out=max(0, len(compared.shares) - MOST_ROWS),
    )


def sampling_errors(variances: Array, n_rows: float) -> Array:
    """The standard error of each eigenvalue of a sample covariance (North, Bell, Cahalan and Moeng 1982)."""
    errors: Array = variances * np.sqrt(2.0 / n_rows)
    return errors


def multiplets(variances: Array, errors: Array) -> list[range]:
    """Runs of neighbouring components whose error bars overlap: their directions are mixed arbitrarily."""
    overlap = variances[:-1] - errors[:-1] < variances[1:] + errors[1:]
    edges = [0, *(np.flatnonzero(~overlap) + 1).tolist(), len(variances)]
    return [range(start, stop) for start, stop in pairwise(edges) if stop - start > 1]


def errors_table(variances: Array, errors: Array) -> Table:
    """The standard error of each variance, and the components that are not separated from it."""
    runs = {index: run for run in multiplets(variances, errors) for index in run}
    rows = []
    for index, (variance, error) in enumerate(zip(variances[:MOST_ROWS], errors, strict=False)):
        run = runs.get(index)
        mixed = "" if run is None else f"{run.start + 1}-{run.stop}"
        rows.append((index + 1, float(variance), float(error), mixed))
    return Table(
        "errors of the variances",
        (Column("component"), Column("variance"), Column("error"), Column("not separated")),
        tuple(rows),
        about="The standard error by North's rule. Components whose error bars overlap are not separated.",
        left_out=max(0, len(variances) - MOST_ROWS),
    )
