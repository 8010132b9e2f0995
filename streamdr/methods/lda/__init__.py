"""Fisher's linear discriminants."""

from __future__ import annotations

from streamdr.core.method import Method
from streamdr.methods.lda.lda import LDA

METHODS: tuple[type[Method], ...] = (LDA,)

__all__ = ["LDA", "METHODS"]
