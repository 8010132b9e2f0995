"""Passes resume where they stopped, are not read twice, and give the same bits on every executor."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster
from fits import StopAfter, bits

from streamdr.core.execution import Execution
from streamdr.core.progress import Silent
from streamdr.data import open_source
from streamdr.engine import fitting, runner
from streamdr.engine.executors.threads import Threads
from streamdr.errors import DataError, Interrupted
from streamdr.methods.pca import PCA

pytestmark = pytest.mark.usefixtures("small_blocks")

N, D, K = 3000, 24, 4
WIDE = (60, 1200)
SOLVERS = ("covariance", "gram", "krylov")
METHODS = [
    PCA(K, solver="covariance"),
    PCA(K, solver="gram"),
    PCA(K, solver="krylov", tol=0.0, max_passes=3),
    PCA(K, solver="covariance", scale=True, whiten="zca"),
]


@pytest.fixture
def paths(tmp_path):
    rng = np.random.default_rng(0)
    for name, shape, chunks in (("tall", (N, D), (40, 5)), ("wide", WIDE, (7, 40))):
        array = zarr.create_array(tmp_path / f"{name}.zarr", shape=shape, chunks=chunks, dtype="f4")
        array[:] = rng.normal(size=shape) * rng.uniform(1, 9, size=shape[1]) + 30
    return {solver: tmp_path / ("wide.zarr" if solver == "gram" else "tall.zarr") for solver in SOLVERS}


@pytest.fixture
def path(paths):
    return paths["covariance"]


def fit(method, path, **settings):
    return fitting.fit(method, open_source(path), Execution(**settings))


@pytest.mark.parametrize("method", METHODS)
def test_same_bits_on_any_number_of_threads(method, paths):
    models = [bits(fit(method, paths[method.solver], workers=workers).model) for workers in (1, 2, 3, 7)]
    assert all(model == models[0] for model in models)


def test_same_bits_on_a_cluster(paths):
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        for method in METHODS:
            here = fit(method, paths[method.solver], workers=2)
            there = fit(method, paths[method.solver], scheduler=client)
            assert bits(there.model) == bits(here.model), method


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("share", [0.01, 0.3, 0.95, 1.3])
def test_an_interrupted_fit_resumes_to_the_same_bits(method, paths, tmp_path, share):
    path = paths[method.solver]
    whole = fit(method, path, workers=2)
    stopper = StopAfter(share * (WIDE[1] if method.solver == "gram" else N))
    settings = Execution(workers=2, ledger=tmp_path / "ledger", checkpoint_seconds=0.0)
    try:
        source = open_source(path)
        first = fitting.fit(method, source, settings, progress=stopper, stop=stopper.stop).bytes_read
    except Interrupted:
        first = None
    again = fitting.fit(method, open_source(path), settings)
    assert bits(again.model) == bits(whole.model)
    if first is None and share > 0.1:
        assert again.bytes_read < whole.bytes_read, "nothing was in the ledger"


def test_finished_passes_are_not_read_again(path, tmp_path):
    settings = {"workers": 2, "ledger": tmp_path / "ledger"}
    assert fit(PCA(3, solver="covariance"), path, **settings).bytes_read == N * D * 4
    for other in (PCA(7), PCA(0.5), PCA("mle"), PCA(3, whiten="zca"), PCA(3, scale=True), PCA(3, ddof=0)):
        again = fit(other.using("covariance"), path, **settings)
        assert again.bytes_read == 0, other
        assert bits(again.model) == bits(fit(other.using("covariance"), path).model), other


def test_changed_data_is_read_again(path, tmp_path):
    settings = {"workers": 2, "ledger": tmp_path / "ledger"}
    fit(METHODS[0], path, **settings)
    zarr.open_array(path, mode="r+")[:40] = 1.0
    changed = fit(METHODS[0], path, **settings)
    assert changed.bytes_read > 0
    assert bits(changed.model) == bits(fit(METHODS[0], path).model)


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "text"])
def test_a_damaged_ledger_entry_is_detected_and_computed_again(path, tmp_path, damage):
    settings = {"workers": 2, "ledger": tmp_path / "ledger"}
    whole = fit(METHODS[0], path, **settings)
    (entry,) = (tmp_path / "ledger").glob("*.npz")
    content = bytearray(entry.read_bytes())
    content[len(content) // 2] ^= 4
    entry.write_bytes(
        {"flip": bytes(content), "truncate": bytes(content[:-40]), "empty": b"", "text": b"hello"}[damage]
    )
    again = fit(METHODS[0], path, **settings)
    assert again.bytes_read == whole.bytes_read
    assert bits(again.model) == bits(whole.model)


def test_an_input_that_changes_during_the_run_is_refused(path, tmp_path):
    class ChangesInput(Silent):
        def advance(self, rows):
            zarr.open_array(path, mode="r+")[:40] = 1.0

    settings = Execution(workers=1, ledger=tmp_path / "ledger")
    with pytest.raises(DataError, match="changed while it was being read"):
        fitting.fit(METHODS[0], open_source(path), settings, progress=ChangesInput())
    assert not list((tmp_path / "ledger").glob("*.npz")), "a mixture of two inputs was kept"


@pytest.mark.parametrize("workers", [1, 4])
def test_the_error_names_the_first_bad_block(path, workers):
    array = zarr.open_array(path, mode="r+")
    array[700, 3], array[2500, 1] = np.nan, np.inf
    with pytest.raises(DataError, match="row 700, column 3"):
        fit(METHODS[0], path, workers=workers)


class Counted(Silent):
    """Records every step."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def advance(self, rows: int) -> None:
        self.steps.append(rows)


def test_the_progress_of_a_long_task_is_shown(monkeypatch):
    """The Gram matrix of wide data may be one task for minutes."""
    now, progress = [0.0], Counted()
    monkeypatch.setattr(runner.time, "monotonic", lambda: now[0])
    engine = Threads(1, threading.Event())
    shown = runner.Advance(engine, progress, 100)
    for _ in range(5):
        engine.count(10)
        now[0] += 0.6
        shown.look()
    assert progress.steps == [20, 20]
    shown.take(50)
    engine.count(100)  # as if lost work was done twice
    now[0] += 2
    shown.look()
    shown.take(50)
    assert progress.steps == [20, 20, 10, 50]
    engine.close()
