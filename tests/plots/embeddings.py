"""Embeddings with coordinates of their rows, as a transform of labelled data writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import zarr

from streamdr.core.blocks import Array
from streamdr.store import open_backend


def write_embedding(
    place: Path,
    scores: Array,
    coordinates: Mapping[str, tuple[Array, dict[str, Any]]] | None = None,
    *,
    dim: str = "sample",
    chunk_rows: int = 100,
    names: Sequence[str] | None = None,
) -> Path:
    """Write an embedding with coordinates along its rows, and return its place."""
    output = open_backend(place)
    output.create_rows(
        "embedding",
        shape=scores.shape,
        dims=(dim, "component"),
        dtype=scores.dtype,
        chunk_rows=chunk_rows,
        output_names=names,
        attributes={},
    )
    output.write_rows(0, scores)
    for name, (values, attributes) in (coordinates or {}).items():
        array = zarr.create_array(
            place / name,
            shape=values.shape,
            chunks=(min(chunk_rows, len(values)),),
            dtype=values.dtype,
            dimension_names=[dim],
            attributes=attributes,
        )
        array[...] = values
    output.finish()
    return place
