"""Multidimensional scaling stays within the planned memory, in a new process."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import zarr
from scipy.spatial.distance import cdist
from zarr.codecs import BloscCodec

MIB = 1 << 20

FIT = """
import json, sys
from pathlib import Path
from streamdr.engine import fitting, planner
from streamdr.core.execution import Execution
from streamdr.methods import METHODS
from streamdr.data import open_source

path, name, parameters, limit, place = sys.argv[1:]
execution = Execution(memory_limit=int(limit), workers=2, ledger=Path(place), checkpoint_seconds=0.1)
source = open_source(path)
fitted = fitting.fit(METHODS[name](**json.loads(parameters)), source, execution)
report = {"planned": fitted.plan.peak, "peak": planner.peak_resident(), "stress": fitted.model.stress}
fitting.transform(fitted.model, source, Path(place) / "z.zarr", execution, attributes={})
print(json.dumps(report | {"after": planner.peak_resident()}))
"""

SIDE = 8_300
"""The number of points whose distance matrix does not fit into the memory limit."""
SHAPES = {
    "tall": ((60_000, 32), (8192, 32)),
    "many": ((8_000, 16), (4096, 16)),
    "few": ((1500, 16), (500, 16)),
    "square": ((SIDE, SIDE), (200, SIDE)),
    "small square": ((2000, 2000), (250, 2000)),
}
STORED = {"metric": "precomputed"}
CASES = {
    "classical of points": ("tall", "classical_mds", {}, 300),
    "classical of few points": ("few", "classical_mds", {"solver": "exact", "metric": "cityblock"}, 600),
    "classical of distances": ("square", "classical_mds", {**STORED, "max_passes": 2}, 520),
    "landmarks of points": ("tall", "landmark_mds", {"n_landmarks": 400, "metric": "cosine"}, 400),
    "landmarks of distances": ("square", "landmark_mds", {**STORED, "n_landmarks": 300}, 520),
    "metric of few points": ("few", "metric_mds", {"max_iter": 5}, 600),
    "metric of distances": ("square", "metric_mds", {**STORED, "max_iter": 1}, 520),
    "stochastic of points": ("many", "metric_mds", {"n_epochs": 2}, 520),
    "stochastic of distances": (
        "small square",
        "metric_mds",
        {**STORED, "algorithm": "stochastic", "n_epochs": 2},
        400,
    ),
    "nonmetric of few points": ("few", "nonmetric_mds", {"max_iter": 3, "n_init": 2}, 900),
    "nonmetric streamed": ("small square", "nonmetric_mds", {**STORED, "max_iter": 2, "n_init": 1}, 290),
    "nonmetric of distances": ("square", "nonmetric_mds", {**STORED, "max_iter": 1, "n_init": 1}, 520),
}
SLOW = ("nonmetric of distances",)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    root = tmp_path_factory.mktemp("stores")
    for name, (shape, chunks) in SHAPES.items():
        square = shape[0] == shape[1]
        array = zarr.create_array(
            root / name,
            shape=shape,
            chunks=chunks,
            dtype="f8" if square else "f4",
            compressors=BloscCodec(cname="lz4", clevel=1),
        )
        points = np.random.default_rng(0).standard_normal((shape[0], 3 if square else shape[1]))
        for row in range(0, shape[0], chunks[0]):
            here = points[row : row + chunks[0]]
            array[row : row + chunks[0]] = cdist(here, points) if square else here
    return root


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow) if case in SLOW else case for case in CASES]
)
def test_a_new_process_stays_within_the_planned_memory(stores, tmp_path, case):
    """Also where the distance matrix is larger than the memory limit."""
    shape, name, parameters, limit = CASES[case]
    assert shape != "square" or limit * MIB < 8 * SIDE**2
    arguments = [stores / shape, name, json.dumps(parameters), limit * MIB, tmp_path]
    done = subprocess.run(
        [sys.executable, "-c", FIT, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["planned"] <= limit * MIB
    assert report["peak"] <= report["planned"], "the plan was too low"
    assert report["after"] <= limit * MIB
    assert report["stress"] >= 0
