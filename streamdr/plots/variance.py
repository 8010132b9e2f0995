"""The plot of the variance that each component explains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.figures import BLUE, count, draw_cumulative, new_figure, number_components, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@runtime_checkable
class Variances(Protocol):
    """A model whose components explain shares of a variance."""

    @property
    def explained_variance_ratio(self) -> Array:
        """The share of each component in the total variance."""


@runtime_checkable
class VarianceErrors(Variances, Protocol):
    """A model that knows the standard errors of these variances."""

    @property
    def total_variance(self) -> float:
        """The sum of all variances."""

    @property
    def explained_variance_error(self) -> Array | None:
        """The standard error of the variance of each component; None if it is not known."""


def explained_variance(model: Variances, path: Path | str | None = None) -> Figure:
    """Draw the share of the variance that each component explains, and the cumulative share.

    Error bars are standard errors, if the model has them. Components whose bars overlap are not separated.

    Parameters
    ----------
    model : model or estimator
        A model with `explained_variance_ratio`.
    path : str, Path or None
        The file to save the plot to, if any.

    Returns
    -------
    figure : Figure
        A figure of matplotlib.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
    >>> figure = streamdr.plots.explained_variance(streamdr.PCA(2).fit(X).model_)
    >>> len(figure.axes) > 0
    True
    """
    figure = new_figure()
    ratio = np.asarray(model.explained_variance_ratio)
    each = figure.add_subplot()
    width = 0.8 if len(ratio) <= 60 else 1.0
    each.bar(np.arange(1, len(ratio) + 1), 100 * ratio, width=width, color=BLUE, label="each component")
    if isinstance(model, VarianceErrors) and model.explained_variance_error is not None:
        bars = 100 * np.asarray(model.explained_variance_error) / model.total_variance
        number = np.arange(1, len(ratio) + 1)
        each.errorbar(number, 100 * ratio, bars, fmt="none", ecolor="black", elinewidth=1, label="error")
    each.set_ylabel("explained variance (%)")
    number_components(each, len(ratio))
    draw_cumulative(each, ratio)
    each.spines[["top", "right"]].set_visible(False)
    each.legend(frameon=False, loc="best")
    each.set_title(f"{count(len(ratio), 'component')}: {100 * ratio.sum():.1f} % of the variance", loc="left")
    save(figure, path)
    return figure
