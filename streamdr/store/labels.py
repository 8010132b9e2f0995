"""Labels of ingested tables: one per row, text or numbers, in an array beside the matrix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec

from streamdr.core.blocks import Array

LABELS = "labels"
LabelKind = Literal["text", "int64", "float64"]
CHUNK_ROWS = 65_536


def as_labels(values: Sequence[Any], kind: LabelKind) -> Array:
    """Return labels of one kind as an array."""
    if kind == "text":
        return np.array([str(value) for value in values], dtype=object)
    return np.array(values, dtype=kind)


class LabelWriter:
    """Appends labels to an array of unknown length. It writes whole chunks, except for the last one."""

    def __init__(self, group: Path, kind: LabelKind) -> None:
        self._array = zarr.create_array(
            group / LABELS,
            shape=(0,),
            chunks=(CHUNK_ROWS,),
            dtype="string" if kind == "text" else kind,
            compressors=[BloscCodec(cname="lz4", clevel=5, shuffle="shuffle"), Crc32cCodec()],
            fill_value="" if kind == "text" else 0,
            dimension_names=("sample",),
            config={"write_empty_chunks": True},
        )
        self._kind = kind
        self._pending: list[Any] = []

    def append(self, labels: Array) -> None:
        """Append labels."""
        self._pending.extend(labels.tolist())
        while len(self._pending) >= CHUNK_ROWS:
            self._write(CHUNK_ROWS)

    def finish(self) -> None:
        """Write the labels that do not fill a chunk."""
        if self._pending:
            self._write(len(self._pending))

    def _write(self, count: int) -> None:
        start = self._array.shape[0]
        self._array.resize((start + count,))
        self._array[start:] = as_labels(self._pending[:count], self._kind)
        del self._pending[:count]
