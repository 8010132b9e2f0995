"""What scikit-learn expects of what selects features, beside what it expects of any estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from streamdr.blocks import Array
from streamdr.fitting import require_features
from streamdr.lazy import RowMap, columns_of, is_streamed, mapped
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

    def _rows(
        self,
        X: Any,
        function: RowMap,
        names: Sequence[str],
        *,
        keep_features: bool = False,
        dtype: np.dtype[Any] | None = None,
    ) -> Any:
        """Keep columns of rows as they were given. Of what is streamed, no others are read."""
        if not is_streamed(X) or isinstance(X, np.memmap):
            return super()._rows(X, function, names)
        require_features(self.model_, open_source(X))
        return mapped(columns_of(X, self.model_.reads), self.model_.narrowed().transform, names)
