"""The E step of EM for (mixtures of) probabilistic PCA, with missing values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import logsumexp

from streamdr.core.blocks import Array, Block
from streamdr.errors import DataError
from streamdr.methods.ppca.holdout import Holdout
from streamdr.methods.ppca.posterior import Factors, ObservedRows, Posterior, expect, observe, slabs
from streamdr.methods.ppca.small_matrices import packed_length

_ORDER_OF_SUMS = 2
"""Part of the ledger's key. A change of the last bits raises it: statistics of two kinds never mix."""


class Statistics(NamedTuple):
    """The expected sufficient statistics of one component, rows weighted by its responsibilities.

    `masked` stacks, for each feature j, sums over the rows where it is observed: of E zz' (packed), of E z,
    and of 1. `residual` stacks those of r_ij E z and of r_ij. `latent` stacks the sums over all rows.
    """

    masked: Array
    residual: Array
    latent: Array
    squares: Array

    @classmethod
    def empty(cls, n_components: int, n_cols: int) -> Statistics:
        """The statistics of no rows."""
        stacked = packed_length(n_components) + n_components + 1
        return cls(
            np.zeros((stacked, n_cols)),
            np.zeros((n_components + 1, n_cols)),
            np.zeros(stacked),
            np.zeros(1),
        )

    def add(self, later: Statistics) -> None:
        """Add the statistics of later rows, in place."""
        for mine, other in zip(self, later, strict=True):
            mine += other


