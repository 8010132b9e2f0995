"""The tables that readers return: with random access, or as a stream of rows."""

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
    """The user's options for a file. Each format uses some of them. None means: determined from the file."""

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
    """The column with one label per row."""
    expected: tuple[str, ...] | None = None
    """The columns of the store that rows are appended to."""
    label_kind: LabelKind | None = None
    """The type of the labels of that store."""
    ignored: tuple[str, ...] = ()
    """Columns that were left out of that store."""


@dataclass(frozen=True)
class ArrayFile:
    """An array of which any region can be read. Its first axis holds the samples."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[Index], Array]
    grain: tuple[int, ...] | None = None
    """The shape of the chunks of the file, if it has chunks."""


class Batch(NamedTuple):
    """The next rows of a stream, and their share of its total."""

    values: Array
    extent: int
    labels: Array | None = None


@dataclass(frozen=True)
class Stream:
    """Rows that are read in order, one batch at a time."""

    n_cols: int
    dtype: np.dtype[Any]
    batches: Iterator[Batch]
    total: int
    """The sum of the extents of all batches: the number of rows if known, else the bytes of the file."""
    unit: Literal["rows", "bytes"]
    feature_names: tuple[str, ...] | None = None
    label_kind: LabelKind | None = None
    """The type of the labels, if there are labels."""
    left_out: tuple[str, ...] = ()
    """Columns that were left out automatically."""
    not_used: tuple[str, ...] = ()
    """The names of all columns that were left out."""
    remarks: tuple[str, ...] = ()
    """Messages for the user about the choice of columns."""


Table = ArrayFile | Stream


def listed(names: Sequence[str], limit: int = 12) -> str:
    """Return the first few names, for a message."""
    shown = ", ".join(map(repr, names[:limit]))
    return f"{shown} and {len(names) - limit:,} more" if len(names) > limit else shown
