"""Elementary maps of rows: descriptions of a linear model, for programs that are not streamdr.

A model whose `transform` is a few of these has the method `plain_maps`. A writer of another format knows the
maps, and no models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

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


PlainMap: TypeAlias = TakeColumns | Subtract | Scale | Multiply


@runtime_checkable
class HasPlainMaps(Protocol):
    """A model that is a sequence of elementary maps."""

    def plain_maps(self) -> tuple[PlainMap, ...]:
        """The maps that `transform` applies, one after another."""
