"""Dask workers are killed at random, one or all, while they run or start: no bit changes."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress

import numpy as np
import pytest
import zarr
from dask_processes import descendants
from fault_counts import pieces
from fits import bits

from streamdr.core.execution import Cluster, Execution
from streamdr.core.progress import Silent
from streamdr.data import open_source
from streamdr.engine import fitting
from streamdr.methods.pca import PCA
from streamdr.store import open_embedding

pytestmark = pytest.mark.usefixtures("small_blocks")

N, D = 6000, 24
KRYLOV = PCA(4, solver="krylov", tol=0.0, max_passes=3)
COVARIANCE = PCA(4, solver="covariance")
TWO = Cluster("LocalCluster", workers=2)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    rng = np.random.default_rng(0)
    values = (rng.normal(size=(N, D)) * rng.uniform(1, 9, size=D) + 30).astype("f4")
    path = tmp_path_factory.mktemp("data") / "x.zarr"
    zarr.create_array(path, shape=(N, D), chunks=(40, 5), dtype="f4")[:] = values
    return path


class Killer(Silent):
    """Kills random workers during a pass: one of them or all, running or starting."""

    def __init__(self, kills, seed, tally):
        self.left = kills
        self.random = random.Random(seed)
        self.tally = tally

    def advance(self, rows):
        if self.left > 0 and self.random.random() < 0.4:
            found = sorted(descendants())
            for pid in found if self.random.random() < 0.1 else self.random.sample(found, min(1, len(found))):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.left -= 1
                    self.tally("worker kills")


@pieces("worker kills", few=[2], full=80, size=10)
def test_a_fit_whose_workers_are_killed_gives_the_same_bits(path, tmp_path, count, seed, tally):
    undisturbed = fitting.fit(KRYLOV, open_source(path), Execution(workers=2)).model
    killer = Killer(count, seed, tally)
    settings = Execution(cluster=TWO, ledger=tmp_path / "ledger", checkpoint_seconds=1e-9)
    model = fitting.fit(KRYLOV, open_source(path), settings, progress=killer).model
    assert killer.left <= 0
    assert bits(model) == bits(undisturbed)


@pieces("worker kills no ledger", few=[], full=12, size=3)
def test_a_fit_without_a_ledger_whose_workers_are_killed_gives_the_same_bits(path, count, seed, tally):
    undisturbed = fitting.fit(KRYLOV, open_source(path), Execution(workers=2)).model
    killer = Killer(count, seed, tally)
    model = fitting.fit(KRYLOV, open_source(path), Execution(cluster=TWO), progress=killer).model
    assert killer.left <= 0
    assert bits(model) == bits(undisturbed)


@pieces("worker kills transform", few=[1], full=12, size=3)
def test_a_transform_whose_workers_are_killed_gives_the_same_rows(path, tmp_path, count, seed, tally):
    model = fitting.fit(COVARIANCE, open_source(path), Execution(workers=2)).model
    there, killer = tmp_path / "scores.zarr", Killer(count, seed, tally)
    fitting.transform(model, open_source(path), there, Execution(cluster=TWO), attributes={}, progress=killer)
    fitting.transform(model, open_source(path), tmp_path / "same.zarr", Execution(), attributes={})
    assert np.array_equal(open_embedding(there)[:], open_embedding(tmp_path / "same.zarr")[:])
