"""Kernels between blocks of rows: a matrix product for most, and element-wise functions in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from scipy.spatial.distance import cdist

from streamdr.core.blocks import AlignedArrays, Array, MatrixSpec, SparseRows, aligned
from streamdr.core.sparse_maps import SparseAffine
from streamdr.core.work import Work, products

KernelName = Literal["linear", "poly", "rbf", "sigmoid", "laplacian", "cosine"]
KERNELS: tuple[str, ...] = get_args(KernelName)


def kernel_work(data: MatrixSpec, n_landmarks: int, dtype: np.dtype[Any], name: str) -> Work:
    """The work of the kernel values of all rows with landmarks."""
    values = float(data.n_rows) * n_landmarks
    inner = (
        Work(cached=3 * values * data.n_cols)
        if name == "laplacian"
        else products(values * data.n_cols, dtype, "product")
    )
    return inner + Work(functions=values * dtype.itemsize / 8, moved=4 * values * dtype.itemsize)


@dataclass(frozen=True)
class Kernel:
    """One kernel with its parameters, which are scikit-learn's.

    linear <x,y>, about the origin that rows are moved to; poly (gamma <x,y> + coef0)^degree; sigmoid
    tanh(gamma <x,y> + coef0); rbf exp(-gamma |x-y|^2); laplacian exp(-gamma |x-y|_1); cosine <x,y> / |x||y|.
    """

    name: KernelName
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 1.0

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{name}={value:g}" for name, value in self.used.items())])

    @property
    def used(self) -> dict[str, float]:
        """The parameters that this kernel has."""
        names = {"poly": ("gamma", "degree", "coef0"), "sigmoid": ("gamma", "coef0")}
        own = names.get(self.name, ("gamma",) if self.name in ("rbf", "laplacian") else ())
        return {name: getattr(self, name) for name in own}

    @property
    def moves(self) -> bool:
        """Whether rows may be shifted: the values, or the centred values, do not change."""
        return self.name in ("linear", "rbf", "laplacian")

    @property
    def definite(self) -> bool:
        """Whether its form makes it positive semidefinite: not tanh, nor poly with a negative constant."""
        return not (self.name == "sigmoid" or (self.name == "poly" and self.coef0 < 0))

    @property
    def made_of(self) -> Literal["products", "distances", "units"]:
        """What it is computed from: products of shifted rows, city-block distances, or unit rows."""
        return {"laplacian": "distances", "cosine": "units"}.get(self.name, "products")  # type: ignore[return-value]

    @property
    def constant_diagonal(self) -> float | None:
        """k(x, x), where that is the same for all rows."""
        return 1.0 if self.name in ("rbf", "laplacian") else None

    def affine(self, left: ShiftedRows | SparseSide, right: ShiftedRows) -> tuple[float, Array, Array]:
        """The factor of the products <x - c, y - c>, and the terms to add for each x and for each y."""
        if self.name == "rbf":  # -gamma (|x-c|^2 + |y-c|^2 - 2 <x-c, y-c>)
            return 2 * self.gamma, -self.gamma * left.squares, -self.gamma * right.squares
        if self.name == "linear":  # the origin is near the mean, and the kernel is centred later anyway
            return 1.0, np.zeros_like(left.squares), np.zeros_like(right.squares)
        whole = right.along + right.origin_square
        return self.gamma, self.gamma * left.along, self.gamma * whole + right.squares.dtype.type(self.coef0)

    def finish(self, pairs: Array) -> None:
        """Apply the kernel's function to the result of `affine` (to distances, for a laplacian), in place."""
        if self.name == "rbf":
            np.minimum(pairs, 0.0, out=pairs)  # rounding must not make a distance negative
            np.exp(pairs, out=pairs)
        elif self.name == "laplacian":
            pairs *= -self.gamma
            np.exp(pairs, out=pairs)
        elif self.name == "sigmoid":
            np.tanh(pairs, out=pairs)
        elif self.name == "poly":
            _raise_to(pairs, self.degree)

    def diagonal(self, side: ShiftedRows | SparseSide) -> Array:
        """k(x, x) of each row."""
        if self.constant_diagonal is not None:
            return np.full(len(side.squares), self.constant_diagonal)
        if self.name == "cosine":
            return (side.norm_squares > 0).astype(np.float64)
        if self.name == "linear":
            return side.squares.astype(np.float64)
        products: Array = side.norm_squares.astype(np.float64)
        products *= self.gamma
        products += self.coef0
        self.finish(products)
        return products


def _raise_to(values: Array, power: int) -> None:
    """values ** power in place by squaring, which is faster than numpy's power."""
    base = values.copy() if power & (power - 1) else values
    for bit in bin(power)[3:]:
        np.multiply(values, values, out=values)
        if bit == "1":
            values *= base


