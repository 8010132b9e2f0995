"""A score for each of 200 columns: 1,000,000 rows, beside scikit-learn's functions on all or a 20th."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import zarr

from benchmarks import data, floors, labelled
from benchmarks.contender import CORES, Contender, Solution
from benchmarks.harness import Judge, Settings, race
from benchmarks.report import Report, Target, figure, ratio, reads, verdict
from benchmarks.select_forward import COLS, MEMORY_LIMIT, PART, ROWS

K = 10
FLOOR, OWN, PEER = "floor: one read", "streamdr", "scikit-learn in memory"
OWN_PART, PEER_PART = "streamdr, a 20th of the rows", "scikit-learn, a 20th of the rows"
ERROR, BEST = "score error", f"of the {K} best, found"
OURS = {
    "SelectFScore": ("f_regression", 1.0, 1e-4),
    "SelectCorrelation": ("r_regression", 1.0, 1e-5),
    "SelectMutualInfo": ("mutual_info_regression", 2.0, 0.02),
}
"""The function of scikit-learn, how often streamdr may read, and how far off a score may be."""


def run(settings: Settings) -> Iterator[Report]:
    """Run one filter after the other. On all rows, scikit-learn's mutual information would take too long."""
    rows = max(int(ROWS * settings.scale), 1000 * PART)
    store, small = (data.related(settings.data, n, COLS) for n in (rows, rows // PART))
    labels, few = str(data.target(store)), str(data.target(small))
    for name, (function, passes, bound) in OURS.items():
        own = {"name": name, "k": K, "memory_limit": MEMORY_LIMIT}
        peer = {"name": function, "k": K}
        information = name == "SelectMutualInfo"
        if information:
            peer |= {"n_jobs": CORES, "random_state": 0}
        contenders = [
            Contender(FLOOR, floors.reading, store, blas_threads=1),
            Contender(OWN, labelled.filtered, store, own | {"labels": labels}),
        ]
        if not information:
            contenders.append(Contender(PEER, labelled.sklearn_filter, store, peer | {"labels": labels}))
        outcomes = race(contenders, settings, scores_of(store, Path(labels), function))
        outcomes += race(
            [
                Contender(OWN_PART, labelled.filtered, small, own | {"labels": few}),
                Contender(PEER_PART, labelled.sklearn_filter, small, peer | {"labels": few}),
            ],
            settings,
            scores_of(small, Path(few), function),
        )
        same = (OWN_PART, PEER_PART) if information else (OWN, PEER)
        targets = [
            Target(f"{same[0]} / {same[1]}", ratio(outcomes, *same), 1.0),
            Target("bytes read / bytes of the store", figure(outcomes, OWN, reads), passes + 0.02),
            Target(ERROR, verdict(outcomes, OWN, ERROR), bound),
        ]
        if information:
            targets.append(
                Target("streamdr, all rows / scikit-learn, a 20th", ratio(outcomes, OWN, PEER_PART), 1.0)
            )
        yield Report(f"{name}: {rows:,} x {COLS} float32, numbers as target", outcomes, targets, [OWN])


def scores_of(store: Path, labels: Path, function: str) -> Judge:
    """Return the judge that knows every score from correlations in float64: all columns are normal.

    Errors of correlations and of mutual information are absolute, those of F relative, with 1 added to it.
    """
    array = zarr.open_array(store, mode="r")
    n, height = array.shape[0], array.chunks[0]
    y = np.asarray(zarr.open_array(labels, mode="r")[:], np.float64)
    y -= y.mean()
    total = sum(np.asarray(array[i : i + height], np.float64).sum(axis=0) for i in range(0, n, height))
    products, squares = np.zeros((2, array.shape[1]))
    for start in range(0, n, height):
        block = np.asarray(array[start : start + height], np.float64) - total / n
        products += y[start : start + height] @ block
        squares += (block**2).sum(axis=0)
    r = products / np.sqrt(squares * (y @ y))
    truth = {
        "f_regression": r**2 / (1 - r**2) * (n - 2),
        "r_regression": r,
        "mutual_info_regression": -np.log1p(-(r**2)) / 2,
    }[function]
    scale = 1 + truth if function == "f_regression" else 1.0
    best = set(np.argsort(-np.abs(truth), kind="stable")[:K])

    def judge(found: Solution) -> dict[str, float | str]:
        return {
            ERROR: float((np.abs(found.variances - truth) / scale).max()),
            BEST: str(len(best & set(found.columns[:K]))),
        }

    return judge
