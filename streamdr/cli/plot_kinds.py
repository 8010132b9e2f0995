# Written by `make derived`.

"""The kinds of pictures. The help names them without an import of the methods that draw them."""

from __future__ import annotations

PLOT_KINDS = (
    "component_planes",
    "contours",
    "eigenvalues",
    "explained_variance",
    "hits",
    "log_likelihood",
    "quantization",
    "scores",
    "selection_path",
    "shepard",
    "stress",
    "u_matrix",
)
