"""The tables of docs/SCALING.md are those of the model, and the model counts what the engine does."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from streamdr.engine.executors.dask_cluster import _LONG_RUNS
from streamdr.engine.merge_tree import RUN, MergeTree
from streamdr.engine.partition import Partition

ROOT = Path(__file__).parents[2]


@pytest.fixture
def model(monkeypatch):
    """The model, which is not a part of the package."""
    monkeypatch.syspath_prepend(ROOT)
    return import_module("benchmarks.scaling_model")


@pytest.mark.parametrize("number", range(3))
def test_the_page_has_the_tables_of_the_model(model, number):
    page = (ROOT / "docs" / "SCALING.md").read_text(encoding="utf-8")
    assert model.tables()[number] in page, "run python -m benchmarks.scaling_model, and copy its tables"


@pytest.mark.parametrize("workers", [1, 2, 4, 7])
@pytest.mark.parametrize("segments", [32, 64, 128, 500, 512, 1000, 5003])
def test_the_model_counts_the_tasks_of_a_pass(model, segments, workers):
    tree = MergeTree[str](Partition("rows", segments, 1, 1, 1, 1), lambda earlier, later: earlier)
    tasks = len(tree.work(RUN, _LONG_RUNS * workers))
    # Segments that do not fill a run are tasks of their own.
    assert abs(model.tasks_of(segments, workers) - tasks) <= RUN - 1


def test_more_workers_are_faster_until_the_scheduler_is_busy(model):
    machine = model.fitted()
    few, many = (model.predicted("d=1024", 1e14, n, machine, hosts=n) for n in (10, 100))
    assert many.seconds < few.seconds
    assert many.scheduling > few.scheduling
    assert few.moved < 1e14 / 200, "a long run reads 256 times its result"
