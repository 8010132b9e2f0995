"""Bins for every column, from a sample: quantiles, or the values themselves where they are few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from streamdr.accumulators.histograms import MOST_VALUES
from streamdr.blocks import Array
from streamdr.errors import ParameterError

FEW = 64
"""A column of at most so many different integers is its own bins."""
_FEW_IN_TARGET = 32


@dataclass(frozen=True)
class Bins:
    """Where columns are cut, or which values they have; and where the target is cut, if it is."""

    points: list[Array]
    discrete: Array
    target: Array | None

    @classmethod
    def of(
        cls,
        rows: Array,
        target: Array | None,
        weights: Array,
        n_bins: int,
        discrete: bool | Literal["auto"],
    ) -> Bins:
        """Those of a sample of rows, and of a target of numbers where there is one."""
        columns = [_cut(number, column, weights, n_bins, discrete) for number, column in enumerate(rows.T)]
        found = None if target is None else _cut_target(target, weights, n_bins)
        return cls([points for points, _ in columns], np.array([own for _, own in columns], bool), found)

    def fields(self) -> dict[str, Any]:
        """As a model keeps them."""
        return {
            "cuts": np.concatenate([np.zeros(0), *self.points]),
            "n_cuts": np.array([len(points) for points in self.points], np.int64),
            "discrete": self.discrete,
            "target_cuts": self.target,
        }

    @classmethod
    def kept(cls, model: Any) -> Bins:
        """As a model has kept them."""
        points = np.split(model.cuts, np.cumsum(model.n_cuts)[:-1])
        return cls(points, model.discrete, model.target_cuts)


def _cut(
    number: int, column: Array, weights: Array, n_bins: int, discrete: bool | Literal["auto"]
) -> tuple[Array, bool]:
    values = np.unique(column)
    if discrete is True and len(values) > MOST_VALUES:
        raise ParameterError(
            "discrete",
            f"column {number} has more than {MOST_VALUES:,} different values, and is hardly discrete: leave "
            "discrete at 'auto', or set it to false",
        )
    if discrete is True or (discrete == "auto" and _few_integers(values, FEW)):
        return values, True
    return _quantiles(column, weights, n_bins), False


def _cut_target(target: Array, weights: Array, n_bins: int) -> Array | None:
    """Where a target of numbers is cut; None where it has so few values that these are classes."""
    return None if _few_integers(np.unique(target), _FEW_IN_TARGET) else _quantiles(target, weights, n_bins)


def _few_integers(values: Array, most: int) -> bool:
    """Whether values are few whole numbers. Beyond 2**53 every number is whole, and that tells nothing."""
    whole = (values == np.round(values)) & (np.abs(values) < 2**53)
    return len(values) <= most and bool(whole.all())


def _quantiles(column: Array, weights: Array, n_bins: int) -> Array:
    """Cuts that leave about as many rows between them; fewer where one value is so frequent."""
    shares = np.arange(1, n_bins) / n_bins
    cuts = np.unique(np.quantile(column, shares, method="inverted_cdf", weights=weights))
    inner: Array = cuts[cuts > column.min()]
    return inner
