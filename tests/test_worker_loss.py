"""Workers die, schedulers die, blocks kill: the bits stay the same, or the error says what to do."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress

import dask.array as da
import numpy as np
import pytest
import zarr
from dask_processes import descendants, scheduler, worker

from streamdr import fitting, segments
from streamdr.engines import connecting, dask_cluster
from streamdr.engines.clusters import ALLOWED_FAILURES
from streamdr.errors import DataError, EngineError
from streamdr.methods import PCA
from streamdr.progress import Silent
from streamdr.settings import Cluster, Execution
from streamdr.sources import open_source
from streamdr.store import open_embedding

N, D = 6000, 24
KRYLOV = PCA(4, solver="krylov", tol=0.0, max_passes=3)
COVARIANCE = PCA(4, solver="covariance")
TWO = Cluster("LocalCluster", workers=2)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Cut small data as if it were large: many blocks, many segments, several levels."""
    monkeypatch.setattr(segments, "BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr(segments, "LARGEST_BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1 << 13)


@pytest.fixture(scope="module")
def values():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(N, D)) * rng.uniform(1, 9, size=D) + 30).astype("f4")


@pytest.fixture(scope="module")
def path(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("data") / "x.zarr"
    zarr.create_array(path, shape=(N, D), chunks=(40, 5), dtype="f4")[:] = values
    return path


def bits(model):
    return {name: value.tobytes() for name, value in vars(model).items() if isinstance(value, np.ndarray)}


class Killer(Silent):
    """Kills workers, at random, while a pass goes on: one of them or all, whether they run or still start."""

    def __init__(self, kills, seed):
        self.left = kills
        self.random = random.Random(seed)

    def advance(self, rows):
        if self.left > 0 and self.random.random() < 0.4:
            found = sorted(descendants())
            for pid in found if self.random.random() < 0.1 else self.random.sample(found, min(1, len(found))):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.left -= 1


@pytest.mark.parametrize(("notes", "kills"), [(True, 10), (False, 3)], ids=["ledger", "no ledger"])
def test_workers_that_are_killed_change_no_bit(path, tmp_path, notes, kills):
    undisturbed = fitting.fit(KRYLOV, open_source(path), Execution(workers=2)).model
    killer = Killer(kills, seed=1)
    ledger = tmp_path / "ledger" if notes else None
    settings = Execution(cluster=TWO, ledger=ledger, checkpoint_seconds=1e-9)
    model = fitting.fit(KRYLOV, open_source(path), settings, progress=killer).model
    assert killer.left <= 0
    assert bits(model) == bits(undisturbed)


def test_workers_that_are_killed_change_nothing_of_an_embedding(path, tmp_path):
    model = fitting.fit(COVARIANCE, open_source(path), Execution(workers=2)).model
    there, killer = tmp_path / "scores.zarr", Killer(3, seed=2)
    fitting.transform(model, open_source(path), there, Execution(cluster=TWO), attributes={}, progress=killer)
    fitting.transform(model, open_source(path), tmp_path / "same.zarr", Execution(), attributes={})
    assert np.array_equal(open_embedding(there)[:], open_embedding(tmp_path / "same.zarr")[:])


def test_a_block_that_kills_its_workers_is_named(values):
    def poisoned(block, block_info=None):
        if block_info[0]["chunk-location"][0] == 61:
            os._exit(1)
        return block

    array = da.from_array(values, chunks=(40, D)).map_blocks(poisoned, dtype="f4", meta=values[:0])
    with pytest.raises(DataError, match=r"rows (\d+)-(\d+) killed every worker that read them") as failed:
        fitting.fit(
            COVARIANCE,
            open_source(array),
            Execution(cluster=TWO),
        )
    message = str(failed.value)
    start, stop = (int(word) for word in message.split("rows ")[1].split(" ")[0].split("-"))
    assert start <= 61 * 40 < 62 * 40 <= stop + 1
    assert stop - start < N // 4, "the rows of one task, not of many"
    assert f"{2 * (ALLOWED_FAILURES + 1)} in all" in message


class KillsAt(Silent):
    """Kills one process when so many rows were read."""

    def __init__(self, pid, rows):
        self.pid, self.left = pid, rows

    def advance(self, rows):
        self.left -= rows
        if self.left <= 0 and self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.pid = None


def test_when_the_scheduler_dies_the_next_run_goes_on(path, tmp_path, monkeypatch):
    monkeypatch.setattr(connecting, "CONNECT_SECONDS", 1.0)
    monkeypatch.setattr(dask_cluster, "_RECONNECT_SECONDS", 3.0)
    file = tmp_path / "scheduler.json"
    notes = {"ledger": tmp_path / "ledger", "checkpoint_seconds": 1e-9}
    with scheduler(file) as process, worker(file):
        killer = KillsAt(process.pid, N // 2)
        with pytest.raises(EngineError, match=r"connection to the dask scheduler was lost.* run again"):
            fitting.fit(
                COVARIANCE, open_source(path), Execution(scheduler=str(file), **notes), progress=killer
            )
    again = fitting.fit(COVARIANCE, open_source(path), Execution(workers=2, **notes))
    assert 0 < again.bytes_read < N * D * 4
    assert bits(again.model) == bits(fitting.fit(COVARIANCE, open_source(path), Execution()).model)
