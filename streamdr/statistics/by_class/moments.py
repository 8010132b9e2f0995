"""Means of classes and the scatter within them, in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import Array, Block, SparseBlock, SparseRows
from streamdr.core.buffers import scratch
from streamdr.core.linalg import add_symmetric
from streamdr.statistics.by_class.classes import MOST_CLASSES, require_few, union_of_classes
from streamdr.statistics.by_class.grouping import coded, grouped
from streamdr.statistics.by_class.sparse_grouping import grouped_sparse
from streamdr.statistics.centring import Centre
from streamdr.statistics.group_centring import Centres
from streamdr.statistics.sparse_products import panel_bytes, products_of
from streamdr.statistics.sparse_rows import dense_blocks, is_mostly_filled


class ClassMoments:
    """Count, weight and mean of each class, and the scatter of rows about the mean of their own class.

    The scatter is that of all classes together (`pooled`), or one per class. It is never a difference of two
    scatters, so that it keeps its digits however far apart classes are. Classes are collected during the
    pass, and are sorted.
    """

    kind: ClassVar[str] = "class_moments"
    allow_nan: ClassVar[bool] = False

    def __init__(
        self, n_cols: int, *, pooled: bool = True, double: bool = False, max_classes: int = MOST_CLASSES
    ) -> None:
        self.n_cols = n_cols
        self.pooled = pooled
        self.double = double
        self.max_classes = max_classes
        self.classes = np.zeros(0)
        self._centres = Centres.empty(0, n_cols)
        self.scatters = [np.zeros((n_cols, n_cols))] if pooled else []
        """The pooled scatter, or one for each class."""

    @property
    def weights(self) -> Array:
        """The sum of the weights of each class's rows."""
        return self._centres.weights

    @property
    def centres(self) -> list[Centre]:
        """The centre of each class."""
        return list(self._centres)

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        if len(block.values) == 0:
            return
        classes, codes = coded(block, self.classes)
        require_few(classes, self.max_classes)
        rows = grouped(block, codes, together=not self.pooled, double=self.double)
        values = rows.values
        pieces = [values] if self.pooled else [values[span] for span in rows.spans]
        product = scratch("product", (self.n_cols, self.n_cols), values.dtype)
        # np.matmul detects the symmetric product, uses syrk and releases the GIL.
        products = (np.matmul(piece.T, piece, out=product) for piece in pieces)
        self._absorb(classes[rows.groups], rows.centres, products, about_origin=True)

    def update_sparse(self, block: SparseBlock) -> None:
        """Fold one block of sparse rows in."""
        if is_mostly_filled(block):
            for dense in dense_blocks(block, panel_bytes(self.n_cols)):
                self.update(dense)
            return
        classes, codes = coded(block, self.classes)
        require_few(classes, self.max_classes)
        for rows in grouped_sparse(block, codes, len(classes), double=self.double):
            pieces = [rows.values] if self.pooled else (rows.values[span] for span in rows.spans)
            products = map(products_of, pieces)
            self._absorb(classes[rows.groups], rows.centres, products, about_origin=True)

    def merge(self, later: Self) -> None:
        """Fold in the moments of the rows that follow."""
        self._absorb(later.classes, later._centres, later.scatters, about_origin=False)

    def _absorb(
        self, classes: Array, centres: Centres, scatters: Iterable[Array | SparseRows], *, about_origin: bool
    ) -> None:
        """Add the moments of more rows, by class."""
        places = self._places(classes)
        corrections = self._centres.absorb(places, centres, moments_about_origin=about_origin)
        if self.pooled:
            (scatter,) = scatters
            add_symmetric(self.scatters[0], scatter, *corrections)
            return
        for number, (place, scatter) in enumerate(zip(places, scatters, strict=True)):
            own = slice(number, None, len(places))
            add_symmetric(
                self.scatters[place], scatter, corrections.vectors[own], corrections.coefficients[own]
            )

    def _places(self, classes: Array) -> Array:
        """The indices of classes among all classes; new classes are added."""
        if len(classes) and not np.array_equal(classes, self.classes):
            every = union_of_classes(self.classes, classes)
            require_few(every, self.max_classes)
            if len(every) > len(self.classes):
                places = np.searchsorted(every, self.classes)
                self._centres = self._centres.embedded_in(places, len(every))
                if not self.pooled:
                    kept = dict(zip(places.tolist(), self.scatters, strict=True))
                    shape = (self.n_cols, self.n_cols)
                    self.scatters = [kept[n] if n in kept else np.zeros(shape) for n in range(len(every))]
                self.classes = every
        return np.searchsorted(self.classes, classes)

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.n_cols, pooled=self.pooled, double=self.double, max_classes=self.max_classes)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        names = ("n_cols", "pooled", "double", "max_classes")
        return {name: getattr(self, name) for name in names}

    def value(self) -> dict[str, Array]:
        """Classes, their counts, weights and means, and the scatter. Text is converted to code points."""
        state, text = self._centres.arrays(), self.classes.dtype.kind == "U"
        classes = self.classes.view(np.uint32).astype(np.float64) if text else self.classes
        means = state["origins"] + state["offsets"]
        scatters = np.array(self.scatters).reshape(-1, self.n_cols, self.n_cols)
        numbers = {"counts": state["counts"], "weights": state["weights"]}
        return {"classes": classes, **numbers, "means": means, "scatters": scatters}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        scatters = {f"scatter{number:04d}": scatter for number, scatter in enumerate(self.scatters)}
        return {"classes": self.classes, **self._centres.arrays(), **scatters}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.classes = arrays["classes"]
        self._centres = Centres.of(arrays)
        names = sorted(name for name in arrays if name.startswith("scatter"))
        self.scatters = [arrays[name] for name in names]
