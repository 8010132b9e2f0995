"""Self-organising maps."""

from __future__ import annotations

from streamdr.core.method import Method
from streamdr.methods.som.som import SOM

METHODS: tuple[type[Method], ...] = (SOM,)

__all__ = ["METHODS", "SOM"]
