"""Sparse kernel PCA, with one row per component: the time of a transform of 200,000 x 50 float32."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import data, ours
from benchmarks.contender import Contender
from benchmarks.harness import Settings, race
from benchmarks.kernel_judge import quality_of
from benchmarks.report import Report, Target, ratio

ROWS, COLS, M, K = 200_000, 50, 1000, 10
GAMMA = 1 / COLS


def run(settings: Settings) -> Iterator[Report]:
    """Time the transforms of fitted models; the tables also have the variance that each explains."""
    rows = max(int(ROWS * settings.scale), 10 * M)
    store = data.curved(settings.data, rows, COLS)
    sparse, dense, few = "sparse", f"{M:,} landmarks", f"{K} landmarks"
    common = {"k": K, "kernel": "rbf", "gamma": GAMMA, "memory_limit": "1GiB"}
    nystrom = common | {"sparse": False, "approximation": "nystrom"}
    outcomes = race(
        [
            Contender(sparse, ours.kernel_transform, store, common | {"sparse": True}),
            Contender(dense, ours.kernel_transform, store, nystrom | {"n_landmarks": M}),
            Contender(few, ours.kernel_transform, store, nystrom | {"n_landmarks": K}),
        ],
        settings,
        quality_of(store, GAMMA),
    )
    targets = [Target("sparse / dense transform", ratio(outcomes, sparse, dense), 0.1)]
    title = f"Sparse kernel PCA, the transform: {rows:,} x {COLS} float32, rbf, k={K}"
    yield Report(title, outcomes, targets, [sparse])
