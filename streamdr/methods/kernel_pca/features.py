"""Feature maps whose inner products are, or approximate, the values of a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from streamdr.core.blocks import AlignedArrays, Array, Span, SparseRows, aligned
from streamdr.core.row_functions import RowFunction, function_diagonal, function_matrix
from streamdr.core.sparse_maps import SparseAffine
from streamdr.methods.kernel_pca.kernels import Kernel, ShiftedRows, SparseSide, fill, fill_sparse


class Features(Protocol):
    """One or several maps of rows to columns, evaluated together."""

    @property
    def widths(self) -> Sequence[int]:
        """The number of columns of each map."""

    def fill(self, rows: Array | SparseRows, outs: Sequence[Array]) -> None:
        """Write the columns of each map."""

    def diagonal(self, rows: Array | SparseRows, numbers: Array) -> Array:
        """k(x, x) of each row, for each map: maps x rows. `numbers` are the row numbers."""

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, for the ledger's key: scalars, arrays and functions."""


SIDE_BYTES = 32 << 20
"""Bytes of rows that are shifted at a time: wide rows would otherwise double the memory of the block."""


def as_dense(rows: Array | SparseRows) -> Array:
    """The same rows, made dense if they are sparse: for maps that need all values."""
    return rows if isinstance(rows, np.ndarray) else rows.toarray()


