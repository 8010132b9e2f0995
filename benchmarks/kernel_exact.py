"""Exact kernel PCA of 2,000 to 8,000 rows, beside scikit-learn's KernelPCA."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import data, ours, peers
from benchmarks.contender import Contender
from benchmarks.harness import Settings, race
from benchmarks.kernel_judge import ERROR, variance_error_of
from benchmarks.report import Report, Target, peak, ratio, verdict

ROWS, COLS, K = (2000, 4000, 8000), 50, 10
GAMMA = 1 / COLS


def run(settings: Settings) -> Iterator[Report]:
    """Race both at each number of rows, in float64."""
    for whole in ROWS:
        rows = max(int(whole * settings.scale), whole // 10)
        store = data.curved(settings.data, rows, COLS, "f8")
        own, peer = "streamdr", "scikit-learn KernelPCA"
        exact = {"kernel": "rbf", "approximation": "exact", "memory_limit": "4GiB"}
        outcomes = race(
            [
                Contender(own, ours.kernel_pca, store, {"k": K, "gamma": GAMMA} | exact),
                Contender(peer, peers.sklearn_kernel_pca, store, {"k": K, "gamma": GAMMA}),
            ],
            settings,
            variance_error_of(store, K, GAMMA),
        )
        targets = [
            Target("streamdr / scikit-learn KernelPCA", ratio(outcomes, own, peer), 1.0),
            Target("peak / scikit-learn's", ratio(outcomes, own, peer, of=peak), 1.0),
            Target("variance error", verdict(outcomes, own, ERROR), 1e-8),
        ]
        yield Report(f"Exact kernel PCA: {rows:,} x {COLS} float64, rbf, k={K}", outcomes, targets, [own])
