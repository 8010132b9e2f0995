"""The plot of a selection of columns by how much they vary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.figures import BLUE, ORANGE, new_figure, save
from streamdr.core.pictures import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@runtime_checkable
class SelectedByVariance(Protocol):
    """A model that selects the columns that vary most."""

    support: Array
    means: Array
    variances: Array
    dispersions: Array | None


def selected_variance(model: SelectedByVariance, path: Path | str | None = None) -> Figure:
    """Draw the variance, or the dispersion, of each column against its mean; selected ones stand out.

    Parameters
    ----------
    model : model
        A model that selects the columns that vary most.
    path : str, Path or None
        The file to save the plot in; None to save nothing.

    Returns
    -------
    figure : Figure
        The figure of matplotlib.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.arange(12.0).reshape(4, 3) * [1.0, 0.1, 3.0]
    >>> chosen = streamdr.SelectVariance(2).fit(X)
    >>> len(streamdr.plots.selected_variance(chosen.model_).axes)
    1
    """
    figure = new_figure()
    axes = figure.add_subplot()
    logged = model.dispersions is None
    heights = model.variances if model.dispersions is None else model.dispersions
    shown = np.isfinite(heights) & ((heights > 0) | (not logged))
    groups = ((shown & ~model.support, BLUE, "left out"), (shown & model.support, ORANGE, "selected"))
    for columns, colour, label in groups:
        axes.plot(
            model.means[columns],
            heights[columns],
            ".",
            color=colour,
            markersize=3,
            label=label,
            rasterized=True,
        )
    if logged and shown.any():
        axes.set_yscale("log")
    axes.set_xlabel("mean")
    axes.set_ylabel("variance" if logged else "dispersion")
    axes.legend(frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    kept = int(np.count_nonzero(model.support))
    axes.set_title(f"{kept:,} of {len(model.support):,} columns", loc="left")
    save(figure, path)
    return figure


def _fits(model: object) -> bool:
    return isinstance(model, SelectedByVariance)


SELECTED_VARIANCE = Picture(
    "selected_variance", "selection by variance", selected_variance, "a selection by variance", _fits
)
