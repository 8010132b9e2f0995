"""Plots of models and embeddings.

Besides the functions that are listed here, there is one for every plot of a registered method, such as
`streamdr.plots.shepard` and `streamdr.plots.log_likelihood`. Each returns a figure of matplotlib.
"""

from __future__ import annotations

from typing import Any

from streamdr.core.figures import MOST_POINTS
from streamdr.plots import catalog
from streamdr.plots.classes import MOST_CLASSES, Labels
from streamdr.plots.decay import eigenvalues
from streamdr.plots.fields import maps
from streamdr.plots.isolines import MOST_COMPONENTS, contours, landmarks_of
from streamdr.plots.mapped import MOST_MAPS
from streamdr.plots.scatter import scores
from streamdr.plots.timeline import MOST_SERIES, series
from streamdr.plots.variance import explained_variance

__all__ = [
    "MOST_CLASSES",
    "MOST_COMPONENTS",
    "MOST_MAPS",
    "MOST_POINTS",
    "MOST_SERIES",
    "Labels",
    "contours",
    "eigenvalues",
    "explained_variance",
    "landmarks_of",
    "maps",
    "scores",
    "series",
]
__all__ += [name for name in catalog.registered() if name not in __all__]


def __getattr__(name: str) -> Any:
    pictures = catalog.registered()
    if name in pictures:
        return pictures[name].draw
    raise AttributeError(f"module 'streamdr.plots' has no attribute {name!r}")