class Latent:
    """The E step: expected statistics of the latent variables, and the log-likelihood of the rows.

    For a mixture there is one of `factors` for each component, and `shares` are their prior probabilities.
    Rows without any observed value are only counted. A part of the values may be held out.
    """

    kind: ClassVar[str] = "latent"
    allow_nan: ClassVar[bool] = True

    def __init__(
        self, factors: Sequence[Factors], shares: Array | None = None, holdout: Holdout | None = None
    ) -> None:
        self.factors = tuple(factors)
        self.shares = np.ones(1) if shares is None else shares
        self.holdout = holdout
        self.statistics = [Statistics.empty(one.order, len(one.mean)) for one in self.factors]
        self.totals = np.zeros(6)
        self.held = np.zeros(3)

    @property
    def rows(self) -> float:
        """The weight of the rows with any observed value."""
        return float(self.totals[0])

    @property
    def empty_rows(self) -> int:
        """The number of rows without observed values."""
        return int(self.totals[1])

    @property
    def observed(self) -> float:
        """The weight of all observed values."""
        return float(self.totals[2])

    @property
    def log_likelihood(self) -> float:
        """The log-likelihood of all rows, in nats."""
        return float(self.totals[3])

    @property
    def count(self) -> int:
        """The number of rows."""
        return int(self.totals[4])

    @property
    def n_unmodelled(self) -> int:
        """The number of observed values of features that the parameters have never observed."""
        return int(self.totals[5])

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        before = self.totals[3] + self.held[1]
        for slab in slabs(block.values.shape, max(one.order for one in self.factors)):
            values = block.values[slab]
            weights = None if block.weights is None else block.weights[slab]
            held = None if self.holdout is None else self.holdout.chosen(block.numbers[slab], values)
            self._update_slab(values, weights, held)
        if not np.isfinite(self.totals[3] + self.held[1] - before):
            block.locate_nonfinite()

    def _update_slab(self, values: Array, weights: Array | None, held: Array | None) -> None:
        if len(self.factors) == 1:
            rows = observe(values, self.factors[0], held)
            posterior = expect(rows, self.factors[0], second_moments=held is None)
            likelihood = posterior.log_likelihood
            if self.holdout is not None and held is not None:
                self.held += self.holdout.evaluate(values, held, weights, self.factors[0], posterior)
                posterior.add_second_moments()
            self._collect(0, rows, posterior, _positive(weights, rows))
        else:
            # Each component is evaluated twice, for the responsibilities and for the sums: that saves memory.
            joint = joint_log_likelihood(values, self.factors, self.shares, held)
            likelihood = logsumexp(joint, axis=0)
            for number, factors in enumerate(self.factors):
                rows = observe(values, factors, held)
                share = np.exp(joint[number] - likelihood)
                share = share if weights is None else share * weights
                posterior = expect(rows, factors, second_moments=True)
                self._collect(number, rows, posterior, _positive(share, rows))
        observed_features = self.factors[0].observed_features
        weight = np.ones(len(values)) if weights is None else weights
        some = rows.observed > 0
        self.totals += np.array(
            [
                weight @ some,
                np.count_nonzero(~some),
                weight @ rows.observed,
                weight @ likelihood,
                len(values),
                0
                if observed_features is None
                else _count_unmodelled(values, observed_features, weights, held),
            ],
            np.float64,
        )

    def _collect(self, number: int, rows: ObservedRows, posterior: Posterior, weights: Array | None) -> None:
        """Add the sums of some rows for one component. The posterior holds E zz'."""
        masked, residual, latent, squares = self.statistics[number]
        moments = posterior.moments
        if weights is not None:
            moments *= weights
        masked += moments @ rows.mask
        residual += moments[len(posterior.spread) :] @ rows.residual
        latent += moments.sum(axis=1)
        squares += rows.squares.sum() if weights is None else rows.squares @ weights

    def merge(self, later: Self) -> None:
        """Fold in the statistics of the rows that follow."""
        for mine, other in zip(self.statistics, later.statistics, strict=True):
            mine.add(other)
        self.totals += later.totals
        self.held += later.held

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.factors, self.shares, self.holdout)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        return {
            "mean": np.stack([one.mean for one in self.factors]),
            "loadings": np.hstack([one.loadings for one in self.factors]),
            "orders": [one.order for one in self.factors],
            "noise": np.array([one.noise for one in self.factors]),
            "shares": self.shares,
            "holdout": None if self.holdout is None else self.holdout.parameters(),
            "sums": _ORDER_OF_SUMS,
        }

    def value(self) -> dict[str, Array]:
        """The statistics."""
        return self.arrays()

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        named = {
            f"{name}{number}": array
            for number, one in enumerate(self.statistics)
            for name, array in one._asdict().items()
        }
        return named | {"totals": self.totals, "held": self.held}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.statistics = [
            Statistics(*(arrays[f"{name}{number}"] for name in Statistics._fields))
            for number in range(len(self.factors))
        ]
        self.totals, self.held = arrays["totals"], arrays["held"]


def joint_log_likelihood(
    values: Array, factors: Sequence[Factors], shares: Array, held: Array | None = None
) -> Array:
    """ln(share) + ln p(row | component), components x rows."""
    joint = np.empty((len(factors), len(values)))
    for number, (one, share) in enumerate(zip(factors, shares, strict=True)):
        joint[number] = np.log(share) + expect(observe(values, one, held), one).log_likelihood
    return joint


def _positive(weights: Array | None, rows: ObservedRows) -> Array | None:
    """The weights, zero for rows without observed values, whose posterior is the prior."""
    some = rows.observed > 0
    if some.all():
        return weights
    return some.astype(np.float64) if weights is None else weights * some


def _count_unmodelled(
    values: Array, observed_features: Array, weights: Array | None, held: Array | None
) -> int:
    """The number of observed values of positive weight of features that were never observed before."""
    unmodelled = ~observed_features
    is_observed = values[:, unmodelled] == values[:, unmodelled]
    if held is not None:
        is_observed &= ~held[:, unmodelled]
    return int(np.count_nonzero(is_observed if weights is None else is_observed[weights > 0]))


def require_finite(full: Latent) -> None:
    """Refuse a likelihood that is not finite although all values are."""
    if not np.isfinite(full.log_likelihood):
        raise DataError("the likelihood of the data overflows: rescale the data")
