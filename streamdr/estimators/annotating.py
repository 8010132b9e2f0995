"""Scores and annotations for AnnData objects in memory. Any object with the same attributes will do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamdr.core.annotations import annotations_of
from streamdr.core.axes import FeatureAxes
from streamdr.core.blocks import Array
from streamdr.core.method import Model
from streamdr.errors import InputError


def require_variables(adata: Any, names: Sequence[str] | None) -> None:
    """Refuse an object whose variables do not have the names that the features of the fit have."""
    if names is not None and list(map(str, adata.var_names)) != list(map(str, names)):
        raise InputError(
            "adata",
            "its variables are not those of the fit, in their order; select them with adata[:, names]",
        )


def annotate(adata: Any, scores: Array, method: str, model: Model, axes: FeatureAxes | None) -> None:
    """Put the scores of a method, and what its model says of variables, where scanpy expects them."""
    annotations = annotations_of(model)
    if axes is not None:
        annotations = annotations.scattered(axes.columns, axes.n_features)
    adata.obsm[f"X_{method}"] = np.asarray(scores)
    for name, loadings in annotations.varm.items():
        adata.varm[name] = loadings
    for name, values in annotations.var.items():
        adata.var[name] = values
    for name, entries in annotations.uns.items():
        adata.uns[name] = dict(entries)
