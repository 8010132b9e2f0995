"""How far apart points were put, beside how far apart they should be."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from streamdr.blocks import Array
from streamdr.errors import DataError
from streamdr.plots.figures import BLUE, ORANGE, count, new_figure, save
from streamdr.plots.scatter import MOST_POINTS

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
    many pairs every so manyth is drawn.
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
