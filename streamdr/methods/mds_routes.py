"""What each way of iterative scaling takes, in memory and arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamdr.accumulators.tiles import TILE_BYTES
from streamdr.blocks import MatrixSpec
from streamdr.methods.base import Route
from streamdr.methods.mds_setting import LANDMARKS
from streamdr.sizes import format_bytes

if TYPE_CHECKING:
    from streamdr.methods.metric_mds import MetricMDS
    from streamdr.methods.nonmetric_mds import NonmetricMDS

_STEPS = 20.0
"""Operations on a pair, besides its distances."""


def iterative_routes(
    method: MetricMDS | NonmetricMDS, data: MatrixSpec, algorithm: str, *, looks: int, copies: int = 3
) -> list[Route]:
    """All distances in memory, or read again (or computed again) in every iteration, `looks` times."""
    n, d, k = data.n_rows, data.n_cols, method.n_components
    stored = method.metric == "precomputed"
    matrix, rows = 8 * n * n, 8 * n * d
    tiles = 10 * max(TILE_BYTES, 8 * n)
    landmarks = 4 * 8 * LANDMARKS * n
    state = 8 * n * (2 * k + 2) * method.n_init
    each = float(n) * n * (_STEPS + 4 * k)
    computed = 0.0 if stored else float(n) * n * 3 * d
    weights = 0 if getattr(method, "pair_weights", None) is None else 2 * matrix
    memory = Route(
        method=method.using(f"{algorithm}/memory"),
        name=f"{algorithm}/memory",
        exact=True,
        axis="rows",
        passes=1,
        accumulator_bytes=96 * n + (1 << 16),
        scratch_bytes=tiles,
        scratch_per_block=3.0,
        gathered_bytes=3 * rows,
        solve_bytes=copies * matrix + landmarks + tiles + 20 * state + weights,
        flops=each * method.max_iter * method.n_init + computed,
        advice=f"or set storage: stream, which keeps about {format_bytes(landmarks)} of distances",
    )
    stream = Route(
        method=method.using(f"{algorithm}/stream"),
        name=f"{algorithm}/stream",
        exact=True,
        axis="rows",
        passes=looks * method.max_iter if stored else 2,
        accumulator_bytes=max(3 * state, landmarks // 4 + 96 * n) + (0 if stored else rows) + weights,
        scratch_bytes=tiles,
        scratch_per_block=3.0,
        solve_bytes=2 * landmarks + 20 * state + (0 if stored else 3 * rows) + weights,
        flops=looks * (each + computed) * method.max_iter * method.n_init,
        labour=1 if stored else max(1, n // (4 * d)),
    )
    return [route for route in (memory, stream) if method.storage in ("auto", route.name.partition("/")[2])]


def stochastic_route(method: MetricMDS, data: MatrixSpec, rounds: int, stored_rounds: int) -> Route:
    """The points, or distances of some pairs, in memory; and descent on these."""
    n, d, k = data.n_rows, data.n_cols, method.n_components
    stored = method.metric == "precomputed"
    rows = 8 * n * d
    landmarks = 5 * 8 * LANDMARKS * n
    table = 8 * n * min(stored_rounds, n) if stored else 0
    return Route(
        method=method.using("stochastic"),
        name="stochastic",
        exact=False,
        axis="rows",
        passes=2 if stored else 1,
        accumulator_bytes=2 * table + (96 * n + landmarks // 5 if stored else 1 << 16),
        scratch_bytes=10 * max(TILE_BYTES, 8 * n),
        scratch_per_block=3.0,
        gathered_bytes=0 if stored else 3 * rows,
        solve_bytes=3 * table + landmarks + 8 * n * (20 * k + 60 + (0 if stored else 6 * d)),
        flops=float(n) * rounds * method.n_epochs * method.n_init * (d + 4 * k + _STEPS) * 4,
    )
