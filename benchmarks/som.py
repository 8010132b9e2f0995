"""Self-organising maps of 10 x 10 units: digits, and 1,000,000 x 20 float32, beside minisom in memory.

An epoch of minisom's usual training moves units after every row; an epoch of batch training moves them once.
minisom runs the same number of epochs in both ways, and streamdr is compared with both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import zarr
from scipy.spatial.distance import cdist

from benchmarks import data, floors, ours, peers
from benchmarks.contender import Contender, Solution
from benchmarks.harness import Judge, Outcome, Settings, race
from benchmarks.report import Report, Target, figure, megabytes, ratio, verdict

ROWS, COLS, CLUSTERS = 1_000_000, 20, 50
HEIGHT = WIDTH = 10
EPOCHS = 10
MEMORY_LIMIT = "500MB"
SIGMA = 1.0
"""minisom's own first radius."""
LAST = SIGMA / (1 + 2 * (EPOCHS - 1) / EPOCHS)
"""The radius of minisom's last epoch, by its default decay."""
JUDGED = 4096

PRODUCTS, FLOOR = "floor, products only", "floor"
OWN, SAME, SMOOTH = "streamdr", "streamdr, radii of minisom", "streamdr, radii 5 to 0.5"
ONLINE, BATCH, WIDE = "minisom, row by row", "minisom, in batches", "minisom, row by row, first radius 5"
QUANTIZATION, TOPOGRAPHIC = "quantisation error", "topographic error"


def run(settings: Settings) -> Iterator[Report]:
    """Race the same grid and epochs, each with its own default radii: on few rows, and on many."""
    small = data.digits(settings.data)
    yield raced(small, settings, f"Self-organising map: digits, 1,797 x 64, {EPOCHS} epochs", floored=False)
    rows = max(int(ROWS * settings.scale), 10_000)
    store = data.clusters(settings.data, rows, COLS, CLUSTERS)
    title = f"Self-organising map: {rows:,} x {COLS} float32, {CLUSTERS} clusters, {EPOCHS} epochs"
    yield raced(store, settings, title, floored=True)


def raced(store: Path, settings: Settings, title: str, *, floored: bool) -> Report:
    """Race streamdr, its floors where rows are many, and minisom."""
    grid = {"height": HEIGHT, "width": WIDTH}
    own = grid | {"n_epochs": EPOCHS, "memory_limit": MEMORY_LIMIT}
    bare = {"n_units": HEIGHT * WIDTH, "passes": EPOCHS + 1}
    theirs = grid | {"epochs": EPOCHS}
    contenders = [
        Contender(OWN, ours.som, store, own),
        Contender(SAME, ours.som, store, own | {"sigma": SIGMA, "sigma_end": LAST}),
        Contender(SMOOTH, ours.som, store, own | {"sigma": max(HEIGHT, WIDTH) / 2, "sigma_end": 0.5}),
        Contender(ONLINE, peers.minisom, store, theirs | {"batch": False}),
        Contender(BATCH, peers.minisom, store, theirs | {"batch": True}),
    ]
    if floored:
        contenders = [
            Contender(PRODUCTS, floors.units, store, bare | {"nearest": False}, blas_threads=1),
            Contender(FLOOR, floors.units, store, bare | {"nearest": True}, blas_threads=1),
            *contenders,
        ]
    else:
        wide = theirs | {"batch": False, "sigma": max(HEIGHT, WIDTH) / 2}
        contenders.append(Contender(WIDE, peers.minisom, store, wide))
    outcomes = race(contenders, settings, errors_of(store))
    targets = [
        Target(f"{QUANTIZATION}, streamdr / {peer}", error_ratio(outcomes, OWN, peer), 1.0)
        for peer in (ONLINE, BATCH)
    ]
    targets += [
        Target("streamdr / minisom, row by row", ratio(outcomes, OWN, ONLINE), 1.0),
        Target("peak, MB (the limit was 500 MB)", figure(outcomes, OWN, megabytes), 500),
    ]
    if floored:
        targets.append(Target("streamdr / floor", ratio(outcomes, OWN, FLOOR), 1.5))
    return Report(title, outcomes, targets, [FLOOR, OWN] if floored else [OWN])


def error_ratio(outcomes: Sequence[Outcome], own: str, peer: str) -> float | None:
    """Return the quantisation error of one map divided by that of another."""
    mine, its = (verdict(outcomes, name, QUANTIZATION) for name in (own, peer))
    return None if mine is None or its is None else mine / its


def errors_of(store: Path) -> Judge:
    """Return the judge that measures a map on all rows, in float64 and by exact distances."""

    def judge(found: Solution) -> dict[str, float | str]:
        array, codebook = zarr.open_array(store, mode="r"), found.components.astype(np.float64)
        distance, apart = 0.0, 0
        for start in range(0, array.shape[0], JUDGED):
            distances = cdist(np.asarray(array[start : start + JUDGED], np.float64), codebook)
            first, second = np.argsort(distances, axis=1, kind="stable")[:, :2].T
            distance += float(distances[np.arange(len(first)), first].sum())
            steps = np.abs(np.stack(np.divmod(first, WIDTH)) - np.stack(np.divmod(second, WIDTH)))
            apart += int((steps.max(axis=0) > 1).sum())
        rows = array.shape[0]
        return {QUANTIZATION: f"{distance / rows:.5f}", TOPOGRAPHIC: f"{apart / rows:.4f}"}

    return judge
