"""Matrices that are read block by block. `open_source` opens an array, path or data frame as a `Source`."""

from __future__ import annotations

from streamdr.data.expanding import expand
from streamdr.data.open import open_source, require_exists
from streamdr.data.source import Source

__all__ = ["Source", "expand", "open_source", "require_exists"]
