"""Bins for every column, from a sample: quantiles, or the values themselves where they are few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from streamdr.core.blocks import Array
from streamdr.errors import ParameterError
from streamdr.methods.selection.histograms import MOST_VALUES
from streamdr.statistics.bins import quantile_edges

FEW = 64
"""A column with at most this many different integers has a bin for each."""
_FEW_IN_TARGET = 32
"""A numeric target with at most this many different integers has a class for each."""


@dataclass(frozen=True)
class FeatureBins:
    """The bin edges of each column, or its values if it is discrete; and the edges of a numeric target."""

    points: list[Array]
    """The edges, or values, of each column."""
    discrete: Array
    """The mask of discrete columns."""
    target: Array | None
    """The edges of a numeric target; None for classes."""

    @classmethod
    def of(
        cls,
        rows: Array,
        target: Array | None,
        weights: Array,
        n_bins: int,
        discrete: bool | Literal["auto"],
    ) -> FeatureBins:
        """The bins of a sample of rows, and of a numeric target if there is one."""
        columns = [
            _bin_edges(number, column, weights, n_bins, discrete) for number, column in enumerate(rows.T)
        ]
        found = None if target is None else _target_edges(target, weights, n_bins)
        return cls([points for points, _ in columns], np.array([own for _, own in columns], bool), found)

    def fields(self) -> dict[str, Any]:
        """The bins as fields of a model."""
        return {
            "cuts": np.concatenate([np.zeros(0), *self.points]),
            "n_cuts": np.array([len(points) for points in self.points], np.int64),
            "discrete": self.discrete,
            "target_cuts": self.target,
        }

    @classmethod
    def from_model(cls, model: Any) -> FeatureBins:
        """The bins of a model."""
        points = np.split(model.cuts, np.cumsum(model.n_cuts)[:-1])
        return cls(points, model.discrete, model.target_cuts)


def _bin_edges(
    number: int, column: Array, weights: Array, n_bins: int, discrete: bool | Literal["auto"]
) -> tuple[Array, bool]:
    """The bin edges of a column, or its values; and whether it is discrete."""
    values = np.unique(column)
    if discrete is True and len(values) > MOST_VALUES:
        raise ParameterError(
            "discrete",
            f"column {number} has more than {MOST_VALUES:,} different values, and is not discrete: leave "
            "discrete at 'auto', or set it to false",
        )
    if discrete is True or (discrete == "auto" and _few_integers(values, FEW)):
        return values, True
    return quantile_edges(column, weights, n_bins), False


def _target_edges(target: Array, weights: Array, n_bins: int) -> Array | None:
    """The bin edges of a numeric target; None where it has few values, each of which is then a class."""
    return (
        None if _few_integers(np.unique(target), _FEW_IN_TARGET) else quantile_edges(target, weights, n_bins)
    )


def _few_integers(values: Array, most: int) -> bool:
    """Whether values are at most `most` integers, below 2**53: beyond, every float is an integer."""
    whole = (values == np.round(values)) & (np.abs(values) < 2**53)
    return len(values) <= most and bool(whole.all())
