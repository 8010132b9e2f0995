"""The best of several kernels, by cross-validation, in one reading of the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from streamdr.accumulators import KernelMoments
from streamdr.blocks import Block, MatrixSpec, Span
from streamdr.errors import DataError
from streamdr.features import KernelColumns
from streamdr.kernels import Kernel
from streamdr.methods.base import Pass
from streamdr.methods.kernel_axes import Floor, Whitening, held_out_error, nystrom_axes
from streamdr.methods.kernel_kinds import Named, Pool, column_origin, median_gamma, symmetric
from streamdr.methods.kernel_parameters import grid, grid_size
from streamdr.methods.kernel_routes import is_single, labour
from streamdr.methods.nystrom import Fit, choose, draw_part, is_coarse

if TYPE_CHECKING:
    from streamdr.methods.kernel_pca import KernelPCA


def searched(method: KernelPCA, data: MatrixSpec) -> Fit:
    """Fit the kernel whose components, found without a fold of the rows, explain most of that fold.

    All kernels share landmarks, and so their products or distances. Each has its moments by folds, which
    add up to those of all rows: the winner needs no other pass. The part of the data that was read for the
    sample is not read again.
    """
    pool, others, apart = yield from draw_part(method, data)
    kernels = grid(method, data, pool)
    _, folds = grid_size(method)
    # The landmarks are chosen for an rbf of the data's own width: they must serve every kernel.
    if isinstance(method.landmarks, str):
        usual = Named(Kernel("rbf", median_gamma(pool)), pool.mean)
        landmarks, asked = choose(method, usual, pool, data)
    else:
        landmarks, asked = Pool.made(np.asarray(method.landmarks)), None
    kinds = [Named(kernel, pool.mean) for kernel in kernels]
    single = is_single(method, data)
    whitenings = _whitenings(kinds, landmarks, single=single)
    origins = [column_origin(kind, pool, landmarks) for kind in kinds]
    coarse = single and any(
        is_coarse(kind, landmarks, origin, whitening.matrix)
        for kind, origin, whitening in zip(kinds, origins, whitenings, strict=True)
    )
    if coarse:
        single, whitenings = False, _whitenings(kinds, landmarks, single=False)
    double = coarse or method.precision == "double"
    columns = KernelColumns(kernels, landmarks.rows, pool.mean)
    full = KernelMoments(columns, origins, folds=folds, seed=method.random_state, double=double)
    rest = full.empty_like()
    if apart:
        values = pool.rows.astype(data.working)
        full.update(Block(Span(0, len(pool)), values, weights=pool.weights, rows=pool.numbers))
    if others is not None or not apart:
        label = f"{len(kernels)} kernels with {len(landmarks):,} landmarks"
        work = labour(len(landmarks) * len(kernels), data.n_cols)
        full.merge(cast(KernelMoments, (yield Pass(rest, label=label, part=others, labour=work))))
    if not (full.weights > 0).all():
        raise DataError(f"a fold of {folds} has no rows: ask for fewer folds of so few rows")
    errors = np.array(
        [
            [_error(full, number, fold, whitening, method.n_components) for fold in range(folds)]
            for number, whitening in enumerate(whitenings)
        ]
    )
    best = int(np.argmin(errors.mean(axis=1)))
    axes = nystrom_axes(
        full.moments(best),
        whitenings[best],
        method.n_components,
        whitened=False,
        single=single,
        definite=kinds[best].definite,
    )
    fields = {**axes.fields(), "kernel_origin": origins[best], "asked_landmarks": asked}
    model = method.assembled(kinds[best], landmarks, "nystrom", fields, double=double)
    return replace(model, candidate_kernels=[str(kernel) for kernel in kernels], candidate_errors=errors)


def _whitenings(kinds: Sequence[Named], landmarks: Pool, *, single: bool) -> list[Whitening]:
    floor = Floor.of(single=single, whitened=False)
    return [Whitening.of(symmetric(kind, landmarks), floor) for kind in kinds]


def _error(full: KernelMoments, number: int, fold: int, whitening: Whitening, k: int | None) -> float:
    others = [other for other in range(full.folds) if other != fold]
    return held_out_error(full.moments(number, [fold]), full.moments(number, others), whitening, k)
