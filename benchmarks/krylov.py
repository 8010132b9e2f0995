"""Many rows and columns, with a slowly decaying spectrum: 100,000 x 20,000 float32, the Krylov route."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import data, floors, ours, peers
from benchmarks.contender import Contender, Solution
from benchmarks.cosine import CosineMatrix
from benchmarks.harness import Settings, race
from benchmarks.report import Report, Target, figure, peak, ratio_to_best, reads, verdict

ROWS, COLS, K = 100_000, 20_000, 20
WIDTH = K + 10

# Oversamples and power iterations with which dask comes within 1e-6 on this spectrum: many cheap reads, or
# few expensive ones. Its defaults of 10 and 0 miss 8e-2.
EQUALLY_ACCURATE = ((50, 4), (120, 2))


def run(settings: Settings) -> Iterator[Report]:
    """Race streamdr and dask's randomised decomposition at equal accuracy; the scale shrinks both sides."""
    rows, cols = max(int(ROWS * settings.scale), 2000), max(int(COLS * settings.scale), 1000)
    matrix = CosineMatrix(rows, cols)
    store = data.slow_decay(settings.data, matrix)
    best = matrix.variances[:K].sum()

    def judge(found: Solution) -> dict[str, float | str]:
        return {"variance not captured": float(1 - matrix.captured(found.components) / best)}

    def dask(oversamples: int, iterations: int, *, reread: bool) -> Contender:
        name = f"dask svd_compressed, {oversamples} oversamples, {iterations} power iterations"
        return Contender(
            name + ("" if reread else ", keeping the data"),
            peers.dask_svd_compressed,
            store,
            {"k": K, "iterations": iterations, "oversamples": oversamples, "reread": reread},
            blas_threads=1,
        )

    floor, own = "floor of one pass", "streamdr"
    outcomes = race(
        [
            Contender(floor, floors.krylov, store, {"width": WIDTH}, blas_threads=1),
            Contender(own, ours.threads, store, {"k": K, "memory_limit": "1GiB"}),
            *(dask(*setting, reread=True) for setting in EQUALLY_ACCURATE),
            dask(*EQUALLY_ACCURATE[0], reread=False),
        ],
        settings,
        judge,
    )
    targets = [
        Target("variance not captured", verdict(outcomes, own, "variance not captured"), 1e-6),
        Target("reads of the store", figure(outcomes, own, reads), 5.1),
        Target("streamdr / fastest dask", ratio_to_best(outcomes, own, not_peers=[floor]), 1.0),
        Target("peak / smallest dask's", ratio_to_best(outcomes, own, not_peers=[floor], of=peak), 1.0),
    ]
    yield Report(f"Krylov: {rows:,} x {cols:,} float32, k={K}", outcomes, targets, [floor, own])
