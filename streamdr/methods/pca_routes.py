"""What each solver of PCA would take, in memory and arithmetic: the plan chooses by these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamdr.blocks import MatrixSpec
from streamdr.errors import ParameterError
from streamdr.methods.base import Route

if TYPE_CHECKING:
    from streamdr.methods.pca import PCA


def covariance(pca: PCA, data: MatrixSpec) -> Route:
    """One pass, a d x d accumulator, exact."""
    n, d = data.n_rows, data.n_cols
    if pca.n_components == "mle" and n < d:
        raise ParameterError(
            "n_components", f"'mle' needs at least as many rows as columns, and the data is {n} x {d}"
        )
    k = pca.wanted
    square, partial = 8 * d * d, k is not None and 2 * k < d
    return Route(
        method=pca.using("covariance"),
        name="covariance",
        exact=True,
        axis="rows",
        passes=1,
        accumulator_bytes=square,
        scratch_bytes=d * d * pca.product_dtype(data).itemsize,
        scratch_per_block=_copies(pca, data),
        solve_bytes=3 * square if partial else 5 * square,
        flops=float(n) * d * d + (2 if partial else 9) * float(d) ** 3,
    )


def gram(pca: PCA, data: MatrixSpec) -> Route:
    """Two passes over columns, an n x n accumulator, exact."""
    n, d = data.n_rows, data.n_cols
    k = pca.wanted or min(n, d)
    components = 8 * d * (k + 2)
    return Route(
        method=pca.using("gram"),
        name="gram",
        exact=True,
        axis="columns",
        passes=2,
        accumulator_bytes=8 * n * n,
        scratch_bytes=n * n * pca.product_dtype(data).itemsize,
        scratch_per_block=_copies(pca, data),
        solve_bytes=max(5 * 8 * n * n, components),
        gathered_bytes=components,
        flops=float(d) * n * n + 2.0 * d * n * k + (2 if 2 * k < n else 9) * float(n) ** 3,
    )


def krylov(pca: PCA, data: MatrixSpec) -> Route:
    """A few passes, a thin accumulator, iterative."""
    n, d, width = data.n_rows, data.n_cols, pca.krylov_width(data)
    block = 8 * d * width
    return Route(
        method=pca.using("krylov"),
        name="krylov",
        exact=False,
        axis="rows",
        passes=pca.max_passes,
        accumulator_bytes=block + 16 * d,
        scratch_bytes=2 * block,
        scratch_per_block=_copies(pca, data) + width / d,
        solve_bytes=6 * pca.max_passes * block,
        # Thin products run at about half the speed of square ones.
        flops=2 * 4.0 * n * d * width * pca.max_passes + 20.0 * d * (width * pca.max_passes) ** 2,
    )


ROUTES = {"covariance": covariance, "gram": gram, "krylov": krylov}


def _copies(pca: PCA, data: MatrixSpec) -> float:
    """How often a block exists in an update besides itself: once centred, and widened when asked."""
    return 1.0 if pca.product_dtype(data) == data.working else 4.0
