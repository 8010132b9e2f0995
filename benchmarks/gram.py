"""Short and very wide: 500 x 2,000,000 float32, the Gram route."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import data, floors, ours, peers, references
from benchmarks.contender import Contender
from benchmarks.harness import Settings, race
from benchmarks.report import Report, Target, figure, megabytes, ratio, verdict

ROWS, COLS, K = 500, 2_000_000, 20
SOFT_FLOOR = "floor, read by zarr-python"


def run(settings: Settings) -> Iterator[Report]:
    """Race what can hold such a matrix."""
    cols = max(int(COLS * settings.scale), 20 * ROWS)
    store = data.wide(settings.data, ROWS, cols)
    judge = references.variance_error(references.variances(store, K))
    svd = {"k": K, "oversamples": 10, "reread": False, "iterations": 4}
    contenders = [
        Contender("floor", floors.gram, store, {"k": K}, blas_threads=1),
        Contender(SOFT_FLOOR, floors.gram, store, {"k": K, "through_zarr": True}, blas_threads=1),
        Contender("streamdr", ours.threads, store, {"k": K, "memory_limit": "1GiB"}),
        Contender("dask AA'", peers.dask_gram, store, {"k": K}, blas_threads=1),
        Contender(
            "dask svd_compressed, 4 power iterations", peers.dask_svd_compressed, store, svd, blas_threads=1
        ),
        Contender("dask-ml PCA", peers.dask_ml, store, {"k": K}, blas_threads=1),
        Contender(
            "scikit-learn PCA in memory, randomized",
            peers.sklearn_in_memory,
            store,
            {"k": K, "solver": "randomized"},
        ),
        Contender(
            "scikit-learn PCA in memory, full", peers.sklearn_in_memory, store, {"k": K, "solver": "full"}
        ),
    ]
    outcomes = race(contenders, settings, judge)
    targets = [
        Target("streamdr / floor", ratio(outcomes, "streamdr", "floor"), 1.3),
        Target("peak, MB (the limit was 1 GiB)", figure(outcomes, "streamdr", megabytes), 2**30 / 1e6),
        Target("variance error", verdict(outcomes, "streamdr", "variance error"), 1e-6),
    ]
    yield Report(f"Gram: {ROWS:,} x {cols:,} float32, k={K}", outcomes, targets, ["floor", "streamdr"])
