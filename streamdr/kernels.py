"""Kernels on blocks of rows: one matrix product for most of them, and steps in place on what it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from scipy.spatial.distance import cdist

from streamdr.blocks import Array, Settled, settled
from streamdr.errors import ParameterError

KernelName = Literal["linear", "poly", "rbf", "sigmoid", "laplacian", "cosine"]
KERNELS: tuple[str, ...] = get_args(KernelName)
KernelFunction = Callable[[Array, Array], Any]

_DIAGONAL_ROWS = 8


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
        """Whether it is the same, or as good, for rows that are all moved by as much."""
        return self.name in ("linear", "rbf", "laplacian")

    @property
    def definite(self) -> bool:
        """Whether its form makes it positive semidefinite: not tanh, nor poly with a negative constant."""
        return not (self.name == "sigmoid" or (self.name == "poly" and self.coef0 < 0))

    @property
    def made_of(self) -> Literal["products", "distances", "units"]:
        """What it is made of: products of moved rows, distances along the axes, or rows of unit length."""
        return {"laplacian": "distances", "cosine": "units"}.get(self.name, "products")  # type: ignore[return-value]

    @property
    def at_itself(self) -> float | None:
        """k(x, x) where that is one number for all rows."""
        return 1.0 if self.name in ("rbf", "laplacian") else None

    def affine(self, left: Side, right: Side) -> tuple[float, Array, Array]:
        """How products <x - c, y - c> are scaled, and what is added for each x and each y, to begin with."""
        if self.name == "rbf":  # -gamma (|x-c|^2 + |y-c|^2 - 2 <x-c, y-c>)
            return 2 * self.gamma, -self.gamma * left.squares, -self.gamma * right.squares
        if self.name == "linear":  # it loses nothing near the middle of the rows, and is centred anyway
            return 1.0, np.zeros_like(left.squares), np.zeros_like(right.squares)
        whole = right.along + right.origin_square
        return self.gamma, self.gamma * left.along, self.gamma * whole + right.squares.dtype.type(self.coef0)

    def finish(self, pairs: Array) -> None:
        """Turn what `affine` made of products (distances, for a laplacian) into values, in place."""
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

    def diagonal(self, side: Side) -> Array:
        """k(x, x) of each row."""
        if self.at_itself is not None:
            return np.full(len(side.squares), self.at_itself)
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
    """values ** power in place by squaring: numpy's own power takes a logarithm a value."""
    base = values.copy() if power & (power - 1) else values
    for bit in bin(power)[3:]:
        np.multiply(values, values, out=values)
        if bit == "1":
            values *= base


class Side(Settled):
    """Rows moved to an origin near their middle, where distances do not cancel, and what kernels ask of each.

    All in the type of the rows, or the one that is given: products of float32 are taken in float32.
    """

    def __init__(self, rows: Array, origin: Array, dtype: np.dtype[Any] | None = None) -> None:
        self.rows = rows
        centre = origin.astype(dtype or rows.dtype)
        # Moved in the rows' own precision, and only then rounded: near the origin little is lost.
        self.moved = settled((rows - centre.astype(rows.dtype)).astype(centre.dtype, copy=False))
        self.squares: Array = np.einsum("ij,ij->i", self.moved, self.moved)
        self.along: Array = self.moved @ centre
        self.origin_square = centre @ centre
        self._lengthened: tuple[Kernel, Array] | None = None

    def lengthened(self, kernel: Kernel, scale: float, column: Array) -> Array:
        """The rows scaled, each with a one and what is added for it; kept for the kernel that asked last."""
        if self._lengthened is None or self._lengthened[0] != kernel:
            longer = np.empty((len(self.moved), self.moved.shape[1] + 2), self.moved.dtype)
            longer[:, :-2] = self.moved * self.moved.dtype.type(scale)
            longer[:, -2] = 1
            longer[:, -1] = column
            self._lengthened = kernel, longer
        return self._lengthened[1]

    @cached_property
    def norm_squares(self) -> Array:
        """|x|^2 of each row as it was."""
        squares: Array = np.einsum("ij,ij->i", self.rows, self.rows).astype(self.moved.dtype, copy=False)
        return squares

    @cached_property
    def units(self) -> Array:
        """The rows as they were, of length one; a row of zeros is at no angle to anything, and stays."""
        norms = np.sqrt(np.einsum("ij,ij->i", self.rows, self.rows))
        units: Array = self.rows / np.where(norms > 0, norms, 1)[:, None]
        return settled(units.astype(self.moved.dtype, copy=False))


def fill(kernels: Sequence[Kernel], left: Side, right: Side, outs: Sequence[Array]) -> None:
    """Values of several kernels between rows of two sides. What they are made of is made once."""
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
        # At an infinite distance a kernel would be zero: nobody would notice that the value was no number.
        distances[~np.isfinite(left.moved).all(axis=1)] = np.nan
        for _, out in made["distances"]:
            out[...] = distances
    for _, out in made["units"]:
        np.matmul(left.units, right.units.T, out=out)
    for kernel, out in zip(kernels, outs, strict=True):
        kernel.finish(out)


def _fused(kernel: Kernel, out: Array, left: Side, right: Side) -> None:
    """Scaled products and what is added to them as one product, of rows that are two values longer."""
    scale, row, column = kernel.affine(left, right)
    longer = np.empty((len(left.moved), left.moved.shape[1] + 2), left.moved.dtype)
    longer[:, :-2] = left.moved
    longer[:, -2] = row
    longer[:, -1] = 1
    np.matmul(longer, right.lengthened(kernel, scale, column).T, out=out)


def kernel_matrix(kernel: Kernel, left: Side, right: Side) -> Array:
    """All values of a kernel between rows of two sides."""
    matrix = np.empty((len(left.moved), len(right.moved)), left.moved.dtype)
    fill([kernel], left, right, [matrix])
    return matrix


def function_matrix(function: KernelFunction, left: Array, right: Array, parameter: str = "kernel") -> Array:
    """A user's function between all rows: of two blocks at once where it gives a matrix, else of pairs.

    Both are common: `sklearn.metrics.pairwise` has functions of blocks, and scikit-learn's estimators take
    functions of two rows.
    """
    if _takes_blocks(function, left[:1], right):
        return np.asarray(function(left, right), np.float64)
    return np.array([[_number(function, x, y, parameter) for y in right] for x in left])


def function_diagonal(function: KernelFunction, rows: Array) -> Array:
    """A user's function of each row and itself."""
    if not len(rows) or not _takes_blocks(function, rows[:1], rows):
        return np.array([_number(function, row, row) for row in rows])
    # A few rows at a time: a call a row would cost more than the values that nobody needs.
    parts = (rows[start : start + _DIAGONAL_ROWS] for start in range(0, len(rows), _DIAGONAL_ROWS))
    return np.concatenate([np.diag(np.asarray(function(part, part), np.float64)) for part in parts])


def _number(function: KernelFunction, left: Array, right: Array, parameter: str = "kernel") -> float:
    value = function(left, right)
    if np.ndim(value) != 0:
        raise ParameterError(
            parameter,
            f"the {parameter} function gives something of shape {np.shape(value)} for two rows: it must give "
            "a number, or for two arrays of rows their matrix",
        )
    return float(value)


def _takes_blocks(function: KernelFunction, one: Array, several: Array) -> bool:
    try:
        # A product of two rows would pass for one of blocks where there are as many rows as features.
        shapes = [np.shape(function(one, those)) for those in (several, several[:1])]
        return shapes == [(1, len(several)), (1, 1)]
    except (TypeError, ValueError, IndexError):
        return False
