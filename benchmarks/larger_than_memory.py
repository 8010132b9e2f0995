"""A store larger than the machine's memory, read from the disk: fits and transforms within 1 GiB.

A fifth of the values are zero. PCA and kernel PCA take them as values, probabilistic PCA as missing values.
So one store serves all.
"""

from __future__ import annotations

import atexit
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data, peers
from benchmarks.cluster import bits
from benchmarks.contender import CORES, Contender, Fit, Solution
from benchmarks.harness import Outcome, Settings, race
from benchmarks.report import Report, Target, figure, note, peak, ratio

ROWS, COLS, K = 62_500_000, 128, 20
MISSING_SHARE = 0.2
MEMORY_LIMIT = "1GiB"
DISK = "bare reading"
COVARIANCE, KRYLOV, PPCA, NYSTROM = (
    f"streamdr, {name}" for name in ("covariance", "krylov", "ppca", "nystrom")
)
INTERRUPTED = "streamdr, covariance, interrupted in the middle"
OURS = (COVARIANCE, KRYLOV, PPCA, NYSTROM, INTERRUPTED)
FIT, TRANSFORM, READS = "seconds of the fit", "seconds of the transform", "reads of the fit"
_BUFFER_BYTES = 16 << 20


def run(settings: Settings) -> Iterator[Report]:
    """Race the methods, the disk and two peers, each from a cold page cache; draw their memory over time."""
    rows = max(int(ROWS * settings.scale), 400_000)
    store = data.with_zeros(settings.data, rows, COLS, MISSING_SHARE)
    fits: dict[str, Mapping[str, Any]] = {
        COVARIANCE: {"name": "PCA", "n_components": K, "solver": "covariance"},
        KRYLOV: {"name": "PCA", "n_components": K, "solver": "krylov"},
        PPCA: {"name": "PPCA", "n_components": K, "missing_value": 0.0},
        NYSTROM: {"name": "KernelPCA", "n_components": K, "kernel": "rbf", "n_landmarks": 500},
    }
    contenders = [
        Contender(DISK, bare_reading, store),
        *(Contender(name, fit_and_transform, store, chosen) for name, chosen in fits.items()),
        Contender(INTERRUPTED, interrupted, store),
        Contender("scikit-learn IncrementalPCA", peers.sklearn_incremental, store, {"k": K}),
        Contender(
            "scikit-learn IncrementalPCA, larger batches",
            peers.sklearn_incremental,
            store,
            {"k": K, "larger_batches": True},
        ),
        Contender("dask-ml PCA", peers.dask_ml, store, {"k": K}),
    ]
    outcomes = race([replace(contender, cold=True) for contender in contenders], settings, bits)
    limits = [
        Target(
            f"{name}: peak in GiB",
            figure(outcomes, name, lambda outcome: peak(outcome) / 2**30),
            1.0,
        )
        for name in OURS
        if name != INTERRUPTED
    ]
    digests = {outcome.name: outcome.verdict.get("digest") for outcome in outcomes}
    targets = [
        Target("fit by the covariance / bare reading", fitting(outcomes, COVARIANCE), 1.15),
        Target("interrupted / not interrupted", ratio(outcomes, INTERRUPTED, COVARIANCE), 1.25),
        Target(
            "bits that differ after the interruption", float(digests[INTERRUPTED] != digests[COVARIANCE]), 0
        ),
        *limits,
    ]
    draw(outcomes, settings.data / "memory_over_time.png")
    gigabytes = rows * COLS * 4 / 1e9
    title = (
        f"Larger than memory: {rows:,} x {COLS} float32 ({gigabytes:.1f} GB), cold page cache, within 1 GiB"
    )
    yield Report(title, outcomes, targets, [DISK])


def fitting(outcomes: Sequence[Outcome], name: str) -> float | None:
    """Return the seconds of the fit alone, in units of bare reading."""
    own, disk = note(outcomes, name, FIT), figure(outcomes, DISK, lambda outcome: outcome.seconds)
    return None if own is None or disk is None else own / disk


