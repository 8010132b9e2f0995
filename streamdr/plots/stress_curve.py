"""How fast the stress of a configuration of points fell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from streamdr.blocks import Array
from streamdr.errors import DataError
from streamdr.plots.figures import BLUE, ORANGE, count, new_figure, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@runtime_checkable
class Stresses(Protocol):
    """A model of points that were moved step by step, each of which made distances fit better."""

    @property
    def stress_history(self) -> Array:
        """The stress after each iteration."""


def stress(model: Stresses, path: Path | str | None = None) -> Figure:
    """Draw the stress after each iteration on a log scale, with a mark and a line at the last."""
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
