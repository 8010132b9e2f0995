"""Pictures of multidimensional scaling: the Shepard diagram, and how fast the stress fell."""

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
    """A model that keeps some pairs of rows; one that goes by order alone has `shepard_disparities`, too."""

    @property
    def shepard_dissimilarities(self) -> Array:
        """How far apart the rows of each pair are."""

    @property
    def shepard_distances(self) -> Array:
        """How far apart their points are."""

    @property
    def stress(self) -> float:
        """How badly all distances fit."""


def shepard(model: Pairs, path: Path | str | None = None) -> Figure:
    """Draw the distance of points against the dissimilarity of rows, pair by pair, and where they would be.

    That is the diagonal; where only the order of dissimilarities counts it is the disparities, in steps. Of
    many pairs every k-th is drawn.

    Parameters
    ----------
    model : model or estimator
        One of multidimensional scaling.
    path : str, Path or None
        Where to save the picture, if anywhere.

    Returns
    -------
    figure : Figure
        A figure of matplotlib.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
    >>> figure = streamdr.plots.shepard(streamdr.MetricMDS(2).fit(X).model_)
    >>> len(figure.axes) > 0
    True
    """
    wanted, found = np.asarray(model.shepard_dissimilarities), np.asarray(model.shepard_distances)
    there = np.isfinite(wanted) & np.isfinite(found)
    if not there.any():
        raise DataError("the model keeps no pair of rows that are apart: there is nothing to draw")
    figure = new_figure()
    axes = figure.add_subplot()
    step = ceil(int(there.sum()) / MOST_POINTS)
    shown = np.flatnonzero(there)[::step]
    axes.scatter(wanted[shown], found[shown], s=8, color=BLUE, alpha=0.35, linewidths=0)
    fitted = getattr(model, "shepard_disparities", None)
    if fitted is None:
        far = float(max(wanted[there].max(), found[there].max()))
        axes.plot([0.0, far], [0.0, far], color=ORANGE, linewidth=1.5, label="as they should be")
    else:
        _draw_steps(axes, wanted[there], np.asarray(fitted)[there])
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("dissimilarity of the rows")
    axes.set_ylabel("distance of the points")
    axes.set_title(f"{count(len(shown), 'pair')}: stress {model.stress:.4g}", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", frameon=False)
    save(figure, path)
    return figure


def _draw_steps(axes: Any, wanted: Array, fitted: Array) -> None:
    """Disparities never fall as dissimilarities rise: pairs that are tied are drawn from below."""
    order = np.lexsort((fitted, wanted))
    axes.step(
        wanted[order],
        fitted[order],
        where="post",
        color=ORANGE,
        linewidth=1.5,
        label="in order (disparities)",
    )


@runtime_checkable
class Stresses(Protocol):
    """A model of points that were moved step by step, each of which made distances fit better."""

    @property
    def stress_history(self) -> Array:
        """The stress after each iteration."""


def stress(model: Stresses, path: Path | str | None = None) -> Figure:
    """Draw the stress after each iteration on a log scale, with a mark and a line at the last.

    Parameters
    ----------
    model : model or estimator
        One of metric or nonmetric scaling.
    path : str, Path or None
        Where to save the picture, if anywhere.

    Returns
    -------
    figure : Figure
        A figure of matplotlib.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
    >>> figure = streamdr.plots.stress(streamdr.MetricMDS(1).fit(X).model_)
    >>> len(figure.axes) > 0
    True
    """
    history = np.asarray(model.stress_history)
    above = history > 0  # a log scale has no place for a perfect fit
    if not above.any():
        raise DataError("the model has no stress above zero: there is nothing to draw")
    figure = new_figure()
    from matplotlib.ticker import MaxNLocator

    axes = figure.add_subplot()
    number = np.arange(1, len(history) + 1)
    marker = "o" if len(history) <= 60 else ""
    axes.semilogy(number[above], history[above], color=BLUE, marker=marker, markersize=4, linewidth=1.5)
    if above[-1]:
        axes.axhline(history[-1], color=ORANGE, linewidth=0.8, linestyle="--")
        axes.semilogy(number[-1:], history[-1:], color=ORANGE, marker="o", markersize=7)
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
