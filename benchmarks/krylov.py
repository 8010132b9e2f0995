"""Large both ways, with a spectrum that falls slowly: 100,000 x 20,000 float32, the Krylov route."""

from __future__ import annotations

from benchmarks import data, floors, ours, peers
from benchmarks.contender import Contender, Solution
from benchmarks.cosine import CosineMatrix
from benchmarks.harness import Settings, race
from benchmarks.report import Report, Target, ratio, verdict

ROWS, COLS, K = 100_000, 20_000, 20
WIDTH = K + 10

# The cheapest settings, of those tried, with which dask comes within 1e-6 on this spectrum.
DASK = {"k": K, "iterations": 3, "oversamples": 100}


def run(settings: Settings) -> Report:
    """Race streamdr and dask's randomised decomposition at equal accuracy; the scale shrinks both sides."""
    rows, cols = max(int(ROWS * settings.scale), 2000), max(int(COLS * settings.scale), 1000)
    matrix = CosineMatrix(rows, cols)
    store = data.slow_decay(settings.data, matrix)
    best = matrix.variances[:K].sum()

    def judge(found: Solution) -> dict[str, float | str]:
        return {"variance not captured": float(1 - matrix.captured(found.components) / best)}

    rereading, keeping = "dask svd_compressed, rereading", "dask svd_compressed, keeping the data"
    contenders = [
        Contender("floor of one pass", floors.krylov, store, {"width": WIDTH}, blas_threads=1),
        Contender("streamdr", ours.threads, store, {"k": K, "memory_limit": "1GiB"}),
        Contender(rereading, peers.dask_svd_compressed, store, DASK | {"reread": True}, blas_threads=1),
        Contender(keeping, peers.dask_svd_compressed, store, DASK | {"reread": False}, blas_threads=1),
    ]
    outcomes = race(contenders, settings, judge)
    own = [outcome for outcome in outcomes if outcome.name == "streamdr" and not outcome.failure]
    targets = [
        Target("variance not captured", verdict(outcomes, "streamdr", "variance not captured"), 1e-6),
        Target("reads of the store", own[0].reads if own else None, 5.1),
        Target("streamdr / dask, rereading", ratio(outcomes, "streamdr", rereading), 1.0),
        Target("streamdr / dask, keeping the data", ratio(outcomes, "streamdr", keeping), 1.0),
        Target("peak / dask's, rereading", ratio(outcomes, "streamdr", rereading, of=lambda o: o.peak), 1.0),
    ]
    return Report(
        f"Krylov: {rows:,} x {cols:,} float32, k={K}", outcomes, targets, ["floor of one pass", "streamdr"]
    )
