"""The memory and arithmetic of each solver of PCA."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from streamdr.core import blocks
from streamdr.core.blocks import MatrixSpec
from streamdr.core.method import Phase, Route
from streamdr.core.work import Work, iterations, products
from streamdr.errors import ParameterError
from streamdr.methods.pca.bootstrap import block_phase
from streamdr.statistics.column_products import column_scratch
from streamdr.statistics.sparse_products import product_scratch, product_work, square_work
from streamdr.statistics.sparse_rows import image_work, thin_scratch, thin_work

if TYPE_CHECKING:
    from streamdr.methods.pca.pca import PCA


_LAPACK_BYTES = 40 << 20
"""What OpenBLAS and LAPACK allocate for the factors of tall matrices, besides the matrices."""
_FEW = 0.3
"""The share of the time of all eigenvectors that some of them take."""
_ROW_PRODUCTS = 1.25
"""The time of products of rows with each other, relative to those of columns."""
_USUAL_PASSES = 4
"""The passes that the Krylov solver usually takes, within its tolerance."""


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
        passes=1 + bool(pca.n_bootstrap),
        flops=float(n) * d * d * product_work(data) + (2 if partial else 9) * float(d) ** 3,
        phases=(
            Phase(
                square,
                scratch_bytes=d * d * pca.product_dtype(data).itemsize,
                scratch_per_block=_copies(pca, data),
                solve_bytes=(3 * square if partial else 5 * square) + _rotation_bytes(pca, data),
                takes_sparse=True,
                sparse_scratch_bytes=product_scratch(d, pca.product_dtype(data)),
                work=square_work(data, pca.product_dtype(data)),
                solve_work=Work(eigen=(_FEW if partial else 1.0) * float(d) ** 3, moved=6.0 * square),
            ),
            *_bootstrap(pca, data, k or min(n, d)),
        ),
        advice=_advice(pca),
    )


def gram(pca: PCA, data: MatrixSpec) -> Route:
    """Two passes over columns, an n x n accumulator, exact."""
    n, d = data.n_rows, data.n_cols
    k = pca.wanted or min(n, d)
    square, item = 8 * n * n, pca.product_dtype(data).itemsize
    loadings = d * (item * k + 24)
    return Route(
        method=pca.using("gram"),
        name="gram",
        exact=True,
        passes=2,
        flops=float(d) * n * n + 2.0 * d * n * k + (2 if 2 * k < n else 9) * float(n) ** 3,
        phases=(
            Phase(
                square,
                axis="columns",
                scratch_bytes=n * n * item,
                scratch_per_block=_copies(pca, data),
                solve_bytes=5 * square,
                work=square_work(replace(data, n_rows=d, n_cols=n, density=None), pca.product_dtype(data))
                * _ROW_PRODUCTS,
                solve_work=Work(eigen=(_FEW if 2 * k < n else 1.0) * float(n) ** 3, moved=6.0 * square),
            ),
            # The components are gathered by blocks, and then joined in double precision.
            Phase(
                1 << 16,
                axis="columns",
                scratch_per_block=_copies(pca, data) + k / n,
                gathered_bytes=loadings,
                held_bytes=square + 2 * 8 * n * k + (2 * square if pca.n_bootstrap else 0),
                solve_bytes=8 * d * (k + 8)
                + (32 << 20)
                + _rotation_bytes(pca, data)
                + (3 * square if pca.n_bootstrap else 0),
                work=products(float(n) * d * k, pca.product_dtype(data), "thin")
                + Work(moved=3.0 * n * d * data.working.itemsize),
                solve_work=Work(moved=8.0 * 8 * d * k),
            ),
        ),
    )


def iterates_over_columns(pca: PCA, data: MatrixSpec) -> bool:
    """Whether Krylov iterates over columns: where a chunk's rows are too long a block, and its columns less.

    It depends on the layout of the data only. Sparse rows, and the blocks of a bootstrap, are read by rows.
    """
    if data.chunks is None or data.density is not None or pca.n_bootstrap:
        return False
    rows, cols = (
        min(size, length) for size, length in zip(data.chunks, (data.n_rows, data.n_cols), strict=True)
    )
    of_rows, of_columns = rows * data.line_bytes("rows"), cols * data.line_bytes("columns")
    return of_rows > blocks.LARGEST_BLOCK_BYTES and of_columns < of_rows


def krylov(pca: PCA, data: MatrixSpec) -> Route:
    """A few passes, a thin accumulator, iterative: over rows, or over columns where chunks are tall."""
    return _krylov_columns(pca, data) if iterates_over_columns(pca, data) else _krylov_rows(pca, data)


def _krylov_columns(pca: PCA, data: MatrixSpec) -> Route:
    """Products of rows, A A' V, and a pass for the components at the end."""
    n, d, width = data.n_rows, data.n_cols, pca.krylov_width(data)
    k = cast(int, pca.wanted)
    products = max(pca.max_passes - 1, 1)
    block, whole = 8 * n * width, 8 * n * width * products
    scratch = column_scratch(n, width)
    loadings = 8 * d * (k + 3)
    return Route(
        method=pca.using("krylov"),
        name="krylov",
        exact=False,
        passes=products + 1,
        flops=2 * (4.0 * n * d * width * products + 2.0 * n * d * k)
        + 20.0 * n * (width * products) ** 2
        + 8.0 * d * k * k,
        phases=(
            Phase(
                block + 8 * n,
                axis="columns",
                scratch_bytes=scratch,
                held_bytes=2 * whole,
                solve_bytes=2 * whole + 7 * block + _LAPACK_BYTES,
                takes_stored=True,
                work=image_work(replace(data, n_rows=d, n_cols=n), width, pca.product_dtype(data)),
                solve_work=Work(product64=4.0 * n * width**2 * products, moved=10.0 * block * products),
                count=iterations(_USUAL_PASSES - 1, products),
            ),
            # As with `gram`: the components are gathered by blocks, and then joined.
            Phase(
                1 << 16,
                axis="columns",
                scratch_bytes=scratch,
                gathered_bytes=loadings,
                held_bytes=8 * n * (2 * k + 2 * width),
                solve_bytes=loadings + 8 * d * 8 + (32 << 20) + _rotation_bytes(pca, data),
                takes_stored=True,
                work=image_work(replace(data, n_rows=d, n_cols=n), k, pca.product_dtype(data)) * 0.5,
                solve_work=Work(moved=8.0 * loadings),
            ),
        ),
        note="over columns, since chunks are tall",
    )


