"""Dask arrays over one store: lazy, with maps and reductions, on a cluster, and persisted there.

Each is compared with its own bare computation: dask computes every block and drops it, and then a product of
every block is taken on all cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks import covariance, data, floors, ours
from benchmarks.cluster import bits, differing
from benchmarks.contender import Contender
from benchmarks.harness import Settings, race
from benchmarks.lazy_arrays import KINDS, PLACES
from benchmarks.report import Report, Target, ratio

PATH = "path"


def run(settings: Settings) -> Iterator[Report]:
    """Race every kind of array at every place."""
    rows = covariance.scaled_rows(settings)
    store = data.tall(settings.data, rows, covariance.COLS)
    chosen: dict[str, Any] = {"k": covariance.K, "memory_limit": "1GiB"}
    for kind in KINDS:
        contenders = [Contender(PATH, ours.threads, store, chosen)] if kind == "plain" else []
        for place in PLACES:
            where = {"kind": kind, "place": place}
            contenders += [
                Contender(f"{place}, bare", floors.lazy_blocks, store, where, blas_threads=1),
                Contender(place, ours.lazy, store, chosen | where),
            ]
        outcomes = race(contenders, settings, bits)
        targets = [
            Target(f"{place} / bare", ratio(outcomes, place, f"{place}, bare"), 1.3) for place in PLACES
        ]
        if kind == "plain":
            targets[0] = Target("threads / path", ratio(outcomes, "threads", PATH), 1.15)
        ours_only = [outcome for outcome in outcomes if outcome.verdict or outcome.failure]
        targets.append(Target("places whose bits differ", differing(ours_only), 0))
        title = f"Dask arrays, {kind}: {rows:,} x {covariance.COLS:,} float32, k={covariance.K}"
        yield Report(title, outcomes, targets, [])
