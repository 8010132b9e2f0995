"""What a reader gives: a table that can be read anywhere, or one that only comes row after row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from streamdr.core.blocks import Array
from streamdr.store.arrays import Index
from streamdr.store.labels import LabelKind


@dataclass(frozen=True)
class Options:
    """What the user may say about a file. Each format reads some of these; None is for the file to say."""

    dataset: str | None = None
    columns: tuple[str, ...] | None = None
    delimiter: str | None = None
    header: bool | None = None
    dtype: np.dtype[Any] | None = None
    exclude: tuple[str, ...] | None = None
    """Columns to leave out, by name or by a pattern such as id_*."""
    numeric_only: bool | None = None
    """Whether to leave out columns that are not numbers."""
    labels: str | None = None
    """The column that holds a label for each row."""
    expected: tuple[str, ...] | None = None
    """The columns of the store that rows are appended to."""
    label_kind: LabelKind | None = None
    """What the labels of that store are."""
    ignored: tuple[str, ...] = ()
    """Columns that were left out of that store."""


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
    labels: Array | None = None


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
    label_kind: LabelKind | None = None
    """What labels are, where rows bring them along."""
    left_out: tuple[str, ...] = ()
    """Columns that nobody asked to leave out, and that were."""
    not_used: tuple[str, ...] = ()
    """All columns that were left out, by their names."""
    remarks: tuple[str, ...] = ()
    """What a person should know about the columns that were chosen."""


Table = Grid | Stream


def some(names: Sequence[str], limit: int = 12) -> str:
    """A few names, for a message."""
    shown = ", ".join(map(repr, names[:limit]))
    return f"{shown} and {len(names) - limit:,} more" if len(names) > limit else shown
