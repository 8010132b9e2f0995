"""NumPy's .npy files, mapped and never unpickled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.files import map_npy
from streamdr.data.ingest.table import ArrayFile, Options
from streamdr.errors import DataError
from streamdr.store.arrays import Index


@contextmanager
def open_npy(path: Path, options: Options) -> Iterator[ArrayFile]:
    """Open a .npy file of any numeric type, byte order and memory order."""

    def read(region: Index) -> Array:
        # Mapped again each time: pages of one long-lived map would accumulate in the memory of the process.
        return np.array(map_npy(path)[region])

    try:
        array = map_npy(path)
    except ValueError as error:
        raise DataError(f"{path}: cannot be read as .npy ({error}); save it again with numpy.save") from error
    yield ArrayFile(array.shape, array.dtype, read)
