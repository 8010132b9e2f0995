"""The counterpart of a fitted PCA in scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn import decomposition

from streamdr.core.scikit_learn import Step, fitted, multiplying, shifting

if TYPE_CHECKING:
    from streamdr.methods.pca.model import PCAModel


def pca_steps(model: PCAModel) -> list[Step]:
    """Return the shift to the mean (and the scale), and the projection on the components."""
    moves = model.center or model.scale is not None
    steps = [shifting(model.mean if model.center else None, model.scale)] if moves else []
    deviations = np.sqrt(model.explained_variance)
    tiny = model.whiten is not None and bool((deviations < np.finfo(np.float64).eps).any())
    if model.rotation is not None or (tiny and not model.outputs_are_features):
        # Scores of oblique components are no projection on them, which PCA of scikit-learn would compute. And
        # it whitens no scores whose deviation is below 2e-16.
        along = deviations[:, None] if model.whiten else 1.0
        scaled = model.projection if model.scale is None else model.projection * model.scale[:, None]
        return [*steps, multiplying(scaled, along * model.components)]
    steps.append(("pca", _projection(model)))
    if model.outputs_are_features:
        steps.append(("back", multiplying(model.components, model.components.T)[1]))
    return steps


def _projection(model: PCAModel) -> decomposition.PCA:
    """Return a fitted PCA of rows whose mean is 0."""
    return fitted(
        decomposition.PCA(model.n_components, whiten=model.whiten is not None),
        mean_=np.zeros(model.n_features),
        components_=model.components,
        explained_variance_=model.explained_variance,
        explained_variance_ratio_=model.explained_variance_ratio,
        singular_values_=model.singular_values,
        noise_variance_=model.noise_variance,
        n_components_=model.n_components,
        n_samples_=round(model.n_samples),
        n_features_in_=model.n_features,
    )
