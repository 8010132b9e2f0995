"""Features of rows whose inner products are values of a kernel, or nearly: what a kernel method streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from streamdr.blocks import Array, Settled, Span, settled
from streamdr.kernels import Kernel, KernelFunction, Side, fill, function_diagonal, function_matrix


class Features(Protocol):
    """One or several maps of rows to columns, evaluated together."""

    @property
    def widths(self) -> Sequence[int]:
        """How many columns each map gives."""

    def fill(self, rows: Array, outs: Sequence[Array]) -> None:
        """Write the columns of each map."""

    def diagonal(self, rows: Array, numbers: Array) -> Array:
        """k(x, x) of each row, for each map: maps x rows. The rows have these numbers in the whole matrix."""

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart: scalars, arrays and functions."""


SIDE_BYTES = 32 << 20
"""Rows that are moved to the origin at a time: wide ones would take as much again as the block."""


class KernelColumns(Settled):
    """Values of kernels between rows and landmarks."""

    def __init__(self, kernels: Sequence[Kernel], landmarks: Array, origin: Array) -> None:
        self.kernels = tuple(kernels)
        self.landmarks = settled(landmarks)
        self.origin = settled(origin)
        self._sides: dict[np.dtype[Any], Side] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sides": {}}

    @property
    def widths(self) -> Sequence[int]:
        """As many as landmarks."""
        return [len(self.landmarks)] * len(self.kernels)

    def fill(self, rows: Array, outs: Sequence[Array]) -> None:
        """Write the columns of each kernel."""
        right = self._sides.get(rows.dtype)
        if right is None:
            right = self._sides[rows.dtype] = Side(self.landmarks, self.origin, rows.dtype)
        fill(self.kernels, Side(rows, self.origin), right, outs)

    def diagonal(self, rows: Array, numbers: Array) -> Array:
        """Of each kernel: mostly one, whatever the row."""
        known = [kernel.at_itself for kernel in self.kernels]
        if None not in known:
            return np.repeat(np.array(known, np.float64)[:, None], len(rows), axis=1)
        slabs = Span(0, len(rows)).split(max(1, SIDE_BYTES // max(1, rows[:1].nbytes)))
        sides = (Side(rows[slab.slice], self.origin) for slab in slabs)
        return np.concatenate(
            [np.stack([kernel.diagonal(side) for kernel in self.kernels]) for side in sides], axis=1
        )

    def parameters(self) -> Mapping[str, Any]:
        """The kernels by their names, and the landmarks."""
        names = {f"kernel.{number}": repr(kernel) for number, kernel in enumerate(self.kernels)}
        return {**names, "landmarks": self.landmarks, "origin": self.origin}


class StoredColumns(Settled):
    """Columns of a matrix that holds the kernel's values already: landmarks are numbers of rows."""

    def __init__(self, numbers: Array) -> None:
        self.numbers = settled(numbers)

    @property
    def widths(self) -> Sequence[int]:
        """One map."""
        return [len(self.numbers)]

    def fill(self, rows: Array, outs: Sequence[Array]) -> None:
        """Pick the columns."""
        np.take(rows, self.numbers, axis=1, out=outs[0])

    def diagonal(self, rows: Array, numbers: Array) -> Array:
        """Pick from each row its own."""
        return rows[np.arange(len(rows)), numbers][None].astype(np.float64)

    def parameters(self) -> Mapping[str, Any]:
        """Which columns."""
        return {"columns": self.numbers}


class FunctionColumns(Settled):
    """Values of a user's function between rows and landmarks."""

    def __init__(self, function: KernelFunction, landmarks: Array) -> None:
        self.function = function
        self.landmarks = settled(landmarks)

    @property
    def widths(self) -> Sequence[int]:
        """One map."""
        return [len(self.landmarks)]

    def fill(self, rows: Array, outs: Sequence[Array]) -> None:
        """Call the function."""
        outs[0][...] = function_matrix(self.function, rows, self.landmarks)

    def diagonal(self, rows: Array, numbers: Array) -> Array:
        """Call the function."""
        return function_diagonal(self.function, rows)[None]

    def parameters(self) -> Mapping[str, Any]:
        """The function itself, and the landmarks."""
        return {"function": self.function, "landmarks": self.landmarks}


class Whitened(Settled):
    """Columns of a kernel times T, so that products of features are values of the kernel.

    It takes one more product than the columns alone, and loses nothing to rounding where landmarks are
    nearly dependent.
    """

    def __init__(self, columns: Features, whitener: Array) -> None:
        self.columns = columns
        self.whitener = settled(whitener)

    @property
    def widths(self) -> Sequence[int]:
        """One map."""
        return [self.whitener.shape[1]]

    def fill(self, rows: Array, outs: Sequence[Array]) -> None:
        """Columns and a product."""
        plain = np.empty((len(rows), *self.columns.widths), rows.dtype)
        self.columns.fill(rows, [plain])
        np.matmul(plain, self.whitener.astype(rows.dtype, copy=False), out=outs[0])

    def diagonal(self, rows: Array, numbers: Array) -> Array:
        """That of the kernel."""
        return self.columns.diagonal(rows, numbers)

    def parameters(self) -> Mapping[str, Any]:
        """Those of the columns, and T."""
        return {**self.columns.parameters(), "whitener": self.whitener}


class FourierFeatures(Settled):
    """sqrt(2/D) cos(<w, x - c> + b): random features of a kernel that depends on differences only.

    Bochner's theorem (Rahimi and Recht 2007): w is drawn from the kernel's spectrum, normal for an rbf and
    Cauchy for a laplacian.
    """

    def __init__(self, frequencies: Array, phases: Array, origin: Array) -> None:
        self.frequencies = settled(frequencies)
        self.phases = settled(phases)
        self.origin = settled(origin)

    @classmethod
    def drawn(
        cls, kernel: Kernel, n_features: int, origin: Array, rng: np.random.Generator
    ) -> FourierFeatures:
        """Features for a kernel."""
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

    def fill(self, rows: Array, outs: Sequence[Array]) -> None:
        """A product and a cosine."""
        out, dtype = outs[0], rows.dtype
        np.matmul(rows - self.origin.astype(dtype), self.frequencies.astype(dtype, copy=False), out=out)
        out += self.phases.astype(dtype)
        np.cos(out, out=out)
        out *= np.sqrt(2 / out.shape[1])

    def diagonal(self, rows: Array, numbers: Array) -> Array:
        """One."""
        return np.ones((1, len(rows)))

    def parameters(self) -> Mapping[str, Any]:
        """What was drawn."""
        return {"frequencies": self.frequencies, "phases": self.phases, "origin": self.origin}
