"""The second fit of a nightly run, with the ledger of the first: rows appended, or a parameter changed."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import covariance, data, ours
from benchmarks.cluster import bits, differing
from benchmarks.contender import CORES, Contender, Fit, Solution
from benchmarks.harness import Settings, race
from benchmarks.report import Report, Target, figure, ratio, reads, seconds

APPENDED = 0.01
TIMES = 4
FULL, GROWN, CHANGED = "full fit", "1% of the rows appended", "n_components changed"


def appended(store: str, k: int, memory_limit: str) -> Fit:
    """Fit all but the last rows, append those, and time the second fit."""
    import zarr

    folder = copied(store)
    array = zarr.open_array(folder / "x.zarr", mode="r+")
    n_rows = array.shape[0]
    first = n_rows - int(APPENDED * n_rows)
    last = np.asarray(array[first:])
    array.resize((first, *array.shape[1:]))
    fit_with_ledger(folder, k, memory_limit)()
    array.resize((n_rows, *array.shape[1:]))
    array[first:] = last
    return fit_with_ledger(folder, k, memory_limit)


def changed(store: str, k: int, memory_limit: str) -> Fit:
    """Fit with another number of components, and time a second fit."""
    folder = copied(store)
    fit_with_ledger(folder, k + 5, memory_limit)()
    return fit_with_ledger(folder, k, memory_limit)


def fit_with_ledger(folder: Path, k: int, memory_limit: str) -> Fit:
    """Return a fit that uses the ledger of earlier ones."""
    import streamdr

    execution, PCA = streamdr.execution, streamdr.PCA

    def fit() -> Solution:
        with execution(workers=CORES, memory_limit=memory_limit, ledger=folder / "ledger"):
            model = PCA(n_components=k).fit(folder / "x.zarr")
        return Solution(model.explained_variance_, model.components_)

    return fit


def copied(store: str) -> Path:
    """Return a directory with a copy of the store, its files shared with it until they are written again."""
    folder = Path(tempfile.mkdtemp(prefix="nightly-", dir=Path(store).parent))
    atexit.register(shutil.rmtree, folder)
    shutil.copytree(store, folder / "x.zarr", copy_function=os.link)
    (folder / "x.zarr/zarr.json").unlink()
    shutil.copyfile(Path(store, "zarr.json"), folder / "x.zarr/zarr.json")
    return folder


def run(settings: Settings) -> Iterator[Report]:
    """Compare the second fit with a full fit, on the stores of the covariance benchmark."""
    rows = covariance.scaled_rows(settings)
    store = data.tall(settings.data, rows, covariance.COLS)
    yield compared(settings, store, rows, appending=0.04)
    yield compared(settings, data.repeated(store, TIMES), TIMES * rows, appending=0.05)


def compared(settings: Settings, store: Path, rows: int, *, appending: float) -> Report:
    """Compare the second fit with a full fit; `appending` is the share of it that an append may take."""
    chosen = {"k": covariance.K, "memory_limit": "1GiB"}
    outcomes = race(
        [
            Contender(FULL, ours.threads, store, chosen),
            Contender(GROWN, appended, store, chosen),
            Contender(CHANGED, changed, store, chosen),
        ],
        settings,
        bits,
    )
    read = figure(outcomes, CHANGED, reads)
    targets = [
        Target("appending / full fit", ratio(outcomes, GROWN, FULL), appending),
        Target("seconds after a change of n_components", figure(outcomes, CHANGED, seconds), 2.0),
        Target("reads of the store after a change of n_components (the ledger counts)", read, 0.02),
        Target("fits whose bits differ from those of the full one", differing(outcomes), 0),
    ]
    title = f"Nightly: {rows:,} x {covariance.COLS:,} float32, k={covariance.K}"
    return Report(title, outcomes, targets, [FULL])
