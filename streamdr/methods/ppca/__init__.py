"""Probabilistic PCA, and mixtures of it."""

from __future__ import annotations

from streamdr.core.method import Method
from streamdr.methods.ppca.mixture import PPCAMixture
from streamdr.methods.ppca.ppca import PPCA

METHODS: tuple[type[Method], ...] = (
    PPCA,
    PPCAMixture,
)

__all__ = ["METHODS", "PPCA", "PPCAMixture"]
