"""The methods, by the name that a configuration gives them."""

from __future__ import annotations

from streamdr.methods.base import Method, Model, Pass, Passes, Route
from streamdr.methods.pca import PCA

METHODS: dict[str, type[Method]] = {method.name: method for method in (PCA,)}

__all__ = ["METHODS", "PCA", "Method", "Model", "Pass", "Passes", "Route"]
