"""A command that was killed at any moment can be started again: nothing is lost, left over or different.

Each test kills one command a given number of times. In the end all files and all values must be those of the
same command without disturbance. The exact moment of a kill depends on the machine; the delays are drawn with
the seed in the name of the test.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from command_line import succeed, write_config, write_store
from fault_counts import pieces
from killing import Started
from nightly import correlated
from surviving import survive

CHUNK_ROWS, COLS, CHUNKS = 16_384, 128, 32
ROW_BYTES = COLS * 4
ALL_BYTES = CHUNK_ROWS * CHUNKS * ROW_BYTES


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """A quarter of a gigabyte in a few megabytes: most of its chunks are links to the first three."""
    path = tmp_path_factory.mktemp("data") / "x.zarr"
    array = zarr.create_array(
        path, shape=(CHUNK_ROWS * CHUNKS, COLS), chunks=(CHUNK_ROWS, COLS), dtype="float32", compressors=None
    )
    array[: 3 * CHUNK_ROWS] = correlated(3 * CHUNK_ROWS, COLS)
    for number in range(3, CHUNKS):
        (path / "c" / str(number)).mkdir()
        os.link(path / "c" / str(number % 3) / "0", path / "c" / str(number) / "0")
    return path


def configure(place: Path, store: Path, **method: object) -> None:
    write_config(
        place,
        input={"path": str(store)},
        method=method,
        output={"embedding": "out/z.zarr"},
        execution={"workers": 1, "checkpoint_seconds": 0.02},
    )


@pieces("driver kills", few=[3], full=60, size=20)
def test_a_killed_fit_is_resumed(count, seed, store, tmp_path, tally):
    words = ["fit", "config.yaml", "--json"]
    for survived in survive(words, lambda place: configure(place, store), count, seed, tmp_path):
        checkpointed = "out/.streamdr-ledger/entry.npz" in survived.left
        assert (survived.outcome.report["bytes_read"] < ALL_BYTES) == checkpointed
        tally("driver kills", survived.kills)


@pieces("driver kills many passes", few=[], full=40, size=10)
def test_a_killed_fit_of_many_passes_is_resumed(count, seed, store, tmp_path, tally):
    words = ["fit", "config.yaml", "--json"]
    rounds = survive(words, lambda place: configure(place, store, solver="krylov"), count, seed, tmp_path)
    tally("driver kills", sum(survived.kills for survived in rounds))


@pieces("driver kills transform", few=[3], full=60, size=20)
def test_a_killed_transform_is_resumed(count, seed, store, tmp_path, tally):
    """Rows whose chunks were written are not read again."""
    fitted = tmp_path / "fitted"
    fitted.mkdir()
    configure(fitted, store)
    succeed("fit", "config.yaml", cwd=fitted)

    def make(place: Path) -> None:
        shutil.copytree(fitted, place, dirs_exist_ok=True)

    rounds = survive(["transform", "config.yaml", "--json"], make, count, seed, tmp_path)
    chunk_rows = zarr.open_array(tmp_path / "undisturbed/out/z.zarr/embedding").chunks[0]
    for survived in rounds:
        written = [path for path in survived.left if Path(path).match("*z.zarr*/embedding/c/*/0")]
        expected = ALL_BYTES - len(written) * chunk_rows * ROW_BYTES
        assert survived.outcome.report["bytes_read"] == expected
        tally("driver kills", survived.kills)


METHODS: list[dict[str, Any]] = [
    {"name": "pca", "n_components": 3, "solver": "covariance"},
    {"name": "pca", "n_components": 3, "solver": "gram"},
    {"name": "ppca", "n_components": 2, "max_iter": 6},
    {"name": "kernel_pca", "n_components": 3, "n_landmarks": 100},
    {"name": "sparse_kernel_pca", "n_components": 3},
    {"name": "lda", "n_components": 2},
    {"name": "select_forward", "k": 3},
    {"name": "select_mutual_info", "k": 3},
    {"name": "classical_mds", "n_components": 2},
    {"name": "landmark_mds", "n_components": 2, "n_landmarks": 60},
    {"name": "metric_mds", "n_components": 2, "max_iter": 20},
]
SUPERVISED = ("lda", "select_forward", "select_mutual_info")
ROWS = {"pca": 400, "metric_mds": 300, "classical_mds": 1000, "sparse_kernel_pca": 1000}


WIDE = 400
"""So many columns have moments of more than a megabyte, which have files of their own in the ledger."""


def small(place: Path, method: dict[str, Any]) -> None:
    """Write a small input for a method, with a checkpoint after every task."""
    rows, cols = ROWS.get(method["name"], 6000), 10
    if method.get("solver") == "covariance":
        rows, cols = 6000, WIDE
    values = correlated(rows, cols)
    options: dict[str, Any] = {"path": "x.zarr"}
    if method["name"] == "ppca":
        values[np.random.default_rng(0).random(values.shape) < 0.1] = np.nan
    if method["name"] in SUPERVISED:
        labels = (values[:, 0] > 5).astype("i8") + (values[:, 1] > 5)
        zarr.create_array(place / "y.zarr", shape=labels.shape, chunks=(500,), dtype="i8")[:] = labels
        options["labels"] = "y.zarr"
    write_store(place / "x.zarr", values, chunks=(500, cols))
    output = {"model": "out/model.zarr", "embedding": "out/z.zarr"}
    execution = {"workers": 1, "checkpoint_seconds": 1e-9}
    config = {"input": options, "method": method, "output": output, "execution": execution}
    (place / "config.yaml").write_text(json.dumps(config))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method["name"])
@pieces("driver kills method", few=[], full=4, size=4)
def test_a_killed_run_of_any_method_is_resumed(method, count, seed, tmp_path, tally):
    words = ["run", "config.yaml", "--json"]
    rounds = survive(words, lambda place: small(place, method), count, seed, tmp_path)
    tally("driver kills", sum(survived.kills for survived in rounds))


def test_the_supervisor_reports_a_killed_worker_and_how_to_continue(store, tmp_path):
    configure(tmp_path, store)
    with Started("fit", "config.yaml", cwd=tmp_path) as running:
        while not list(tmp_path.glob("out/.streamdr-ledger/*.npz")):
            assert not running.ends_within(0.002), running.outcome()
        running.kill("worker")
        outcome = running.outcome()
    assert outcome.code == 137
    message = outcome.err.splitlines()[-1]
    assert message.startswith("the work was killed by signal 9")
    assert message.endswith("run: streamdr fit config.yaml")
    resumed = succeed("fit", "config.yaml", "--json", cwd=tmp_path)
    assert 0 < resumed.report["bytes_read"] < ALL_BYTES
