"""Fisher's discriminants of ten classes: 400,000 x 1024 float32, beside PCA's pass and scikit-learn's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import zarr
from rich.progress import track
from scipy.linalg import eigh, sqrtm

from benchmarks import covariance, data, floors, labelled
from benchmarks.contender import Contender, Solution
from benchmarks.data import chunk_slices
from benchmarks.harness import Judge, Settings, race
from benchmarks.passes import SECONDS
from benchmarks.report import Report, Target, figure, megabytes, note, ratio, reads, verdict

CLASSES = 10
MEMORY_LIMIT = "1GiB"
FLOOR, OWN, PCA, PEER = "floor", "streamdr", "streamdr PCA", "scikit-learn in memory"
DOUBLE = "streamdr, double precision"
RATIOS, ANGLE = "ratio error", "sine of the angle"


def run(settings: Settings) -> Iterator[Report]:
    """Race discriminants against the covariance of the same rows, and against scikit-learn's."""
    rows = covariance.scaled_rows(settings)
    store = data.tall(settings.data, rows, covariance.COLS)
    labels = data.classes(store, CLASSES)
    own = {"labels": str(labels), "memory_limit": MEMORY_LIMIT}
    contenders = [
        Contender(FLOOR, floors.covariance, store, blas_threads=1),
        Contender(PCA, labelled.pca, store, {"k": covariance.K, "memory_limit": MEMORY_LIMIT}),
        Contender(OWN, labelled.lda, store, own),
        Contender(DOUBLE, labelled.lda, store, own | {"precision": "double"}),
        Contender(PEER, labelled.sklearn_lda, store, {"labels": str(labels), "solver": "eigen"}),
    ]
    outcomes = race(contenders, settings, discriminants_of(store, labels))
    mine, pca = (note(outcomes, name, SECONDS) for name in (OWN, PCA))
    targets = [
        Target("pass / PCA's pass", None if mine is None or pca is None else mine / pca, 1.2),
        Target("fit / PCA's fit", ratio(outcomes, OWN, PCA), 1.2),
        Target("streamdr / scikit-learn in memory", ratio(outcomes, OWN, PEER), 1.0),
        Target("bytes read / bytes of the store", figure(outcomes, OWN, reads), 1.02),
        Target("peak, MB", figure(outcomes, OWN, megabytes), 500),
        Target(RATIOS, verdict(outcomes, OWN, RATIOS), 1e-4),
        Target(ANGLE, verdict(outcomes, OWN, ANGLE), 1e-3),
        Target(f"{RATIOS}, double precision", verdict(outcomes, DOUBLE, RATIOS), 1e-8),
        Target(f"{ANGLE}, double precision", verdict(outcomes, DOUBLE, ANGLE), 1e-6),
    ]
    title = f"Discriminants: {rows:,} x {covariance.COLS:,} float32, {CLASSES} classes"
    yield Report(title, outcomes, targets, [FLOOR, PCA])


def discriminants_of(store: Path, labels: Path) -> Judge:
    """Return the judge that compares shares of separation, and the space of all discriminants."""
    within, between = scatters(store, labels)
    values, vectors = eigh(between, within, subset_by_index=[len(within) - CLASSES + 1, len(within) - 1])
    shares, basis = values[::-1] / values.sum(), vectors.T @ within

    def judge(found: Solution) -> dict[str, float | str]:
        axes = found.components.T.astype(np.float64)
        axes = axes @ np.linalg.inv(np.real(sqrtm(axes.T @ within @ axes)))
        outside = axes - vectors @ (basis @ axes)
        lengths = np.linalg.eigvalsh(outside.T @ within @ outside)
        return {
            RATIOS: float(np.abs(found.variances / shares - 1).max()),
            ANGLE: float(np.sqrt(max(lengths[-1], 0.0))),
        }

    return judge


def scatters(store: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the scatters within and between classes, per row, in float64 after a separate pass for means."""
    cache = labels.with_suffix(".reference.npz")
    if not cache.exists():
        array, of = zarr.open_array(store, mode="r"), np.asarray(zarr.open_array(labels, mode="r")[:])
        n, cols = array.shape
        spans = chunk_slices(array.shape, (array.chunks[0], cols))
        counts, totals = np.bincount(of, minlength=CLASSES), np.zeros((CLASSES, cols))
        for span in track(spans, description="reference: means"):
            totals += np.eye(CLASSES)[:, of[span[0]]] @ np.asarray(array[span], np.float64)
        means = totals / counts[:, None]
        within = np.zeros((cols, cols))
        for span in track(spans, description="reference: products"):
            block = array[span] - means[of[span[0]]]
            within += block.T @ block
        apart = means - totals.sum(axis=0) / n
        partial = cache.with_suffix(".partial.npz")
        np.savez(partial, within=within / n, between=(apart.T * counts) @ apart / n)
        os.rename(partial, cache)
    with np.load(cache) as kept:
        return kept["within"], kept["between"]
