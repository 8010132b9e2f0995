"""Models before they are fitted: their sizes are known from shapes, and what mapping rows by them takes.

Arrays are blank and take no memory. Where the data decides on a size, it is the largest that it may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamdr.blocks import Array, MatrixSpec
from streamdr.methods.base import Model
from streamdr.methods.kernel_pca_model import KernelPCAModel
from streamdr.methods.lda_model import LDAModel
from streamdr.methods.mds_parameters import N_PAIRS
from streamdr.methods.pca_model import PCAModel
from streamdr.methods.ppca_mixture_model import PPCAMixtureModel
from streamdr.methods.ppca_model import PPCAModel
from streamdr.methods.scaling_model import ScalingModel
from streamdr.methods.select_common import chosen
from streamdr.methods.select_model import SelectionModel
from streamdr.methods.stress_model import StressModel


def blank(*shape: int) -> Array:
    """An array of zeros of any shape that takes no memory."""
    return np.broadcast_to(np.zeros(()), shape)


def pca_outline(data: MatrixSpec, k: int, whiten: str | None, *, scale: bool) -> PCAModel:
    """Of so many principal axes."""
    return PCAModel(
        mean=blank(data.n_cols),
        components=blank(k, data.n_cols),
        explained_variance=blank(k),
        total_variance=1.0,
        reconstruction_error=0.0,
        noise_variance=0.0,
        n_samples=float(data.n_rows),
        ddof=1,
        rank=k,
        solver="outline",
        whiten=whiten,
        scale=blank(data.n_cols) if scale else None,
        residuals=blank(k),
        var=blank(data.n_cols),
    )


def ppca_outline(data: MatrixSpec, k: int) -> PPCAModel:
    """Of so many latent variables."""
    return PPCAModel(
        mean=blank(data.n_cols),
        components=blank(k, data.n_cols),
        explained_variance=blank(k),
        noise_variance=1.0,
        n_samples=float(data.n_rows),
        n_observed=float(data.n_rows),
        solver="outline",
        log_likelihood=0.0,
        log_likelihoods=blank(1),
        anchor_mean=blank(data.n_cols),
        anchor_components=blank(k, data.n_cols),
        anchor_variance=blank(k),
    )


def mixture_outline(data: MatrixSpec, n_mixtures: int, k: int) -> PPCAMixtureModel:
    """Of so many components of so many latent variables."""
    return PPCAMixtureModel(
        weights=blank(n_mixtures),
        means=blank(n_mixtures, data.n_cols),
        components=blank(n_mixtures, k, data.n_cols),
        explained_variance=blank(n_mixtures, k),
        noise_variance=blank(n_mixtures),
        n_samples=float(data.n_rows),
        n_observed=float(data.n_rows),
        log_likelihood=0.0,
        log_likelihoods=blank(1),
    )


def kernel_outline(
    data: MatrixSpec, way: Any, n_landmarks: int, k: int, *, pool: int = 0, inverse: bool = False
) -> KernelPCAModel:
    """Of so many landmarks and axes; a sparse one keeps the pool that it chose from."""
    m, d = n_landmarks, data.n_cols
    return KernelPCAModel(
        kernel="rbf",
        approximation=way,
        origin=blank(d),
        coefficients=blank(m, k),
        kernel_means=blank(m),
        eigenvalues=blank(k),
        n_samples=float(data.n_rows),
        total_variance=1.0,
        mean_coefficients=blank(m),
        landmarks=blank(m, d),
        landmark_rows=blank(m),
        kernel_origin=blank(m),
        pool=blank(pool, d) if pool else None,
        dual_coefficients=blank(m, d) if inverse else None,
    )


def lda_outline(data: MatrixSpec, n_classes: int, k: int) -> LDAModel:
    """Of so many classes and discriminants."""
    d, axes = data.n_cols, min(n_classes - 1, data.n_cols)
    return LDAModel(
        classes=blank(n_classes),
        priors=blank(n_classes),
        class_weight=blank(n_classes),
        means=blank(n_classes, d),
        xbar=blank(d),
        covariance=blank(d, d),
        scalings=blank(d, k),
        eigenvalues=blank(k),
        explained_variance_ratio=blank(k),
        separation=1.0,
        axes=blank(d, axes),
        centroids=blank(n_classes, axes),
        rank=d,
    )


def scaling_outline(
    data: MatrixSpec, k: int, metric: Any, n_landmarks: int | None, *, linear: bool
) -> ScalingModel:
    """Of so many landmarks, if any, with axes where it is linear."""
    m, points, alone = n_landmarks or 0, metric != "precomputed", n_landmarks is None
    return ScalingModel(
        eigenvalues=blank(k),
        metric=metric,
        n_features=data.n_cols,
        solver="outline",
        stress=0.0,
        shepard_dissimilarities=blank(N_PAIRS),
        shepard_distances=blank(N_PAIRS),
        origin=blank(data.n_cols) if linear else None,
        axes=blank(k, data.n_cols) if linear else None,
        projection=None if alone else blank(k, m),
        mean_squares=None if alone else blank(m),
        landmarks=blank(m, data.n_cols) if points and not alone else None,
        landmark_rows=None if alone or m == data.n_rows else blank(m),
        embedding=None if alone or m < data.n_rows else blank(m, k),
    )


def stress_outline(data: MatrixSpec, k: int, metric: Any) -> StressModel:
    """Of all points."""
    return StressModel(
        embedding=blank(data.n_rows, k),
        stress=0.0,
        measure="normalized",
        stress_history=blank(1),
        start_stresses=blank(1),
        converged=True,
        algorithm="outline",
        metric=metric,
        n_features=data.n_cols,
        shepard_dissimilarities=blank(N_PAIRS),
        shepard_distances=blank(N_PAIRS),
        points=None if metric == "precomputed" else blank(data.n_rows, data.n_cols),
    )


def selection_outlines(data: MatrixSpec, k: int | None) -> Sequence[Model]:
    """Of columns side by side, which make the longest blocks, and of columns far apart, which read most.

    Where the data decides how many they are, it may be one, or all. The first and the last read least: the
    last chunk may be a narrow one.
    """
    d = data.n_cols
    most = d if k is None else min(k, d)
    apart = np.unique(np.linspace(0, d - 1, most).astype(np.int64))
    together = np.arange(1 if k is None else most)
    return [
        SelectionModel(
            **chosen(columns, d), scores=blank(d), statistic="", task="", n_samples=float(data.n_rows)
        )
        for columns in (together, d - together[::-1] - 1, apart)
    ]
