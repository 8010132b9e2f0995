"""Counts normalised, logged and scaled before PCA, in one chain, beside PCA of the counts alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks import sparse_stores
from benchmarks.contender import CORES, Contender, Fit, Solution
from benchmarks.harness import Outcome, Settings, race
from benchmarks.report import Report, Target, figure, megabytes, ratio, seconds

ROWS, COLS, K = 1_000_000, 2000, 50
READINGS = 3
"""The median of totals, the standard deviations, and the moments."""


def chain_fit(store: str, steps: list[str], k: int, memory_limit: int) -> Fit:
    """Return the fit of a chain of steps and PCA, or of PCA alone."""
    from streamdr.core.execution import Execution
    from streamdr.data import open_source
    from streamdr.engine import fitting
    from streamdr.methods.chain import Chain
    from streamdr.methods.pca import PCA
    from streamdr.methods.steps import Log1p, NormalizeTotal, Standardise

    made: dict[str, Any] = {
        "normalize_total": NormalizeTotal(),
        "log1p": Log1p(),
        "standardise": Standardise(with_mean=False),
    }
    pca = PCA(k, solver="covariance")
    method = Chain((*(made[step] for step in steps), pca)) if steps else pca

    def fit() -> Solution:
        execution = Execution(workers=CORES, memory_limit=memory_limit)
        model: Any = fitting.fit(method, open_source(store), execution).model
        last = model.last if steps else model
        return Solution(last.explained_variance, last.components)

    return fit


def run(settings: Settings) -> Iterator[Report]:
    """Time the chain and PCA alone on the same store."""
    rows = max(int(ROWS * settings.scale), 4 * COLS)
    store = sparse_stores.counts_store(settings.data, rows, COLS)
    common = {"k": K, "memory_limit": 1 << 30}
    steps = ["normalize_total", "log1p", "standardise"]
    outcomes = race(
        [
            Contender("pca", chain_fit, store, common | {"steps": []}),
            Contender("chain", chain_fit, store, common | {"steps": steps}),
        ],
        settings,
        lambda found: {},
    )
    targets = [
        Target("chain / pca, for each reading", per_reading(outcomes), 1.3),
        Target("chain / pca", ratio(outcomes, "chain", "pca"), 1.3 * READINGS),
        Target("peak, MB", figure(outcomes, "chain", megabytes), 1074),
    ]
    title = f"Chain: {' -> '.join([*steps, 'pca'])}, {rows:,} x {COLS:,} sparse float32, k={K}"
    yield Report(title, outcomes, targets, ["pca", "chain"])


def per_reading(outcomes: list[Outcome]) -> float | None:
    """Return the time of the chain for each of its readings, in those of PCA alone."""
    chain, pca = (figure(outcomes, name, seconds) for name in ("chain", "pca"))
    return None if chain is None or pca is None else chain / READINGS / pca
