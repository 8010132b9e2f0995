"""What goes into an AnnData store: the scores of a run, the entries of its model, and the names."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from streamdr.core.annotations import Annotations
from streamdr.core.blocks import Array, Span
from streamdr.errors import StoreError
from streamdr.store.anndata.elements import ContentDigest, Rows, value_digest
from streamdr.store.arrays import ArrayLayout
from streamdr.store.local import LocalBackend
from streamdr.store.rows import SealedRows, read_layouts

KIND: Final = "anndata"
"""The kind of the rows that are staged."""


@dataclass(frozen=True)
class AnnDataContents:
    """What a run knows of the store besides the scores."""

    annotations: Annotations = field(default_factory=Annotations)
    """The entries of the model, for all variables."""
    n_variables: int = 0
    """The number of variables of the input."""
    feature_names: Sequence[str] | None = None
    """The names of the variables."""
    n_stored_rows: int = 0
    """The number of rows of the input before rows were selected."""
    row_numbers: Callable[[Span], Array] | None = None
    """Returns the numbers of selected rows in the input; None if all rows are selected."""

    def placement(self, n_rows: int, n_observations: int, place: object) -> Callable[[Span], Array] | None:
        """Return which of so many observations the rows are; None if they are all of them, in their order."""
        if n_observations == n_rows:
            return None
        if n_observations == self.n_stored_rows and self.row_numbers is not None:
            return self.row_numbers
        raise StoreError(
            f"{place}: has {n_observations:,} observations where the input has {n_rows:,} rows; choose the "
            "store of these rows, or a new one"
        )


class StagedScores:
    """The scores that a run has staged, with the names of their rows."""

    def __init__(self, folder: Path, contents: AnnDataContents) -> None:
        self._staged = LocalBackend(folder)
        self._rows: SealedRows = self._staged.open_rows(KIND)
        self._layouts: Mapping[str, ArrayLayout] = read_layouts(folder, KIND)
        self._contents = contents
        self.record: dict[str, Any] = self._staged.read_group(KIND).record

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        """The size of the scores, in bytes."""
        return self._rows.nbytes

    def placed(self, n_observations: int, place: object) -> PlacedScores:
        """Return the scores for a store with so many observations: NaN where a row was not selected."""
        numbers = self._contents.placement(self.n_rows, n_observations, place)
        return PlacedScores(self._rows, n_observations, numbers)

    def names(self) -> Rows | None:
        """Return the names of the rows, if they have some."""
        texts = (name for name, layout in self._layouts.items() if layout.is_text and len(layout.shape) == 1)
        of_rows = [name for name in texts if self._layouts[name].shape[0] == self.n_rows]
        if not of_rows:
            return None
        layout, array = self._layouts[of_rows[0]], self._staged.open_array(of_rows[0])

        def pieces() -> Iterator[Array]:
            for span in Span(0, self.n_rows).split(layout.chunks[0]):
                yield np.array(np.asarray(array[span.slice]).tolist(), dtype=np.str_)

        return Rows(layout.shape, layout.dtype, layout.chunks[0], pieces())


@dataclass
class PlacedScores:
    """Scores at the places of their rows in a store, which are read a chunk at a time."""

    values: SealedRows
    n_observations: int
    row_numbers: Callable[[Span], Array] | None
    content: ContentDigest = field(default_factory=ContentDigest)
    """The digest of what was read."""

    def rows(self) -> Rows:
        """Return the array for all observations."""
        shape = (self.n_observations, *self.values.shape[1:])
        return Rows(shape, self.values.dtype, self.values.chunks[0], self._pieces())

    def _pieces(self) -> Iterator[Array]:
        for span in Span(0, self.n_observations).split(self.values.chunks[0]):
            piece = self._piece(span)
            self.content.add(piece)
            yield piece

    def _piece(self, span: Span) -> Array:
        if self.row_numbers is None:
            return self.values[span.slice]
        first, stop = self._first(span.start), self._first(span.stop)
        piece = np.full((len(span), *self.values.shape[1:]), np.nan, self.values.dtype)
        if first < stop:
            piece[self.row_numbers(Span(first, stop)) - span.start] = self.values[first:stop]
        return piece

    def _first(self, row: int) -> int:
        """Return which selected row is the first that is not before a row."""
        numbers = self.row_numbers
        assert numbers is not None
        return bisect_left(range(len(self.values)), row, key=lambda i: int(numbers(Span(i, i + 1))[0]))


class ScoreRows:
    """The scores in a store, for reading: rows that were not selected are left out."""

    dims: tuple[str, ...] = ()

    def __init__(self, array: Any, n_rows: int, place: object) -> None:
        self._array, self._n_rows, self._place = array, n_rows, place
        self.shape: tuple[int, ...] = (n_rows, *array.shape[1:])
        self.chunks: tuple[int, ...] = tuple(array.chunks or array.shape)
        self.dtype: np.dtype[Any] = array.dtype

    def __len__(self) -> int:
        return self._n_rows

    @property
    def nbytes(self) -> int:
        """The size of the scores in memory, in bytes."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    @cached_property
    def _numbers(self) -> Array | None:
        """The observations with scores; None for all."""
        length = self._array.shape[0]
        if length == self._n_rows:
            return None
        spans = Span(0, length).split(self.chunks[0])
        filled = [~np.isnan(np.asarray(self._array[span.slice])).all(axis=1) for span in spans]
        numbers: Array = np.flatnonzero(np.concatenate(filled))
        if len(numbers) != self._n_rows:
            raise StoreError(
                f"{self._place}: {len(numbers):,} rows have scores where {self._n_rows:,} were written; "
                "transform again"
            )
        return numbers

    def __getitem__(self, part: slice) -> Array:
        start, stop, _ = part.indices(self._n_rows)
        try:
            if self._numbers is None or start >= stop:
                return np.asarray(self._array[start:stop])
            numbers = self._numbers[start:stop]
            block = np.asarray(self._array[int(numbers[0]) : int(numbers[-1]) + 1])
            found: Array = block[numbers - numbers[0]]
            return found
        except (ValueError, OSError, RuntimeError) as error:
            raise StoreError(f"{self._place}: rows {start}-{stop - 1}: {error}; transform again") from error

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self[:], dtype)


def entries(contents: AnnDataContents, *, of_variables: bool) -> dict[str, Any]:
    """Return the entries of the model by their places, in the order in which they are published.

    Those with one row per variable are for stores with the variables of the input.
    """
    known = contents.annotations
    own: dict[str, Mapping[str, Any]] = {"uns": known.uns}
    if of_variables:
        own = {"var": known.var, "uns": known.uns, "varm": known.varm}
    return {f"{table}/{name}": value for table, values in own.items() for name, value in values.items()}


def digests(written: Mapping[str, Any]) -> dict[str, str]:
    """Return the digest of each entry."""
    return {path: value_digest(value) for path, value in written.items()}