class ShiftedRows(AlignedArrays):
    """Rows minus an origin near their mean, where distances do not cancel, and their norms.

    All arrays have the type of the rows, or `dtype`: products of float32 are taken in float32.
    """

    def __init__(self, rows: Array, origin: Array, dtype: np.dtype[Any] | None = None) -> None:
        self.rows = rows
        centre = origin.astype(dtype or rows.dtype)
        # Shifted in the rows' own precision, and rounded afterwards: near the origin little is lost.
        self.moved = aligned((rows - centre.astype(rows.dtype)).astype(centre.dtype, copy=False))
        self.squares: Array = np.einsum("ij,ij->i", self.moved, self.moved)
        self.along: Array = self.moved @ centre
        self.origin_square = centre @ centre
        self._augmented: tuple[Kernel, Array] | None = None

    def augmented(self, kernel: Kernel, scale: float, column: Array) -> Array:
        """The scaled rows, each with a 1 and its term appended; cached for the last kernel."""
        if self._augmented is None or self._augmented[0] != kernel:
            longer = np.empty((len(self.moved), self.moved.shape[1] + 2), self.moved.dtype)
            longer[:, :-2] = self.moved * self.moved.dtype.type(scale)
            longer[:, -2] = 1
            longer[:, -1] = column
            self._augmented = kernel, longer
        return self._augmented[1]

    @cached_property
    def norm_squares(self) -> Array:
        """|x|^2 of each unshifted row."""
        squares: Array = np.einsum("ij,ij->i", self.rows, self.rows).astype(self.moved.dtype, copy=False)
        return squares

    @cached_property
    def units(self) -> Array:
        """The unshifted rows scaled to length one; rows of zeros stay zero."""
        norms = np.sqrt(np.einsum("ij,ij->i", self.rows, self.rows))
        units: Array = self.rows / np.where(norms > 0, norms, 1)[:, None]
        return aligned(units.astype(self.moved.dtype, copy=False))


class SparseSide:
    """Sparse rows in place of `ShiftedRows` on the left: their lengths and products about the origin.

    Columns that are `far` from zero are made dense, and shifted: see `core/sparse_maps.py`.
    """

    def __init__(self, rows: SparseRows, origin: Array, far: Array) -> None:
        self.rows = rows
        self._origin = origin.astype(rows.dtype)
        self._far = far
        self._shifted = rows[:, far].toarray() - self._origin[far]
        self._near = self._origin.copy()
        self._near[far] = 0

    @cached_property
    def squares(self) -> Array:
        """|x - c|^2 of each row."""
        near = self._near[self.rows.indices]
        values = (self.rows.data - near) ** 2 - near**2
        if len(self._far):
            values[np.isin(self.rows.indices, self._far)] = 0
        level = float(self._near.astype(np.float64) @ self._near)
        squares = _row_sums(self.rows, values) + level
        squares += np.einsum("ij,ij->i", self._shifted, self._shifted)
        return squares.astype(self.rows.dtype)

    @cached_property
    def along(self) -> Array:
        """<x - c, c> of each row."""
        along: Array = self.rows @ self._near - self._near @ self._near
        along += self._shifted @ self._origin[self._far]
        return along

    @cached_property
    def norm_squares(self) -> Array:
        """|x|^2 of each row."""
        return _row_sums(self.rows, self.rows.data**2).astype(self.rows.dtype)

    def units_with(self, right: ShiftedRows) -> Array:
        """Products of rows of length one with those on the right; rows of zeros stay zero."""
        norms = np.sqrt(_row_sums(self.rows, np.square(self.rows.data, dtype=np.float64)))
        products: Array = self.rows @ np.ascontiguousarray(right.units.T)
        products /= np.where(norms > 0, norms, 1).astype(products.dtype)[:, None]
        return products


def _row_sums(rows: SparseRows, values: Array) -> Array:
    """The sum of some values at the places of each row's stored ones, in double precision."""
    numbers = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    return np.bincount(numbers, values, rows.shape[0])


def fill_sparse(
    kernels: Sequence[Kernel],
    left: SparseSide,
    right: ShiftedRows,
    products: SparseAffine,
    outs: Sequence[Array],
) -> None:
    """Compute several kernels of sparse rows; `products` maps rows to products of `right.moved`."""
    found: Array | None = None
    for kernel, out in zip(kernels, outs, strict=True):
        if kernel.made_of == "units":
            out[...] = left.units_with(right)
        else:
            found = products(left.rows) if found is None else found
            scale, row, column = kernel.affine(left, right)
            np.multiply(found, scale, out=out)
            out += row[:, None]
            out += column
        kernel.finish(out)


def fill(kernels: Sequence[Kernel], left: ShiftedRows, right: ShiftedRows, outs: Sequence[Array]) -> None:
    """Compute several kernels between two sets of rows. They share products and distances."""
    made: dict[str, list[tuple[Kernel, Array]]] = {"products": [], "distances": [], "units": []}
    for kernel, out in zip(kernels, outs, strict=True):
        made[kernel.made_of].append((kernel, out))
    if len(made["products"]) == 1:
        _fused(*made["products"][0], left, right)
    elif made["products"]:
        products = left.moved @ right.moved.T
        for kernel, out in made["products"]:
            scale, row, column = kernel.affine(left, right)
            np.multiply(products, scale, out=out)
            out += row[:, None]
            out += column
    if made["distances"]:
        distances = cdist(left.moved, right.moved, "cityblock")
        # At an infinite distance a kernel is zero, which would hide an infinite value.
        distances[~np.isfinite(left.moved).all(axis=1)] = np.nan
        for _, out in made["distances"]:
            out[...] = distances
    for _, out in made["units"]:
        np.matmul(left.units, right.units.T, out=out)
    for kernel, out in zip(kernels, outs, strict=True):
        kernel.finish(out)


def _fused(kernel: Kernel, out: Array, left: ShiftedRows, right: ShiftedRows) -> None:
    """Scaled products plus the terms for rows and columns, as one product of rows with two more values."""
    scale, row, column = kernel.affine(left, right)
    longer = np.empty((len(left.moved), left.moved.shape[1] + 2), left.moved.dtype)
    longer[:, :-2] = left.moved
    longer[:, -2] = row
    longer[:, -1] = 1
    np.matmul(longer, right.augmented(kernel, scale, column).T, out=out)


def kernel_matrix(kernel: Kernel, left: ShiftedRows, right: ShiftedRows) -> Array:
    """The kernel matrix between two sets of rows."""
    matrix = np.empty((len(left.moved), len(right.moved)), left.moved.dtype)
    fill([kernel], left, right, [matrix])
    return matrix
