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
from streamdr.methods.classical_mds import ClassicalMDS
from streamdr.methods.kernel_pca import KernelPCA
from streamdr.methods.landmark_mds import LandmarkMDS
from streamdr.methods.lda import LDA
from streamdr.methods.metric_mds import MetricMDS
from streamdr.methods.nonmetric_mds import NonmetricMDS
from streamdr.methods.one_pass import OnePass
from streamdr.methods.pca import PCA
from streamdr.methods.ppca import PPCA
from streamdr.methods.ppca_mixture import PPCAMixture
from streamdr.methods.select_filter import SelectCorrelation, SelectFScore
from streamdr.methods.select_forward import SelectForward
from streamdr.methods.select_mutual_info import SelectMutualInfo
from streamdr.methods.sparse_kernel_pca import SparseKernelPCA

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        PCA,
        PPCA,
        PPCAMixture,
        KernelPCA,
        SparseKernelPCA,
        LDA,
        SelectMutualInfo,
        SelectFScore,
        SelectCorrelation,
        SelectForward,
        ClassicalMDS,
        LandmarkMDS,
        MetricMDS,
        NonmetricMDS,
    )
}

__all__ = [
    "LDA",
    "METHODS",
    "PCA",
    "PPCA",
    "ClassicalMDS",
    "KernelPCA",
    "LandmarkMDS",
    "Method",
    "MetricMDS",
    "Model",
    "NonmetricMDS",
    "OnePass",
    "PPCAMixture",
    "Pass",
    "Passes",
    "Route",
    "SelectCorrelation",
    "SelectFScore",
    "SelectForward",
    "SelectMutualInfo",
    "SparseKernelPCA",
    "Stream",
    "Streaming",
    "Supervised",
    "in_memory",
]
