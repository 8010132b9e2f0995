"""The set of classes that labels have: sorted, of limited size, and as a model keeps them."""

from __future__ import annotations

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec
from streamdr.errors import DataError

MOST_CLASSES = 1000
"""The default of the largest number of classes."""


def union_of_classes(known: Array, new: Array) -> Array:
    """The union of two sets of classes, sorted. An empty set is ignored, since it has no type."""
    if len(known) and len(new):
        return np.union1d(known, new)
    return (known if len(known) else new).copy()


def require_few(classes: Array, most: int) -> None:
    """Refuse more than `most` classes."""
    if len(classes) > most:
        some = ", ".join(f"{label:g}" if classes.dtype.kind == "f" else str(label) for label in classes[:3])
        raise DataError(
            f"labels have more than {most:,} different values ({some}, ...): if they are classes, set "
            "max_classes to their number, and give one prior for each class where priors are set; if they "
            "are numbers to predict, use a method for numbers, with task: regression where it has a task"
        )


def comparable_classes(classes: Array) -> Array:
    """Classes as numbers that can be compared: text as its code points."""
    return classes.view(np.uint32).astype(np.float64) if classes.dtype.kind == "U" else classes


def class_labels(classes: Array, data: MatrixSpec) -> Array | list[str]:
    """The classes as a field of a model: numbers in the type of the labels, text as a list."""
    if classes.dtype.kind == "U":
        return [str(name) for name in classes]
    return classes if data.labels is None else classes.astype(data.labels)
