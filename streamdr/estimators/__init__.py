"""The scikit-learn interface: an estimator for every registered method."""

from __future__ import annotations

from streamdr.estimators.base import Estimator
from streamdr.estimators.chain import Chain
from streamdr.estimators.mds import MDS
from streamdr.estimators.registry import ESTIMATORS, load_model

globals().update({estimator.__name__: estimator for estimator in ESTIMATORS.values()})

__all__ = ["ESTIMATORS", "MDS", "Chain", "Estimator", "load_model"]
__all__ += [estimator.__name__ for estimator in ESTIMATORS.values()]
