"""The flows of an installed wheel: they run, and are deployed by their modules, with no clone at hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import zarr
from command_line import write_config, write_store
from prefect_server import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
LOADED = """
import sys
from prefect.flows import load_flow_from_entrypoint
import streamdr.flows

names = ("fit", "transform", "fit_transform", "reprocess", "compare", "append_day")
flows = [load_flow_from_entrypoint(f"streamdr.flows.{name}.{name}") for name in names]
print(streamdr.flows.__file__, *(flow.name for flow in flows))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder with what a wheel of the project holds."""
    place = tmp_path_factory.mktemp("wheel")
    words = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
    ]
    made = subprocess.run([*words, place, ROOT], cwd=place, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    (wheel,) = place.glob("streamdr-*.whl")
    zipfile.ZipFile(wheel).extractall(place / "site")
    return place / "site"


def run(installed: Path, place: Path, server, *words: str) -> str:
    environment = os.environ | server.environment | {"PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_flow_runs_from_a_wheel(installed, server, tmp_path):
    values = np.random.default_rng(0).normal(size=(200, 5)) * [9, 7, 5, 3, 1]
    write_store(tmp_path / "x.zarr", values)
    config = write_config(tmp_path, input={"path": "x.zarr"}, output={"embedding": "out/z.zarr"})
    out = run(installed, tmp_path, server, "-m", "streamdr.flows.fit_transform", config.name, "--json")
    assert json.loads(out)["fit"]["n_rows"] == 200
    scores = zarr.open_array(tmp_path / "out/z.zarr/embedding", mode="r")[:]
    centred = values - values.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(np.abs(scores), np.abs(centred @ axes[:2].T), rtol=1e-10, atol=1e-10)


def test_flows_are_found_by_their_modules(installed, server, tmp_path):
    where, *names = run(installed, tmp_path, server, "-c", LOADED).split()
    assert Path(where).is_relative_to(installed)
    assert names == ["fit", "transform", "fit-transform", "reprocess", "compare", "append-day"]
