"""The Nystrom approximation: landmarks from a sample, and one pass over their kernel with all rows."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array, MatrixSpec, Part
from streamdr.core.method import Pass, cost_factor
from streamdr.errors import DataError
from streamdr.methods.kernel_pca.eigen import (
    EigenvalueFloor,
    Whitening,
    loses_precision,
    moments_in_both_precisions,
    nystrom_axes,
)
from streamdr.methods.kernel_pca.evaluators import (
    KernelEvaluator,
    NamedKernel,
    Pool,
    PrecomputedKernel,
    column_origin,
    is_narrow,
    symmetric,
)
from streamdr.methods.kernel_pca.features import Whitened
from streamdr.methods.kernel_pca.landmarks import clustered, rpcholesky, uniform
from streamdr.methods.kernel_pca.model import KernelPCAModel
from streamdr.methods.kernel_pca.moments import KernelMoments
from streamdr.methods.kernel_pca.parameters import kernel_evaluator
from streamdr.methods.kernel_pca.routes import is_single, sample_parts
from streamdr.statistics.sample import Sample
from streamdr.statistics.sampling import draw_sample, has_enough

if TYPE_CHECKING:
    from streamdr.methods.kernel_pca.kernel_pca import KernelPCA

_OUTGROWN, _LITTLE = 2.0, 0.01

Fit = Generator[Pass, Accumulator, KernelPCAModel]


@dataclass(frozen=True, eq=False)
class LandmarkBasis:
    """The kernel and the landmarks of an approximation."""

    kind: KernelEvaluator
    landmarks: Pool
    origin: Array
    """The approximate means of the kernel's columns."""
    requested: int | None = None
    """The requested number of landmarks, where there may be fewer."""


def by_landmarks(method: KernelPCA, data: MatrixSpec, start: KernelPCAModel | None) -> Fit:
    """Fit with the landmarks of `start`, an earlier model of the first rows, if given; else with new ones."""
    if start is not None and start.kernel_origin is not None:
        model = yield from _one_pass(method, data, _basis_of_model(start, start.kernel_origin))
        if not _outgrown(model, start):
            return replace(
                model, candidate_kernels=start.candidate_kernels, candidate_errors=start.candidate_errors
            )
    basis = yield from _basis(method, data)
    return (yield from _one_pass(method, data, basis))


_LABEL = "a sample to choose landmarks from"


def draw_pool(method: KernelPCA, data: MatrixSpec) -> Generator[Pass, Accumulator, Pool]:
    """Draw a sample of rows to choose landmarks from."""
    empty = Sample(data.n_cols, method.sample_rows(data), method.random_state, allow_nan=False)
    return Pool.from_sample((yield from draw_sample(empty, data, _LABEL, sample_parts(method, data))))


def draw_pool_and_rest(
    method: KernelPCA, data: MatrixSpec
) -> Generator[Pass, Accumulator, tuple[Pool, Part | None, bool]]:
    """Draw rows to choose landmarks from; also return the part still to read, and if it excludes them.

    Rows that were read for the sample need not be read again.
    """
    parts = sample_parts(method, data)
    empty = Sample(data.n_cols, data.n_rows, method.random_state, allow_nan=False)
    if parts <= 1:
        return Pool.from_sample((yield from draw_sample(empty, data, _LABEL))), None, True
    sample = cast(Sample, (yield Pass(empty, label=_LABEL, part=Part(0, parts))))
    if has_enough(sample, data, parts):
        return Pool.from_sample(sample), Part(0, parts, rest=True), True
    few = Sample(data.n_cols, method.sample_rows(data), method.random_state, allow_nan=False)
    return Pool.from_sample((yield from draw_sample(few, data, _LABEL))), None, False


