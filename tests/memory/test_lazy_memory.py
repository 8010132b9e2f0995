"""A fit of a lazy array stays within its plan, whatever the size of the array."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import zarr

ROWS, COLS, CHUNK = 163_840, 256, 4096  # 160 MiB in chunks of 4 MiB
LIMIT = 480 << 20

FIT = """
import json, sys
import dask.array as da
import numpy as np
from streamdr.core.execution import Execution
from streamdr.data import open_source
from streamdr.engine import fitting, planner
from streamdr.methods.pca import PCA

kind, path, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
x = da.from_zarr(path)
kinds = {
    "plain": lambda: x,
    "chain": lambda: (np.sqrt(abs(x)).map_blocks(np.float64, dtype="f8") * 2.5).astype("f4"),
    "centred": lambda: x - x.mean(0),
}
fitted = fitting.fit(PCA(3), open_source(kinds[kind]()), Execution(memory_limit=limit, workers=2))
print(json.dumps([fitted.plan.peak, planner.peak_resident()]))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("lazy") / "x.zarr"
    stored = zarr.create_array(path, shape=(ROWS, COLS), chunks=(CHUNK, COLS), dtype="f4")
    for start in range(0, ROWS, CHUNK):
        stored[start : start + CHUNK] = start % 7 + 1.0
    return path


@pytest.mark.parametrize("kind", ["plain", "chain", "centred"])
def test_the_peak_of_a_fit_of_a_lazy_array_is_within_the_plan(path, kind):
    ran = subprocess.run(
        [sys.executable, "-c", FIT, kind, str(path), str(LIMIT)], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    planned, peak = json.loads(ran.stdout)
    assert peak <= planned <= LIMIT
