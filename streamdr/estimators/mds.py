"""The four kinds of multidimensional scaling under one name."""

from __future__ import annotations

from abc import ABCMeta
from typing import Any, Literal

from streamdr.errors import ParameterError
from streamdr.estimators.registry import ESTIMATORS

_KINDS: dict[str, Any] = {
    kind: ESTIMATORS[f"{kind}_mds"] for kind in ("classical", "landmark", "metric", "nonmetric")
}


class MDS(metaclass=ABCMeta):  # noqa: B024  (the four kinds are registered with it)
    """Multidimensional scaling of one of four kinds: `MDS(2, kind="landmark")` is `LandmarkMDS(2)`.

    Parameters
    ----------
    n_components : int
        The number of dimensions of the coordinates.
    kind : "classical", "landmark", "metric" or "nonmetric"
        The estimator: `ClassicalMDS`, `LandmarkMDS`, `MetricMDS` or `NonmetricMDS`.
    **parameters : object
        The other parameters of that estimator.

    Examples
    --------
    >>> import streamdr
    >>> streamdr.MDS(3, kind="landmark", n_landmarks=50)
    LandmarkMDS(n_components=3, n_landmarks=50)
    >>> isinstance(streamdr.MDS(2), streamdr.MDS)
    True
    """

    def __new__(
        cls,
        n_components: int = 2,
        *,
        kind: Literal["classical", "landmark", "metric", "nonmetric"] = "metric",
        **parameters: Any,
    ) -> Any:
        """Return an estimator of that kind, with its parameters."""
        if kind not in _KINDS:
            raise ParameterError("kind", f"{kind!r} is not one of {', '.join(_KINDS)}")
        return _KINDS[kind](n_components, **parameters)


for _kind in _KINDS.values():
    MDS.register(_kind)