def choose(method: KernelPCA, kind: KernelEvaluator, pool: Pool, data: MatrixSpec) -> tuple[Pool, int | None]:
    """Choose landmarks from a pool; also return the requested number where there may be fewer."""
    m, rng = min(method.most_landmarks(data), len(pool)), np.random.default_rng(method.random_state)
    if isinstance(kind, PrecomputedKernel):
        symmetric(kind, pool)
    if len(pool) <= m and method.fraction is None:
        return pool, None
    if method.landmarks == "uniform":
        return pool.where(uniform(len(pool), m, rng)), None
    if method.landmarks == "kmeans":
        return Pool.from_rows(clustered(pool.rows, pool.weights, m, rng)), None
    roots = np.sqrt(pool.weights)  # a row of weight 3 counts as three rows
    chosen = rpcholesky(
        lambda rows: roots[:, None] * kind.matrix(pool, pool.where(rows)) * roots[rows],
        pool.weights * kind.diagonal(pool),
        m,
        rng,
        method.fraction or 1.0,
    )
    if not chosen.definite or not len(chosen.rows):
        return pool.where(uniform(len(pool), m, rng)), None
    return pool.where(np.sort(chosen.rows)), None if method.fraction else m


def _basis(method: KernelPCA, data: MatrixSpec) -> Generator[Pass, Accumulator, LandmarkBasis]:
    """The given landmarks, or some rows of a sample."""
    if not isinstance(method.landmarks, str):
        given = Pool.from_rows(np.asarray(method.landmarks))
        kind = kernel_evaluator(method, data, given, given=True)
        return LandmarkBasis(kind, given, kind.matrix(given, given).mean(axis=0))
    pool = yield from draw_pool(method, data)
    kind = kernel_evaluator(method, data, pool)
    landmarks, requested = choose(method, kind, pool, data)
    return LandmarkBasis(kind, landmarks, column_origin(kind, pool, landmarks), requested)


def _one_pass(method: KernelPCA, data: MatrixSpec, basis: LandmarkBasis) -> Fit:
    """Sum the moments of the kernel with the landmarks in one pass, and solve for the axes."""
    whitened = method.whitened(data)
    single = is_single(method, data) and not whitened
    kind, landmarks = basis.kind, basis.landmarks
    kernel = symmetric(kind, landmarks)
    whitening = Whitening.of(kernel, EigenvalueFloor.of(single=single, whitened=whitened))
    columns, origin = kind.columns(landmarks), basis.origin
    if whitened:
        columns, origin = Whitened(columns, whitening.matrix), basis.origin @ whitening.matrix
    coarse = single and needs_double(kind, landmarks, origin, whitening.matrix)
    if coarse:
        single, whitening = False, Whitening.of(kernel, EigenvalueFloor.of(single=False, whitened=False))
    double = whitened or coarse or method.precision == "double"
    empty = KernelMoments(columns, [origin], double=double)
    label, work = f"kernels with {len(landmarks):,} landmarks", cost_factor(len(landmarks), data.n_cols)
    full = cast(KernelMoments, (yield Pass(empty, label=label, cost_factor=work)))
    axes = nystrom_axes(
        full.moments(),
        whitening,
        method.n_components,
        whitened=whitened,
        single=single,
        definite=kind.definite,
    )
    fields = {**axes.fields(), "kernel_origin": basis.origin, "asked_landmarks": basis.requested}
    return method.build_model(kind, landmarks, "nystrom", fields, double=double)


def needs_double(kind: KernelEvaluator, landmarks: Pool, origin: Array, axes: Array) -> bool:
    """Whether the variances of the landmarks are too inaccurate in single precision."""
    if is_narrow(kind, landmarks):
        return True
    return loses_precision(*moments_in_both_precisions(kind.columns(landmarks), origin, landmarks), axes)


def _basis_of_model(start: KernelPCAModel, origin: Array) -> LandmarkBasis:
    """The kernel and the landmarks of an earlier fit."""
    if start.landmarks is None or start.landmark_rows is None:
        raise DataError("a precomputed kernel does not grow by rows alone: run with --fresh")
    numbers = start.landmark_rows.astype(np.int64)
    landmarks = Pool(start.landmarks, numbers, np.ones(len(numbers)))
    return LandmarkBasis(NamedKernel(start.named, start.origin), landmarks, origin, start.asked_landmarks)


def _outgrown(model: KernelPCAModel, start: KernelPCAModel) -> bool:
    """Whether the landmarks capture far less of all rows than of the rows they were chosen from."""
    assert model.captured_trace is not None
    assert start.captured_trace is not None
    return 1 - model.captured_trace > max(_OUTGROWN * (1 - start.captured_trace), _LITTLE)
