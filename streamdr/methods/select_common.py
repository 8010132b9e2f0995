"""What all methods that select columns share: their parameters' meaning, and their models' making."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Literal

import numpy as np

from streamdr.blocks import Array, MatrixSpec
from streamdr.errors import DataError, ParameterError
from streamdr.linalg import constant_columns
from streamdr.methods.checks import require, require_products
from streamdr.methods.select_search import Path

Task = Literal["auto", "classification", "regression"]
USUAL = 10
"""How many columns are kept where nobody says."""


def check_shared(method: Any) -> None:
    """Refuse impossible values of the parameters that all of them have."""
    if not (method.k is None or (isinstance(method.k, str) and method.k in ("all", "cv"))):
        _require_whole("k", method.k, 1, ", 'all' or 'cv'")
    _require_whole("n_folds", method.n_folds, 2)
    _require_whole("max_classes", method.max_classes, 2)
    tasks = ("auto", "classification", "regression")
    require(method.task in tasks, "task", f"{method.task!r} is not one of {', '.join(tasks)}")
    require(method.precision in ("mixed", "double"), "precision", f"{method.precision!r} is no precision")


def _require_whole(name: str, number: Any, least: int, other: str = "") -> None:
    whole = isinstance(number, Integral) and not isinstance(number, bool)
    require(whole and number >= least, name, f"{number!r} is not a whole number of at least {least}{other}")


def check_data(method: Any, data: MatrixSpec) -> None:
    """Refuse data from which so many columns cannot be chosen."""
    if data.n_rows < 2:
        raise DataError(f"{method.name} needs at least 2 rows, not one sample: n_samples = {data.n_rows}")
    k = how_many(method, data)
    if k is not None and k > data.n_cols:
        raise ParameterError(
            "k", f"{k} columns are to be chosen, and the data has {data.n_cols}: ask for fewer"
        )


def how_many(method: Any, data: MatrixSpec) -> int | None:
    """The number of columns to keep; None where cross-validation decides."""
    if method.k == "cv":
        return None
    if method.k == "all":
        return data.n_cols
    return min(USUAL, data.n_cols) if method.k is None else int(method.k)


def task_of(task: Task, data: MatrixSpec) -> Literal["classification", "regression"]:
    """What labels are: floating numbers are numbers, and all else are classes, unless one says otherwise."""
    assert data.labels is not None  # the drivers see to that
    text = data.labels.kind not in "biuf"
    if task == "regression" and text:
        raise ParameterError("task", "regression needs a target of numbers, and the labels are text")
    if task == "auto":
        return "regression" if data.labels.kind == "f" else "classification"
    return task


def told(classes: Array, data: MatrixSpec) -> Array | list[str]:
    """Classes as a model keeps them: numbers in the labels' own type, text as a list."""
    if classes.dtype.kind == "U":
        return [str(name) for name in classes]
    return classes if data.labels is None else classes.astype(data.labels)


def which_constant(variance: Array, mean: Array) -> Array:
    """Whether each column, or a target beside them, is constant, by its variance."""
    require_products(variance)
    found = np.zeros(len(mean), bool)
    found[constant_columns(variance, mean)] = True
    return found


def chosen(order: Sequence[int] | Array, n_cols: int) -> dict[str, Any]:
    """The fields of a model that say which columns are kept."""
    selected = np.asarray(order, np.int64)
    support = np.zeros(n_cols, bool)
    support[selected] = True
    return {"selected": selected, "support": support}


def walked(path: Path) -> dict[str, Any]:
    """The fields of a model that tell how the search went."""
    return {
        "path_features": np.array(path.features, np.int64),
        "path_added": np.array(path.added, bool),
        "path_sizes": np.array(path.sizes, np.int64),
        "path_fold_scores": np.array(path.scores),
    }


def product_dtype(method: Any, data: MatrixSpec) -> np.dtype[Any]:
    """The type in which products of blocks are taken."""
    return np.dtype(np.float64) if method.precision == "double" else data.working
