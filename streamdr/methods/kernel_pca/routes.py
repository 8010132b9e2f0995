"""The memory and arithmetic of each route of kernel PCA."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from streamdr.core.blocks import MatrixSpec, Part
from streamdr.core.byte_sizes import format_bytes
from streamdr.core.method import Phase, Route, cost_factor
from streamdr.core.work import Work, products
from streamdr.methods.kernel_pca.features import SIDE_BYTES
from streamdr.methods.kernel_pca.kernels import KERNELS, Kernel, kernel_work
from streamdr.methods.kernel_pca.moments import TILE_BYTES
from streamdr.statistics.sampling import gather_phase, sample_phases
from streamdr.statistics.sparse_rows import shift_scratch

if TYPE_CHECKING:
    from streamdr.methods.kernel_pca.kernel_pca import KernelPCA
    from streamdr.methods.kernel_pca.sparse import SparseKernelPCA

_LANCZOS = 60
"""The usual number of products with the matrix for a few eigenvalues."""
_CITY_BLOCK = 8.0
"""The cost of a kernel value that no matrix product computes, relative to one that a product does."""


def is_single(method: KernelPCA | SparseKernelPCA, data: MatrixSpec) -> bool:
    """Whether products are taken in single precision."""
    return method.precision == "mixed" and data.working == np.float32


def exact(method: KernelPCA, data: MatrixSpec) -> Route:
    """One pass that gathers all rows, and a matrix of all rows with all rows."""
    n, d, k = data.n_rows, data.n_cols, method.n_components
    matrix, rows = 8 * n * n, 8 * n * d
    # A kernel that may be indefinite needs all eigenvalues.
    definite = method.kernel in KERNELS and Kernel(method.kernel, coef0=method.coef0).definite  # type: ignore[arg-type]
    few = definite and k is not None and 10 * k < n
    solve = (n * n * d + 2.0 * _LANCZOS * n * n) if few else n * n * d + 9.0 * float(n) ** 3
    landmarks = format_bytes(_needs(nystrom(method, data)))
    return Route(
        method=method.using("exact"),
        name="exact",
        exact=True,
        passes=1,
        flops=solve,
        # The rows shifted, scaled and augmented, on both sides of the product.
        phases=(
            replace(
                gather_phase(data, n, solve_bytes=(3 if few else 6) * matrix + 6 * rows),
                solve_work=products(float(n) * n * d, np.dtype(np.float64), "product")
                + Work(functions=float(n) * n, moved=4.0 * matrix)
                + (Work(moved=_LANCZOS * matrix) if few else Work(eigen=float(n) ** 3)),
            ),
        ),
        advice=f"or set approximation: nystrom, which needs about {landmarks} besides the interpreter",
    )


def nystrom(method: KernelPCA, data: MatrixSpec) -> Route:
    """A sample to choose landmarks from, and one pass, over several kernels at once in a search."""
    m, rows, parts = method.most_landmarks(data), method.sample_rows(data), sample_parts(method, data)
    maps, folds = method.n_searched
    if method.searches and parts > 1:  # all rows that were read are kept
        rows = Part(0, parts).n_rows(data.n_rows)
    solve = 8 * rows * (4 * data.n_cols + 3 * m) + 12 * 8 * m * m
    # Each landmark is chosen by what those before it leave of the kernel values of the sample.
    choosing = products(float(rows) * m * (m + data.n_cols), np.dtype(np.float64), "product")
    sample = tuple(
        replace(phase, solve_work=phase.solve_work + choosing)
        for phase in sample_phases(data, rows, parts, solve_bytes=solve)
    )
    held = 8 * rows * data.n_cols * (2 if method.searches else 1)
    return _one_pass(method, data, "nystrom", m, maps, folds, sample, held)


def random_features(method: KernelPCA, data: MatrixSpec) -> Route:
    """A sample for the origin of the rows, and one pass."""
    m, rows = method.most_landmarks(data), 8 * method.sample_rows(data) * data.n_cols
    solve = 5 * rows + 12 * 8 * m * m
    sample = sample_phases(data, method.sample_rows(data), sample_parts(method, data), solve_bytes=solve)
    return _one_pass(method, data, "random_features", m, 1, 1, sample, rows)


def sparse(method: SparseKernelPCA, data: MatrixSpec) -> Route:
    """A sample of candidates, and one pass."""
    m = method.pool_rows(data)
    sample = sample_phases(
        data, m, method.candidate_parts(data), solve_bytes=8 * m * (5 * data.n_cols + 12 * m)
    )
    return _one_pass(method, data, "sparse", m, 1, 1, sample, 8 * m * data.n_cols)


def sample_parts(method: KernelPCA, data: MatrixSpec) -> int:
    """The number of parts of the data, one of which is read for a sample."""
    return data.n_rows // (2 * method.sample_rows(data))


ROUTES = {"exact": exact, "nystrom": nystrom, "random_features": random_features}


def _one_pass(
    method: Any,
    data: MatrixSpec,
    name: str,
    m: int,
    maps: int,
    folds: int,
    sample: tuple[Phase, ...],
    held: int,
) -> Route:
    """A pass over `m` columns of each map, after a sample of which `held` bytes are kept."""
    n, d, square = data.n_rows, data.n_cols, 8 * m * m
    single = is_single(method, data)
    whitening = name == "nystrom" and method.whitened(data)
    tile = max(TILE_BYTES, 8 * m * maps)
    moved = 4 * max(SIDE_BYTES, 8 * d)  # a slab of rows, shifted, scaled and augmented
    whitened = 3 if whitening else 1
    slow = _CITY_BLOCK if method.kernel == "laplacian" else 1.0
    flops = float(n) * m * maps * (slow * 2 * d + 20 + whitened * m) * (1 if single else 2)
    return Route(
        method=method.using(name),
        name=name,
        exact=False,
        passes=2,
        flops=flops + 20.0 * float(m) ** 3,
        phases=(
            *sample,
            Phase(
                maps * folds * (square + 8 * m),
                # As in double precision, which the rows may need.
                scratch_bytes=2 * tile + square + 4 * (1 << 20) + 2 * 8 * m * d + moved,
                scratch_per_block=(0.0 if data.working.itemsize == 8 else 2.0) + (1.0 if folds > 1 else 0.0),
                # The landmarks, their shifted copies, and the whitening.
                held_bytes=held + 4 * 8 * m * d + 3 * square,
                solve_bytes=(8 + 2 * maps) * square + 2 * 8 * m * d,
                cost_factor=cost_factor(m * maps, d),
                takes_sparse=True,
                # Rows are copied fold by fold, and slab by slab; some kernels need dense slabs.
                sparse_scratch_bytes=2 * tile + square + (4 << 20) + 4 * 8 * m * d + moved + shift_scratch(d),
                work=_map_work(method, data, m * maps, whitening=whitening),
                solve_work=Work(eigen=float(maps * m) * m * m),
            ),
        ),
    )


def _map_work(method: Any, data: MatrixSpec, m: int, *, whitening: bool) -> Work:
    """The work of mapping all rows to `m` columns, and of the products of these with themselves."""
    n = float(data.n_rows)
    dtype = np.dtype(np.float32) if is_single(method, data) else np.dtype(np.float64)
    whitened = products(n * m * m, dtype, "product") if whitening else Work()
    return kernel_work(data, m, dtype, method.kernel) + whitened + products(n * m * m, dtype, "square")


def _needs(route: Route) -> int:
    """The approximate memory of a route without the interpreter and the blocks."""
    last = route.phases[-1]
    return 4 * last.accumulator_bytes + last.scratch_bytes + last.held_bytes + last.solve_bytes
