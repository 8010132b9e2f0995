"""The best of several kernels, by cross-validation, in one pass over the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from streamdr.core.blocks import Block, MatrixSpec, Span
from streamdr.core.method import Pass, cost_factor
from streamdr.errors import DataError
from streamdr.methods.kernel_pca.eigen import EigenvalueFloor, Whitening, held_out_error, nystrom_axes
from streamdr.methods.kernel_pca.evaluators import NamedKernel, Pool, column_origin, median_gamma, symmetric
from streamdr.methods.kernel_pca.features import KernelColumns
from streamdr.methods.kernel_pca.kernels import Kernel
from streamdr.methods.kernel_pca.moments import KernelMoments
from streamdr.methods.kernel_pca.nystrom import Fit, choose, draw_pool_and_rest, needs_double
from streamdr.methods.kernel_pca.parameters import grid, grid_size
from streamdr.methods.kernel_pca.routes import is_single

if TYPE_CHECKING:
    from streamdr.methods.kernel_pca.kernel_pca import KernelPCA


def searched(method: KernelPCA, data: MatrixSpec) -> Fit:
    """Fit the kernel whose components explain most of the held-out folds.

    All kernels share landmarks, and so products or distances. Each has moments by folds, which add up to
    those of all rows: the best kernel needs no other pass. The part of the data that was read for the
    sample is not read again.
    """
    pool, others, apart = yield from draw_pool_and_rest(method, data)
    kernels = grid(method, data, pool)
    _, folds = grid_size(method)
    # All kernels share the landmarks: they are chosen for an rbf whose width is the median distance.
    if isinstance(method.landmarks, str):
        usual = NamedKernel(Kernel("rbf", median_gamma(pool)), pool.mean)
        landmarks, requested = choose(method, usual, pool, data)
    else:
        landmarks, requested = Pool.from_rows(np.asarray(method.landmarks)), None
    kinds = [NamedKernel(kernel, pool.mean) for kernel in kernels]
    single = is_single(method, data)
    whitenings = _whitenings(kinds, landmarks, single=single)
    origins = [column_origin(kind, pool, landmarks) for kind in kinds]
    coarse = single and any(
        needs_double(kind, landmarks, origin, whitening.matrix)
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
        work = cost_factor(len(landmarks) * len(kernels), data.n_cols)
        full.merge(cast(KernelMoments, (yield Pass(rest, label=label, part=others, cost_factor=work))))
    if not (full.weights > 0).all():
        raise DataError(f"one of {folds} folds has no rows: set folds to a smaller number, or use more rows")
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
    fields = {**axes.fields(), "kernel_origin": origins[best], "asked_landmarks": requested}
    model = method.build_model(kinds[best], landmarks, "nystrom", fields, double=double)
    return replace(model, candidate_kernels=[str(kernel) for kernel in kernels], candidate_errors=errors)


def _whitenings(kinds: Sequence[NamedKernel], landmarks: Pool, *, single: bool) -> list[Whitening]:
    floor = EigenvalueFloor.of(single=single, whitened=False)
    return [Whitening.of(symmetric(kind, landmarks), floor) for kind in kinds]


def _error(full: KernelMoments, number: int, fold: int, whitening: Whitening, k: int | None) -> float:
    others = [other for other in range(full.folds) if other != fold]
    return held_out_error(full.moments(number, [fold]), full.moments(number, others), whitening, k)
