"""The same fit by threads and by two processes of a local dask cluster: the time, and the bits."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

import numpy as np

from benchmarks import covariance, data, ours
from benchmarks.contender import Contender, Solution
from benchmarks.harness import Outcome, Settings, race
from benchmarks.report import Report, Target, ratio

RUNNING = "dask, 2 processes"


def bits(found: Solution) -> dict[str, float | str]:
    """Return a digest of the variances and components."""
    everything = (
        np.ascontiguousarray(found.variances).tobytes() + np.ascontiguousarray(found.components).tobytes()
    )
    return {"digest": sha256(everything).hexdigest()[:16]}


def run(settings: Settings) -> Iterator[Report]:
    """Race the schedulers on the store of the covariance benchmark."""
    rows = covariance.scaled_rows(settings)
    store = data.tall(settings.data, rows, covariance.COLS)
    chosen = {"k": covariance.K, "memory_limit": "1GiB"}
    outcomes = race(
        [
            Contender("threads", ours.threads, store, chosen),
            Contender(RUNNING, ours.running_processes, store, chosen),
            Contender("dask, 2 processes, start included", ours.processes, store, chosen),
        ],
        settings,
        bits,
    )
    targets = [
        Target("dask / threads", ratio(outcomes, RUNNING, "threads"), 1.3),
        Target("schedulers whose bits differ from those of threads", differing(outcomes), 0),
    ]
    title = f"Cluster: {rows:,} x {covariance.COLS:,} float32, k={covariance.K}"
    yield Report(title, outcomes, targets, ["threads"])


def differing(outcomes: list[Outcome]) -> float:
    """Return the number of outcomes with other bits than the first, including those without a digest."""
    digests = [outcome.verdict.get("digest") for outcome in outcomes]
    return float(sum(digest is None or digest != digests[0] for digest in digests))
