"""What a reader gives: a table that can be read anywhere, or one that only comes row after row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from streamdr.blocks import Array
from streamdr.errors import ConfigError, DataError
from streamdr.store.arrays import Index


@dataclass(frozen=True)
class Options:
    """What the user may say about a file. Each format reads some of these; None is for the file to say."""

    dataset: str | None = None
    columns: tuple[str, ...] | None = None
    delimiter: str | None = None
    header: bool | None = None
    dtype: np.dtype[Any] | None = None


@dataclass(frozen=True)
class Grid:
    """An array that can be read at any region, its first axis the samples."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[Index], Array]
    grain: tuple[int, ...] | None = None
    """The chunks in which the file is stored, if it is."""


class Batch(NamedTuple):
    """The next rows, and how much of the stream's total they were."""

    values: Array
    extent: int


@dataclass(frozen=True)
class Stream:
    """Rows that come in order, a batch at a time, until there are no more."""

    n_cols: int
    dtype: np.dtype[Any]
    batches: Iterator[Batch]
    total: int
    """What the extents of all batches add up to: rows where they are known, else bytes of the file."""
    unit: Literal["rows", "bytes"]
    feature_names: tuple[str, ...] | None = None


Table = Grid | Stream


def select_columns(source: Path, names: Sequence[str], wanted: Sequence[str] | None) -> list[int]:
    """The positions of the wanted columns, in the order in which they were asked for; all by default."""
    if wanted is None:
        return list(range(len(names)))
    if not wanted:
        raise ConfigError("columns is empty; name at least one, or leave it out to ingest all")
    for name in wanted:
        if name not in names:
            raise DataError(f"{source}: has no column {name!r}; it has {_some(names)}")
        if names.count(name) > 1:
            raise DataError(f"{source}: has {names.count(name)} columns named {name!r}; rename all but one")
    return [names.index(name) for name in wanted]


def _some(names: Sequence[str], limit: int = 12) -> str:
    shown = ", ".join(map(repr, names[:limit]))
    return f"{shown} and {len(names) - limit:,} more" if len(names) > limit else shown
