"""Checks of the arrays of sparse rows, made of each part as it is read."""

from __future__ import annotations

import numpy as np

from streamdr.core.blocks import Array
from streamdr.errors import DataError

_WRITE_AGAIN = "the matrix is damaged; restore it from a copy or write it again"


def require_pointers(
    pointers: Array, first_row: int, n_values: int, most: int, name: str, *, line: str = "row"
) -> None:
    """Raise an error unless the ends of rows ascend, from 0 on, within the values.

    `pointers` are those of the rows from `first_row` on, and where the last of these ends. A row of more than
    `most` values is not read at all: it would take any amount of memory.
    """
    if first_row == 0 and pointers[0] != 0:
        raise DataError(
            f"{name}: indptr begins with {pointers[0]} where {line} 0 must begin at 0; {_WRITE_AGAIN}"
        )
    backwards = pointers[1:] < pointers[:-1]
    if backwards.any():
        at = int(np.argmax(backwards))
        raise DataError(
            f"{name}: indptr runs backwards at {line} {first_row + at}, from {pointers[at]} to "
            f"{pointers[at + 1]}; {_WRITE_AGAIN}"
        )
    if pointers[-1] > n_values:
        at = int(np.searchsorted(pointers, n_values, side="right")) - 1
        raise DataError(
            f"{name}: {line} {first_row + at} ends at value {pointers[at + 1]}, beyond the {n_values} that "
            f"are stored; {_WRITE_AGAIN}"
        )
    longer = np.diff(pointers) > most
    if longer.any():
        at = int(np.argmax(longer))
        raise DataError(
            f"{name}: {line} {first_row + at} has {pointers[at + 1] - pointers[at]} values by indptr, more "
            f"than there are places; {_WRITE_AGAIN}"
        )


def require_columns(
    columns: Array, pointers: Array, n_cols: int, first_row: int, name: str, *, line: str = "row"
) -> None:
    """Raise an error unless the columns of every row ascend, each at most once, within the matrix.

    `pointers` begin with 0. One comparison of neighbours finds what descends: only rows may begin so.
    """
    if not len(columns):
        return
    filled = np.flatnonzero(pointers[1:] > pointers[:-1])
    starts, ends = pointers[filled], pointers[filled + 1]
    ascends = columns[1:] > columns[:-1]
    ascends[starts[1:] - 1] = True
    if not ascends.all():
        at = int(np.argmin(ascends))
        row = first_row + int(filled[np.searchsorted(starts, at, side="right") - 1])
        twice = columns[at] == columns[at + 1]
        problem = f"{columns[at]} twice" if twice else f"{columns[at]} before {columns[at + 1]}"
        raise DataError(
            f"{name}: {line} {row} has the index {problem}; write the matrix again after sum_duplicates() or "
            "sort_indices() of scipy"
        )
    beyond = (columns[starts] < 0) | (columns[ends - 1] >= n_cols)
    if beyond.any():
        at = int(np.argmax(beyond))
        least = columns[starts[at]]
        index = least if least < 0 else columns[ends[at] - 1]
        raise DataError(
            f"{name}: {line} {first_row + int(filled[at])} has the index {index}, which is not among the "
            f"{n_cols} from 0 on; {_WRITE_AGAIN}"
        )


def sorted_rows(columns: Array, values: Array, pointers: Array) -> tuple[Array, Array]:
    """Return the columns and values of rows in ascending order of the columns of each row."""
    descends = columns[1:] < columns[:-1]
    starts = pointers[1:-1]
    descends[starts[(starts > 0) & (starts < len(columns))] - 1] = False
    if not descends.any():
        return columns, values
    rows = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
    order = np.lexsort((columns, rows))
    return columns[order], values[order]
