"""Weak scaling on real dask clusters: as many rows per worker on one, two and four, on one host and on two.

docs/SCALING.md has a model of the time and the traffic, whose terms are measured here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks import cluster_runs, data
from benchmarks.cluster import bits, differing
from benchmarks.contender import Contender
from benchmarks.harness import Settings, race
from benchmarks.report import Report, Target, note, ratio

BYTES = 1 << 30
"""The stored values of a worker."""
K = 20
RATE = "1gbit"
CHUNK_ROWS = 4096
ROUTES: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "d=256": (256, {"solver": "covariance"}),
    "d=512": (512, {"solver": "covariance"}),
    "d=1024": (1024, {"solver": "covariance"}),
    "Krylov, d=1024": (1024, {"solver": "krylov", "tol": 0.0, "max_passes": 4}),
}


def run(settings: Settings) -> Iterator[Report]:
    """Run every route on all clusters, and then tasks that compute nothing."""
    for name, (cols, parameters) in ROUTES.items():
        rows = max(round(BYTES * settings.scale / (4 * cols) / CHUNK_ROWS), 1) * CHUNK_ROWS
        base = data.tall(settings.data, rows, cols)
        stores = {1: base, **{times: data.repeated(base, times) for times in (2, 4)}}
        chosen = {"n_components": K, **parameters}
        contenders = [
            Contender(f"{workers} on one host", cluster_runs.local, store, {"workers": workers, **chosen}, 1)
            for workers, store in stores.items()
        ]
        contenders += [
            Contender("2 on two hosts", cluster_runs.hosts, stores[2], {"rate": RATE, **chosen}, 1)
        ]
        outcomes = race(contenders, settings, bits)
        same = [outcome for outcome in outcomes if outcome.name.startswith("2")]
        targets = [
            Target("two workers / one", ratio(outcomes, "2 on one host", "1 on one host"), 1.25),
            Target("two hosts / one", ratio(outcomes, "2 on two hosts", "2 on one host"), 1.25),
            Target("clusters with other bits", differing(same), 0),
        ]
        title = f"Weak scaling: {name}, {rows:,} rows per worker"
        yield Report(title, outcomes, targets, ["1 on one host"])
    base = data.tall(settings.data, CHUNK_ROWS, 256)
    number = max(round(5000 * settings.scale), 200)
    idle = [
        Contender(
            name, cluster_runs.no_ops, base, {"workers": workers, "number": number, "processes": real}, 1
        )
        for name, workers, real in (("2 processes", 2, True), ("100 workers in one process", 100, False))
    ]
    outcomes = race(idle, settings, lambda found: {})
    targets = [Target("ms per task", note(outcomes, "2 processes", cluster_runs.PER_TASK), 5.0)]
    yield Report(f"Tasks that compute nothing: {number:,}", outcomes, targets, [])
