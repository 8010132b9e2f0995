"""The memory and arithmetic of EM for probabilistic PCA."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from streamdr.core.blocks import MatrixSpec, Part
from streamdr.core.method import Phase, Route
from streamdr.core.work import SELDOM, Work, exactly, iterations, products
from streamdr.methods.ppca.observed_counts import SLAB as COUNT_SLAB
from streamdr.methods.ppca.pairwise import SLAB
from streamdr.methods.ppca.posterior import PADDING
from streamdr.methods.ppca.small_matrices import matrices_per_slab, packed_length
from streamdr.methods.ppca.stepwise import PAIRWISE_COLUMNS, sample_rows
from streamdr.statistics.sampling import sample_phases

if TYPE_CHECKING:
    from streamdr.methods.ppca.mixture import PPCAMixture
    from streamdr.methods.ppca.ppca import PPCA

_USUAL_ITERATIONS = 8
_LIKELY_ITERATIONS, _LIKELY_MIXTURE_ITERATIONS = 3, 20
"""The iterations after which EM has mostly converged."""
_PER_VALUE = 60.0
"""The operations on a value in the E step besides products: it is found missing, filled, and weighted."""
_RESPONSIBILITIES = 2.0
"""The time of the E step of a component of a mixture, relative to that of a single one."""
_HELD_OUT = 7 * 8
"""Bytes for each value that may be held out: its random key, its prediction and errors."""


def em_route(ppca: PPCA, data: MatrixSpec) -> Route:
    """A start from a part of the data, and one pass per iteration."""
    n, d, sizes = data.n_rows, data.n_cols, ppca.sizes
    held_out = _HELD_OUT * d if ppca.holdout else 0
    e_step = max(e_step_bytes(d, size) + held_out * matrices_per_slab(size, d) for size in sizes)
    minibatches = ppca.method == "minibatch"
    iterating = Phase(
        sum(latent_bytes(d, k) for k in sizes),
        scratch_bytes=e_step,
        held_bytes=sum(held_bytes(d, k) for k in sizes),
        solve_bytes=max(solve_bytes(d, k) for k in sizes),
        work=sum((e_step_work(n, d, k) for k in sizes), start=Work()),
        solve_work=sum((m_step_work(d, k) for k in sizes), start=Work()),
        count=iterations(_LIKELY_ITERATIONS, ppca.max_iter),
    )
    if minibatches:
        statistics = [latent_bytes(d, k) for k in sizes]
        stepping = replace(
            iterating,
            part=ppca.minibatch(data),
            held_bytes=iterating.held_bytes + sum(statistics),
            solve_bytes=iterating.solve_bytes + 3 * max(statistics),
            count=exactly(1),
        )
    return Route(
        method=ppca,
        name=ppca.method,
        exact=False,
        passes=ppca.max_iter + 2 + bool(ppca.holdout),
        usual_passes=min(ppca.max_iter, _USUAL_ITERATIONS) + 1 + bool(ppca.holdout),
        flops=_USUAL_ITERATIONS * sum(2.0 * n * d * (2 * packed_length(k) + 4 * k) for k in sizes),
        phases=(
            *([Phase(16 * d, scratch_bytes=_HELD_OUT * COUNT_SLAB * d)] if ppca.holdout else []),
            *_beginning(ppca, data),
            *([stepping] if minibatches else []),
            iterating,
        ),
    )


def _beginning(ppca: PPCA, data: MatrixSpec) -> list[Phase]:
    """The start: pairwise covariances of a part of the rows, or of all; a sample for many features."""
    d, parts = data.n_cols, ppca.first_parts(data)
    if d > PAIRWISE_COLUMNS:
        size = sample_rows(data, max(ppca.sizes))
        return list(sample_phases(data, size, parts, solve_bytes=start_bytes(size, d)))
    square = 8 * d * d
    pairs = Phase(
        3 * square,
        # Mask and values of a slab, shifted and as read; then three products, each shifted to another origin.
        scratch_bytes=7 * square + 5 * 8 * SLAB * d + (_HELD_OUT * SLAB * d if ppca.holdout else 0),
        solve_bytes=8 * square + 8 * 10 * d * max(ppca.sizes),
        # The products of masks, of values with masks, and of values.
        work=products(3.0 * data.n_rows * d * d, np.dtype(np.float64), "product")
        + Work(moved=60.0 * data.n_rows * d),
        solve_work=Work(eigen=2.0 * float(d) ** 3),
    )
    return [pairs] if parts <= 1 else [replace(pairs, part=Part(0, parts)), replace(pairs, count=SELDOM)]


def mixture_route(mixture: PPCAMixture, data: MatrixSpec, sample_rows: int, parts: int) -> Route:
    """A sample to start from, and one pass per iteration for all components."""
    n, d, sizes = data.n_rows, data.n_cols, mixture.sizes
    sample = 8 * sample_rows * d
    starting = max(start_bytes(sample_rows, d) + 8 * d * 10 * c * k for c, k in sizes)
    return Route(
        method=mixture,
        name="em",
        exact=False,
        passes=mixture.max_iter + 1,
        usual_passes=min(mixture.max_iter, _USUAL_ITERATIONS) + 1,
        flops=_USUAL_ITERATIONS * sum(2.0 * n * d * c * (3 * packed_length(k) + 5 * k) for c, k in sizes),
        phases=(
            # k-means of the filled rows takes three copies of them.
            *sample_phases(data, sample_rows, parts, solve_bytes=starting + 3 * sample),
            Phase(
                sum(c * latent_bytes(d, k) for c, k in sizes),
                scratch_bytes=max(e_step_bytes(d, k) for _, k in sizes),
                held_bytes=2 * sample + sum(c * held_bytes(d, k) for c, k in sizes),
                # A component with too few rows is restarted from the sample.
                solve_bytes=max(solve_bytes(d, k) for _, k in sizes) + starting,
                work=sum((e_step_work(n, d, k) * (c * _RESPONSIBILITIES) for c, k in sizes), start=Work()),
                solve_work=sum((m_step_work(d, k) * c for c, k in sizes), start=Work()),
                count=iterations(_LIKELY_MIXTURE_ITERATIONS, mixture.max_iter),
            ),
        ),
    )


def e_step_work(n_rows: int, n_cols: int, n_components: int) -> Work:
    """The work of the E step of all rows for a component: products with packed w w', and solves."""
    n, p, k = float(n_rows), packed_length(n_components), n_components
    return products(n * n_cols * (2 * p + 3 * k), np.dtype(np.float64), "product") + Work(
        moved=8 * n * (8 * n_cols + 6 * p), cached=n * (_PER_VALUE * n_cols + k**3)
    )


