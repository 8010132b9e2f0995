"""What EM for probabilistic PCA takes, in memory and arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamdr.blocks import MatrixSpec
from streamdr.methods.base import Route
from streamdr.methods.stepwise import PAIRWISE_COLUMNS, sample_rows
from streamdr.packed import at_once, packed_length

if TYPE_CHECKING:
    from streamdr.methods.ppca import PPCA
    from streamdr.methods.ppca_mixture import PPCAMixture

_USUAL_ITERATIONS = 8
_HELD = 7 * 8
"""Bytes for each value that may be held out: its lot, and how well it is told."""


def em_route(ppca: PPCA, data: MatrixSpec) -> Route:
    """A look at a part to start from, and a pass an iteration."""
    n, d, sizes = data.n_rows, data.n_cols, ppca.sizes
    latent = sum(latent_bytes(d, k) for k in sizes)
    pairwise = 24 * d * d if d <= PAIRWISE_COLUMNS else 0
    k = max(sizes)
    sample = 0 if pairwise else 8 * sample_rows(data, k) * d
    held = _HELD * d if ppca.holdout else 0
    e_step = max(e_step_bytes(d, size) + held * at_once(size, d) for size in sizes)
    return Route(
        method=ppca,
        name=ppca.method,
        exact=False,
        axis="rows",
        passes=ppca.max_iter + 2,
        accumulator_bytes=max(latent, pairwise, sample),
        scratch_bytes=max(e_step, 2 * pairwise + 5 * 8 * 1024 * d if pairwise else 2 * sample),
        scratch_per_block=0.0,
        solve_bytes=max(solve_bytes(d, k) * len(sizes), pairwise, 3 * sample),
        flops=_USUAL_ITERATIONS * sum(2.0 * n * d * (2 * packed_length(k) + 4 * k) for k in sizes),
    )


def mixture_route(mixture: PPCAMixture, data: MatrixSpec, sample_rows: int) -> Route:
    """A sample to start from, and a pass an iteration over each component."""
    n, d, sizes = data.n_rows, data.n_cols, mixture.sizes
    k, sample = max(k for _, k in sizes), 8 * sample_rows * d
    return Route(
        method=mixture,
        name="em",
        exact=False,
        axis="rows",
        passes=mixture.max_iter + 1,
        accumulator_bytes=max(sum(c * latent_bytes(d, k) for c, k in sizes), sample),
        scratch_bytes=max(e_step_bytes(d, k), 2 * sample),
        scratch_per_block=0.0,
        solve_bytes=sum(c * solve_bytes(d, k) for c, k in sizes) + 6 * sample,
        flops=_USUAL_ITERATIONS * sum(2.0 * n * d * c * (3 * packed_length(k) + 5 * k) for c, k in sizes),
    )


def latent_bytes(n_cols: int, n_components: int) -> int:
    """The expected statistics of one component."""
    return 8 * (n_cols + 1) * (packed_length(n_components) + 2 * n_components + 2)


def solve_bytes(n_cols: int, n_components: int) -> int:
    """The M step of one component, and the steps that are remembered to look ahead from."""
    return 8 * n_cols * (4 * (n_components + 1) ** 2 + 24 * (n_components + 1))


def e_step_bytes(n_cols: int, n_components: int, n_rows: int | None = None) -> int:
    """What the E step of so many rows allocates; None for whatever the block."""
    rows, p = at_once(n_components, n_cols), packed_length(n_components)
    rows = rows if n_rows is None else min(n_rows, rows)
    each = 8 * (4 * n_cols + 3 * p + 2 * n_components * (n_components + 1) + 8 * n_components)
    return rows * each + 2 * latent_bytes(n_cols, n_components)
