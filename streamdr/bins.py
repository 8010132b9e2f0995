"""Which of many bins a value is in, found by a table instead of a search."""

from __future__ import annotations

import numpy as np

from streamdr.blocks import Array, Settled, settled

_MANTISSA = 52
_CELLS = 1 << 17


class Bins(Settled):
    """Bins between ascending edges: value v is in the one whose number is how many edges are below v.

    Values are not negative, so that their bits, read as whole numbers, are in the order of the values. The
    first few of them tell, by a table, where to begin; the edges between that and the answer, of which there
    are hardly any, are compared one by one.
    """

    def __init__(self, edges: Array) -> None:
        self.edges = settled(edges)
        self._ends = np.append(self.edges, np.inf)
        low, high = (int(bits) for bits in self.edges[[0, -1]].view(np.int64))
        kept = next(n for n in range(_MANTISSA, -1, -1) if self._cell(high, n) - self._cell(low, n) < _CELLS)
        self._shift = _MANTISSA - kept
        self._first, self._last = low >> self._shift, high >> self._shift
        starts = np.arange(self._first, self._last + 2) << self._shift
        self._table = np.searchsorted(self.edges, starts.view(np.float64)).astype(np.int32)

    def _cell(self, bits: int, kept: int) -> int:
        return bits >> (_MANTISSA - kept)

    def of(self, values: Array) -> Array:
        """The number of each value's bin. What is missing is in any."""
        cells = np.ascontiguousarray(values, np.float64).view(np.int64) >> self._shift
        np.clip(cells, self._first, self._last + 1, out=cells)
        cells -= self._first
        bins: Array = self._table[cells]
        while (behind := self._ends[bins] < values).any():
            bins += behind
        return bins
