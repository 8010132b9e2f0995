"""A block bootstrap of principal components: errors of their variances, and how stable their directions are.

Blocks of consecutive rows are drawn with replacement. The covariance S* of a draw is never formed: all that
is needed is its product with a few directions V, Y = S* V. The Nystrom approximation Y (V'Y)^-1 Y' has the
leading eigenvalues of S*, and V'Y and Y'Y are enough to compute these, and the cosines of its eigenvectors
with V. Two sources give the two small matrices: products of each block with V, which are a pass over the
rows, or the products A A' of all rows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array, MatrixSpec
from streamdr.core.linalg import eigh_descending, product_rounding
from streamdr.core.method import Pass, Phase
from streamdr.errors import DataError
from streamdr.methods.pca.model import PCAModel
from streamdr.statistics.row_blocks import BlockProducts
from streamdr.statistics.sparse_rows import thin_scratch
from streamdr.statistics.validation import require

if TYPE_CHECKING:
    from streamdr.methods.pca.pca import PCA

MOST_COMPONENTS = 50
"""The bootstrap is of this number of leading components at most."""
_BLOCKS = 64
"""About this number of blocks, where their length is not given."""
_INTERVAL = (2.5, 97.5)
_TILE_COLUMNS = 512
_BATCH_BYTES = 32 << 20


class Products(NamedTuple):
    """V'S*V and Y'Y, for Y = S*V, of one draw."""

    core: Array
    images: Array


def check_bootstrap(pca: PCA) -> None:
    """Refuse impossible parameters of a bootstrap."""
    require(pca.n_bootstrap >= 0, "n_bootstrap", f"{pca.n_bootstrap} is negative")
    require(pca.n_bootstrap != 1, "n_bootstrap", "one draw has no spread: set it to some hundreds, or to 0")
    require(
        not (pca.n_bootstrap and pca.rotation),
        "n_bootstrap",
        "the bootstrap is of principal components, not of rotated ones: leave out rotation for it",
    )
    if pca.bootstrap_rows is not None:
        require(
            pca.n_bootstrap > 0,
            "bootstrap_rows",
            "a length of blocks is given, but there is no bootstrap: set n_bootstrap to some hundreds",
        )
        require(pca.bootstrap_rows >= 1, "bootstrap_rows", f"{pca.bootstrap_rows} is not at least 1")


def require_blocks(pca: PCA, n_rows: int) -> None:
    """Refuse blocks that are so long that there is only one."""
    length = block_rows(pca, n_rows)
    require(
        not pca.n_bootstrap or length < n_rows,
        "bootstrap_rows",
        f"a block of {length} rows holds all {n_rows}, and a bootstrap needs at least 2 blocks, better 20: "
        f"set it to {max(1, n_rows // 20)} or fewer",
    )


def block_rows(pca: PCA, n_rows: int) -> int:
    """The number of rows of a block."""
    return pca.bootstrap_rows or -(-n_rows // _BLOCKS)


def directions(pca: PCA, data: MatrixSpec) -> int:
    """The largest number of directions V: the components, and some more that a draw may mix with them."""
    k = min(pca.wanted or MOST_COMPONENTS, MOST_COMPONENTS)
    return min(k + pca.n_oversamples, data.n_rows, data.n_cols)


def block_phase(pca: PCA, data: MatrixSpec, held_bytes: int) -> Phase:
    """The memory of the pass over blocks."""
    width, n_blocks = directions(pca, data), -(-data.n_rows // block_rows(pca, data.n_rows))
    whole = 8 * data.n_cols * (width + 2) * n_blocks
    item = pca.product_dtype(data).itemsize
    return Phase(
        whole,
        empty_bytes=0,
        total_accumulator_bytes=2 * whole,  # a block that a merge copies is in memory twice
        scratch_per_block=(1.0 if pca.product_dtype(data) == data.working else 4.0) + width / data.n_cols,
        scratch_bytes=2 * item * data.n_cols * width,
        held_bytes=held_bytes + 4 * 8 * data.n_cols * width,
        solve_bytes=4 * _BATCH_BYTES + 3 * 8 * data.n_cols * n_blocks,
        takes_sparse=True,
        sparse_scratch_bytes=thin_scratch(data.n_cols, width),
    )


def with_block_bootstrap(
    pca: PCA, data: MatrixSpec, model: PCAModel, axes: Array
) -> Generator[Pass, Accumulator, PCAModel]:
    """One pass for the products of each block with `axes`, one per row, and the model with its bootstrap."""
    length = block_rows(pca, data.n_rows)
    basis = axes.T if model.scale is None else axes.T / model.scale[:, None]
    empty = BlockProducts(basis, length, double=pca.double)
    full = cast(BlockProducts, (yield Pass(empty, label="bootstrap")))
    blocks = [part for _, part in sorted(full.parts.items()) if part.centre.weight > 0]
    weights = np.array([part.centre.weight for part in blocks])
    counts = draws(weights, pca)
    mean = model.mean if model.center else np.average([part.centre.mean for part in blocks], 0, weights)
    offsets = np.array([(part.centre.origin - mean) + part.centre.offset for part in blocks])
    images = [part.images for part in blocks]
    found = _of_blocks(counts, weights, offsets, images, basis, axes, model, mean)
    return summarised(model, found, counts, data, pca)


def draws(weights: Array, pca: PCA) -> Array:
    """How often each block is in each draw."""
    if len(weights) < 2:
        raise DataError("only one block of rows has a positive weight: a bootstrap needs at least 2")
    rng = np.random.default_rng(pca.random_state)
    n = len(weights)
    counts: Array = rng.multinomial(n, np.full(n, 1.0 / n), size=pca.n_bootstrap).astype(np.float64)
    return counts


def _of_blocks(
    counts: Array,
    weights: Array,
    offsets: Array,
    images: list[Array],
    basis: Array,
    axes: Array,
    model: PCAModel,
    mean: Array,
) -> Iterator[Products]:
    """The products of each draw. The blocks are merged by Chan's formula, a tile of columns at a time."""
    n_blocks, (d, width) = len(weights), basis.shape
    share = (model.n_samples - model.ddof) / model.n_samples
    scores = offsets @ basis
    batch = max(1, _BATCH_BYTES // (8 * width * (n_blocks + 2 * _TILE_COLUMNS)))
    for first in range(0, len(counts), batch):
        chosen = counts[first : first + batch]
        heavy = chosen * weights
        total = heavy.sum(axis=1)
        centres = heavy @ scores / total[:, None]
        # sum_b w_b (m_b - m)(V'(m_b - m))' = sum_b m_b (w_b V'(m_b - m))'
        between = heavy[:, None, :] * (scores[None] - centres[:, None]).transpose(0, 2, 1)
        core, gram = (np.zeros((len(chosen), width, width)) for _ in range(2))
        for start in range(0, d, _TILE_COLUMNS):
            tile = slice(start, min(start + _TILE_COLUMNS, d))
            within = np.array([image[:, tile] for image in images]).reshape(n_blocks, -1)
            moved = (chosen @ within).reshape(len(chosen), width, -1)
            moved += (between.reshape(-1, n_blocks) @ offsets[:, tile]).reshape(moved.shape)
            if not model.center:
                means = mean[tile] + heavy @ offsets[:, tile] / total[:, None]
                moved += (total[:, None] * (centres + mean @ basis))[:, :, None] * means[:, None]
            moved /= (share * total)[:, None, None]
            if model.scale is not None:
                moved /= model.scale[tile]
            core += moved @ axes[:, tile].T
            gram += moved @ moved.transpose(0, 2, 1)
        for one, other in zip(core, gram, strict=True):
            yield Products((one + one.T) / 2, other)


def _of_rows(
    counts: Array, owners: Array, roots: Array, gram: Array, scores: Array, share: float, *, center: bool
) -> Iterator[Products]:
    """The products of each draw from A A', where rows of A are multiplied by the roots of their weights.

    `owners` are the numbers of the rows' blocks, and `scores` A V. `share` is the divisor of the covariance
    over the weight of all rows.
    """
    weights = roots**2
    for chosen in counts:
        often = chosen[owners]
        total = float(often @ weights)
        centred = scores
        if center:
            centred = scores - np.outer(roots, (often * roots) @ scores / total)
        heavy = often[:, None] * centred
        yield Products(centred.T @ heavy / (share * total), heavy.T @ gram @ heavy / (share * total) ** 2)


def with_row_bootstrap(
    pca: PCA, data: MatrixSpec, model: PCAModel, roots: Array, gram: Array, scores: Array
) -> PCAModel:
    """The model with its bootstrap, from the products of all rows: nothing is read."""
    weights = roots**2
    owners = np.arange(data.n_rows) // block_rows(pca, data.n_rows)
    per_block = np.bincount(owners, weights)
    used = per_block > 0
    counts = np.zeros((pca.n_bootstrap, len(per_block)))
    drawn = draws(per_block[used], pca)
    counts[:, used] = drawn
    share = (model.n_samples - model.ddof) / model.n_samples
    found = _of_rows(counts, owners, roots, gram, scores, share, center=model.center)
    return summarised(model, found, drawn, data, pca)


def spectrum(found: Products, rounding: float) -> tuple[Array, Array]:
    """The leading eigenvalues of a draw, descending, and the cosines of its eigenvectors (columns) with V."""
    values, vectors = eigh_descending(found.core)
    sound = values > rounding * values[0]
    eigenvalues, cosines = np.zeros(len(values)), np.zeros_like(found.core)
    if not sound.any():
        return eigenvalues, cosines
    factor = vectors[:, sound] / np.sqrt(values[sound])
    squares, turned = eigh_descending(factor.T @ found.images @ factor)
    positive = squares > 0
    number = np.count_nonzero(positive)
    eigenvalues[:number] = squares[positive]
    cosines[:, :number] = found.core @ (factor @ turned[:, positive]) / np.sqrt(squares[positive])
    return eigenvalues, cosines


def summarised(
    model: PCAModel, found: Iterator[Products], counts: Array, data: MatrixSpec, pca: PCA
) -> PCAModel:
    """The model with what the draws say of its leading components."""
    k = min(model.n_components, MOST_COMPONENTS)
    leading = np.abs(model.components[:k]).argmax(axis=1)
    entries = model.components[:k, leading]  # entry (i, j): component i at the largest feature of component j
    rounding = product_rounding(data.n_cols, pca.product_dtype(data))
    variances, congruences, same = (np.empty((len(counts), k)) for _ in range(3))
    for draw, products in enumerate(found):
        values, cosines = spectrum(products, rounding)
        own = np.diag(cosines)[:k]
        variances[draw], congruences[draw] = values[:k], np.abs(own)
        same[draw] = np.sign(own) * np.einsum("ij,ij->j", entries, cosines[:k, :k]) > 0
    return replace(
        model,
        n_bootstrap=len(counts),
        n_bootstrap_blocks=counts.shape[1],
        bootstrap_error=variances.std(axis=0, ddof=1),
        bootstrap_interval=np.percentile(variances, _INTERVAL, axis=0),
        bootstrap_congruence=congruences.mean(axis=0),
        bootstrap_sign=same.mean(axis=0),
    )
