"""The estimators of all registered methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from streamdr import store
from streamdr.core.addresses import Location, parse_location
from streamdr.core.method import Method
from streamdr.data.labelled.opening import Labelled
from streamdr.estimators.base import Estimator
from streamdr.estimators.capabilities import BY_OPERATION, PartialFit
from streamdr.estimators.chain import Chain
from streamdr.estimators.classifiers import Classifier
from streamdr.estimators.fitted import documented
from streamdr.estimators.selectors import Selector
from streamdr.methods import METHODS

if TYPE_CHECKING:
    _Estimator = Estimator
else:
    _Estimator = object


class Unweighted(_Estimator):
    """For methods without weights of rows: `fit` has no `sample_weight`."""

    def fit(self, X: Any, y: Any = None, **labelled: Any) -> Self:  # type: ignore[override]
        """Fit the model to any number of rows, and return the estimator.

        Parameters
        ----------
        X : array, sparse matrix, data frame, AnnData, path, address, zarr array, dask array or DataArray
            The rows. Data that is not in memory is streamed.
        y : object
            Ignored.
        **labelled
            `variable`, `sample_dims`, `select`, `feature_weights`, `min_observed` and `balance_variables`, as
            in `open_source`.

        Returns
        -------
        self : estimator
            The estimator itself.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> streamdr.MetricMDS(2).fit(X).embedding_.shape
        (6, 2)
        """
        return super().fit(X, **labelled)


def _estimator(method: type[Method]) -> type[Estimator]:
    """Return the public class: parameters and docstring of the method, capabilities of its model."""
    capabilities: list[type] = []
    if hasattr(method.model, "decision_function"):
        capabilities.append(Classifier)
    if hasattr(method.model, "narrowed"):
        capabilities.append(Selector)
    if not method.tags.sample_weight:
        capabilities.append(Unweighted)
    if method.tags.incremental:
        capabilities.append(PartialFit)
    if Classifier not in capabilities:
        capabilities += [has for name, has in BY_OPERATION.items() if hasattr(method.model, name)]
    contents = {
        "__doc__": documented(method.__doc__ or "", method),
        "__module__": "streamdr.estimators",
        "__init__": method.__init__,
        "_method_class": method,
    }
    return type(method.__name__, (*capabilities, Estimator), contents)


ESTIMATORS: dict[str, type[Estimator]] = {name: _estimator(method) for name, method in METHODS.items()}
"""The estimators by the names of their methods."""


def _unfitted(method: str, parameters: Mapping[str, Any]) -> Estimator:
    """Return the estimator of a method with the parameters that were saved; for a chain, those of members."""
    if method != Chain._method_class.name:
        return ESTIMATORS[method](**parameters)
    members = []
    for step in parameters["steps"]:
        own = {key: value for key, value in step.items() if key not in ("name", "as")}
        members.append((step["as"], ESTIMATORS[step["name"]](**own)))
    return Chain(members)


def load_model(path: str | Location) -> Estimator:
    """Load a saved model as a fitted estimator. Every bit is checked, and no code is run.

    Parameters
    ----------
    path : str, Path or Address
        The model that `save`, a run or a flow has written.

    Returns
    -------
    estimator : Estimator
        An estimator of the model's method, or a `Chain` of some, fitted.

    Raises
    ------
    StoreError
        If there is no model, or it is damaged.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = streamdr.PCA(2).fit(X).save(f"{folder}/model.zarr")
    ...     streamdr.load_model(place)
    PCA(n_components=2)
    """
    saved = store.load_model(parse_location(path))
    estimator = _unfitted(saved.method, saved.parameters)
    estimator.model_ = saved.model
    estimator.feature_axes_ = saved.axes
    estimator.n_features_in_ = saved.model.n_features if saved.axes is None else saved.axes.n_features
    estimator.n_rows_ = saved.n_rows
    estimator._labelled = Labelled.recorded(saved.record["extra"].get("labelled"))
    if saved.feature_names is not None:
        estimator.feature_names_in_ = np.array(saved.feature_names, dtype=object)
    return estimator
