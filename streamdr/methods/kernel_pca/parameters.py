"""The parameters that kernel methods share: checks, and the kernel that they describe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from streamdr.core.blocks import MatrixSpec
from streamdr.core.row_functions import RowFunction
from streamdr.errors import DataError, InputError, ParameterError
from streamdr.methods.kernel_pca.evaluators import (
    FunctionKernel,
    KernelEvaluator,
    NamedKernel,
    Pool,
    PrecomputedKernel,
    median_gamma,
)
from streamdr.methods.kernel_pca.kernels import KERNELS, Kernel, KernelName
from streamdr.statistics.validation import require

PARAMETERS = ("gamma", "sigma", "degree", "coef0")
_FOLDS = 5

if TYPE_CHECKING:
    KernelChoice = KernelName | Literal["precomputed"] | dict[str, Any] | RowFunction
    RowKernel = KernelName | RowFunction
else:
    KernelChoice = KernelName | Literal["precomputed"] | dict[str, Any]  # files cannot contain functions
    RowKernel = KernelName


class HasKernel(Protocol):
    """A method with the parameters of a kernel."""

    kernel: Any
    gamma: float | Literal["median"] | None
    sigma: float | None
    degree: int
    coef0: float


def check_kernel(method: HasKernel) -> None:
    """Refuse impossible values of the parameters of a kernel."""
    kernel = method.kernel
    if isinstance(kernel, str):
        names = (*KERNELS, "precomputed")
        require(kernel in names, "kernel", f"{kernel!r} is not a kernel: choose one of {', '.join(names)}")
    else:
        require(callable(kernel), "kernel", f"{kernel!r} is not the name of a kernel or a function")
    _check_values(method.gamma, method.sigma, method.degree, method.coef0)


def _check_values(gamma: Any, sigma: Any, degree: Any, coef0: Any) -> None:
    if gamma is not None and gamma != "median":
        sound = _is_number(gamma) and 0 < gamma < np.inf
        require(sound, "gamma", f"{gamma!r} is neither a number above 0 nor 'median'")
    if sigma is not None:
        require(gamma is None, "sigma", "sigma stands for gamma = 1 / (2 sigma^2): give one of them")
        require(_is_number(sigma) and 0 < sigma < np.inf, "sigma", f"{sigma!r} is not a number above 0")
        usable = 1e-150 < sigma < 1e150  # its square is a number as well
        require(usable, "sigma", f"{sigma!r} is not between 1e-150 and 1e150")
    whole = isinstance(degree, int | np.integer) and not isinstance(degree, bool)
    require(whole and degree >= 1, "degree", f"{degree!r} is not a whole number of at least 1")
    require(_is_number(coef0) and np.isfinite(coef0), "coef0", f"{coef0!r} is not a number")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def kernel_evaluator(
    method: HasKernel, data: MatrixSpec, pool: Pool, *, given: bool = False
) -> KernelEvaluator:
    """The kernel that the parameters describe; `given` where the pool was not drawn from the data.

    A linear kernel is taken about the mean of the rows. About the mean of given landmarks, these would span
    one direction less, so that then rows are not shifted.
    """
    if method.kernel == "precomputed":
        return PrecomputedKernel(data.n_rows, data.dtype)
    if callable(method.kernel):
        return FunctionKernel(method.kernel, data.n_cols)
    gamma = _gamma(method.gamma, method.sigma, data, pool)
    kernel = Kernel(method.kernel, gamma, int(method.degree), float(method.coef0))
    moves = kernel.moves and not (given and kernel.name == "linear")
    return NamedKernel(kernel, pool.mean if moves else np.zeros(data.n_cols))


def require_rows(n_components: int | None, data: MatrixSpec) -> None:
    """Refuse data with too few rows."""
    if data.n_rows < 2:
        raise DataError(
            f"kernel PCA needs at least 2 rows to see variance, not one sample: n_samples = {data.n_rows}"
        )
    if n_components is not None and n_components > data.n_rows:
        raise ParameterError(
            "n_components", f"{n_components} components need as many rows, and the data has {data.n_rows}"
        )


def require_square(method: HasKernel, data: MatrixSpec) -> None:
    """Refuse a precomputed kernel matrix that is not square."""
    if method.kernel == "precomputed" and data.n_rows != data.n_cols:
        raise InputError(
            "kernel",
            f"the kernel matrix is not square: it is {data.n_rows} x {data.n_cols}, and a precomputed kernel "
            "has one row and one column per sample",
        )


def grid(method: HasKernel, data: MatrixSpec, pool: Pool) -> list[Kernel]:
    """The kernels of a search, each once, in order."""
    found: dict[tuple[Any, ...], Kernel] = {}
    for name, (gamma, sigma, degree, coef0) in _combinations(method):
        kernel = Kernel(name, _gamma(gamma, sigma, data, pool), int(degree), float(coef0))
        found.setdefault((name, *kernel.used.values()), kernel)
    return list(found.values())


def grid_size(method: HasKernel) -> tuple[int, int]:
    """The largest number of kernels that a search tries, and the number of folds."""
    return sum(1 for _ in _combinations(method)), int(method.kernel.get("folds", _FOLDS))


def _combinations(method: HasKernel) -> Iterator[tuple[KernelName, tuple[Any, ...]]]:
    """The name of each kernel with every combination of its values."""
    for name, given in method.kernel["search"].items():
        values_of = given or {}
        values = {key: _listed(values_of.get(key, getattr(method, key))) for key in PARAMETERS}
        for key, other in (("gamma", "sigma"), ("sigma", "gamma")):
            if key in values_of:
                values[other] = [None]
        for combination in product(*values.values()):
            yield name, combination


def check_search(method: HasKernel) -> None:
    """Refuse an invalid search."""
    requested: Mapping[str, Any] = method.kernel
    unknown = sorted(set(requested) - {"search", "folds"})
    require(not unknown, "kernel", f"unknown key {unknown[:1]}; a search has the keys search and folds")
    kernels = requested.get("search")
    require(
        isinstance(kernels, Mapping) and kernels,
        "kernel",
        "search needs kernels, as in {search: {rbf: {gamma: [0.1, 1]}, linear: {}}, folds: 5}",
    )
    folds = requested.get("folds", _FOLDS)
    whole = isinstance(folds, int) and not isinstance(folds, bool)
    require(whole and folds >= 2, "kernel", f"folds is {folds!r}, not a whole number of at least 2")
    assert isinstance(kernels, Mapping)
    for name, given in kernels.items():
        require(name in KERNELS, "kernel", f"{name!r} is not a kernel: choose from {', '.join(KERNELS)}")
        require(given is None or isinstance(given, Mapping), "kernel", f"{name}: {given!r} is not a grid")
        twice = {"gamma", "sigma"} <= set(given or ())
        require(not twice, "kernel", f"{name}: sigma stands for gamma = 1 / (2 sigma^2): give one of them")
        for key, values in (given or {}).items():
            require(key in PARAMETERS, "kernel", f"{name}: {key!r} is not one of {', '.join(PARAMETERS)}")
            require(_listed(values), "kernel", f"{name}: {key} is an empty list")
            for value in _listed(values):
                defaults = {"gamma": None, "sigma": None, "degree": 3, "coef0": 1.0}
                try:
                    _check_values(**(defaults | {key: value}))
                except ParameterError as error:
                    raise ParameterError("kernel", f"{name}: {key}: {error.message}") from None


def _gamma(gamma: Any, sigma: float | None, data: MatrixSpec, pool: Pool) -> float:
    if gamma == "median":
        return median_gamma(pool)
    if sigma is not None:
        return 1 / (2 * float(sigma) ** 2)
    return 1 / data.n_cols if gamma is None else float(gamma)


def _listed(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple | np.ndarray) else [values]
