"""Columns of a table of AnnData: numbers, text, categories, and values of which some are missing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec, Span
from streamdr.data.snapshot import JoinedSnapshot, Snapshot, WholeSnapshot
from streamdr.data.source import SampleColumns, Source
from streamdr.data.sparse.groups import StoredGroup, readable
from streamdr.errors import DataError

_OLDER_CATEGORIES = "__categories"
"""The group of categories before each categorical column was a group."""
_NULLABLE = "nullable-"
_RESTORE = "restore it from a copy or write it again"


def open_column(table: StoredGroup, name: str) -> Source | None:
    """Open a column of a table, one value per row; None if there is none that can be read."""
    with readable(table):
        if table.has_array(name):
            older = f"{_OLDER_CATEGORIES}/{name}"
            if table.has_array(older):
                return CategoricalColumn(table.numbers(name), table.column(older))
            return table.column(name)
        column = table.group(name)
        return None if column is None else open_column_group(column)


def open_column_group(column: StoredGroup) -> Source | None:
    """Open a group that is one column: of categories, or of values and a mask. None for other groups."""
    with readable(column):
        encoding = str(column.attributes.get("encoding-type", ""))
        if encoding == "categorical":
            return CategoricalColumn(column.numbers("codes"), column.column("categories"))
        if encoding.startswith(_NULLABLE):
            return NullableColumn(column.column("values"), column.numbers("mask"))
        return None


@dataclass(frozen=True)
class TableColumns(SampleColumns):
    """The columns of a table, each opened when it is asked for."""

    table: StoredGroup
    n_rows: int

    def names(self) -> Sequence[str]:
        """Return the names of the columns, in their order."""
        order = self.table.attributes.get("column-order", ())
        if isinstance(order, str):
            return (order,)
        return tuple(map(str, order)) if isinstance(order, list | tuple) else ()

    def open(self, name: str) -> Source:
        """Open a column."""
        found = open_column(self.table, name)
        if found is None:
            raise DataError(
                f"{self.table.name}: its column {name!r} is missing, or of a kind that is unknown"
            )
        if (found.spec.n_rows, found.spec.n_cols) != (self.n_rows, 1):
            raise DataError(
                f"{found.name}: has {found.spec.n_rows} values for the {self.n_rows} rows; {_RESTORE}"
            )
        return found


class _Column(Source):
    """A column that is made of two arrays."""

    def __init__(self, name: str, spec: MatrixSpec, stored: Source) -> None:
        self.name, self.spec, self.chunks = name, spec, (stored.chunks[0], 1)

    @abstractmethod
    def _values(self, rows: Span) -> Array:
        """Return the values of rows."""

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region."""
        return self._values(rows)[:, None]


