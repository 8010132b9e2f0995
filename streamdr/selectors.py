"""What scikit-learn expects of what selects features, beside what it expects of any estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from streamdr.blocks import Array
from streamdr.fitting import require_features
from streamdr.lazy import columns_of, is_streamed, mapped
from streamdr.sources import open_source

if TYPE_CHECKING:
    from streamdr.estimators import Estimator

    _Estimator = Estimator
else:
    _Estimator = object


class Selector(_Estimator):
    """Columns of data of any size: numpy in memory now, all else lazily, without what is not kept."""

    def get_support(self, indices: bool = False) -> Array:
        """Which features are kept, as a mask or as their numbers."""
        check_is_fitted(self)
        support: Array = self.model_.support
        return np.flatnonzero(support) if indices else support

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """The names of the features that are kept."""
        check_is_fitted(self)
        return _check_feature_names_in(self, input_features)[self.get_support()]

    def transform(self, X: Any) -> Any:
        """The features that are kept, in the order of the data."""
        check_is_fitted(self)
        names = self.get_feature_names_out()
        if not is_streamed(X) or isinstance(X, np.memmap):
            return self._rows(X, self.model_.transform, names)
        require_features(self.model_, open_source(X))
        return mapped(columns_of(X, self.model_.reads), self.model_.narrowed().transform, names)
