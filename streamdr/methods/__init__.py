"""The methods, by the name that a configuration gives them."""

from __future__ import annotations

from streamdr.methods.base import Method, Model, Pass, Passes, Route, Stream, Streaming, in_memory
from streamdr.methods.one_pass import OnePass
from streamdr.methods.pca import PCA
from streamdr.methods.ppca import PPCA
from streamdr.methods.ppca_mixture import PPCAMixture

METHODS: dict[str, type[Method]] = {method.name: method for method in (PCA, PPCA, PPCAMixture)}

__all__ = [
    "METHODS",
    "PCA",
    "PPCA",
    "Method",
    "Model",
    "OnePass",
    "PPCAMixture",
    "Pass",
    "Passes",
    "Route",
    "Stream",
    "Streaming",
    "in_memory",
]
