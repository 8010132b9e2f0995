"""Kernel PCA by landmarks: 1,000,000 x 50 float32, above its floor, beside scikit-learn's Nystroem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks import data, floors, ours, peers
from benchmarks.contender import Contender
from benchmarks.harness import Outcome, Settings, race
from benchmarks.kernel_judge import EXPLAINED, quality_of
from benchmarks.report import Report, Target, figure, megabytes, note, peak, ratio, seconds, verdict

ROWS, COLS, M, K = 1_000_000, 50, 1000, 10
GAMMA = 1 / COLS
MEMORY_LIMIT = "1GiB"
QUARTER, PART = 4, 10
"""Contenders in memory also run on a quarter of the rows; those that take minutes run only on a tenth."""

FLOOR, OWN, UNIFORM = "floor", "streamdr", "streamdr, uniform landmarks"
FLOOR_SMALL, OWN_SMALL = "floor, a quarter of the rows", "streamdr, a quarter of the rows"
IN_MEMORY = "scikit-learn Nystroem, PCA in memory"
IN_MEMORY_SMALL = f"{IN_MEMORY}, a quarter of the rows"
STREAMED = "scikit-learn Nystroem, IncrementalPCA, a tenth of the rows"
LARGER_BATCHES = "scikit-learn Nystroem, IncrementalPCA in larger batches, a tenth of the rows"


def run(settings: Settings) -> Iterator[Report]:
    """Run all contenders. The names of those that run on fewer rows say so."""
    rows = max(int(ROWS * settings.scale), QUARTER * PART * M)
    store, small = (data.curved(settings.data, n, COLS) for n in (rows, rows // QUARTER))
    kernel = {"m": M, "gamma": GAMMA}
    chosen = {
        "k": K,
        "kernel": "rbf",
        "gamma": GAMMA,
        "approximation": "nystrom",
        "n_landmarks": M,
        "memory_limit": MEMORY_LIMIT,
    }
    streamed = kernel | {"k": K, "rows": rows // PART}
    contenders = [
        Contender(FLOOR, floors.kernel, store, kernel, blas_threads=1),
        Contender(OWN, ours.kernel_pca, store, chosen),
        Contender(UNIFORM, ours.kernel_pca, store, chosen | {"landmarks": "uniform"}),
        Contender(FLOOR_SMALL, floors.kernel, small, kernel, blas_threads=1),
        Contender(OWN_SMALL, ours.kernel_pca, small, chosen),
        Contender(IN_MEMORY_SMALL, peers.sklearn_nystroem, small, kernel | {"k": K}),
        Contender(IN_MEMORY, peers.sklearn_nystroem, store, kernel | {"k": K}),
        Contender(STREAMED, peers.sklearn_nystroem_incremental, store, streamed),
        Contender(
            LARGER_BATCHES,
            peers.sklearn_nystroem_incremental,
            store,
            streamed | {"larger_batches": True},
        ),
    ]
    outcomes = race(contenders, settings, quality_of(store, GAMMA))
    targets = [
        Target("streamdr / floor", ratio(outcomes, OWN, FLOOR), 1.3),
        Target(
            "streamdr / Nystroem and IncrementalPCA, extrapolated to all rows",
            projected_ratio(outcomes, STREAMED, rows),
            1 / 20,
        ),
        Target("the same, in larger batches", projected_ratio(outcomes, LARGER_BATCHES, rows), 1 / 20),
        Target("streamdr / Nystroem and PCA in memory", ratio(outcomes, OWN, IN_MEMORY), 1 / 4),
        Target("the same, a quarter of the rows", ratio(outcomes, OWN_SMALL, IN_MEMORY_SMALL), 1 / 4),
        Target("peak, MB (the limit was 1 GiB)", figure(outcomes, OWN, megabytes), 2**30 / 1e6),
        Target("peak / peak at a quarter of the rows", ratio(outcomes, OWN, OWN_SMALL, of=peak), 1.05),
        Target(
            "variance explained, Nystroem in memory / streamdr", explained_ratio(outcomes, IN_MEMORY), 1.001
        ),
        Target("variance explained, IncrementalPCA / streamdr", explained_ratio(outcomes, STREAMED), 1.001),
    ]
    title = f"Kernel PCA: {rows:,} x {COLS} float32, rbf, {M:,} landmarks, k={K}"
    yield Report(title, outcomes, targets, [FLOOR, OWN])


def projected_ratio(outcomes: Sequence[Outcome], part: str, rows: int) -> float | None:
    """Return the time of streamdr divided by that of a peer, extrapolated from a part of the rows.

    Each batch takes as long as the one before it. The choice of landmarks by the peer is not counted.
    """
    own, pace = figure(outcomes, OWN, seconds), note(outcomes, part, peers.SECONDS_PER_ROW)
    return None if own is None or pace is None else own / (pace * rows)


def explained_ratio(outcomes: Sequence[Outcome], peer: str) -> float | None:
    """Return the variance that a peer explains divided by that of streamdr, on the same rows."""
    its, own = verdict(outcomes, peer, EXPLAINED), verdict(outcomes, OWN, EXPLAINED)
    return None if its is None or own is None else its / own
