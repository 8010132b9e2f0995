"""The memory and arithmetic of the routes of iterative MDS."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from streamdr.core.blocks import IN_MEMORY_BYTES, MatrixSpec
from streamdr.core.byte_sizes import format_bytes
from streamdr.core.method import Phase, Route, cost_factor
from streamdr.core.work import Count, Work, exactly, products
from streamdr.methods.mds.distances import PAIR_BYTES, distance_work
from streamdr.methods.mds.initialisation import LANDMARKS
from streamdr.methods.mds.tiles import TILE_BYTES, tile_rows
from streamdr.methods.mds.validation import gathered_phase, with_distance_check

if TYPE_CHECKING:
    from streamdr.methods.mds.metric import MetricMDS
    from streamdr.methods.mds.nonmetric import NonmetricMDS

_STEPS = 20.0
"""The number of operations on a pair, without the computation of its distance."""
_USUAL_ITERATIONS = 50
_PAIR_STEPS = 45.0
"""The number of operations on a pair within caches: its difference, root, quotient, and sums."""
_STEP_CALLS = 400.0


def iterative_routes(
    method: MetricMDS | NonmetricMDS,
    data: MatrixSpec,
    algorithm: str,
    *,
    passes_per_iteration: int,
    copies: int = 3,
) -> list[Route]:
    """Routes with all distances in memory, and with `passes_per_iteration` passes over them per iteration."""
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
        passes=1,
        flops=each * method.max_iter * method.n_init + computed,
        phases=(
            replace(
                gathered_phase(data, 2 * rows + copies * matrix + landmarks + 20 * state + weights, stored),
                solve_work=Work() if stored else distance_work(n, n, d),
            ),
            Phase(
                6 * state,
                scratch_bytes=tiles,
                held_bytes=rows + copies * matrix + landmarks // 4 + 20 * state + weights,
                solve_bytes=4 * state,
                work=pair_work(n, k) * method.n_init,
                solve_work=_step_work(n, k) * method.n_init,
                count=_evaluations(method),
                in_memory=True,
            ),
        ),
        advice=f"or set storage: stream, which keeps about {format_bytes(landmarks)} of distances",
    )
    held = weights + 20 * state + (0 if stored else rows)
    widened = 0 if stored else 2 * 8 * d * tile_rows(n) + (rows if method.metric == "cosine" else 0)
    evaluating = Phase(
        3 * state,
        scratch_bytes=tiles + widened,
        held_bytes=held + landmarks // 4,
        solve_bytes=4 * state,
        cost_factor=1 if stored else cost_factor(n, d),
        work=pair_work(n, k) * method.n_init + (Work() if stored else distance_work(n, n, d)),
        solve_work=_step_work(n, k) * method.n_init,
        count=_evaluations(method, passes_per_iteration),
    )
    if stored:
        beginning = Phase(landmarks // 4, scratch_per_block=0.5, scratch_bytes=landmarks // 4)
        first = with_distance_check(
            replace(beginning, solve_bytes=2 * landmarks + 20 * state + weights), data
        )
    else:
        first = gathered_phase(data, 2 * rows + 2 * landmarks + 20 * state + weights, stored)
    stream = Route(
        method=method.using(f"{algorithm}/stream"),
        name=f"{algorithm}/stream",
        exact=True,
        passes=passes_per_iteration * (method.max_iter + 1),
        usual_passes=passes_per_iteration * (min(method.max_iter, _USUAL_ITERATIONS) + 1),
        flops=passes_per_iteration * (each + computed) * method.max_iter * method.n_init,
        phases=(first, evaluating),
    )
    return [route for route in (memory, stream) if method.storage in ("auto", route.name.partition("/")[2])]


def stochastic_route(method: MetricMDS, data: MatrixSpec, rounds: int, stored_rounds: int) -> Route:
    """Stochastic descent on the points, or on distances of sampled pairs, in memory."""
    n, d, k = data.n_rows, data.n_cols, method.n_components
    stored = method.metric == "precomputed"
    rows = 8 * n * d
    landmarks = 5 * 8 * LANDMARKS * n
    table = 8 * n * min(stored_rounds, n) if stored else 0
    state = 8 * n * (20 * k + 60)
    # For each worker, one task draws the pairs of some rounds, and two are waiting with theirs.
    waiting = 3 * (4 * IN_MEMORY_BYTES // (1 if stored else d) + 16 * n)
    drawing = 40 * n + (0 if stored else 6 * max(PAIR_BYTES, 8 * d))
    # The final stress of all pairs takes one more pass; for points, only if there are few.
    final = 10 * max(TILE_BYTES, 8 * n) + (0 if stored else 16 * d * tile_rows(n))
    evaluating = Phase(
        table + 8 * n * (2 * k + 2) * 3,
        scratch_bytes=max(final, waiting + drawing),
        scratch_per_block=0.5,
        held_bytes=landmarks + state + 2 * table + (0 if stored else 2 * rows),
        solve_bytes=2 * table + state,
        cost_factor=1 if stored else cost_factor(n, d),
        work=pair_work(n, k) + (Work() if stored else distance_work(n, n, d)),
        count=exactly(method.n_init),
        in_memory=True,
    )
    each = _STEPS + 4 * k + (0 if stored else d)
    descending = Work(scattered=float(n) * rounds * method.n_epochs * method.n_init * each / 4)
    if stored:
        beginning = Phase(landmarks // 5, scratch_per_block=0.5, scratch_bytes=landmarks // 5)
        first = with_distance_check(replace(beginning, solve_bytes=landmarks + state), data)
    else:
        first = gathered_phase(data, 2 * rows + landmarks + state, stored)
    phases = (replace(first, solve_work=first.solve_work + descending), evaluating)
    return Route(
        method=method.using("stochastic"),
        name="stochastic",
        exact=False,
        passes=(2 if stored else 1) + method.n_init,
        flops=float(n) * rounds * method.n_epochs * method.n_init * (d + 4 * k + _STEPS) * 4,
        phases=phases,
    )


def pair_work(n_points: int, n_components: int) -> Work:
    """The work of one evaluation of all pairs: their distances on the map, and what these add up to."""
    pairs = float(n_points) * n_points
    return Work(cached=_PAIR_STEPS * pairs) + products(
        3.0 * pairs * n_components, np.dtype(np.float64), "thin"
    )


def _step_work(n_points: int, n_components: int) -> Work:
    """The work of a step of all points, besides that on pairs."""
    return Work(calls=_STEP_CALLS, cached=20.0 * n_points * n_components)


def _evaluations(method: MetricMDS | NonmetricMDS, each: int = 1) -> Count:
    """How often all pairs are gone through."""
    usual = min(method.max_iter, _USUAL_ITERATIONS)
    return Count(each * min(2, method.max_iter), each * (usual + 1), each * (method.max_iter + 1))
