"""The plot of the decay of the eigenvalues."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.figures import BLUE, count, draw_cumulative, new_figure, number_components, save
from streamdr.errors import DataError
from streamdr.plots.variance import Variances

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@runtime_checkable
class CovarianceSpectrum(Variances, Protocol):
    """A model of the covariance of the features, whose eigenvalues are variances."""

    @property
    def explained_variance(self) -> Array:
        """The variance along each component."""


@runtime_checkable
class KernelSpectrum(Variances, Protocol):
    """A model of a kernel matrix. Landmarks may capture only a part of it."""

    @property
    def eigenvalues(self) -> Array:
        """The eigenvalues of the centred kernel matrix."""

    @property
    def captured_trace(self) -> float | None:
        """The share of the kernel matrix's trace that the landmarks hold; None without landmarks."""


def eigenvalues(model: KernelSpectrum | CovarianceSpectrum, path: Path | str | None = None) -> Figure:
    """Draw the decay of the eigenvalues on a log scale, and the cumulative share of the variance.

    For a kernel model, the title says which share of the trace of the kernel matrix was captured.

    Parameters
    ----------
    model : model
        A model of kernel PCA, PCA, PPCA or LDA, such as `estimator.model_`.
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
    >>> figure = streamdr.plots.eigenvalues(streamdr.PCA(2).fit(X).model_)
    >>> len(figure.axes) > 0
    True
    """
    if isinstance(model, KernelSpectrum):
        values, y_label = np.asarray(model.eigenvalues), "eigenvalue of the kernel matrix"
        share = model.captured_trace
    else:
        values, y_label = np.asarray(model.explained_variance), "eigenvalue of the covariance"
        share = None
    ratio = np.asarray(model.explained_variance_ratio)
    positive = values > 0  # a log scale cannot show the others
    if not positive.any():
        raise DataError("the model has no eigenvalue above zero: there is nothing to draw")
    figure = new_figure((6.4, 5.6))
    axes, together = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    number = np.arange(1, len(values) + 1)[positive]
    marker = "o" if len(values) <= 60 else ""
    axes.semilogy(number, values[positive], color=BLUE, marker=marker, markersize=4, linewidth=1.5)
    axes.set_ylabel(y_label)
    draw_cumulative(together, ratio)
    together.set_ylabel("explained variance,\ncumulative (%)")
    number_components(together, len(values))
    for one in (axes, together):
        one.spines[["top", "right"]].set_visible(False)
    dropped = len(values) - len(number)
    zeros = f" ({dropped:,} of zero, left out)" if dropped else ""
    captured = (
        "" if share is None else f"\nthe landmarks hold {100 * share:.4g} % of the kernel matrix's trace"
    )
    axes.set_title(
        f"{count(len(values), 'component')}{zeros}: {100 * ratio.sum():.1f} % of the variance{captured}",
        loc="left",
    )
    save(figure, path)
    return figure
