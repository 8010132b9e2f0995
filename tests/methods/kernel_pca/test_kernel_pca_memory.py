"""Kernel PCA stays within its planned memory, in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import zarr
from narrowing import values_of
from zarr.codecs import BloscCodec

MIB = 1 << 20

FIT = """
import json, sys
from pathlib import Path
from streamdr.engine import fitting, planner
from streamdr.core.execution import Execution
from streamdr.methods import METHODS
from streamdr.core.row_outputs import ROW_OUTPUTS
from streamdr.data import open_source

path, name, parameters, limit, kinds, place = sys.argv[1:]
execution = Execution(memory_limit=int(limit), workers=2, ledger=Path(place), checkpoint_seconds=0.1)
source = open_source(path)
fitted = fitting.fit(METHODS[name](**json.loads(parameters)), source, execution)
report = {"planned": fitted.plan.peak, "peak": planner.peak_resident(), "way": fitted.model.approximation}
for kind in ROW_OUTPUTS:
    if kind.name in kinds:
        fitting.transform(
            fitted.model, source, Path(place) / f"{kind.name}.zarr", execution, kind=kind, attributes={}
        )
print(json.dumps(report | {"after": planner.peak_resident()}))
"""

SHAPES = {
    "tall": ((60_000, 64), (8192, 64)),
    "few": ((2500, 64), (1000, 64)),
    "more": ((3500, 64), (1000, 64)),
    "wide": ((3000, 3000), (500, 1000)),
    "square": ((2500, 2500), (500, 2500)),
}
GRID = {"rbf": {"gamma": [0.001, 0.01, 0.1]}, "laplacian": {"gamma": [0.01]}, "linear": {}, "cosine": {}}
CASES: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "nystrom": ("tall", "kernel_pca", {"n_landmarks": 600, "approximation": "nystrom"}, 450),
    "double": (
        "tall",
        "kernel_pca",
        {"n_landmarks": 400, "approximation": "nystrom", "precision": "double"},
        450,
    ),
    "search": ("tall", "kernel_pca", {"n_landmarks": 200, "kernel": {"search": GRID, "folds": 5}}, 400),
    "random features": ("tall", "kernel_pca", {"n_landmarks": 500, "approximation": "random_features"}, 400),
    "exact": ("few", "kernel_pca", {"approximation": "exact"}, 350),
    "not definite": ("more", "kernel_pca", {"approximation": "exact", "kernel": "sigmoid"}, 750),
    "precomputed": ("square", "kernel_pca", {"approximation": "exact", "kernel": "precomputed"}, 900),
    "wide": ("wide", "kernel_pca", {"n_landmarks": 300, "approximation": "nystrom"}, 750),
    "sparse": ("tall", "sparse_kernel_pca", {}, 350),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Stores that repeat the values of one block."""
    root = tmp_path_factory.mktemp("stores")
    for name, (shape, chunks) in SHAPES.items():
        array = zarr.create_array(
            root / name, shape=shape, chunks=chunks, dtype="f4", compressors=BloscCodec(cname="lz4", clevel=1)
        )
        piece = np.random.default_rng(0).standard_normal((chunks[0], shape[1]), dtype=np.float32)
        for row in range(0, shape[0], chunks[0]):
            array[row : row + chunks[0]] = piece[: shape[0] - row]
    square = zarr.open_array(root / "square")
    values = values_of(square)
    square[:] = values @ values.T
    return root


@pytest.mark.parametrize("case", CASES)
def test_a_fresh_process_stays_within_plan_and_limit(stores, tmp_path, case):
    shape, name, parameters, limit = CASES[case]
    kinds = "embedding denoised" if case in ("nystrom", "wide") else "embedding"
    parameters = {"n_components": 5, **parameters}
    words = [stores / shape, name, json.dumps(parameters), limit * MIB, kinds, tmp_path]
    done = subprocess.run(
        [sys.executable, "-c", FIT, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["planned"] <= limit * MIB
    assert report["peak"] <= report["planned"], "the plan was too low"
    assert report["after"] <= limit * MIB
