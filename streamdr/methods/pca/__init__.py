"""Principal component analysis."""

from __future__ import annotations

from streamdr.core.method import Method
from streamdr.methods.pca.pca import PCA

METHODS: tuple[type[Method], ...] = (PCA,)

__all__ = ["METHODS", "PCA"]
