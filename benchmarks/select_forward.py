"""Forward selection of 30 of 200 columns over 5 folds: 1,000,000 rows, beside scikit-learn's on a 20th."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import PredefinedSplit, cross_val_score

from benchmarks import data, floors, labelled
from benchmarks.contender import CORES, Contender, Solution
from benchmarks.harness import Judge, Outcome, Settings, race
from benchmarks.labelled import AT_BEST, SECONDS_PER_FIT, number_of_fits
from benchmarks.ours import OPENINGS
from benchmarks.report import Report, Target, figure, note, reads, seconds, verdict

ROWS, COLS, K, FOLDS, PART, FIRST = 1_000_000, 200, 30, 5, 20, 3
"""scikit-learn searches for the first few columns only: all of them would take it too long."""
MEMORY_LIMIT = "1GiB"
FLOOR, OWN = "floor", "streamdr"
OWN_PART, PEER = "streamdr, a 20th of the rows", f"scikit-learn, a 20th of the rows, first {FIRST} columns"
JOBS = f"{PEER}, {CORES} processes"
STEPS = "scikit-learn, a 20th of the rows, one candidate per step"
COLUMNS, SCORES = f"first {FIRST} columns", "score error"


def run(settings: Settings) -> Iterator[Report]:
    """Run streamdr on all rows, and both programs on a part, where they must select the same columns."""
    rows = max(int(ROWS * settings.scale), 1000 * PART)
    store, small = (data.related(settings.data, n, COLS) for n in (rows, rows // PART))
    labels, few = data.target(store), data.target(small)
    folds = {"n_folds": FOLDS, "random_state": 0}
    chosen = {"k": K, "learner": "linear", "memory_limit": MEMORY_LIMIT} | folds
    outcomes = race(
        [
            Contender(FLOOR, floors.covariance, store, blas_threads=1),
            Contender(OWN, labelled.select_forward, store, {"labels": str(labels)} | chosen),
        ],
        settings,
        choices_of(store, labels),
    )
    search = {"labels": str(few)} | folds
    outcomes += race(
        [
            Contender(OWN_PART, labelled.select_forward, small, {"labels": str(few)} | chosen),
            Contender(PEER, labelled.sklearn_forward, small, search | {"k": FIRST}),
            Contender(JOBS, labelled.sklearn_forward, small, search | {"k": FIRST, "n_jobs": CORES}),
            Contender(STEPS, labelled.sklearn_steps, small, search | {"k": K}, blas_threads=1),
        ],
        settings,
        choices_of(small, few),
    )
    targets = [
        Target(
            "streamdr, all rows / scikit-learn, a 20th, extrapolated from its first fits",
            time_ratio(outcomes, pace(outcomes), number_of_fits(COLS, K, FOLDS)),
            1 / 100,
        ),
        Target(
            "the same, each step extrapolated from one of its candidates",
            time_ratio(outcomes, note(outcomes, STEPS, AT_BEST), 1),
            1 / 100,
        ),
        Target(OPENINGS, note(outcomes, OWN, OPENINGS), 2),
        Target("bytes read / bytes of the store", figure(outcomes, OWN, reads), 1.02),
        Target("first columns that differ from scikit-learn's", differing(outcomes), 0),
        Target("score error", verdict(outcomes, OWN, SCORES), 1e-6),
        Target("score error, a 20th of the rows", verdict(outcomes, OWN_PART, SCORES), 1e-6),
    ]
    title = f"Forward selection: {rows:,} x {COLS} float32, to {K} columns, {FOLDS} folds, linear regression"
    yield Report(title, outcomes, targets, [FLOOR, OWN])


def pace(outcomes: Sequence[Outcome]) -> float | None:
    """Return the seconds per fit of scikit-learn, of the faster of two runs. Later fits have more columns."""
    found = [note(outcomes, name, SECONDS_PER_FIT) for name in (PEER, JOBS)]
    return min((each for each in found if each is not None), default=None)


def time_ratio(outcomes: Sequence[Outcome], each: float | None, times: int) -> float | None:
    """Return the time of streamdr for all rows divided by that of a peer for a part."""
    own = figure(outcomes, OWN, seconds)
    return None if own is None or each is None else own / (each * times)


def differing(outcomes: Sequence[Outcome]) -> float | None:
    """Return how many of the first columns are not those of scikit-learn."""
    found = [
        set(str(outcome.verdict.get(COLUMNS, "")).split())
        for outcome in outcomes
        if outcome.name in (OWN_PART, PEER) and not outcome.failure
    ]
    return len(found[0] ^ found[1]) / 2 if len(found) == 2 else None


def choices_of(store: Path, labels: Path) -> Judge:
    """Return the judge that scores the selected columns with scikit-learn, with the same folds."""

    def judge(found: Solution) -> dict[str, float | str]:
        from streamdr import folds

        figures: dict[str, float | str] = {
            COLUMNS: " ".join(str(column) for column in sorted(found.columns[:FIRST]))
        }
        if found.variances.size:
            target: Any = zarr.open_array(labels, mode="r")[:]
            chosen = np.sort(found.columns)
            array = zarr.open_array(store, mode="r")
            rows = np.asarray(array.oindex[:, chosen], np.float64)
            split = PredefinedSplit(folds(len(rows), FOLDS, 0))
            scores = cross_val_score(LinearRegression(), rows, target.astype(np.float64), cv=split)
            figures[SCORES] = float(abs(scores.mean() - found.variances[-1]))
        return figures

    return judge
