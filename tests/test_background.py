"""Programs that were started with SIGINT ignored go on ignoring it, and stop on SIGTERM all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import SCRIPT, write_config
from dask_processes import descendants, gone
from dispositions import IN_THE_BACKGROUND, ignoring

PATIENCE_SECONDS = 300

SUPERVISED = """
import os, sys
from streamdr.signals import supervise

def work(stop):
    os.write(1, b"ready\\n")
    stop.wait()
    return stop.exit_code

sys.exit(supervise(work, told=lambda: None, lost=lambda why, code: None))
"""


def started(*words: str | Path, ignored=IN_THE_BACKGROUND, **options) -> subprocess.Popen[str]:
    with ignoring(*ignored):
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True, **options)


@pytest.mark.parametrize("ignored", [IN_THE_BACKGROUND, (*IN_THE_BACKGROUND, signal.SIGTERM)], ids=len)
@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_work_in_the_background_ignores_ctrl_c_and_stops_on_sigterm(send, ignored):
    process = started(sys.executable, "-c", SUPERVISED, ignored=ignored)
    assert process.stdout.readline() == "ready\n"
    for number in (signal.SIGINT, signal.SIGHUP):
        send(process.pid, number)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.2)
    send(process.pid, signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 143


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_without_standard_streams_does_its_work(tmp_path, closed):
    """A file that it opens must not become its standard output."""
    write_config(tmp_path, input={"path": "x.zarr", "synthetic": {"n_rows": 200, "n_cols": 6, "rank": 3}})
    ended = subprocess.run(["sh", "-c", f'exec "$0" run config.yaml --json {closed}', SCRIPT], cwd=tmp_path)
    assert ended.returncode == 0
    assert (tmp_path / "out" / "model.zarr" / "zarr.json").exists()


def until(process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()


def test_a_command_in_the_background_that_is_stopped_leaves_no_worker(tmp_path):
    config = write_config(
        tmp_path,
        input={"path": "x.zarr", "synthetic": {"n_rows": 200_000, "n_cols": 64}},
        execution={"cluster": {"name": "LocalCluster", "workers": 2}, "memory_limit": "600MB"},
    )
    command = started(SCRIPT, "fit", config.name, "--json", cwd=tmp_path, stderr=subprocess.DEVNULL)
    until(command, lambda: len(descendants(command.pid)) == 2)
    workers = descendants(command.pid)
    os.killpg(command.pid, signal.SIGINT)
    os.kill(command.pid, signal.SIGTERM)
    out, _ = command.communicate(timeout=PATIENCE_SECONDS)
    assert command.returncode == 143
    assert json.loads(out)["error"]["kind"] == "Interrupted"
    assert gone(workers)


def test_the_tests_of_stopping_pass_in_the_background():
    here = Path(__file__).parent
    chosen = ["test_signals.py", "test_cli_stopping.py::test_stopping_what_cannot_be_resumed_leaves_nothing"]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
    with ignoring(*IN_THE_BACKGROUND):
        tests = subprocess.run(words, cwd=here, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert tests.returncode == 0, tests.stdout
