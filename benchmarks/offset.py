"""A mean of ten thousand standard deviations in float32: which programs still find the variances."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import data, ours, peers, references
from benchmarks.contender import Contender
from benchmarks.harness import Settings, race
from benchmarks.report import Report, Target, verdict

ROWS, COLS, K = 200_000, 256, 20
OFFSET = 1e4


def run(settings: Settings) -> Iterator[Report]:
    """Run everything on the shifted data."""
    rows = max(int(ROWS * settings.scale), 4096)
    store = data.tall(settings.data, rows, COLS, offset=OFFSET)
    judge = references.variance_error(references.variances(store, K))
    svd = {"k": K, "oversamples": 10, "iterations": 4, "reread": False}
    contenders = [
        Contender("streamdr", ours.threads, store, {"k": K, "memory_limit": "1GiB"}),
        Contender("dask X'X", peers.dask_moments, store, {"k": K}, blas_threads=1),
        Contender("dask cov", peers.dask_cov, store, {"k": K}, blas_threads=1),
        Contender("scikit-learn-intelex IncrementalPCA", peers.intelex_incremental, store, {"k": K}),
        Contender(
            "dask svd_compressed, 4 power iterations", peers.dask_svd_compressed, store, svd, blas_threads=1
        ),
        Contender(
            "scikit-learn PCA in memory, covariance_eigh",
            peers.sklearn_in_memory,
            store,
            {"k": K, "solver": "covariance_eigh"},
        ),
        Contender(
            "scikit-learn PCA in memory, full", peers.sklearn_in_memory, store, {"k": K, "solver": "full"}
        ),
        Contender("dask-ml PCA", peers.dask_ml, store, {"k": K}, blas_threads=1),
        Contender("scikit-learn IncrementalPCA", peers.sklearn_incremental, store, {"k": K}),
    ]
    outcomes = race(contenders, settings, judge)
    targets = [Target("variance error", verdict(outcomes, "streamdr", "variance error"), 1e-6)]
    yield Report(
        f"Offset: {rows:,} x {COLS:,} float32, mean/std {OFFSET:g}, k={K}", outcomes, targets, ["streamdr"]
    )
