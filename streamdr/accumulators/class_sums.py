"""Means of classes, and how widely each column is spread within them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.accumulators.centred import Centre
from streamdr.accumulators.class_moments import MOST_CLASSES
from streamdr.accumulators.grouped import coded, grouped
from streamdr.blocks import Array, Block
from streamdr.errors import DataError
from streamdr.linalg import column_squares


class ClassSums:
    """Weight and mean of each class, and of each column the squares about the mean of its class.

    The latter are the diagonal of the scatter in `ClassMoments`: all that is to be known of one column at a
    time. Classes are found on the way, and are sorted.
    """

    kind: ClassVar[str] = "class_sums"
    holes: ClassVar[bool] = False

    def __init__(self, n_cols: int, *, double: bool = False, max_classes: int = MOST_CLASSES) -> None:
        self.n_cols = n_cols
        self.double = double
        self.max_classes = max_classes
        self.classes = np.zeros(0)
        self.centres: list[Centre] = []
        self.squares = np.zeros(n_cols)

    @property
    def weights(self) -> Array:
        """The sum of the weights of each class's rows."""
        return np.array([centre.weight for centre in self.centres])

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        if len(block.values) == 0:
            return
        classes, codes = coded(block, self.classes)
        rows = grouped(block, codes, double=self.double)
        self._absorb(classes[rows.groups], list(rows.centres), column_squares(rows.values), about_origin=True)

    def merge(self, later: Self) -> None:
        """Fold in the sums of the rows that follow."""
        self._absorb(later.classes, later.centres, later.squares, about_origin=False)

    def _absorb(
        self, classes: Array, centres: Sequence[Centre], squares: Array, *, about_origin: bool
    ) -> None:
        self._know(classes)
        self.squares = self.squares + squares
        for place, centre in zip(np.searchsorted(self.classes, classes), centres, strict=True):
            owed = self.centres[place].absorb(centre, moments_about_origin=about_origin)
            self.squares += owed.coefficients @ owed.vectors**2

    def _know(self, classes: Array) -> None:
        """Make room for classes that are new."""
        every = united(self.classes, classes)
        require_few(every, self.max_classes)
        known = dict(zip(np.searchsorted(every, self.classes), self.centres, strict=True))
        self.centres = [known.get(number) or Centre(self.n_cols) for number in range(len(every))]
        self.classes = every

    def empty_like(self) -> Self:
        """A fresh one for the same columns."""
        return type(self)(self.n_cols, double=self.double, max_classes=self.max_classes)

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart before any data."""
        return {"n_cols": self.n_cols, "double": self.double, "max_classes": self.max_classes}

    def value(self) -> dict[str, Array]:
        """Classes, their counts, weights and means, and the squares."""
        state = self.arrays()
        means = state["origins"] + state["offsets"]
        counted = {name: state[name] for name in ("counts", "weights", "squares")}
        return {"classes": spelt(self.classes), "means": means, **counted}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        table = (len(self.centres), self.n_cols)
        return {
            "classes": self.classes,
            "counts": np.array([centre.count for centre in self.centres], np.int64),
            "weights": self.weights,
            "origins": np.array([centre.origin for centre in self.centres]).reshape(table),
            "offsets": np.array([centre.offset for centre in self.centres]).reshape(table),
            "squares": self.squares,
        }

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take up a saved state."""
        self.classes, self.squares = arrays["classes"], arrays["squares"]
        columns = (arrays[name] for name in ("counts", "weights", "origins", "offsets"))
        self.centres = [
            Centre(self.n_cols, int(count), float(weight), origin, offset)
            for count, weight, origin, offset in zip(*columns, strict=True)
        ]


def united(known: Array, new: Array) -> Array:
    """All classes of both, sorted. None at all have no type: what is empty is not looked at."""
    if len(known) and len(new):
        return np.union1d(known, new)
    return (known if len(known) else new).copy()


def require_few(classes: Array, most: int) -> None:
    """Refuse so many classes that they are hardly that."""
    if len(classes) > most:
        some = ", ".join(str(label) for label in classes[:3].tolist())
        raise DataError(
            f"labels have more than {most:,} different values ({some}, ...): is this a target of numbers? "
            "Then set task: regression; if they are classes, set max_classes to how many there are"
        )


def spelt(classes: Array) -> Array:
    """Classes as numbers that can be compared: text by the numbers of its letters."""
    return classes.view(np.uint32).astype(np.float64) if classes.dtype.kind == "U" else classes
