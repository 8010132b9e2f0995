"""Fits with missing values stay within their planned memory, in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec

MIB = 1 << 20

FIT = """
import json, sys
from pathlib import Path
from streamdr.engine import fitting, planner
from streamdr.core.execution import Execution
from streamdr.methods.ppca import PPCA
from streamdr.data import open_source

path, parameters, limit, workers, ledger = sys.argv[1:]
execution = Execution(
    memory_limit=int(limit), workers=int(workers), ledger=Path(ledger), checkpoint_seconds=0.1
)
source = open_source(path)
method = PPCA(tol=0.0, max_iter=2, **json.loads(parameters))
fitted = fitting.fit(method, source, execution)
fit_peak = planner.peak_resident()
fitting.transform(fitted.model, source, Path(ledger) / "z.zarr", execution, attributes={})
report = {
    "planned": fitted.plan.peak, "peak": fit_peak, "workers": fitted.plan.workers,
    "after_transform": planner.peak_resident(), "solver": fitted.model.solver,
}
print(json.dumps(report))
"""

SHAPES = {
    "tall": ((50_000, 256), (16_384, 256)),
    "large chunks": ((24_000, 512), (12_000, 512)),
    "many features": ((2000, 1500), (500, 1500)),
    "wide": ((300, 40_000), (300, 4096)),
}


def make(path, shape, chunks):
    """A store that repeats the values of one block, a tenth of them missing."""
    array = zarr.create_array(
        path, shape=shape, chunks=chunks, dtype="f4", compressors=BloscCodec(cname="lz4", clevel=1)
    )
    rng = np.random.default_rng(0)
    piece = rng.standard_normal(chunks, dtype=np.float32)
    piece[rng.random(chunks, dtype=np.float32) < 0.1] = np.nan
    for row in range(0, shape[0], chunks[0]):
        for column in range(0, shape[1], chunks[1]):
            region = (slice(row, row + chunks[0]), slice(column, column + chunks[1]))
            array[region] = piece[: shape[0] - row, : shape[1] - column]
    return path


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    root = tmp_path_factory.mktemp("stores")
    return {name: make(root / f"{name}.zarr", *layout) for name, layout in SHAPES.items()}


CASES = [
    ("tall", {"n_components": 10, "method": "em"}, 350, 2),
    ("tall", {"n_components": [2, 5, 10], "method": "em", "holdout": 0.1}, 450, 2),
    ("tall", {"n_components": 10}, 400, 2),
    ("large chunks", {"n_components": 10, "method": "minibatch"}, 450, 2),
    ("many features", {"n_components": 20, "method": "em"}, 650, 2),
    ("wide", {"n_components": 5, "method": "em"}, 600, 1),
    ("wide", {"n_components": [2, 3], "method": "minibatch", "holdout": 0.1}, 1000, 2),
]


@pytest.mark.parametrize(("shape", "parameters", "limit", "workers"), CASES)
def test_a_fresh_process_stays_within_plan_and_limit(stores, tmp_path, shape, parameters, limit, workers):
    arguments = [stores[shape], json.dumps(parameters), limit * MIB, workers, tmp_path]
    done = subprocess.run(
        [sys.executable, "-c", FIT, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["solver"] == ("minibatch" if parameters.get("method") == "minibatch" else "em")
    assert report["workers"] == workers
    assert report["planned"] <= limit * MIB
    assert report["peak"] <= report["planned"], "the plan was too low"
    assert report["after_transform"] <= limit * MIB
