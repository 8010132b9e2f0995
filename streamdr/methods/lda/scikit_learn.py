"""The counterpart of a fitted LDA in scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from streamdr.core.scikit_learn import Step, fitted, shifting

if TYPE_CHECKING:
    from streamdr.core.blocks import Array
    from streamdr.methods.lda.model import LDAModel


def lda_steps(model: LDAModel, levels: Array) -> list[Step]:
    """Return the shift to the mean, and the discriminants. `levels` are constants of the classes there."""
    analysis = fitted(
        LinearDiscriminantAnalysis(n_components=model.n_components, store_covariance=True),
        classes_=np.asarray(model.classes),
        priors_=model.priors,
        means_=model.means - model.xbar,
        xbar_=np.zeros(model.n_features),
        covariance_=model.covariance,
        scalings_=model.scalings,
        coef_=model.coef,
        intercept_=levels[1:] - levels[:1] if model.n_classes == 2 else levels,
        explained_variance_ratio_=model.explained_variance_ratio,
        n_features_in_=model.n_features,
        _max_components=model.n_components,
    )
    return [shifting(model.xbar), ("lda", analysis)]