def _krylov_rows(pca: PCA, data: MatrixSpec) -> Route:
    """Products of columns, S Q, with one pass for each block of vectors."""
    n, d, width = data.n_rows, data.n_cols, pca.krylov_width(data)
    usual = min(pca.max_passes, _USUAL_PASSES)
    block = 8 * d * width
    whole = block * pca.max_passes
    return Route(
        method=pca.using("krylov"),
        name="krylov",
        exact=False,
        passes=pca.max_passes + bool(pca.n_bootstrap),
        # Thin products run at about half the speed of square ones.
        flops=2 * 4.0 * n * d * width * pca.max_passes * thin_work(data)
        + 20.0 * d * (width * pca.max_passes) ** 2,
        phases=(
            Phase(
                block + 16 * d,
                scratch_bytes=2 * block,
                scratch_per_block=_copies(pca, data) + width / d,
                # Basis and images while they are extended; then their factor, a copy, and singular vectors.
                held_bytes=2 * whole,
                solve_bytes=(4 if pca.n_bootstrap else 2) * whole
                + 7 * block
                + _LAPACK_BYTES
                + _rotation_bytes(pca, data),
                takes_sparse=True,
                sparse_scratch_bytes=thin_scratch(d, width),
                work=image_work(data, width, pca.product_dtype(data)),
                solve_work=Work(product64=4.0 * d * width**2 * usual, moved=10.0 * block * usual),
                count=iterations(usual, pca.max_passes),
            ),
            *_bootstrap(pca, data, pca.krylov_width(data)),
        ),
        advice=_advice(pca),
    )


ROUTES = {"covariance": covariance, "gram": gram, "krylov": krylov}


def _copies(pca: PCA, data: MatrixSpec) -> float:
    """Copies of a block during an update: one centred; more if it is widened to double precision."""
    return 1.0 if pca.product_dtype(data) == data.working else 4.0


def _bootstrap(pca: PCA, data: MatrixSpec, k: int) -> tuple[Phase, ...]:
    """The pass of a bootstrap, during which the model is held."""
    return (block_phase(pca, data, 8 * data.n_cols * (k + 4)),) if pca.n_bootstrap else ()


def _advice(pca: PCA) -> str:
    """What to try where a bootstrap does not fit into memory."""
    return "set bootstrap_rows to longer blocks, or n_bootstrap to 0" if pca.n_bootstrap else ""


def _rotation_bytes(pca: PCA, data: MatrixSpec) -> int:
    """Loadings before and after rotation, those of unit length, their cubes, and the rotated components."""
    if pca.rotation is None:
        return 0
    k = pca.wanted or min(data.n_rows, data.n_cols)
    return 6 * 8 * data.n_cols * (pca.n_rotated or k)
