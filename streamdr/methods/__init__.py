"""The methods, by the name that a configuration gives them."""

from __future__ import annotations

from streamdr.methods.base import (
    Method,
    Model,
    Pass,
    Passes,
    Route,
    Stream,
    Streaming,
    Supervised,
    in_memory,
)
from streamdr.methods.kernel_pca import KernelPCA
from streamdr.methods.one_pass import OnePass
from streamdr.methods.pca import PCA
from streamdr.methods.ppca import PPCA
from streamdr.methods.ppca_mixture import PPCAMixture
from streamdr.methods.sparse_kernel_pca import SparseKernelPCA

METHODS: dict[str, type[Method]] = {
    method.name: method for method in (PCA, PPCA, PPCAMixture, KernelPCA, SparseKernelPCA)
}

__all__ = [
    "METHODS",
    "PCA",
    "PPCA",
    "KernelPCA",
    "Method",
    "Model",
    "OnePass",
    "PPCAMixture",
    "Pass",
    "Passes",
    "Route",
    "SparseKernelPCA",
    "Stream",
    "Streaming",
    "Supervised",
    "in_memory",
]
