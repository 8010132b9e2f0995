"""Plots of multidimensional scaling: the Shepard diagram, and the stress by iteration."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.figures import BLUE, MOST_POINTS, ORANGE, count, new_figure, save
from streamdr.core.pictures import Picture
from streamdr.errors import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@runtime_checkable
class Pairs(Protocol):
    """A model with sampled pairs of rows. A nonmetric model also has `shepard_disparities`."""

    @property
    def shepard_dissimilarities(self) -> Array:
        """The dissimilarity of the rows of each pair."""

    @property
    def shepard_distances(self) -> Array:
        """The distance of each pair in the configuration."""

    @property
    def stress(self) -> float:
        """The stress of the configuration."""


def shepard(model: Pairs, path: Path | str | None = None) -> Figure:
    """Draw the Shepard diagram: the distance of each pair against its dissimilarity.

    A line shows a perfect fit: the diagonal, or the disparities as steps for nonmetric scaling. If there are
    many pairs, every k-th is drawn.

    Parameters
    ----------
    model : model or estimator
        A model of multidimensional scaling.
    path : str, Path or None
        The file to save the plot in; None to save nothing.

    Returns
    -------
    figure : Figure
        The figure of matplotlib.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
    >>> figure = streamdr.plots.shepard(streamdr.MetricMDS(2).fit(X).model_)
    >>> len(figure.axes) > 0
    True
    """
    dissimilarities = np.asarray(model.shepard_dissimilarities)
    distances = np.asarray(model.shepard_distances)
    finite = np.isfinite(dissimilarities) & np.isfinite(distances)
    if not finite.any():
        raise DataError("the model has no pair of rows with a finite distance: there is nothing to draw")
    figure = new_figure()
    axes = figure.add_subplot()
    step = ceil(int(finite.sum()) / MOST_POINTS)
    shown = np.flatnonzero(finite)[::step]
    axes.scatter(dissimilarities[shown], distances[shown], s=8, color=BLUE, alpha=0.35, linewidths=0)
    disparities = getattr(model, "shepard_disparities", None)
    if disparities is None:
        largest = float(max(dissimilarities[finite].max(), distances[finite].max()))
        axes.plot([0.0, largest], [0.0, largest], color=ORANGE, linewidth=1.5, label="perfect fit")
    else:
        _draw_steps(axes, dissimilarities[finite], np.asarray(disparities)[finite])
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("dissimilarity of the rows")
    axes.set_ylabel("distance of the points")
    axes.set_title(f"{count(len(shown), 'pair')}: stress {model.stress:.4g}", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", frameon=False)
    save(figure, path)
    return figure


def _draw_steps(axes: Any, dissimilarities: Array, disparities: Array) -> None:
    """Draw disparities as steps. They rise with dissimilarities; tied pairs are sorted by disparity."""
    order = np.lexsort((disparities, dissimilarities))
    axes.step(
        dissimilarities[order],
        disparities[order],
        where="post",
        color=ORANGE,
        linewidth=1.5,
        label="disparities",
    )


@runtime_checkable
class Stresses(Protocol):
    """A model with the stress of each iteration."""

    @property
    def stress_history(self) -> Array:
        """The stress after each iteration."""


def stress(model: Stresses, path: Path | str | None = None) -> Figure:
    """Draw the stress after each iteration on a log scale, with a marker and a line at the last one.

    Parameters
    ----------
    model : model or estimator
        A model of metric or nonmetric scaling.
    path : str, Path or None
        The file to save the plot in; None to save nothing.

    Returns
    -------
    figure : Figure
        The figure of matplotlib.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
    >>> figure = streamdr.plots.stress(streamdr.MetricMDS(1).fit(X).model_)
    >>> len(figure.axes) > 0
    True
    """
    history = np.asarray(model.stress_history)
    positive = history > 0  # a log scale cannot show zero
    if not positive.any():
        raise DataError("the model has no stress above zero: there is nothing to draw")
    figure = new_figure()
    from matplotlib.ticker import MaxNLocator

    axes = figure.add_subplot()
    iterations = np.arange(1, len(history) + 1)
    marker = "o" if len(history) <= 60 else ""
    axes.semilogy(
        iterations[positive], history[positive], color=BLUE, marker=marker, markersize=4, linewidth=1.5
    )
    if positive[-1]:
        axes.axhline(history[-1], color=ORANGE, linewidth=0.8, linestyle="--")
        axes.semilogy(iterations[-1:], history[-1:], color=ORANGE, marker="o", markersize=7)
    axes.set_xlabel("iteration")
    axes.set_ylabel("stress")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_title(f"{count(len(history), 'iteration')}: stress {history[-1]:.4g}", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)
    return figure


SHEPARD = Picture(
    "shepard",
    "Shepard diagram",
    shepard,
    "distances of pairs",
    lambda model: isinstance(model, Pairs) and len(model.shepard_distances) > 0,
)
STRESS = Picture(
    "stress",
    "stress",
    stress,
    "stresses of iterations",
    lambda model: isinstance(model, Stresses) and len(model.stress_history) > 0,
)
