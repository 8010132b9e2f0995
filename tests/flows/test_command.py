"""Flows from the command line: their words, their codes, and what a signal does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import numpy as np
import psutil
import pytest
import zarr
from command_line import write_config
from dask_processes import gone
from dispositions import IN_THE_BACKGROUND, starting
from prefect_server import FLOWS, PATIENCE_SECONDS, until

ALL_BYTES = 64 * 16_384 * 128 * 4


def run(server, cwd, script, *words) -> subprocess.CompletedProcess:
    command = [sys.executable, FLOWS / script, *words]
    return subprocess.run(command, cwd=cwd, env=server.environment, capture_output=True, text=True)


def test_a_report_as_json_and_nothing_else(server, place):
    done = run(server, place, "fit_transform.py", "config.yaml", "--set", "method.n_components=3", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["fit"]["summary"]["n_components"] == 3
    assert report["verify"]["n_rows"] == 200
    latest = server.runs(name="fit-transform")[0]
    assert latest["parameters"]["config"]["method"]["n_components"] == 3


def test_a_configuration_that_means_nothing_is_refused_before_a_run_begins(server, place):
    before = len(server.runs(name="fit"))
    done = run(server, place, "fit.py", "config.yaml", "--set", "method.n_componets=3", "--json")
    assert done.returncode == 2
    assert "method.n_componets: unknown key" in json.loads(done.stdout)["error"]["message"]
    assert len(server.runs(name="fit")) == before


def test_a_run_that_fails_says_why_once(server, place):
    zarr.open_array(place / "x.zarr", mode="r+")[7, 3] = np.inf
    done = run(server, place, "fit.py", "config.yaml")
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if line.startswith("error: ")] == [
        line
        for line in done.stderr.splitlines()
        if "inf at row 7, column 3" in line and line.startswith("error: ")
    ]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("flow", "number", "code", "ignored"),
    [
        ("fit", signal.SIGINT, 130, ()),
        ("fit", signal.SIGHUP, 129, ()),
        ("fit", signal.SIGINT, 130, IN_THE_BACKGROUND),
        ("fit-transform", signal.SIGTERM, 143, IN_THE_BACKGROUND),
    ],
    ids=["terminal", "terminal closed", "background interrupted", "background"],
)
def test_a_signal_stops_a_run_after_a_checkpoint_and_the_next_goes_on(
    flow, number, code, ignored, server, tmp_path, large
):
    script = f"{flow.replace('-', '_')}.py"
    execution = {"workers": 1, "checkpoint_seconds": 0.001}
    write_config(tmp_path, input={"path": str(large)}, execution=execution)
    words = [sys.executable, str(FLOWS / script), "config.yaml", "--json"]
    pipe = subprocess.PIPE
    with starting(ignored=ignored):
        process = subprocess.Popen(
            words, cwd=tmp_path, env=server.environment, stdout=pipe, stderr=pipe, text=True
        )
    until(lambda: any(path.is_file() for path in tmp_path.glob("out/.*ledger*/**/*")), "no checkpoint")
    for ignorable in set(ignored) - {signal.SIGINT}:
        process.send_signal(ignorable)
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == code, err
    error = json.loads(out)["error"]
    assert error["kind"] == "Interrupted"
    assert "To resume, run: python " in error["message"]
    state = server.runs(name=flow)[0]["state"]["type"]
    assert state in ("CRASHED", "CANCELLED")

    again = run(server, tmp_path, script, "config.yaml", "--json")
    assert again.returncode == 0, again.stderr
    assert 0 < json.loads(again.stdout)["fit"]["bytes_read"] < ALL_BYTES


def test_the_worker_of_a_flow_that_is_killed_ends_with_it_and_the_next_run_goes_on(server, tmp_path, large):
    execution = {"workers": 1, "checkpoint_seconds": 0.001}
    write_config(tmp_path, input={"path": str(large)}, execution=execution)
    words = [sys.executable, str(FLOWS / "fit.py"), "config.yaml", "--json"]
    nowhere = subprocess.DEVNULL
    with starting(ignored=IN_THE_BACKGROUND):
        process = subprocess.Popen(
            words, cwd=tmp_path, env=server.environment, stdout=nowhere, stderr=nowhere
        )
    until(lambda: any(path.is_file() for path in tmp_path.glob("out/.*ledger*/**/*")), "no checkpoint")
    children = psutil.Process(process.pid).children()
    (worker,) = (child.pid for child in children if "streamdr.cli.worker" in child.cmdline())
    process.kill()
    process.wait()
    assert gone({worker}), "the worker outlived its flow"
    assert not (tmp_path / "out" / "model.zarr").exists()

    again = run(server, tmp_path, "fit.py", "config.yaml", "--json")
    assert again.returncode == 0, again.stderr
    assert 0 < json.loads(again.stdout)["fit"]["bytes_read"] < ALL_BYTES