def bare_reading(store: str) -> Fit:
    """Read every chunk's file by two threads, and drop it undecoded."""
    files = [path for path in sorted(Path(store, "c").rglob("*")) if path.is_file()]
    buffers = threading.local()

    def read(path: Path) -> None:
        if not hasattr(buffers, "room"):
            buffers.room = bytearray(2 * _BUFFER_BYTES)
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffers.room):
                pass

    def fit() -> Solution:
        with ThreadPoolExecutor(CORES) as pool:
            list(pool.map(read, files))
        return Solution.nothing()

    return fit


def fit_and_transform(store: str, name: str, missing_value: float | None = None, **parameters: Any) -> Fit:
    """Fit a method, and write the scores of all rows to a store beside the input."""
    import streamdr
    from benchmarks.child import bytes_read
    from streamdr.core.execution import current
    from streamdr.data import open_source
    from streamdr.engine.fitting import transform

    place = Path(tempfile.mkdtemp(prefix="larger-", dir=Path(store).parent))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    kind: Any = getattr(streamdr, name)

    def fit() -> Solution:
        start, before = time.perf_counter(), bytes_read()
        with streamdr.execution(workers=CORES, memory_limit=MEMORY_LIMIT):
            source = open_source(store, missing_value=missing_value)
            model = kind(**parameters).fit(source).model_
            fitted, read = time.perf_counter(), bytes_read() - before
            chill_again(store)
            chilled = time.perf_counter()
            transform(model, source, place / "scores.zarr", current(), attributes={})
        done = time.perf_counter()
        notes = {FIT: fitted - start, TRANSFORM: done - chilled, READS: read / size_of(store)}
        components = getattr(model, "components", np.empty((0, 0)))
        aside = chilled - fitted
        return Solution(model.explained_variance, components, notes, aside=aside)

    return fit


def chill_again(store: str) -> None:
    """Drop the store from the page cache between the fit and the transform."""
    from benchmarks.harness import chill

    chill(Path(store))


def size_of(store: str) -> int:
    """Return the bytes of the files of a store."""
    return sum(path.stat().st_size for path in Path(store).rglob("*") if path.is_file())


def interrupted(store: str) -> Fit:
    """Run the configuration of the covariance fit, interrupt it in the middle, and run it again."""
    from streamdr.store import load_model

    place = Path(tempfile.mkdtemp(prefix="interrupted-", dir=Path(store).parent))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    config = place / "pca.yaml"
    config.write_text(
        f"input: {{path: {store}}}\n"
        f"method: {{name: pca, n_components: {K}, solver: covariance}}\n"
        f"output: {{model: {place / 'model.zarr'}, embedding: {place / 'scores.zarr'}}}\n"
        f"execution: {{memory_limit: {MEMORY_LIMIT}, workers: {CORES}}}\n"
    )
    command = [sys.executable, "-m", "streamdr", "run", str(config)]
    half = size_of(store) // 2

    def fit() -> Solution:
        start = time.perf_counter()
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while first.poll() is None and read_by_tree(first.pid) < half:
            time.sleep(0.1)
        first.send_signal(signal.SIGINT)
        code = first.wait()
        stopped = time.perf_counter()
        if code != 130:
            raise RuntimeError(f"the interrupted run ended with code {code}")
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        resumed = time.perf_counter()
        model: Any = load_model(place / "model.zarr").model
        notes = {"seconds until it had stopped": stopped - start, "seconds after that": resumed - stopped}
        return Solution(model.explained_variance, model.components, notes)

    return fit


def read_by_tree(pid: int) -> int:
    """Return the bytes that a process and its descendants have read."""
    from benchmarks.harness import tree

    total = 0
    for each in tree(pid):
        try:
            total += int(Path(f"/proc/{each}/io").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return total


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    """Draw the resident memory of every contender over its run, and the limit."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for outcome in outcomes:
        if outcome.memory and outcome.name != DISK:
            seconds, resident = np.array(outcome.memory).T
            ended = f" ({outcome.failure.partition(':')[0]})" if outcome.failure else ""
            axes.plot(seconds, resident / 1e9, label=outcome.name + ended, linewidth=1)
    axes.axhline(2**30 / 1e9, color="0.5", linestyle="--", linewidth=1, label="the limit of streamdr, 1 GiB")
    axes.set(
        xlabel="seconds",
        ylabel="resident memory, GB",
        xscale="log",
        yscale="log",
        xlim=(1, None),
        ylim=(0.05, None),
    )
    axes.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, dpi=120)