class CategoricalColumn(_Column):
    """A column whose values are codes of categories. A missing category is read as empty text, or NaN.

    Parameters
    ----------
    codes : Source
        The number of the category of each row, or -1 where it is missing.
    categories : Source
        The categories. They are read when they are first needed.
    """

    def __init__(self, codes: Source, categories: Source) -> None:
        dtype = categories.spec.dtype
        if dtype.kind == "b":
            dtype = np.dtype(np.int8)
        super().__init__(codes.name.removesuffix("/codes"), MatrixSpec(codes.spec.n_rows, 1, dtype), codes)
        if codes.spec.dtype.kind not in "iu":
            raise DataError(f"{codes.name}: codes of categories are of type {codes.spec.dtype}; {_RESTORE}")
        self._codes, self._categories = codes, categories

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_known"}

    @property
    def _reads_from(self) -> tuple[Source | None, ...]:
        return (*super()._reads_from, self._codes, self._categories)

    @cached_property
    def _known(self) -> Array:
        """The categories, and last the value that stands for a missing one."""
        n = self._categories.spec.n_rows
        found = self._categories.read(Span(0, n), Span(0, 1))[:, 0]
        kind = found.dtype.kind
        missing = np.array([{"U": "", "f": np.nan}.get(kind, 0)])
        return np.concatenate([found, missing if kind == "U" else missing.astype(self.spec.dtype)])

    def _values(self, rows: Span) -> Array:
        codes = self._codes.read(rows, Span(0, 1))[:, 0].astype(np.int64)
        n = len(self._known) - 1
        least = -1 if self.spec.dtype.kind in "Uf" else 0
        bad = np.flatnonzero((codes < least) | (codes >= n))
        if bad.size:
            row, code = rows.start + int(bad[0]), int(codes[bad[0]])
            problem = "has no category" if code == -1 else f"has the category {code}, of {n} from 0 on"
            advice = "fill it, or write the column as text" if code == -1 else _RESTORE
            raise DataError(f"{self.name}: row {row} {problem}; {advice}")
        return self._known[codes]

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the bytes of the codes."""
        return super().overhead(n_rows, n_cols) + self._codes.overhead(n_rows, 1) + 16 * n_rows

    def _require_chunks(self) -> None:
        super()._require_chunks()
        self._codes._require_chunks()
        self._categories._require_chunks()

    def _snapshot(self) -> Snapshot:
        """Return a snapshot of the codes, and of all categories: one that is inserted moves the others."""
        return JoinedSnapshot(self._codes.snapshot(), None, WholeSnapshot(self._categories.fingerprint()))


class NullableColumn(_Column):
    """A column of values, and a mask of those that are missing. They are read as NaN, or as empty text."""

    def __init__(self, values: Source, mask: Source) -> None:
        dtype = values.spec.dtype
        kept = dtype.kind in "Uf"
        spec = MatrixSpec(values.spec.n_rows, 1, dtype if kept else np.dtype(np.float64))
        super().__init__(values.name.removesuffix("/values"), spec, values)
        if mask.spec.n_rows != values.spec.n_rows:
            raise DataError(
                f"{mask.name}: has {mask.spec.n_rows} values for the {values.spec.n_rows} rows; {_RESTORE}"
            )
        self._stored, self._mask = values, mask

    @property
    def _reads_from(self) -> tuple[Source | None, ...]:
        return (*super()._reads_from, self._stored, self._mask)

    def _values(self, rows: Span) -> Array:
        stored, mask = (part.read(rows, Span(0, 1))[:, 0] for part in (self._stored, self._mask))
        if self.spec.dtype.kind == "U":
            return np.where(mask != 0, "", stored)
        return np.where(mask != 0, np.nan, stored).astype(self.spec.dtype)

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the bytes of the values and of the mask."""
        parts = self._stored.overhead(n_rows, 1) + self._mask.overhead(n_rows, 1)
        return super().overhead(n_rows, n_cols) + parts + 16 * n_rows

    def _require_chunks(self) -> None:
        super()._require_chunks()
        self._stored._require_chunks()
        self._mask._require_chunks()

    def _snapshot(self) -> Snapshot:
        return JoinedSnapshot(self._stored.snapshot(), None, self._mask.snapshot())


class TextOfIntegers(_Column):
    """A column of integers as text: names are text, also where they are stored as numbers."""

    def __init__(self, numbers: Source) -> None:
        super().__init__(numbers.name, MatrixSpec(numbers.spec.n_rows, 1, np.dtype(np.str_)), numbers)
        self._numbers = numbers

    @property
    def _reads_from(self) -> tuple[Source | None, ...]:
        return (*super()._reads_from, self._numbers)

    def _values(self, rows: Span) -> Array:
        return self._numbers.read(rows, Span(0, 1))[:, 0].astype(np.str_)

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the bytes of the numbers."""
        return super().overhead(n_rows, n_cols) + self._numbers.overhead(n_rows, 1) + 8 * n_rows

    def _require_chunks(self) -> None:
        super()._require_chunks()
        self._numbers._require_chunks()

    def _snapshot(self) -> Snapshot:
        return self._numbers.snapshot()


def named(source: Source, names: Source) -> tuple[str, ...] | None:
    """Return the names of the columns of a matrix; None if they are not text, or not as many."""
    n = source.spec.n_cols
    if names.spec.n_rows != n or names.spec.dtype.kind != "U":
        return None
    found: list[str] = names.read(Span(0, n), Span(0, 1))[:, 0].tolist()
    return tuple(found)