def m_step_work(n_cols: int, n_components: int) -> Work:
    """The work of the M step of one component: a small system for every feature."""
    return Work(cached=float(n_cols) * n_components**3, calls=2000.0)


def start_bytes(n_rows: int, n_cols: int) -> int:
    """Bytes for the principal axes of a sample: centred and weighted copies, and the SVD."""
    return 5 * 8 * n_rows * n_cols + 4 * 8 * min(n_rows, n_cols) ** 2


def latent_bytes(n_cols: int, n_components: int) -> int:
    """Bytes of the expected statistics of one component."""
    return 8 * (n_cols + 1) * (packed_length(n_components) + 2 * n_components + 2)


def held_bytes(n_cols: int, n_components: int) -> int:
    """Bytes that one component holds between passes: parameters, old and new, and the best statistics.

    Each has the packed w_j w_j' of its features. The points of Anderson's extrapolation come on top.
    """
    k, p = n_components, packed_length(n_components)
    return 8 * n_cols * (2 * p + 12 * k + 14 * (k + 1)) + latent_bytes(n_cols, k)


def solve_bytes(n_cols: int, n_components: int) -> int:
    """Bytes of the M step of one component, with scaled normal equations, and of an extrapolation."""
    return 8 * n_cols * (5 * (n_components + 1) ** 2 + 24 * (n_components + 1))


def e_step_bytes(n_cols: int, n_components: int, n_rows: int | None = None) -> int:
    """Bytes of the E step of `n_rows` rows; None for blocks of any size."""
    rows, p = matrices_per_slab(n_components, n_cols), packed_length(n_components)
    rows = rows if n_rows is None else min(n_rows, rows)
    each = 8 * (4 * n_cols + 3 * p + 2 * n_components * (n_components + 1) + 10 * (n_components + 1))
    return (rows + PADDING) * each + latent_bytes(n_cols, n_components)
