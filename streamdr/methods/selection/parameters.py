"""Parameters and model fields that all selection methods share."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Literal

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec
from streamdr.core.linalg import constant_columns
from streamdr.errors import DataError, ParameterError
from streamdr.methods.selection.search import Path
from streamdr.statistics.validation import require, require_products

Task = Literal["auto", "classification", "regression"]
DEFAULT_K = 10
"""The default number of columns."""


def check_shared(method: Any) -> None:
    """Refuse impossible values of the shared parameters."""
    if not (method.k is None or (isinstance(method.k, str) and method.k in ("all", "cv"))):
        _require_whole("k", method.k, 1, ", 'all' or 'cv'")
    _require_whole("n_folds", method.n_folds, 2)
    _require_whole("max_classes", method.max_classes, 2)
    tasks = ("auto", "classification", "regression")
    require(method.task in tasks, "task", f"{method.task!r} is not one of {', '.join(tasks)}")
    require(
        method.precision in ("mixed", "double"),
        "precision",
        f"{method.precision!r} is neither 'mixed' nor 'double'",
    )


def _require_whole(name: str, number: Any, least: int, other: str = "") -> None:
    """Refuse a parameter that is not a whole number of at least `least`."""
    whole = isinstance(number, Integral) and not isinstance(number, bool)
    require(whole and number >= least, name, f"{number!r} is not a whole number of at least {least}{other}")


def check_data(method: Any, data: MatrixSpec) -> None:
    """Refuse data with too few rows or columns."""
    if data.n_rows < 2:
        raise DataError(f"{method.name} needs at least 2 rows, not one sample: n_samples = {data.n_rows}")
    k = n_selected(method, data)
    if k is not None and k > data.n_cols:
        raise ParameterError(
            "k", f"{k} columns were requested, and the data has {data.n_cols}: set it to less"
        )


def n_selected(method: Any, data: MatrixSpec) -> int | None:
    """The number of columns to keep; None where cross-validation decides."""
    if method.k == "cv":
        return None
    if method.k == "all":
        return data.n_cols
    return min(DEFAULT_K, data.n_cols) if method.k is None else int(method.k)


def task_of(task: Task, data: MatrixSpec) -> Literal["classification", "regression"]:
    """The task: with "auto", floating-point labels are for regression, all others are classes."""
    assert data.labels is not None  # checked by the drivers
    text = data.labels.kind not in "biuf"
    if task == "regression" and text:
        raise ParameterError("task", "regression needs numbers, and the labels are text: use classification")
    if task == "auto":
        return "regression" if data.labels.kind == "f" else "classification"
    return task


def constant_mask(variance: Array, mean: Array) -> Array:
    """The mask of constant columns, by their variance."""
    require_products(variance)
    mask = np.zeros(len(mean), bool)
    mask[constant_columns(variance, mean)] = True
    return mask


def selected_fields(order: Sequence[int] | Array, n_cols: int) -> dict[str, Any]:
    """The fields of a model with the selected columns."""
    selected = np.asarray(order, np.int64)
    support = np.zeros(n_cols, bool)
    support[selected] = True
    return {"selected": selected, "support": support}


def path_fields(path: Path) -> dict[str, Any]:
    """The fields of a model with the path of the search."""
    return {
        "path_features": np.array(path.features, np.int64),
        "path_added": np.array(path.added, bool),
        "path_sizes": np.array(path.sizes, np.int64),
        "path_fold_scores": np.array(path.scores),
    }


def product_dtype(method: Any, data: MatrixSpec) -> np.dtype[Any]:
    """The type in which products of blocks are taken."""
    return np.dtype(np.float64) if method.precision == "double" else data.working
