"""Twenty kernels, five folds, one read: 200,000 x 50 float32, beside a fit for each kernel."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from benchmarks import data, ours
from benchmarks.contender import Contender
from benchmarks.harness import Settings, race
from benchmarks.report import Report, Target, figure, note, ratio, reads

ROWS, COLS, M, K, FOLDS = 200_000, 50, 200, 10, 5
GRID: dict[str, dict[str, list[float]]] = {
    "rbf": {"gamma": [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2]},
    "laplacian": {"gamma": [0.01, 0.05]},
    "poly": {"gamma": [0.02], "degree": [2, 3], "coef0": [0, 1]},
    "sigmoid": {"gamma": [0.001, 0.01], "coef0": [0, 1]},
    "linear": {},
    "cosine": {},
}


def candidates() -> list[dict[str, Any]]:
    """Return the parameters of each kernel of the grid."""
    return [
        {"kernel": kernel} | dict(zip(grid, values, strict=True))
        for kernel, grid in GRID.items()
        for values in product(*grid.values())
    ]


def run(settings: Settings) -> Iterator[Report]:
    """Run a search, and the fits that it replaces."""
    rows = max(int(ROWS * settings.scale), 20 * M)
    store = data.curved(settings.data, rows, COLS)
    each = candidates()
    own, fits = "streamdr, search", f"streamdr, {len(each)} fits"
    chosen = {"k": K, "n_landmarks": M, "memory_limit": "1GiB", "approximation": "nystrom"}
    search = chosen | {"kernel": {"search": GRID, "folds": FOLDS}}
    outcomes = race(
        [
            Contender(own, ours.kernel_search, store, search),
            Contender(fits, ours.kernel_fits, store, chosen | {"candidates": each}),
        ],
        settings,
        lambda found: {},
    )
    targets = [
        Target(ours.OPENINGS, note(outcomes, own, ours.OPENINGS), 2),
        Target("bytes read / bytes of the store", figure(outcomes, own, reads), 1.01),
        Target(f"search with {FOLDS} folds / {len(each)} fits", ratio(outcomes, own, fits), 1.0),
    ]
    title = f"Search: {len(each)} kernels, {FOLDS} folds, {rows:,} x {COLS} float32, {M} landmarks, k={K}"
    yield Report(title, outcomes, targets, [own])
