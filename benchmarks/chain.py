"""Counts normalised, logged and scaled before PCA, in one chain, beside PCA of the counts alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks import sparse_stores
from benchmarks.contender import CORES, Contender, Fit, Solution
from benchmarks.harness import Settings, race
from benchmarks.report import Report, Target, figure, megabytes, ratio

ROWS, COLS, K = 1_000_000, 2000, 50
TARGET = 1e4
READINGS = 3
"""The readings of the chain that learns: the median of totals, the standard deviations, and the moments."""


def chain_fit(store: str, steps: list[tuple[str, dict[str, Any]]], k: int, memory_limit: int) -> Fit:
    """Return the fit of a chain of steps and PCA, or of PCA alone."""
    from streamdr.core.execution import Execution
    from streamdr.data import open_source
    from streamdr.engine import fitting
    from streamdr.methods import METHODS
    from streamdr.methods.chain import Chain
    from streamdr.methods.pca import PCA

    pca = PCA(k, solver="covariance")
    made = [METHODS[name](**parameters) for name, parameters in steps]
    method = Chain((*made, pca)) if made else pca

    def fit() -> Solution:
        execution = Execution(workers=CORES, memory_limit=memory_limit)
        model: Any = fitting.fit(method, open_source(store), execution).model
        last = model.last if steps else model
        return Solution(last.explained_variance, last.components)

    return fit


def run(settings: Settings) -> Iterator[Report]:
    """Time PCA alone, four steps that need no pass before it, and four of which two learn."""
    rows = max(int(ROWS * settings.scale), 4 * COLS)
    store = sparse_stores.counts_store(settings.data, rows, COLS)
    common = {"k": K, "memory_limit": 1 << 30}
    fixed = [
        ("normalize_total", {"target_sum": TARGET}),
        ("log1p", {}),
        ("clip", {"max": 6.0}),
        ("unit_norm", {}),
    ]
    learning = [
        ("normalize_total", {}),
        ("log1p", {}),
        ("standardise", {"with_mean": False}),
        ("clip", {"max": 10.0}),
    ]
    four, learnt = ("chain: " + ", ".join(name for name, _ in steps) for steps in (fixed, learning))
    outcomes = race(
        [
            Contender("pca", chain_fit, store, common | {"steps": []}),
            Contender(four, chain_fit, store, common | {"steps": fixed}),
            Contender(learnt, chain_fit, store, common | {"steps": learning}),
        ],
        settings,
        lambda found: {},
    )
    whole = ratio(outcomes, learnt, "pca")
    targets = [
        Target("four steps and pca / pca", ratio(outcomes, four, "pca"), 1.3),
        Target(
            "with two steps that learn, for each of three readings",
            None if whole is None else whole / READINGS,
            1.3,
        ),
        Target("peak, MB", figure(outcomes, learnt, megabytes), 1074),
    ]
    yield Report(
        f"Chains of four steps and PCA: {rows:,} x {COLS:,} sparse float32, k={K}", outcomes, targets, ["pca"]
    )
