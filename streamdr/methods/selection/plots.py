"""The plot of the path of a search for columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.figures import BLUE, ORANGE, count, new_figure, save
from streamdr.core.pictures import Picture
from streamdr.errors import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMED = 40
"""The largest number of steps that are labelled with their column."""


@runtime_checkable
class Searched(Protocol):
    """A model with the path of a search."""

    selected: Array
    n_features: int
    scoring: str | None
    path_features: Array | None
    path_added: Array | None
    path_sizes: Array | None
    path_fold_scores: Array | None


def has_path(model: object) -> bool:
    """Whether a model has a path to draw."""
    return isinstance(model, Searched) and model.path_fold_scores is not None


def selection_path(model: Searched, path: Path | str | None = None) -> Figure:
    """Draw the score of each subset on the path of a search against its size, with its standard deviation.

    The score is the mean of all folds, and the standard deviation is that of the folds.

    Parameters
    ----------
    model : model
        A model whose columns were chosen by cross-validation.
    path : str, Path or None
        The file to save the plot in; None to save nothing.

    Returns
    -------
    figure : Figure
        The figure of matplotlib.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> rows = np.arange(40)
    >>> X = np.stack([rows * 7 % 5, rows % 2, rows], axis=1).astype(float)
    >>> chosen = streamdr.SelectForward(2, learner="linear").fit(X, X[:, 2] + 3 * X[:, 1])
    >>> figure = streamdr.plots.selection_path(chosen.model_)
    >>> len(figure.axes) > 0
    True
    """
    scores, sizes, added = model.path_fold_scores, model.path_sizes, model.path_added
    if scores is None or sizes is None or added is None or model.path_features is None:
        raise DataError("the columns were not chosen by cross-validation: there is no path to draw")
    figure = new_figure()
    from matplotlib.ticker import MaxNLocator

    axes = figure.add_subplot()
    mean, deviation = scores.mean(axis=1), scores.std(axis=1)
    order = np.argsort(sizes, kind="stable")
    axes.fill_between(
        sizes[order],
        (mean - deviation)[order],
        (mean + deviation)[order],
        color=BLUE,
        alpha=0.15,
        linewidth=0,
    )
    axes.plot(sizes, mean, color=BLUE, linewidth=1.2)
    axes.plot(sizes[added], mean[added], "o", color=BLUE, markersize=4, label="added")
    if not added.all():
        axes.plot(sizes[~added], mean[~added], "o", color=BLUE, markersize=4, mfc="white", label="removed")
    if len(sizes) <= _NAMED:
        for size, score, feature in zip(sizes, mean, model.path_features, strict=True):
            if feature >= 0:
                offset = (0, 5 if len(sizes) < 20 else 7)
                axes.annotate(
                    str(feature), (size, score), offset, textcoords="offset points", ha="center", fontsize=7
                )
    same_size = sizes == len(model.selected)
    best = float(mean[same_size].max())
    axes.axvline(len(model.selected), color=ORANGE, linewidth=1, linestyle="--")
    axes.plot(len(model.selected), best, "D", color=ORANGE, markersize=6, label="chosen")
    axes.set_xlabel("columns")
    axes.set_ylabel(f"held-out {str(model.scoring).replace('_', ' ')} (mean and deviation of folds)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.legend(frameon=False, loc="lower right")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_title(f"{len(model.selected):,} of {count(model.n_features, 'column')}: {best:.4g}", loc="left")
    save(figure, path)
    return figure


SELECTION_PATH = Picture("selection_path", "selection path", selection_path, "a path of subsets", has_path)
