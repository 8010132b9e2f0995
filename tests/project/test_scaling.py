"""The tables of docs/SCALING.md are those of the model, and the model counts what the engine does."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import scaling_model
from streamdr.engine.executors.dask_cluster import _LONG_RUNS
from streamdr.engine.merge_tree import RUN, MergeTree
from streamdr.engine.partition import Partition

PAGE = Path(__file__).parents[2] / "docs" / "SCALING.md"


@pytest.mark.parametrize("number", range(3))
def test_the_page_has_the_tables_of_the_model(number):
    assert scaling_model.tables()[number] in PAGE.read_text(encoding="utf-8"), (
        "run python -m benchmarks.scaling_model, and copy its tables"
    )


@pytest.mark.parametrize("workers", [1, 2, 4, 7])
@pytest.mark.parametrize("segments", [32, 64, 128, 500, 512, 1000, 5003])
def test_the_model_counts_the_tasks_of_a_pass(segments, workers):
    tree = MergeTree[str](Partition("rows", segments, 1, 1, 1, 1), lambda earlier, later: earlier)
    tasks = len(tree.work(RUN, _LONG_RUNS * workers))
    # Segments that do not fill a run are tasks of their own.
    assert abs(scaling_model.tasks_of(segments, workers) - tasks) <= RUN - 1


def test_more_workers_are_faster_until_the_scheduler_is_busy():
    machine = scaling_model.fitted()
    few, many = (
        scaling_model.predicted("d=1024", 1e14, workers, machine, hosts=workers) for workers in (10, 100)
    )
    assert many.seconds < few.seconds
    assert many.scheduling > few.scheduling
    assert few.moved < 1e14 / 200, "a long run reads 256 times its result"
