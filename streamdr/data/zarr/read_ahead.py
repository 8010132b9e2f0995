"""Reading ahead: while a block is worked on, the system reads the files of the next one from the disk.

A worker that waits for the disk does not compute, and a disk that waits for a worker does not read. The
system reads ahead within a file, and chunks are files of their own.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from math import prod

from streamdr.data.layout import Region
from streamdr.data.zarr.metadata import ArrayMetadata
from streamdr.data.zarr.stores import Node

_RECENT = 64
"""The number of regions that are remembered: several for each worker."""
_MOST_BYTES = 64 << 20
"""The most bytes, before compression, that are read ahead at a time: those of the largest block."""


class ReadAhead:
    """Reads ahead of regions that follow each other along an axis.

    A region that begins where no other ends is no part of a pass over all rows: nothing is read ahead of it.
    Nothing is read ahead either if the first file is already in memory: then the others probably are.
    """

    def __init__(self, node: Node, metadata: ArrayMetadata, axis: int) -> None:
        self._node = node
        self._metadata = metadata
        self._axis = axis
        self._ends: deque[int] = deque(maxlen=_RECENT)
        self._starts: deque[int] = deque(maxlen=_RECENT)
        """Where regions begin that were read, or read ahead of."""
        self._most_files = _MOST_BYTES // (prod(metadata.grid.chunk) * metadata.dtype.itemsize)

    def __reduce__(self) -> tuple[type[ReadAhead], tuple[Node, ArrayMetadata, int]]:
        return ReadAhead, (self._node, self._metadata, self._axis)

    def after(self, region: Region) -> None:
        """Read what follows a region that was just read, as long as it."""
        here, grid = region[self._axis], self._metadata.grid
        follows, length = here.start in self._ends, here.stop - here.start
        self._ends.append(here.stop)
        self._starts.append(here.start)
        stop = min(here.stop + length, grid.shape[self._axis])
        if not follows or stop <= here.stop or here.stop in self._starts:
            return
        self._starts.append(here.stop)
        ahead = (*region[: self._axis], slice(here.stop, stop), *region[self._axis + 1 :])
        for piece in islice(grid.overlaps(ahead), self._most_files):
            if not self._node.read_soon(self._metadata.keys.key(piece.coords)):
                return
