"""When workers or schedulers die, the bits stay the same, or the error says what to do."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from threading import Event

import dask.array as da
import numpy as np
import psutil
import pytest
import zarr
from dask_processes import address, scheduler, worker
from distributed import Client, SpecCluster
from distributed.core import Status
from fits import bits

from streamdr.core.execution import Cluster, Execution
from streamdr.core.progress import Silent
from streamdr.data import open_source
from streamdr.engine import fitting
from streamdr.engine.executors import clusters, connecting, dask_cluster, replacing
from streamdr.engine.executors.clusters import ALLOWED_FAILURES
from streamdr.errors import DataError, EngineError
from streamdr.methods.pca import PCA

pytestmark = pytest.mark.usefixtures("small_blocks")

N, D = 6000, 24
COVARIANCE = PCA(4, solver="covariance")
TWO = Cluster("LocalCluster", workers=2)


@pytest.fixture(scope="module")
def values():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(N, D)) * rng.uniform(1, 9, size=D) + 30).astype("f4")


@pytest.fixture(scope="module")
def path(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("data") / "x.zarr"
    zarr.create_array(path, shape=(N, D), chunks=(40, 5), dtype="f4")[:] = values
    return path


def test_the_error_names_a_block_that_kills_its_workers(values):
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
    """Kills a process and its descendants when `rows` rows were read."""

    def __init__(self, pid, rows):
        self.pid, self.left = pid, rows

    def advance(self, rows):
        self.left -= rows
        if self.left <= 0 and self.pid:
            children = psutil.Process(self.pid).children(recursive=True)
            os.kill(self.pid, signal.SIGKILL)
            for child in children:  # otherwise they would run on for a moment
                child.kill()
            self.pid = None


def test_after_the_scheduler_died_the_next_run_continues(path, tmp_path, monkeypatch):
    monkeypatch.setattr(connecting, "CONNECT_SECONDS", 5.0)
    monkeypatch.setattr(dask_cluster, "_RECONNECT_SECONDS", 6.0)
    file = tmp_path / "scheduler.json"
    settings = {"ledger": tmp_path / "ledger", "checkpoint_seconds": 1e-9}
    with scheduler(file) as process, worker(file):
        killer = KillsAt(process.pid, N // 2)
        with pytest.raises(EngineError, match=r"connection to the dask scheduler was lost.* run again"):
            fitting.fit(
                COVARIANCE, open_source(path), Execution(scheduler=str(file), **settings), progress=killer
            )
    again = fitting.fit(COVARIANCE, open_source(path), Execution(workers=2, **settings))
    assert 0 < again.bytes_read < N * D * 4
    assert bits(again.model) == bits(fitting.fit(COVARIANCE, open_source(path), Execution()).model)


def test_a_run_without_workers_is_an_error_and_the_next_run_continues(path, tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "WorkerPolicy", partial(dask_cluster.WorkerPolicy, patience=3.0))
    file = tmp_path / "scheduler.json"
    settings = {"ledger": tmp_path / "ledger", "checkpoint_seconds": 1e-9}
    with scheduler(file), worker(file) as process:
        with Client(address(file), set_as_default=False) as client:
            client.wait_for_workers(1)
        killer = KillsAt(process.pid, N // 2)
        with pytest.raises(EngineError, match=r"has had no workers for 3 seconds; start some .* run again"):
            fitting.fit(
                COVARIANCE, open_source(path), Execution(scheduler=str(file), **settings), progress=killer
            )
        assert killer.pid is None
    again = fitting.fit(COVARIANCE, open_source(path), Execution(workers=2, **settings))
    assert 0 < again.bytes_read < N * D * 4


@pytest.mark.parametrize("which", [0, 1])
def test_a_worker_that_is_not_restarted_is_replaced(monkeypatch, which):
    monkeypatch.setattr(replacing, "_RESTART_SECONDS", 0.0)
    with clusters.dask_executor(Execution(scheduler="processes"), 2, Event()):
        (cluster,) = (one for one in SpecCluster._instances if one.status == Status.running)
        before = list(cluster.workers.values())
        before[which].status = Status.failed  # like a nanny that gave up
        os.kill(before[which].pid, signal.SIGKILL)
        replace_workers = replacing.WorkerReplacement(cluster, "LocalCluster", str)
        while len(cluster.workers) < 2 or before[which] in cluster.workers.values():
            replace_workers()
            time.sleep(0.05)
        assert before[1 - which] in cluster.workers.values()
