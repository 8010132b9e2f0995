"""Many small chunks, and many small stores: what a run does besides reading and computing.

Every chunk is a file of 256 bytes, in a directory of its own, as zarr v3 writes chunks of whole rows. Stores
are made without zarr, and deleted afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contender import CORES, Contender, Fit, Solution
from benchmarks.harness import Outcome, Settings, race
from benchmarks.report import Report, Target, figure, ratio, seconds

COLS = 64
CHUNKS = (10_000, 100_000, 1_000_000)
STORES, ROWS_OF_STORE = (100, 1_000), 1_000
APPENDED = 10
"""So many chunks are appended; to many stores, one more of them."""
PLAN, FIRST, NOTHING, GROWN = "plan", "first run", "nothing to do", "append"
MOST_SECONDS = 60.0
MOST_GROWTH = 12.0
"""The most times as long that a step may take for ten times as many chunks."""


def write_store(path: Path, n_rows: int, rows_per_chunk: int, seed: int = 0) -> None:
    """Write a store of random rows, chunk by chunk."""
    (path / "c").mkdir(parents=True)
    write_metadata(path, n_rows, rows_per_chunk)
    write_chunks(path, range(n_rows // rows_per_chunk), rows_per_chunk, seed)


def write_metadata(path: Path, n_rows: int, rows_per_chunk: int) -> None:
    """Write the metadata of a store, uncompressed and without a checksum."""
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [n_rows, COLS],
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [rows_per_chunk, COLS]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {},
    }
    path.joinpath("zarr.json").write_text(json.dumps(document))


def write_chunks(path: Path, numbers: range, rows_per_chunk: int, seed: int = 0) -> None:
    """Write chunks of a store."""
    rng = np.random.default_rng(seed)
    spread = np.linspace(3, 1, COLS, dtype="f4")
    for number in numbers:
        values = 1 + spread * rng.standard_normal((rows_per_chunk, COLS), dtype="f4")
        os.mkdir(path / "c" / str(number))
        (path / "c" / str(number) / "0").write_bytes(values.astype("<f4").tobytes())


def plan(store: str, pattern: str) -> Fit:
    """Plan the first run."""
    from streamdr.workflow import pipeline

    return stage(store, pattern, pipeline.plan)


def run_all(store: str, pattern: str) -> Fit:
    """Fit and transform what is not up to date."""
    from streamdr.workflow import pipeline

    return stage(store, pattern, pipeline.run_all)


def append(store: str, pattern: str) -> Fit:
    """Append a few chunks, or a store, and bring the outputs up to date."""
    path = Path(store)
    if pattern:
        stores = sorted(path.glob(pattern))
        write_store(path / f"part-{len(stores):05d}.zarr", ROWS_OF_STORE, ROWS_OF_STORE // 4, seed=1)
    else:
        n_rows = json.loads((path / "zarr.json").read_text())["shape"][0]
        write_chunks(path, range(n_rows, n_rows + APPENDED), 1, seed=1)
        write_metadata(path, n_rows + APPENDED, 1)
    return run_all(store, pattern)


def stage(store: str, pattern: str, of_run: Callable[[Any], Any]) -> Fit:
    """Return a stage of a run whose outputs are beside the store."""
    from streamdr import config
    from streamdr.core.progress import Silent
    from streamdr.workflow.run_context import RunContext

    outputs = Path(store).parent / "outputs"
    document = {
        "input": {"path": str(Path(store, pattern))},
        "method": {"name": "pca", "n_components": 4},
        "output": {"model": str(outputs / "model.zarr"), "embedding": str(outputs / "scores.zarr")},
        "execution": {"workers": CORES},
    }

    def fit() -> Solution:
        with counted_listings() as listed:
            of_run(RunContext(config.read(document), Silent(), threading.Event()))
        most = max(listed.values(), default=0)
        return Solution.nothing(**{"listings of a store": float(most)})

    return fit


@contextmanager
def counted_listings() -> Iterator[dict[str, int]]:
    """Count how often each array is listed."""
    from streamdr.data.zarr.stores import Directory

    counts: dict[str, int] = {}
    original = Directory.stored_chunks

    def counting(node: Any, *arguments: Any) -> Any:
        counts[node.name] = counts.get(node.name, 0) + 1
        return original(node, *arguments)

    Directory.stored_chunks = counting  # type: ignore[method-assign, assignment]
    try:
        yield counts
    finally:
        Directory.stored_chunks = original  # type: ignore[method-assign]


def measured(settings: Settings, sizes: list[int], what: str, pattern: str) -> list[Outcome]:
    """Make a store (or stores) of each size, run all steps on it, and delete it."""
    outcomes: list[Outcome] = []
    settings.data.mkdir(parents=True, exist_ok=True)
    for size in sizes:
        folder = Path(tempfile.mkdtemp(prefix="many-chunks-", dir=settings.data))
        try:
            store = folder / "x.zarr"
            if pattern:
                store = folder / "parts"
                for number in range(size):
                    path = store / f"part-{number:05d}.zarr"
                    write_store(path, ROWS_OF_STORE, ROWS_OF_STORE // 4, seed=number)
            else:
                write_store(store, size, 1)
            steps = ((PLAN, plan), (FIRST, run_all), (NOTHING, run_all), (GROWN, append))
            outcomes += race(
                [
                    Contender(named(step, size, what), prepare, store, {"pattern": pattern})
                    for step, prepare in steps
                ],
                replace(settings, rounds=1),  # a step changes what the next one finds
                lambda solution: {},
            )
        finally:
            shutil.rmtree(folder)
    return outcomes


def named(step: str, size: int, what: str) -> str:
    """Return the name of a step on a store of some size."""
    return f"{step}, {size:,} {what}"


def run(settings: Settings) -> Iterator[Report]:
    """Measure each step at three numbers of chunks, and at two numbers of stores."""
    cases = (("chunks", CHUNKS, ""), ("stores", STORES, "*.zarr"))
    for what, counts, pattern in cases:
        sizes = [max(10, int(settings.scale * count)) for count in counts]
        outcomes = measured(settings, sizes, what, pattern)
        targets = []
        for step in (PLAN, FIRST, NOTHING, GROWN):
            few, many = (named(step, size, what) for size in sizes[-2:])
            targets += [
                Target(f"seconds of {many}", figure(outcomes, many, seconds), MOST_SECONDS),
                Target(f"{many} / {few}", ratio(outcomes, many, few), MOST_GROWTH),
            ]
        yield Report(f"Many {what}: pca, k=4, of {COLS} columns, with scores", outcomes, targets, [])
