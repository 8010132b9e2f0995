"""What a cluster moves: merges of long runs, empty accumulators, checkpoints, and workers that join late."""

from __future__ import annotations

import pickle
import sys
import time
from threading import Event

import numpy as np
import pytest
from command_line import write_store
from distributed import Client, LocalCluster, get_worker
from distributed import Event as ClusterEvent
from fits import bits

from streamdr.core.execution import Execution
from streamdr.data import open_source
from streamdr.engine import fitting
from streamdr.engine.executors.dask_cluster import _LONG_RUNS, Dask, WorkerPolicy
from streamdr.engine.executors.held import Held
from streamdr.engine.merge_tree import LONG_RUN, RADIX, RUN
from streamdr.methods.pca import PCA
from streamdr.statistics.moments import Moments

D = 24
CHUNK_ROWS = 200
STATE = 8 * D * D + 4096  # the scatter, and all else that is pickled
WORKERS = 2


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(
        n_workers=WORKERS, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as started:
        yield started


@pytest.fixture
def client(cluster):
    with Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def engine(client):
    return Dask(client, WorkerPolicy(WORKERS), Event())


def received(client):
    """Return the bytes that workers have received from each other so far."""

    def total(dask_worker):
        return sum(each["total"] for each in dask_worker.transfer_incoming_log)

    return sum(client.run(total).values())


def tasks(client, word):
    """Return how many tasks of a kind have finished so far."""

    def count(dask_scheduler):
        prefix = dask_scheduler.task_prefixes.get(word)
        return 0 if prefix is None else prefix.state_counts["memory"]

    return client.run_on_scheduler(count)


def test_traffic_grows_with_long_runs_and_not_with_segments(blocks_of, tmp_path, client):
    segments = 10 * LONG_RUN
    blocks_of(4 * D * CHUNK_ROWS)  # a segment has two blocks
    values = np.random.default_rng(0).normal(3, 2, size=(segments * 2 * CHUNK_ROWS, D)).astype("f4")
    source = open_source(write_store(tmp_path / "x.zarr", values, chunks=(CHUNK_ROWS, D)))
    method = PCA(4, solver="covariance")
    moved, folds, merges = received(client), tasks(client, "fold"), tasks(client, "merge")
    there = fitting.fit(method, source, Execution(scheduler=client)).model
    moved, folds = received(client) - moved, tasks(client, "fold") - folds
    merges = tasks(client, "merge") - merges
    short = _LONG_RUNS * WORKERS * RADIX  # runs at the end, so that all workers end together
    assert folds <= segments / LONG_RUN + short + RUN < segments / RUN
    assert merges == folds - 1
    assert moved <= 2 * merges * STATE + 2 * WORKERS * STATE, (
        "both arguments of every merge, and what is shared"
    )
    assert bits(there) == bits(fitting.fit(method, source, Execution(workers=2)).model)
    covariance = np.cov(values, rowvar=False)
    np.testing.assert_allclose(there.explained_variance, np.linalg.eigvalsh(covariance)[::-1][:4], rtol=1e-5)


def test_a_saved_state_that_has_not_changed_is_neither_sent_nor_fetched_again(engine, client):
    state, other = Moments(D), Moments(D)
    state.scatter += 1.0
    placed = engine.place(state)
    assert engine.finished(placed, 60.0)
    before = tasks(client, "place")
    assert engine.result(placed) is state
    assert engine.place(state) is placed
    assert tasks(client, "place") == before
    merged = engine.merge(placed, engine.place(other))
    np.testing.assert_array_equal(engine.result(merged).scatter, state.scatter)
    assert engine.result(merged) is not state, "results of tasks are fetched"


def test_a_saved_state_is_released_here_with_its_handle(engine):
    handle = engine.place(Moments(D))
    assert len(engine._placed) == 1
    del handle
    assert len(engine._placed) == 0


def test_an_input_is_kept_for_the_next_pass(engine):
    first, second = Moments(D), Moments(D)
    kept = engine.keep(first)
    assert engine.keep(first) is kept
    assert engine.keep(second) is not kept


def test_a_worker_that_joins_late_gets_tasks_that_read(cluster, client):
    """The shared arguments were copied to the workers of that time only."""
    engine = Dask(client, WorkerPolicy(1), Event())
    shared = engine.keep(Moments(D))
    together, before = ClusterEvent("together", client=client), len(client.nthreads())

    def where(accumulator, name):
        ClusterEvent(name).wait(60)
        return get_worker().address

    cluster.scale(before + 1)
    client.wait_for_workers(before + 1, timeout=60)
    handles = [engine.submit(where, shared, "together") for _ in range(8 * (before + 1))]
    while not all(client.processing().values()):
        time.sleep(0.05)
    together.set()
    assert {engine.result(handle) for handle in handles} == set(client.nthreads())
    cluster.scale(before)


HOSTILE = {
    "zeros": np.zeros((3, 4)),
    "negative zeros": -np.zeros(3),
    "columns first": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "nothing": np.zeros(0),
    "not finite": np.array([np.nan, -0.0, np.inf]),
    "text": np.array(["a", ""]),
    "every other": np.arange(12)[::-2],
}


@pytest.mark.parametrize("protocol", [4, 5])
@pytest.mark.parametrize(
    "value", [HOSTILE, *({name: array} for name, array in HOSTILE.items())], ids=" ".join
)
def test_values_arrive_with_their_bits(value, protocol):
    arrived = pickle.loads(pickle.dumps(Held(value), protocol=protocol)).value
    assert type(arrived) is type(value)
    for name in value:
        assert (arrived[name].dtype, arrived[name].shape) == (value[name].dtype, value[name].shape)
        assert arrived[name].tobytes() == value[name].tobytes()


def test_an_empty_accumulator_is_sent_without_its_zeros():
    held = Held(Moments(512))
    assert len(pickle.dumps(held)) < 4096
    assert sys.getsizeof(held) > 8 * 512**2, "dask sees its size"
    arrived = pickle.loads(pickle.dumps(held)).value
    arrived.scatter += 1.0  # it belongs to the worker, and can be written
    assert arrived.scatter.sum() == 512**2
