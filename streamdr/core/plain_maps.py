"""Elementary maps of rows: what a model computes, for programs that are not streamdr.

A model whose `transform` is a few of these has the method `plain_maps`. A writer of another format knows the
maps, and no models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from streamdr.core.blocks import Array


@dataclass(frozen=True, eq=False)
class TakeColumns:
    """x -> x[:, columns]."""

    columns: Array


@dataclass(frozen=True, eq=False)
class Subtract:
    """x -> x - vector."""

    vector: Array


@dataclass(frozen=True, eq=False)
class Scale:
    """x -> x * factors."""

    factors: Array


@dataclass(frozen=True, eq=False)
class Multiply:
    """x -> x @ matrix."""

    matrix: Array


@dataclass(frozen=True, eq=False)
class LogOnePlus:
    """x -> ln(1 + x)."""


@dataclass(frozen=True, eq=False)
class Limit:
    """Values below `least` become `least`, and values above `largest` become `largest`."""

    least: float | None
    largest: float | None


@dataclass(frozen=True, eq=False)
class ScaleTotals:
    """Rows scaled to a total; a row whose total is zero stays as it is."""

    total: float


@dataclass(frozen=True, eq=False)
class ScaleNorms:
    """Rows divided by their norms; a row of zeros stays as it is."""

    norm: Literal["l1", "l2", "max"]


PlainMap: TypeAlias = (
    TakeColumns | Subtract | Scale | Multiply | LogOnePlus | Limit | ScaleTotals | ScaleNorms
)


@dataclass(frozen=True, eq=False)
class PlainClasses:
    """Classes of rows: the largest of some linear functions of mapped rows."""

    maps: tuple[PlainMap, ...]
    """The maps of rows."""
    matrix: Array
    """The linear functions, one per column."""
    levels: Array
    """Their constants. The probabilities are proportional to the exponentials of the functions."""
    labels: Array | Sequence[str]
    """The label of each class."""


@runtime_checkable
class HasPlainMaps(Protocol):
    """A model that is a sequence of elementary maps."""

    def plain_maps(self) -> tuple[PlainMap, ...]:
        """The maps that `transform` applies, one after another.

        A ParameterError says why a model of this class has none.
        """


@runtime_checkable
class HasPlainClasses(Protocol):
    """A model that predicts classes by linear functions."""

    def plain_classes(self) -> PlainClasses:
        """The functions whose largest is the class that `predict` returns."""
