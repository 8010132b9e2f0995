"""Labelled axes: dimensions and coordinates of the features, their weights, and which of them are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.facts import Fact

VARIABLE = "variable"
"""The name of the first dimension of features that are those of several variables."""


def is_array_name(name: str) -> bool:
    """Return whether a coordinate of this name can be stored: the name is that of a folder everywhere."""
    return name.isidentifier() and name.isascii()


@dataclass(frozen=True, eq=False)
class Coordinate:
    """A coordinate, as it is stored: its values along its dimensions, and its attributes.

    Parameters
    ----------
    name : str
        Its name.
    dims : tuple of str
        Its dimensions: its own name, for the coordinate of a dimension.
    values : ndarray
        Numbers or text. Times are numbers, with `units` and `calendar` among the attributes.
    attributes : mapping
        CF attributes, such as `units` and `standard_name`: plain JSON values.
    """

    name: str
    dims: tuple[str, ...]
    values: Array
    attributes: Mapping[str, Any] = field(default_factory=dict)


def named_features(dim: str, names: Sequence[str] | None) -> tuple[Coordinate, ...]:
    """Return the names of features as the coordinate of their dimension, if they are valid text."""
    try:
        "".join(names or ()).encode()
    except UnicodeEncodeError:  # half a character, as in a damaged file
        return ()
    return () if names is None else (Coordinate(dim, (dim,), np.array(names, dtype=np.str_)),)


@dataclass(frozen=True, eq=False)
class FeatureAxes:
    """The axes of the features of a matrix, which were flattened in C order.

    Parameters
    ----------
    dims : tuple of str
        The names of the feature dimensions, such as `("lat", "lon")`.
    shape : tuple of int
        Their lengths.
    coords : tuple of Coordinate
        Their coordinates.
    name : str or None
        The name of the variable.
    attributes : mapping
        The attributes of the variable, such as its units.
    weights : ndarray or None
        The weight of each feature, flattened; None if all are 1.
    kept : ndarray of bool or None
        Which features a model uses, flattened; None for all of them.
    weighted : bool
        Whether the model is one of values times their weights. Otherwise the method has applied them itself.
    min_observed : float or None
        The share of rows in which a feature must be observed to be used; None if a feature that is missing in
        some rows only is not left out.
    balanced : bool
        Whether every variable gets the same total variance. The weights of a model include the factors.
    """

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    coords: tuple[Coordinate, ...] = ()
    name: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    weights: Array | None = None
    kept: Array | None = None
    weighted: bool = False
    min_observed: float | None = None
    balanced: bool = False

    @property
    def n_features(self) -> int:
        """The number of features, with those that are left out."""
        return prod(self.shape)

    @property
    def n_kept(self) -> int:
        """The number of features that a model uses."""
        return self.n_features if self.kept is None else int(np.count_nonzero(self.kept))

    @property
    def n_left_out(self) -> int:
        """The number of features that a model leaves out."""
        return self.n_features - self.n_kept

    @cached_property
    def columns(self) -> Array:
        """The column numbers of the features that a model uses."""
        return np.arange(self.n_features) if self.kept is None else np.flatnonzero(self.kept)

    @property
    def groups(self) -> Array:
        """The number of the variable of each feature: all are of one, unless the first dimension says so."""
        if self.dims[:1] != (VARIABLE,):
            return np.zeros(self.n_features, np.intp)
        return np.repeat(np.arange(self.shape[0]), prod(self.shape[1:]))

    @property
    def kept_weights(self) -> Array | None:
        """The weights of the features that a model uses."""
        return None if self.weights is None else self.weights[self.columns]

    def keeping(self, kept: Array | None) -> FeatureAxes:
        """The same axes, of a model that uses these features."""
        return replace(self, kept=None if kept is None or kept.all() else kept)

    @property
    def selects(self) -> bool:
        """Whether a model sees something else than the features as they are."""
        return self.kept is not None or self.weights is not None

    def unweighted(self, values: Array, power: int = 1) -> Array:
        """Values of the used features in the units of the data; `power` is 2 for variances."""
        weights = self.kept_weights if self.weighted else None
        return values if weights is None else values / weights**power

    def facts(self) -> tuple[Fact, ...]:
        """How many features a model uses, if it leaves some out."""
        if not self.n_left_out:
            return ()
        used = f"{self.n_kept:,} of {self.n_features:,}, {self.n_left_out:,} left out"
        return (Fact("features", used),)

    def expanded(self, values: Array) -> Array:
        """Values of the used features (the last axis) for all features: NaN where a feature is left out.

        A feature that is left out is not selected: a mask is false there.
        """
        if self.kept is None:
            return values
        mask = values.dtype == np.bool_
        dtype = values.dtype if mask else np.result_type(values.dtype, np.float32)
        whole = np.full((*values.shape[:-1], self.n_features), False if mask else np.nan, dtype)
        whole[..., self.columns] = values
        return whole

    def coordinate(self, dim: str) -> Coordinate | None:
        """The coordinate of a dimension, if it has one."""
        return next((one for one in self.coords if one.dims == (dim,) and one.name == dim), None)

    def described(self, column: int) -> str:
        """The position of a feature for people: `lat=12.5, lon=3.5`."""
        position = np.unravel_index(column, self.shape)
        parts = []
        for dim, index in zip(self.dims, position, strict=True):
            found = self.coordinate(dim)
            parts.append(f"{dim}={found.values[index] if found is not None else int(index)}")
        return ", ".join(parts)
