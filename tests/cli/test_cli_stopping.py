"""Runs that are stopped or killed, and run again: nothing is lost, and the result is the same to the bit."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import zarr
from command_line import SCRIPT, succeed, write_config

CHUNK_ROWS, COLS, CHUNKS = 16_384, 128, 64
ROWS = CHUNK_ROWS * CHUNKS
ALL_BYTES = ROWS * COLS * 4
PATIENCE_SECONDS = 300
"""How long a stop may take on a busy machine before the test gives up."""


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """Half a gigabyte of data that takes a few megabytes: most of its chunks are links to the first three."""
    path = tmp_path_factory.mktemp("data") / "x.zarr"
    array = zarr.create_array(
        path, shape=(ROWS, COLS), chunks=(CHUNK_ROWS, COLS), dtype="float32", compressors=None
    )
    rng = np.random.default_rng(0)
    for number in range(3):
        array[number * CHUNK_ROWS : (number + 1) * CHUNK_ROWS] = rng.normal(size=(CHUNK_ROWS, COLS))
    for number in range(3, CHUNKS):
        (path / "c" / str(number)).mkdir()
        os.link(path / "c" / str(number % 3) / "0", path / "c" / str(number) / "0")
    return path


def configure(place: Path, store: Path) -> None:
    output = {"embedding": "out/z.zarr"}
    execution = {"workers": 1, "checkpoint_seconds": 0.001}
    write_config(place, input={"path": str(store)}, output=output, execution=execution)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, store) -> Path:
    """The outputs of a run that nobody stopped."""
    place = tmp_path_factory.mktemp("undisturbed")
    configure(place, store)
    succeed("run", "config.yaml", cwd=place)
    return place / "out"


def chunks(output: Path) -> dict[Path, bytes]:
    """Return the chunks of an output, without metadata that differs between runs."""
    return {file.relative_to(output): file.read_bytes() for file in output.glob("*/c/**/*") if file.is_file()}


def disturbed(
    *words: str, cwd: Path, when: Callable[[], object], number: signal.Signals
) -> subprocess.CompletedProcess[str]:
    """Run a command and signal it as soon as something is there."""
    process = subprocess.Popen(
        [SCRIPT, *words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not when():
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.005)
            pytest.fail(f"ended too early: {process.communicate()}")
    process.send_signal(number)
    said = process.communicate(timeout=PATIENCE_SECONDS)
    return subprocess.CompletedProcess(words, process.returncode, *said)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_fit_says_how_to_resume_and_resumes(number, code, tmp_path, store, undisturbed):
    configure(tmp_path, store)
    ledger = tmp_path / "out" / ".streamdr-ledger"
    words = ["fit", "config.yaml", "--json", "--fresh", "--set", "output.overwrite=true"]
    stopped = disturbed(*words, cwd=tmp_path, when=lambda: list(ledger.glob("*.npz")), number=number)
    assert stopped.returncode == code
    error = json.loads(stopped.stdout)["error"]
    assert (error["kind"], error["exit_code"]) == ("Interrupted", code)
    assert stopped.stderr.splitlines()[-1] == error["message"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {ledger.name}

    program, *again = shlex.split(error["message"].partition("To resume, run: ")[2])
    assert (program, again) == ("streamdr", [word for word in words if word != "--fresh"])
    resumed = succeed(*again, cwd=tmp_path)
    assert "resuming moments at row " in resumed.err
    assert 0 < resumed.report["bytes_read"] < ALL_BYTES
    assert chunks(tmp_path / "out" / "model.zarr") == chunks(undisturbed / "model.zarr")


def test_a_killed_run_resumes_its_fit(tmp_path, store, undisturbed):
    configure(tmp_path, store)
    ledger = tmp_path / "out" / ".streamdr-ledger"
    words = ["run", "config.yaml", "--json"]
    killed = disturbed(*words, cwd=tmp_path, when=lambda: list(ledger.glob("*.npz")), number=signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    leases = {".model.zarr.lease", ".z.zarr.lease"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {ledger.name, *leases}
    resumed = succeed(*words, cwd=tmp_path)
    assert "resuming moments at row " in resumed.err
    assert 0 < resumed.report["fit"]["bytes_read"] < ALL_BYTES
    assert {path.name for path in (tmp_path / "out").iterdir()} == {ledger.name, "model.zarr", "z.zarr"}
    for name in ("model.zarr", "z.zarr"):
        assert chunks(tmp_path / "out" / name) == chunks(undisturbed / name)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_or_killed_transform_keeps_the_rows_that_were_written(number, tmp_path, store, undisturbed):
    configure(tmp_path, store)
    out = tmp_path / "out"
    words = ["transform", "config.yaml", "--json", "--set", f"output.model={undisturbed / 'model.zarr'}"]
    disturbed(*words, cwd=tmp_path, when=lambda: list(out.glob(".z.zarr.*.partial/*/c/*/0")), number=number)
    assert not (out / "z.zarr").exists()
    resumed = succeed(*words, cwd=tmp_path)
    assert "resuming transform: " in resumed.err
    assert 0 < resumed.report["bytes_read"] < ALL_BYTES
    assert [path.name for path in out.iterdir()] == ["z.zarr"]
    assert chunks(out / "z.zarr") == chunks(undisturbed / "z.zarr")


@pytest.mark.parametrize("what", ["synthetic", "ingest"])
def test_stopping_what_cannot_be_resumed_leaves_nothing(what, tmp_path):
    recipe = {"n_rows": ROWS, "n_cols": COLS, "rank": 2}
    write_config(tmp_path, input={"path": "x.zarr", "synthetic": recipe})
    np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (ROWS, COLS))  # a sparse file
    before = sorted(path.name for path in tmp_path.iterdir())
    words = ["fit", "config.yaml"] if what == "synthetic" else ["ingest", "x.npy", "x.zarr"]
    begun = disturbed(
        *words, cwd=tmp_path, when=lambda: list(tmp_path.glob(".x.zarr.*.partial/*/c")), number=signal.SIGINT
    )
    assert begun.returncode == 130
    assert f"run: streamdr {words[0]}" in begun.stderr.splitlines()[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == before
