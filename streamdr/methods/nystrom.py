"""The Nystrom approximation: landmarks from a sample, and one pass over their kernel with all rows."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from streamdr.accumulators import Accumulator, KernelMoments, Sample
from streamdr.blocks import Array, MatrixSpec, Part
from streamdr.errors import DataError
from streamdr.features import Whitened
from streamdr.methods.base import Pass
from streamdr.methods.kernel_axes import Floor, Whitening, in_both, nystrom_axes, too_coarse
from streamdr.methods.kernel_kinds import KernelKind, Named, Pool, Stored, column_origin, is_narrow, symmetric
from streamdr.methods.kernel_parameters import kind_of
from streamdr.methods.kernel_pca_model import KernelPCAModel
from streamdr.methods.kernel_routes import is_single, labour, sample_parts
from streamdr.methods.landmarks import clustered, rpcholesky, uniform
from streamdr.methods.sampling import has_enough, sampled

if TYPE_CHECKING:
    from streamdr.methods.kernel_pca import KernelPCA

_OUTGROWN, _LITTLE = 2.0, 0.01

Fit = Generator[Pass, Accumulator, KernelPCAModel]


@dataclass(frozen=True, eq=False)
class Basis:
    """The kernel and the landmarks of an approximation."""

    kind: KernelKind
    landmarks: Pool
    origin: Array
    """Near the means of the kernel's columns."""
    asked: int | None = None
    """How many landmarks were asked for, where there may be fewer."""


def by_landmarks(method: KernelPCA, data: MatrixSpec, start: KernelPCAModel | None) -> Fit:
    """Fit by the landmarks of an earlier model of the first rows, if there is one, else by new ones."""
    if start is not None and start.kernel_origin is not None:
        model = yield from _one_pass(method, data, _taken_up(start, start.kernel_origin))
        if not _outgrown(model, start):
            return replace(
                model, candidate_kernels=start.candidate_kernels, candidate_errors=start.candidate_errors
            )
    basis = yield from _basis(method, data)
    return (yield from _one_pass(method, data, basis))


_LABEL = "a sample to choose landmarks from"


def draw(method: KernelPCA, data: MatrixSpec) -> Generator[Pass, Accumulator, Pool]:
    """Some rows to choose landmarks from."""
    empty = Sample(data.n_cols, method.sample_rows(data), method.random_state, holes=False)
    return Pool.of((yield from sampled(empty, data, _LABEL, sample_parts(method, data))))


def draw_part(
    method: KernelPCA, data: MatrixSpec
) -> Generator[Pass, Accumulator, tuple[Pool, Part | None, bool]]:
    """Rows to choose landmarks from, what is to be read besides, and whether the rows are not part of it.

    Where all the data would be read for a sample, or all rows of a part of it, these need not be read again.
    """
    parts = sample_parts(method, data)
    empty = Sample(data.n_cols, data.n_rows, method.random_state, holes=False)
    if parts <= 1:
        return Pool.of((yield from sampled(empty, data, _LABEL))), None, True
    sample = cast(Sample, (yield Pass(empty, label=_LABEL, part=Part(0, parts))))
    if has_enough(sample, data, parts):
        return Pool.of(sample), Part(0, parts, rest=True), True
    few = Sample(data.n_cols, method.sample_rows(data), method.random_state, holes=False)
    return Pool.of((yield from sampled(few, data, _LABEL))), None, False


def choose(method: KernelPCA, kind: KernelKind, pool: Pool, data: MatrixSpec) -> tuple[Pool, int | None]:
    """Landmarks from a pool, and how many were asked for where they may have become fewer."""
    m, rng = min(method.most_landmarks(data), len(pool)), np.random.default_rng(method.random_state)
    if isinstance(kind, Stored):
        symmetric(kind, pool)
    if len(pool) <= m and method.fraction is None:
        return pool, None
    if method.landmarks == "uniform":
        return pool.where(uniform(len(pool), m, rng)), None
    if method.landmarks == "kmeans":
        return Pool.made(clustered(pool.rows, pool.weights, m, rng)), None
    roots = np.sqrt(pool.weights)  # a row of weight 3 is as good as three
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


def _basis(method: KernelPCA, data: MatrixSpec) -> Generator[Pass, Accumulator, Basis]:
    """Landmarks that were given, or some of a sample."""
    if not isinstance(method.landmarks, str):
        given = Pool.made(np.asarray(method.landmarks))
        kind = kind_of(method, data, given, given=True)
        return Basis(kind, given, kind.matrix(given, given).mean(axis=0))
    pool = yield from draw(method, data)
    kind = kind_of(method, data, pool)
    landmarks, asked = choose(method, kind, pool, data)
    return Basis(kind, landmarks, column_origin(kind, pool, landmarks), asked)


def _one_pass(method: KernelPCA, data: MatrixSpec, basis: Basis) -> Fit:
    whitened = method.whitened(data)
    single = is_single(method, data) and not whitened
    kind, landmarks = basis.kind, basis.landmarks
    kernel = symmetric(kind, landmarks)
    whitening = Whitening.of(kernel, Floor.of(single=single, whitened=whitened))
    columns, origin = kind.columns(landmarks), basis.origin
    if whitened:
        columns, origin = Whitened(columns, whitening.matrix), basis.origin @ whitening.matrix
    coarse = single and is_coarse(kind, landmarks, origin, whitening.matrix)
    if coarse:
        single, whitening = False, Whitening.of(kernel, Floor.of(single=False, whitened=False))
    double = whitened or coarse or method.precision == "double"
    empty = KernelMoments(columns, [origin], double=double)
    label, work = f"kernels with {len(landmarks):,} landmarks", labour(len(landmarks), data.n_cols)
    full = cast(KernelMoments, (yield Pass(empty, label=label, labour=work)))
    axes = nystrom_axes(
        full.moments(),
        whitening,
        method.n_components,
        whitened=whitened,
        single=single,
        definite=kind.definite,
    )
    fields = {**axes.fields(), "kernel_origin": basis.origin, "asked_landmarks": basis.asked}
    return method.assembled(kind, landmarks, "nystrom", fields, double=double)


def is_coarse(kind: KernelKind, landmarks: Pool, origin: Array, axes: Array) -> bool:
    """Whether single precision loses too much of the landmarks themselves."""
    if is_narrow(kind, landmarks):
        return True
    return too_coarse(*in_both(kind.columns(landmarks), origin, landmarks), axes)


def _taken_up(start: KernelPCAModel, origin: Array) -> Basis:
    """The kernel and the landmarks of an earlier fit."""
    if start.landmarks is None or start.landmark_rows is None:
        raise DataError("a precomputed kernel does not grow by rows alone: run with --fresh")
    numbers = start.landmark_rows.astype(np.int64)
    landmarks = Pool(start.landmarks, numbers, np.ones(len(numbers)))
    return Basis(Named(start.named, start.origin), landmarks, origin, start.asked_landmarks)


def _outgrown(model: KernelPCAModel, start: KernelPCAModel) -> bool:
    """Whether the rows that were added are unlike those that the landmarks were chosen from.

    Then landmarks leave far more of all rows out than they left of those.
    """
    assert model.captured_trace is not None
    assert start.captured_trace is not None
    return 1 - model.captured_trace > max(_OUTGROWN * (1 - start.captured_trace), _LITTLE)
