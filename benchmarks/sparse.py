"""Counts of genes in cells: 1,000,000 x 2,000 float32, 5% of them stored, from AnnData in zarr."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.linalg import eigvalsh

from benchmarks import ours, sparse_floors, sparse_peers, sparse_stores
from benchmarks.contender import Contender
from benchmarks.harness import Settings, race
from benchmarks.references import variance_error
from benchmarks.report import Report, Target, figure, megabytes, peak, ratio, ratio_to_best, verdict

ROWS, COLS, K = 1_000_000, 2000, 50
DENSE_SHARE = 8
"""The dense route runs on an eighth of the rows, stored dense."""
FLOORS = ("floor, X'X by scipy", "floor, X'X of dense rows", "floor, X'X by panels")


def variances(store: Path, k: int) -> np.ndarray:
    """Return the largest variances, in float64 from products about zero; cached beside the store."""
    cache = store.with_name(f"{store.stem}.reference-{k}.npy")
    if not cache.exists():
        rows = sparse_peers.in_memory(str(store)).astype(np.float64)
        mean = np.asarray(rows.mean(axis=0)).ravel()
        products = (rows.T @ rows).toarray() - rows.shape[0] * np.outer(mean, mean)
        order = len(products)
        found = eigvalsh(products / (rows.shape[0] - 1), subset_by_index=[order - k, order - 1])
        np.save(cache, found[::-1])
    return np.load(cache)


def run(settings: Settings) -> Iterator[Report]:
    """Run all programs, streamdr on its dense route, and streamdr again on twice the rows."""
    rows = max(int(ROWS * settings.scale), 4 * COLS)
    store = sparse_stores.counts_store(settings.data, rows, COLS)
    few = max(rows // DENSE_SHARE, 2 * COLS)
    dense = sparse_stores.dense_store(settings.data, few, COLS)
    common = {"k": K, "memory_limit": "1GiB"}
    outcomes = race(
        [
            Contender(FLOORS[0], sparse_floors.sparse_products, store, blas_threads=1),
            Contender(FLOORS[1], sparse_floors.dense_products, store, blas_threads=1),
            Contender(FLOORS[2], sparse_floors.panel_products, store, blas_threads=1),
            Contender("streamdr", ours.threads, store, common),
            Contender("scanpy, dask", sparse_peers.scanpy_dask, store, {"k": K}, blas_threads=1),
            Contender(
                "scikit-learn in memory, covariance",
                sparse_peers.sklearn_pca,
                store,
                {"k": K, "solver": "covariance_eigh"},
            ),
            Contender(
                "scikit-learn in memory, arpack",
                sparse_peers.sklearn_pca,
                store,
                {"k": K, "solver": "arpack"},
            ),
            Contender(
                "scanpy in memory, arpack", sparse_peers.scanpy_pca, store, {"k": K, "solver": "arpack"}
            ),
        ],
        settings,
        variance_error(variances(store, K)),
    )
    part = f"streamdr, dense, 1/{rows / few:g} of the rows"
    outcomes += race([Contender(part, ours.threads, dense, common)], settings, lambda found: {})
    larger = "streamdr, twice the rows"
    twice = sparse_stores.counts_store(settings.data, 2 * rows, COLS)
    # A little more, so that its plan has two workers too, and the same solver.
    roomy = common | {"memory_limit": "1200MiB"}
    outcomes += race([Contender(larger, ours.threads, twice, roomy)], settings, lambda found: {})
    slower = ratio(outcomes, part, "streamdr")
    fastest = ratio_to_best(outcomes, "streamdr", not_peers=[part, larger, *FLOORS])
    targets = [
        *(Target(f"streamdr / {name}", ratio(outcomes, "streamdr", name), 1.3) for name in FLOORS),
        Target("streamdr / its dense route", None if slower is None else 1 / (slower * rows / few), 1 / 5),
        Target("streamdr / fastest peer", fastest, 1.0),
        Target("peak, MB", figure(outcomes, "streamdr", megabytes), 1074),
        Target("peak at twice the rows / peak", ratio(outcomes, larger, "streamdr", of=peak), 1.05),
        Target("variance error", verdict(outcomes, "streamdr", "variance error"), 1e-5),
    ]
    title = f"Sparse counts: {rows:,} x {COLS:,} float32, {sparse_stores.DENSITY:.0%} stored, k={K}"
    yield Report(title, outcomes, targets, [FLOORS[2], "streamdr"])
