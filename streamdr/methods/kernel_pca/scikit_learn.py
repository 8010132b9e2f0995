"""The counterpart of a fitted kernel PCA in scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.kernel_approximation import RBFSampler
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.preprocessing import FunctionTransformer

from streamdr.core.scikit_learn import Step, fitted, multiplying, shifting, taking
from streamdr.errors import ParameterError

if TYPE_CHECKING:
    from streamdr.methods.kernel_pca.model import KernelPCAModel


def kernel_pca_steps(model: KernelPCAModel) -> list[Step]:
    """Return the kernel with the landmarks (or the random features), their centring, and the coefficients."""
    return [*_features(model), shifting(model.kernel_means), multiplying(model.coefficients)]


def _features(model: KernelPCAModel) -> list[Step]:
    if model.function is not None:
        raise ParameterError(
            "kernel",
            "is a function of yours, which an estimator of scikit-learn alone cannot hold: fit with a named "
            "kernel",
        )
    # Far from the origin distances cancel, so rows are moved to where the landmarks are.
    moved = [("origin", shifting(model.origin)[1])]
    if model.frequencies is not None:
        return [*moved, ("features", _random_features(model))]
    if model.landmarks is None:
        assert model.landmark_rows is not None
        return [taking(model.landmark_rows.astype(np.int64), model.n_features)]
    kernel = model.named
    landmarks = model.landmarks - model.origin if kernel.moves else model.landmarks
    values = FunctionTransformer(
        pairwise_kernels, kw_args={"Y": landmarks, "metric": kernel.name, **kernel.used}, check_inverse=False
    )
    step = ("kernel", fitted(values, n_features_in_=model.n_features))
    return [*moved, step] if kernel.moves else [step]


def _random_features(model: KernelPCAModel) -> RBFSampler:
    """Return the sampler of scikit-learn. Its frequencies may be those of any kernel."""
    return fitted(
        RBFSampler(gamma=1.0 if model.gamma is None else model.gamma, n_components=model.n_landmarks),
        random_weights_=model.frequencies,
        random_offset_=model.phases,
        n_features_in_=model.n_features,
    )
