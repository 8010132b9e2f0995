"""The memory limit is planned before reading, and kept by a fresh process, or the run is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import zarr

from streamdr.core.execution import Execution
from streamdr.data import open_source
from streamdr.engine import planner
from streamdr.errors import MemoryLimitError
from streamdr.methods.pca import PCA

MIB = 1 << 20

SHAPES = {
    "tall": ((150_000, 256), (16_384, 256)),
    "wide": ((300, 120_000), (300, 4096)),
    "large chunks": ((60_000, 512), (30_000, 512)),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Stores without chunks: a plan reads none."""
    root = tmp_path_factory.mktemp("stores")
    paths = {name: root / f"{name.replace(' ', '-')}.zarr" for name in SHAPES}
    for name, (shape, chunks) in SHAPES.items():
        zarr.create_array(paths[name], shape=shape, chunks=chunks, dtype="f4")
    return paths


def test_memory_freed_by_threads_is_returned_to_the_system():
    """An allocator may keep memory for threads that have ended."""
    code = f"""
from threading import Barrier, Thread
import numpy as np
from streamdr.engine import planner

def work(together):
    together.wait()
    for _ in range(3):
        blocks = [np.ones({MIB}) for _ in range(3)]

planner.share_one_arena()
before = planner.resident()
for workers in (2, 3, 4):
    together = Barrier(workers)
    threads = [Thread(target=work, args=[together]) for _ in range(workers)]
    for each in (Thread.start, Thread.join):
        for thread in threads:
            each(thread)
planner.give_back()
print(planner.resident() - before)
"""
    left = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(left) < 8 * MIB


@pytest.fixture(autouse=True)
def fresh_interpreter(monkeypatch):
    """Plan as in a fresh process, whatever memory earlier tests have left in this one."""
    monkeypatch.setattr(planner, "resident", lambda: 0)


def plan(path, solver="auto", **settings):
    return planner.plan(PCA(10, solver=solver), open_source(path), Execution(**settings))


def test_a_smaller_limit_changes_the_number_of_workers_but_not_the_blocks(stores):
    roomy, tight = (plan(stores["tall"], workers=8, memory_limit=limit * MIB) for limit in (2000, 300))
    assert tight.workers < roomy.workers == 8
    assert tight.blocks == roomy.blocks


@pytest.mark.parametrize("solver", ["covariance", "gram", "krylov"])
def test_a_fit_beyond_the_limit_is_refused_before_reading(stores, solver, monkeypatch):
    source = open_source(stores["large chunks"])
    monkeypatch.setattr(type(source), "read", lambda *_: pytest.fail("read a block"))
    with pytest.raises(MemoryLimitError) as refused:
        planner.plan(PCA(10, solver=solver), source, Execution(memory_limit=150 * MIB))
    words = str(refused.value)
    assert "large-chunks.zarr" in words
    assert "150 MiB" in words
    assert "raise memory_limit to" in words


def test_the_limit_advised_by_a_refusal_is_enough(stores):
    with pytest.raises(MemoryLimitError) as refused:
        plan(stores["tall"], solver="covariance", memory_limit=150 * MIB)
    advised = float(str(refused.value).split("raise memory_limit to ")[1].split(" MiB")[0])
    assert plan(stores["tall"], solver="covariance", memory_limit=int((advised + 1) * MIB)).workers == 1


def test_auto_chooses_by_shape_cost_and_limit(stores, tmp_path):
    assert plan(stores["tall"]).route.name == "covariance"
    assert plan(stores["wide"]).route.name == "gram"
    large = zarr.create_array(
        tmp_path / "large.zarr", shape=(10**6, 20_000), chunks=(200, 20_000), dtype="f4"
    )
    assert plan(tmp_path / "large.zarr", memory_limit=2000 * MIB).route.name == "krylov"
    assert large.nchunks_initialized == 0
    reason = plan(tmp_path / "large.zarr", memory_limit=2000 * MIB).reason
    assert "covariance would take" in reason
    assert "gram would take" in reason


def test_the_peak_is_the_sum_of_its_parts(stores):
    chosen = plan(stores["tall"], memory_limit=500 * MIB)
    assert chosen.peak == sum(chosen.parts.values())
    assert chosen.parts.keys() == {"interpreter", "blocks", "scratch", "accumulators", "held", "solve"}


def test_the_present_memory_of_the_process_is_counted(stores, monkeypatch):
    monkeypatch.setattr(planner, "resident", lambda: 400 * MIB)
    assert plan(stores["tall"], memory_limit=900 * MIB).parts["interpreter"] == 400 * MIB


def test_resident_memory_is_that_of_the_kernel(monkeypatch):
    monkeypatch.undo()
    pages = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    assert abs(planner.resident() - pages) < 32 * MIB
    assert planner.peak_resident() >= planner.resident()
