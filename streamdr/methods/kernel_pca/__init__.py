"""Kernel PCA: exact, by landmarks, by random features, and sparse."""

from __future__ import annotations

from streamdr.core.method import Method
from streamdr.methods.kernel_pca.kernel_pca import KernelPCA
from streamdr.methods.kernel_pca.sparse import SparseKernelPCA

METHODS: tuple[type[Method], ...] = (
    KernelPCA,
    SparseKernelPCA,
)

__all__ = ["METHODS", "KernelPCA", "SparseKernelPCA"]
