"""Tall and narrow: 400,000 x 1024 float32, the covariance route."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import data, floors, ours, peers, references
from benchmarks.contender import Contender
from benchmarks.harness import Settings, race
from benchmarks.report import Report, Target, figure, megabytes, peak, ratio, ratio_to_best, verdict

ROWS, COLS, K = 400_000, 1024, 20
SOFT_FLOOR = "floor, read by zarr-python"


def scaled_rows(settings: Settings) -> int:
    """Return the number of rows of the store."""
    return max(int(ROWS * settings.scale), 4 * COLS)


def run(settings: Settings) -> Iterator[Report]:
    """Run all programs, and streamdr again on four times the rows."""
    rows = scaled_rows(settings)
    store = data.tall(settings.data, rows, COLS)
    judge = references.variance_error(references.variances(store, K))
    svd = {"k": K, "oversamples": 10, "reread": False}
    contenders = [
        Contender("floor", floors.covariance, store, blas_threads=1),
        Contender(SOFT_FLOOR, floors.covariance, store, {"through_zarr": True}, blas_threads=1),
        Contender("streamdr", ours.threads, store, {"k": K, "memory_limit": "1GiB"}),
        Contender("dask X'X", peers.dask_moments, store, {"k": K}, blas_threads=1),
        Contender("dask cov", peers.dask_cov, store, {"k": K}, blas_threads=1),
        Contender("scikit-learn-intelex IncrementalPCA", peers.intelex_incremental, store, {"k": K}),
        Contender(
            "dask svd_compressed, no power iteration",
            peers.dask_svd_compressed,
            store,
            svd | {"iterations": 0},
            blas_threads=1,
        ),
        Contender(
            "dask svd_compressed, 4 power iterations",
            peers.dask_svd_compressed,
            store,
            svd | {"iterations": 4},
            blas_threads=1,
        ),
        Contender(
            "scikit-learn PCA in memory",
            peers.sklearn_in_memory,
            store,
            {"k": K, "solver": "covariance_eigh"},
        ),
        Contender("dask-ml PCA", peers.dask_ml, store, {"k": K}, blas_threads=1),
        Contender("scikit-learn IncrementalPCA", peers.sklearn_incremental, store, {"k": K}),
        Contender(
            "scikit-learn IncrementalPCA, larger batches",
            peers.sklearn_incremental,
            store,
            {"k": K, "larger_batches": True},
        ),
    ]
    outcomes = race(contenders, settings, judge)
    # The larger store repeats the rows of the smaller one and has no reference of its own.
    larger = "streamdr, 4 times the rows"
    four_times = Contender(larger, ours.threads, data.repeated(store, 4), {"k": K, "memory_limit": "1GiB"})
    outcomes += race([four_times], settings, lambda found: {})
    incremental = ratio(outcomes, "streamdr", "scikit-learn IncrementalPCA")
    targets = [
        Target("streamdr / floor", ratio(outcomes, "streamdr", "floor"), 1.15),
        Target(
            "streamdr / fastest peer",
            ratio_to_best(outcomes, "streamdr", not_peers=["floor", SOFT_FLOOR, larger]),
            1.0,
        ),
        Target("streamdr / scikit-learn IncrementalPCA", incremental, 1 / 20),
        Target("peak, MB", figure(outcomes, "streamdr", megabytes), 500),
        Target("peak at 4 times the rows / peak", ratio(outcomes, larger, "streamdr", of=peak), 1.05),
        Target("variance error", verdict(outcomes, "streamdr", "variance error"), 1e-6),
    ]
    yield Report(f"Covariance: {rows:,} x {COLS:,} float32, k={K}", outcomes, targets, ["floor", "streamdr"])
