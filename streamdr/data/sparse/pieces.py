"""Division of sparse rows into pieces of bounded size, and joining of parts of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from scipy.sparse import vstack

from streamdr.core.blocks import SPARSE_PIECE, Array, Span, SparseRows


def pieces_by_length(first_row: int, lengths: Iterable[Array]) -> Iterator[Span]:
    """Yield consecutive rows with at most `SPARSE_PIECE` stored values together, or a single row.

    Parameters
    ----------
    first_row : int
        The first row.
    lengths : iterable of ndarray
        The number of stored values of each row, from the first on, in arrays of any number of rows.
    """
    start, held = first_row, 0  # the piece that is growing, and its values before the rows at hand
    row = first_row
    for some in lengths:
        ends = np.cumsum(some, dtype=np.int64)
        used = 0  # the values at hand that belong to pieces before
        while True:
            fitting = int(np.searchsorted(ends, used + SPARSE_PIECE - held, side="right"))
            stop = min(max(row + fitting, start + 1), start + SPARSE_PIECE)
            if stop >= row + len(ends):  # more may fit
                break
            yield Span(start, stop)
            start, held = stop, 0
            used = int(ends[stop - row - 1]) if stop > row else 0
        held += (int(ends[-1]) if len(ends) else 0) - used
        row += len(ends)
    if start < row:
        yield Span(start, row)


def joined(parts: Sequence[SparseRows]) -> SparseRows:
    """Return the rows of several parts, one after another."""
    return parts[0] if len(parts) == 1 else SparseRows(vstack(parts, "csr"))
