"""Which landmarks capture most of the trace, where one cluster has most of the rows and many have few."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import zarr

from benchmarks import data, ours
from benchmarks.contender import Contender, Solution
from benchmarks.harness import Judge, Outcome, Settings, race
from benchmarks.kernel_judge import captured_trace
from benchmarks.report import Report, Target, figure

ROWS, COLS, SMALL, SHARE = 100_000, 5, 80, 0.08
SEEDS = 10
NUMBERS = (25, 50, 100, 200)
WAYS = ("uniform", "kmeans", "rpcholesky")
CLUSTER_SQUARE = 2 * COLS * 0.3**2
GAMMAS = {"as wide as a cluster": 1 / (2 * CLUSTER_SQUARE), "twice as wide": 1 / (8 * CLUSTER_SQUARE)}
"""The median distance is that of two rows of the large cluster."""

MEAN, SPREAD, REPORTED = (
    "trace captured",
    "standard deviation",
    "largest error of the trace that streamdr reports",
)


def run(settings: Settings) -> Iterator[Report]:
    """Choose as many landmarks in each way, with several seeds, for two widths of the kernel."""
    rows = max(int(ROWS * settings.scale), 10_000)
    store = data.unequal_clusters(settings.data, rows, COLS, small=SMALL, share=SHARE)
    for width, gamma in GAMMAS.items():
        contenders = [
            Contender(
                name(way, m),
                ours.kernel_landmarks,
                store,
                {
                    "m": m,
                    "seeds": SEEDS,
                    "memory_limit": "1GiB",
                    "kernel": "rbf",
                    "gamma": gamma,
                    "landmarks": way,
                },
            )
            for m in NUMBERS
            for way in WAYS
        ]
        outcomes = race(contenders, settings, traces_of(store, gamma))
        most = NUMBERS[-1]
        targets = [Target(f"trace missed, RPCholesky / uniform, m={most}", missed(outcomes, most), 1.0)]
        title = (
            f"Landmarks: {rows:,} x {COLS} float32, {SMALL} clusters in {SHARE:.0%} of the rows, "
            f"rbf {width}, {SEEDS} seeds"
        )
        yield Report(title, outcomes, targets, [])


def name(way: str, m: int) -> str:
    """Return the name of a contender."""
    return f"{way}, m={m}"


def traces_of(store: Path, gamma: float) -> Judge:
    """Return the judge that says how much of the trace of all rows landmarks capture, over the seeds."""
    rows = np.asarray(zarr.open_array(store, mode="r")[:], np.float64)

    def judge(found: Solution) -> dict[str, float | str]:
        traces = np.array([captured_trace(rows, landmarks, gamma) for landmarks in found.landmarks])
        return {
            MEAN: f"{traces.mean():.5f}",
            SPREAD: f"{traces.std(ddof=1):.5f}",
            REPORTED: float(np.abs(found.variances - traces).max()),
        }

    return judge


def missed(outcomes: Sequence[Outcome], m: int) -> float | None:
    """Return the trace that RPCholesky does not capture, divided by that of uniform landmarks."""
    shares = [
        figure(outcomes, name(way, m), lambda outcome: 1 - float(outcome.verdict[MEAN]))
        for way in ("rpcholesky", "uniform")
    ]
    return None if shares[0] is None or shares[1] is None else shares[0] / shares[1]
