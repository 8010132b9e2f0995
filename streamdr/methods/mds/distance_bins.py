"""The bin of each value, by a lookup table instead of a binary search."""

from __future__ import annotations

import numpy as np

from streamdr.core.blocks import AlignedArrays, Array, aligned

_MANTISSA = 52
_CELLS = 1 << 17


class DistanceBins(AlignedArrays):
    """Bins between ascending edges: the bin of v is the number of edges below v.

    Values are not negative, so that their bits, read as integers, have the order of the values. The leading
    bits index a table of first candidates. The few edges between the candidate and the bin are compared one
    by one.
    """

    def __init__(self, edges: Array) -> None:
        self.edges = aligned(edges)
        self._ends = np.append(self.edges, np.inf)
        low, high = (int(bits) for bits in self.edges[[0, -1]].view(np.int64))
        kept = next(n for n in range(_MANTISSA, -1, -1) if self._cell(high, n) - self._cell(low, n) < _CELLS)
        self._shift = _MANTISSA - kept
        self._first, self._last = low >> self._shift, high >> self._shift
        starts = np.arange(self._first, self._last + 2) << self._shift
        self._table = np.searchsorted(self.edges, starts.view(np.float64)).astype(np.int32)

    def _cell(self, bits: int, kept: int) -> int:
        """The leading bits of a value: the exponent, and `kept` bits of the mantissa."""
        return bits >> (_MANTISSA - kept)

    def of(self, values: Array) -> Array:
        """The index of each value's bin; arbitrary for missing values."""
        cells = np.ascontiguousarray(values, np.float64).view(np.int64) >> self._shift
        np.clip(cells, self._first, self._last + 1, out=cells)
        cells -= self._first
        bins: Array = self._table[cells]
        while (behind := self._ends[bins] < values).any():
            bins += behind
        return bins
