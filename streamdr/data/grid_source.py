"""The base class of inputs that are one N-dimensional array, of which any box can be read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from streamdr.core.blocks import Array
from streamdr.data.layout import MatrixLayout, Region
from streamdr.data.source import Source


class GridSource(Source):
    """One N-dimensional array, as rows x features and as an array."""

    layout: MatrixLayout
    chunk_shape: tuple[int, ...]
    """The shape of a chunk, along the axes of the array."""
    piece_shape: tuple[int, ...]
    """The shape of what is always read together: a chunk, or a chunk inside a shard."""
    attributes: Mapping[str, Any] = {}
    """The attributes of the array."""

    @abstractmethod
    def fill_box(self, region: Region, box: Array) -> None:
        """Read a region, a slice for each axis of the array, into `box`, which has its shape and type."""
