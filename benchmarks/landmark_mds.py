"""Landmark MDS: 1,000,000 x 20 float32, 500 landmarks, with its products only and a few lines of numpy."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import data, floors, scaling
from benchmarks.contender import Contender
from benchmarks.harness import Settings, race
from benchmarks.report import Report, Target, figure, megabytes, ratio, verdict
from benchmarks.scaling_judge import FORMULA, placed_of

ROWS, COLS, M, K = 1_000_000, 20, 500, 2
MEMORY_LIMIT = "500MB"
FLOOR, LEAST = "products only", "one read, and a product with 2 axes"
OWN, RANDOM, PLAIN = "streamdr", "streamdr, random landmarks", "numpy in memory, random landmarks"


def run(settings: Settings) -> Iterator[Report]:
    """Run with Euclidean distances, which streamdr does not need to compute, and with city-block distances.

    Coordinates by squared Euclidean distances to landmarks are linear in the rows.
    """
    rows = max(int(ROWS * settings.scale), 20 * M)
    store = data.curved(settings.data, rows, COLS)
    for metric in ("euclidean", "cityblock"):
        size = {"m": M, "k": K}
        chosen = {"n_components": K, "n_landmarks": M, "metric": metric, "memory_limit": MEMORY_LIMIT}
        if metric == "euclidean":
            floor = [
                Contender(FLOOR, floors.landmarks, store, size, blas_threads=1),
                Contender(LEAST, floors.linear_map, store, {"k": K}, blas_threads=1),
            ]
        else:
            floor = [Contender(FLOOR, floors.distances, store, size | {"metric": metric}, blas_threads=1)]
        contenders = [
            *floor,
            Contender(OWN, scaling.landmark_mds, store, chosen),
            Contender(RANDOM, scaling.landmark_mds, store, chosen | {"landmarks": "random"}),
            Contender(PLAIN, scaling.plain_landmarks, store, size | {"metric": metric}),
        ]
        outcomes = race(contenders, settings, placed_of(store, metric))
        targets = [
            Target("streamdr / products only", ratio(outcomes, OWN, FLOOR), 1.5),
            Target("streamdr / numpy in memory", ratio(outcomes, OWN, PLAIN), 1.0),
            Target("peak, MB (the limit was 500 MB)", figure(outcomes, OWN, megabytes), 500),
            Target(FORMULA, verdict(outcomes, OWN, FORMULA), 1e-4),
        ]
        title = f"Landmark MDS: {rows:,} x {COLS} float32, {metric}, {M} landmarks, k={K}, written to a store"
        yield Report(title, outcomes, targets, [FLOOR, OWN])
