"""Matrices that are read block by block: `open_source` turns whatever holds numbers into one of them."""

from __future__ import annotations

from streamdr.data.open import open_source, require_exists
from streamdr.data.source import Source

__all__ = ["Source", "open_source", "require_exists"]
