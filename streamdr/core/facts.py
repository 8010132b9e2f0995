"""Facts and tables: what a report shows of a model, whatever its method."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate

from streamdr.core.blocks import Array

Value = str | int | float | bool

MOST_ROWS = 1000
"""The largest number of rows in a table of a report; the model has them all."""


@dataclass(frozen=True)
class Fact:
    """One fact about a model, for people.

    Parameters
    ----------
    name
        The name that is shown.
    value
        The value, not rounded and not formatted.
    unit
        The unit of the value. A unit that begins with "%" marks a share of 1, which is shown in percent.
    """

    name: str
    value: Value
    unit: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table; `unit` is that of a `Fact`."""

    name: str
    unit: str = ""
    bars: bool = False
    """Whether its values are also shown as bars."""


@dataclass(frozen=True)
class Table:
    """Facts of one kind, one per row.

    Parameters
    ----------
    title
        Its title: a few words.
    columns
        The columns, in order.
    rows
        The values, one per column in each row.
    about
        What it shows, as a sentence.
    left_out
        The number of rows of the model that are not in the table.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    about: str = ""
    left_out: int = 0

    def head(self, most: int) -> Table:
        """The table with at most `most` rows."""
        return replace(self, rows=self.rows[:most], left_out=self.left_out + max(0, len(self.rows) - most))

    def records(self) -> list[dict[str, Value]]:
        """The rows as mappings from column names to values."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


def notes(texts: Iterable[str]) -> tuple[Fact, ...]:
    """Notes for the user about a fit, as facts."""
    return tuple(Fact("note", text) for text in texts)


def explained_variances(ratios: Array, total: float, *, overlapping: bool = False) -> tuple[Table, ...]:
    """The explained variance of each component; no table where there is no component.

    Shares of correlated components overlap, and are not summed.
    """
    if not len(ratios):
        return ()
    shares = [float(ratio) for ratio in ratios[:MOST_ROWS]]
    left_out = len(ratios) - len(shares)
    if overlapping:
        return (
            Table(
                "explained variance",
                (Column("component"), Column("variance"), Column("ratio", "%", bars=True)),
                tuple((number, share * total, share) for number, share in enumerate(shares, 1)),
                about="The variance of each component. Correlated components share some of it.",
                left_out=left_out,
            ),
        )
    return (
        Table(
            "explained variance",
            (
                Column("component"),
                Column("variance"),
                Column("ratio", "%", bars=True),
                Column("cumulative", "%"),
            ),
            tuple(
                (number, share * total, share, reached)
                for number, (share, reached) in enumerate(zip(shares, accumulate(shares), strict=True), 1)
            ),
            about="The variance that each component explains.",
            left_out=left_out,
        ),
    )
