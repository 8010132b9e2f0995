"""The interface of scikit-learn feature selectors, for methods that select columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from streamdr.core.blocks import Array
from streamdr.engine.fitting import require_features
from streamdr.estimators.labelled import in_order_of
from streamdr.estimators.lazy import RowMap, columns_of, is_streamed, mapped
from streamdr.estimators.mapped_rows import MappedRows, mapped_rows_of, remember
from streamdr.estimators.row_maps import finite_map

if TYPE_CHECKING:
    from streamdr.estimators.base import Estimator

    _Estimator = Estimator
else:
    _Estimator = object


class Selector(_Estimator):
    """Selection of columns from data of any size: for data in memory at once, otherwise lazily."""

    def get_support(self, indices: bool = False) -> Array:
        """Return which features are kept.

        Parameters
        ----------
        indices : bool
            Return their numbers, not a mask.

        Returns
        -------
        support : ndarray
            A mask over the features, or the numbers of those that are kept, ascending.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> chosen = streamdr.SelectFScore(1).fit(X, [0, 0, 1, 1, 2, 2])
        >>> chosen.get_support(), chosen.get_support(indices=True)
        (array([ True, False, False]), array([0]))
        """
        check_is_fitted(self)
        support: Array = self.model_.support
        support = support if self._axes is None else self._axes.expanded(support)
        return np.flatnonzero(support) if indices else support

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the features that are kept.

        Parameters
        ----------
        input_features : array of str or None
            The names of all features, if the fit had none.

        Returns
        -------
        names : ndarray of str
            The name of each feature that is kept.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> chosen = streamdr.SelectFScore(1).fit(X, [0, 0, 1, 1, 2, 2])
        >>> chosen.get_feature_names_out().tolist()
        ['x0']
        """
        check_is_fitted(self)
        return _check_feature_names_in(self, input_features)[self.get_support()]

    def _rows(
        self,
        X: Any,
        function: RowMap,
        names: Sequence[str],
        *,
        keep_features: bool = False,
        power: int = 1,
        dtype: np.dtype[Any] | None = None,
    ) -> Any:
        """Select columns of rows. Of streamed data, only these columns are read."""
        if not is_streamed(X) or isinstance(X, np.memmap) or mapped_rows_of(X) is not None:
            return super()._rows(X, function, names)
        rows = MappedRows(in_order_of(X, self._axes), self._how(X))
        require_features(self.model_, rows.source(), self._axes, vars(self).get("feature_names_in_"))
        kept = self.model_.reads if self._axes is None else self._axes.columns[self.model_.reads]
        columns, labelled = columns_of(rows.data, kept, rows.labelled)
        found = mapped(
            columns,
            partial(finite_map, self.model_.narrowed().transform),
            names,
            allow_nan=self._allows_missing,
            labelled=labelled,
            numbers=kept,
        )
        if not self._selects:
            remember(found, rows.then(self.model_))
        return found
