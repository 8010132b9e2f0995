"""The plot of the likelihood over the iterations of EM."""

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


@runtime_checkable
class Likelihoods(Protocol):
    """A model that was fitted by iterations, with the log-likelihood of each."""

    @property
    def log_likelihoods(self) -> Array:
        """The mean log-likelihood per row at the beginning of each iteration."""


def log_likelihood(model: Likelihoods, path: Path | str | None = None) -> Figure:
    """Plot the log-likelihood of each iteration, and on a second axis its distance from the last one.

    Parameters
    ----------
    model : model or estimator
        A model that was fitted by EM.
    path : str, Path or None
        Where to save the image; None to save none.

    Returns
    -------
    figure : Figure
        A figure of matplotlib.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
    >>> figure = streamdr.plots.log_likelihood(streamdr.PPCA(1, method="em").fit(X).model_)
    >>> len(figure.axes) > 0
    True
    """
    history = np.asarray(model.log_likelihoods)
    if not len(history):
        raise DataError("the model was fitted without iterations: there is nothing to draw")
    figure = new_figure()
    from matplotlib.ticker import MaxNLocator

    number = np.arange(1, len(history) + 1)
    reached = figure.add_subplot()
    reached.plot(number, history, color=BLUE, marker="o", markersize=4, linewidth=1.5)
    reached.set_xlabel("iteration")
    reached.set_ylabel("log-likelihood (nats per row)", color=BLUE)
    reached.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    left = history[-1] - history[:-1]
    some = left > 0
    axes = [reached]
    if some.any():
        distance = reached.twinx()
        distance.semilogy(number[:-1][some], left[some], color=ORANGE, marker="o", markersize=3, linewidth=1)
        distance.set_ylabel("below the last iteration", color=ORANGE)
        axes.append(distance)
    reached.set_title(f"{count(len(history), 'iteration')}: {history[-1]:.6g} nats per row", loc="left")
    for one in axes:
        one.spines["top"].set_visible(False)
    save(figure, path)
    return figure


LOG_LIKELIHOOD = Picture(
    "log_likelihood",
    "log-likelihood",
    log_likelihood,
    "likelihoods of iterations",
    lambda model: isinstance(model, Likelihoods) and len(model.log_likelihoods) > 0,
)
