"""The overhead of streamdr: the covariance benchmark with fewer contenders and more rounds.

The complete benchmark takes ten minutes, in which the speed of a shared machine varies. Here streamdr and its
floors are never more than seconds apart; IncrementalPCA, which takes longer than all of them together, runs
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks import data, floors, ours, peers, references
from benchmarks.contender import Contender
from benchmarks.covariance import COLS, SOFT_FLOOR, K, scaled_rows
from benchmarks.harness import Settings, race
from benchmarks.report import Report, Target, ratio

ROUNDS = 7
INCREMENTAL = "scikit-learn IncrementalPCA"


def run(settings: Settings) -> Iterator[Report]:
    """Race streamdr against its floors, best of seven, and against IncrementalPCA."""
    rows = scaled_rows(settings)
    store = data.tall(settings.data, rows, COLS)
    contenders = [
        Contender("floor", floors.covariance, store, blas_threads=1),
        Contender(SOFT_FLOOR, floors.covariance, store, {"through_zarr": True}, blas_threads=1),
        Contender("streamdr", ours.threads, store, {"k": K, "memory_limit": "1GiB"}),
        Contender(INCREMENTAL, peers.sklearn_incremental, store, {"k": K}),
        Contender(
            "scikit-learn IncrementalPCA, larger batches",
            peers.sklearn_incremental,
            store,
            {"k": K, "larger_batches": True},
        ),
    ]
    judge = references.variance_error(references.variances(store, K))
    outcomes = race(contenders, replace(settings, rounds=max(ROUNDS, settings.rounds)), judge)
    targets = [
        Target("streamdr / floor", ratio(outcomes, "streamdr", "floor"), 1.15),
        Target("streamdr / floor, read by zarr-python", ratio(outcomes, "streamdr", SOFT_FLOOR), 1.15),
        Target("streamdr / scikit-learn IncrementalPCA", ratio(outcomes, "streamdr", INCREMENTAL), 1 / 20),
    ]
    yield Report(f"Overhead: {rows:,} x {COLS:,} float32, k={K}", outcomes, targets, ["floor", "streamdr"])
