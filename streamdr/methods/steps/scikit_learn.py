"""The counterparts of steps in scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import FunctionTransformer, Normalizer

from streamdr.core.scikit_learn import Step, fitted, shifting, taking

if TYPE_CHECKING:
    from streamdr.methods.steps.base import ChoiceModel
    from streamdr.methods.steps.clip import ClipModel
    from streamdr.methods.steps.log1p import Log1pModel
    from streamdr.methods.steps.normalize_total import NormalizeTotalModel
    from streamdr.methods.steps.scale_genotypes import ScaleGenotypesModel
    from streamdr.methods.steps.standardise import StandardiseModel
    from streamdr.methods.steps.unit_norm import UnitNormModel


def log1p_steps(model: Log1pModel) -> list[Step]:
    """Return the function."""
    logarithm = FunctionTransformer(np.log1p, feature_names_out="one-to-one")
    return [("log1p", fitted(logarithm, n_features_in_=model.n_features))]


def clip_steps(model: ClipModel) -> list[Step]:
    """Return the function with its limits."""
    return [_clipping(model.n_features, model.min, model.max)]


def unit_norm_steps(model: UnitNormModel) -> list[Step]:
    """Return the normalizer."""
    return [("unit_norm", fitted(Normalizer(model.norm), n_features_in_=model.n_features))]


def normalize_total_steps(model: NormalizeTotalModel) -> list[Step]:
    """Return the division by the total, which of counts is the l1 norm, and the product with the target."""
    shares = fitted(Normalizer("l1"), n_features_in_=model.n_features)
    return [("shares", shares), shifting(None, np.full(model.n_features, 1 / model.target_sum))]


def standardise_steps(model: StandardiseModel) -> list[Step]:
    """Return the scaler, and the limits of its results if there are any."""
    moves = model.mean is not None or model.scale is not None
    steps = [shifting(model.mean, model.scale)] if moves else []
    if model.max_value is not None or not moves:
        least = -model.max_value if model.mean is not None and model.max_value is not None else None
        steps.append(_clipping(model.n_features, least, model.max_value))
    return steps


def choice_steps(model: ChoiceModel) -> list[Step]:
    """Return the step that takes the columns."""
    return [taking(model.reads, model.n_features)]


def genotypes_steps(model: ScaleGenotypesModel) -> list[Step]:
    """Return the columns that are kept, their means for missing values, and the scaler."""
    mean, scale = model.mean[model.reads], model.scale[model.reads]
    return [
        taking(model.reads, model.n_features),
        ("missing", SimpleImputer().fit(mean[None])),
        shifting(mean, scale),
    ]


def _clipping(n_features: int, least: float | None, most: float | None) -> Step:
    limits = {"a_min": least, "a_max": most}
    clipping = FunctionTransformer(np.clip, kw_args=limits, feature_names_out="one-to-one")
    return "clip", fitted(clipping, n_features_in_=n_features)
