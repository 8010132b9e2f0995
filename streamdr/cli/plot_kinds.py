# Written by `make derived`.

"""The kinds of plots. The help lists them without importing the methods that draw them."""

from __future__ import annotations

PLOT_KINDS = (
    "component_planes",
    "contours",
    "eigenvalues",
    "explained_variance",
    "hits",
    "log_likelihood",
    "maps",
    "quantization",
    "scores",
    "selection_path",
    "series",
    "shepard",
    "stress",
    "u_matrix",
)