class KernelColumns(AlignedArrays):
    """Values of kernels between rows and landmarks."""

    def __init__(self, kernels: Sequence[Kernel], landmarks: Array, origin: Array) -> None:
        self.kernels = tuple(kernels)
        self.landmarks = aligned(landmarks)
        self.origin = aligned(origin)
        self._shifted_landmarks: dict[np.dtype[Any], ShiftedRows] = {}
        self._sparse_products: dict[np.dtype[Any], SparseAffine] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shifted_landmarks": {}, "_sparse_products": {}}

    @property
    def widths(self) -> Sequence[int]:
        """The number of landmarks, for each kernel."""
        return [len(self.landmarks)] * len(self.kernels)

    def fill(self, rows: Array | SparseRows, outs: Sequence[Array]) -> None:
        """Write the columns of each kernel."""
        right = self._shifted_landmarks.get(rows.dtype)
        if right is None:
            right = self._shifted_landmarks[rows.dtype] = ShiftedRows(self.landmarks, self.origin, rows.dtype)
        if not isinstance(rows, np.ndarray) and any(each.made_of == "distances" for each in self.kernels):
            rows = rows.toarray()
        if isinstance(rows, np.ndarray):
            fill(self.kernels, ShiftedRows(rows, self.origin), right, outs)
            return
        products = self._sparse_products.get(rows.dtype)
        if products is None:
            spread = np.mean((self.landmarks - self.origin) ** 2, axis=0)
            moved = np.ascontiguousarray(right.moved.T)
            # Distances need products about the very origin that lengths are about: rounded to the rows' type.
            origin = self.origin.astype(rows.dtype).astype(np.float64)
            products = SparseAffine.of(origin, moved, spread, rows.dtype)
            self._sparse_products[rows.dtype] = products
        fill_sparse(self.kernels, SparseSide(rows, self.origin, products.far), right, products, outs)

    def diagonal(self, rows: Array | SparseRows, numbers: Array) -> Array:
        """k(x, x) of each row, for each kernel."""
        constants = [kernel.constant_diagonal for kernel in self.kernels]
        n_rows = rows.shape[0]
        if None not in constants:
            return np.repeat(np.array(constants, np.float64)[:, None], n_rows, axis=1)
        slabs = Span(0, n_rows).split(max(1, SIDE_BYTES // max(1, rows.shape[1] * rows.dtype.itemsize)))
        sides = (ShiftedRows(as_dense(rows[slab.slice]), self.origin) for slab in slabs)
        return np.concatenate(
            [np.stack([kernel.diagonal(side) for kernel in self.kernels]) for side in sides], axis=1
        )

    def parameters(self) -> Mapping[str, Any]:
        """The kernels by their names, and the landmarks."""
        names = {f"kernel.{number}": repr(kernel) for number, kernel in enumerate(self.kernels)}
        return {**names, "landmarks": self.landmarks, "origin": self.origin}


class StoredColumns(AlignedArrays):
    """Columns of a precomputed kernel matrix: landmarks are row numbers."""

    def __init__(self, numbers: Array) -> None:
        self.numbers = aligned(numbers)

    @property
    def widths(self) -> Sequence[int]:
        """One map."""
        return [len(self.numbers)]

    def fill(self, rows: Array | SparseRows, outs: Sequence[Array]) -> None:
        """Copy the columns of the landmarks."""
        np.take(as_dense(rows), self.numbers, axis=1, out=outs[0])

    def diagonal(self, rows: Array | SparseRows, numbers: Array) -> Array:
        """The value of each row with itself."""
        return as_dense(rows)[np.arange(rows.shape[0]), numbers][None].astype(np.float64)

    def parameters(self) -> Mapping[str, Any]:
        """The column numbers."""
        return {"columns": self.numbers}


class FunctionColumns(AlignedArrays):
    """Values of a user's function between rows and landmarks."""

    def __init__(self, function: RowFunction, landmarks: Array) -> None:
        self.function = function
        self.landmarks = aligned(landmarks)

    @property
    def widths(self) -> Sequence[int]:
        """One map."""
        return [len(self.landmarks)]

    def fill(self, rows: Array | SparseRows, outs: Sequence[Array]) -> None:
        """Call the function."""
        outs[0][...] = function_matrix(self.function, as_dense(rows), self.landmarks)

    def diagonal(self, rows: Array | SparseRows, numbers: Array) -> Array:
        """Call the function."""
        return function_diagonal(self.function, as_dense(rows))[None]

    def parameters(self) -> Mapping[str, Any]:
        """The function itself, and the landmarks."""
        return {"function": self.function, "landmarks": self.landmarks}


class Whitened(AlignedArrays):
    """Columns of a kernel times T, so that inner products of features are values of the kernel.

    It takes one more product than the columns alone, and is accurate where landmarks are nearly dependent.
    """

    def __init__(self, columns: Features, whitener: Array) -> None:
        self.columns = columns
        self.whitener = aligned(whitener)

    @property
    def widths(self) -> Sequence[int]:
        """One map."""
        return [self.whitener.shape[1]]

    def fill(self, rows: Array | SparseRows, outs: Sequence[Array]) -> None:
        """Compute the columns, and multiply them by T."""
        plain = np.empty((rows.shape[0], *self.columns.widths), rows.dtype)
        self.columns.fill(rows, [plain])
        np.matmul(plain, self.whitener.astype(rows.dtype, copy=False), out=outs[0])

    def diagonal(self, rows: Array | SparseRows, numbers: Array) -> Array:
        """k(x, x) of each row."""
        return self.columns.diagonal(rows, numbers)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters of the columns, and T."""
        return {**self.columns.parameters(), "whitener": self.whitener}


class FourierFeatures(AlignedArrays):
    """sqrt(2/D) cos(<w, x - c> + b): random features of a kernel that depends on differences only.

    Bochner's theorem (Rahimi and Recht 2007): w is drawn from the kernel's spectrum, normal for an rbf and
    Cauchy for a laplacian.
    """

    def __init__(self, frequencies: Array, phases: Array, origin: Array) -> None:
        self.frequencies = aligned(frequencies)
        self.phases = aligned(phases)
        self.origin = aligned(origin)

    @classmethod
    def drawn(
        cls, kernel: Kernel, n_features: int, origin: Array, rng: np.random.Generator
    ) -> FourierFeatures:
        """Draw random features for a kernel."""
        shape = (len(origin), n_features)
        if kernel.name == "rbf":
            frequencies = np.sqrt(2 * kernel.gamma) * rng.standard_normal(shape)
        else:
            frequencies = kernel.gamma * rng.standard_cauchy(shape)
        return cls(frequencies, rng.uniform(0, 2 * np.pi, n_features), origin)

    @property
    def widths(self) -> Sequence[int]:
        """One map."""
        return [self.frequencies.shape[1]]

    def fill(self, rows: Array | SparseRows, outs: Sequence[Array]) -> None:
        """Compute the features: a product and a cosine."""
        out, dtype = outs[0], rows.dtype
        np.matmul(
            as_dense(rows) - self.origin.astype(dtype), self.frequencies.astype(dtype, copy=False), out=out
        )
        out += self.phases.astype(dtype)
        np.cos(out, out=out)
        out *= np.sqrt(2 / out.shape[1])

    def diagonal(self, rows: Array | SparseRows, numbers: Array) -> Array:
        """k(x, x) = 1."""
        return np.ones((1, rows.shape[0]))

    def parameters(self) -> Mapping[str, Any]:
        """The frequencies, phases and origin."""
        return {"frequencies": self.frequencies, "phases": self.phases, "origin": self.origin}
