"""The overhead of Prefect: a run of five stages as a flow, and the same stages without it.

    python -m benchmarks.flows

Prefect's temporary server is started by a first run, which is not counted. Both sides work in a warm child
process on a store so small that the work itself takes little time.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable

from streamdr.cli.worker import StageName, StageRequest, WorkerProcess
from streamdr.core.progress import Silent
from streamdr.flows.fit_transform import fit_transform
from streamdr.flows.parameters import Configuration

RUNS = 5
STAGES: tuple[StageName, ...] = ("plan", "fit", "transform", "verify", "summarise")
SECTIONS = {
    "input": {"path": "x.zarr", "synthetic": {"n_rows": 2000, "n_cols": 32, "rank": 5}},
    "method": {"name": "pca", "n_components": 5},
    "output": {"model": "model.zarr", "embedding": "z.zarr", "overwrite": True},
}


def stages() -> None:
    """Run the five stages in a worker process."""
    with WorkerProcess() as worker:
        for stage in STAGES:
            worker.run(StageRequest(stage, [SECTIONS], fresh=True), Silent())


def flow() -> None:
    """Run the same stages as a flow."""
    fit_transform(Configuration(SECTIONS), fresh=True)


def seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        stages()
        print(f"first flow, including the start of Prefect: {seconds(flow):.1f} s")
        bare = [seconds(stages) for _ in range(RUNS)]
        flows = [seconds(flow) for _ in range(RUNS)]
    print(f"five stages:           {statistics.median(bare):.2f} s (median of {RUNS})")
    print(f"the same as a flow:    {statistics.median(flows):.2f} s")
    print(f"difference:            {statistics.median(flows) - statistics.median(bare):.2f} s")


if __name__ == "__main__":
    main()
