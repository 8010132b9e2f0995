"""The scikit-learn face of every method: an estimator for each that is registered."""

from __future__ import annotations

from streamdr.estimators.base import Estimator
from streamdr.estimators.mds import MDS
from streamdr.estimators.registry import ESTIMATORS, load_model

globals().update({estimator.__name__: estimator for estimator in ESTIMATORS.values()})

__all__ = ["ESTIMATORS", "MDS", "Estimator", "load_model"]
__all__ += [estimator.__name__ for estimator in ESTIMATORS.values()]
