"""Programs that were started with SIGINT ignored stop on SIGINT and SIGTERM all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from command_line import SCRIPT, succeed, write_config
from dask_processes import descendants, gone
from dispositions import IN_THE_BACKGROUND, ignoring
from narrowing import present

PATIENCE_SECONDS = 300

SUPERVISED = """
import sys
from streamdr.cli.console import answer
from streamdr.core.progress import Lines
from streamdr.cli.supervisor import WorkerLost, supervise

def body(channel):
    channel.message("ready")
    channel.stop.wait()
    channel.check()

try:
    supervise(lambda channel: answer(channel, lambda: body(channel)), Lines(sys.stdout))
except WorkerLost as stopped:
    sys.exit(stopped.shell_code)
"""
STOPS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]


def started(*words: str | Path, ignored=IN_THE_BACKGROUND, **options) -> subprocess.Popen[str]:
    with ignoring(*ignored):
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True, **options)


@pytest.mark.parametrize("ignored", [IN_THE_BACKGROUND, (*IN_THE_BACKGROUND, signal.SIGTERM)], ids=len)
@pytest.mark.parametrize("send", [os.kill, os.killpg])
@pytest.mark.parametrize(("number", "code"), STOPS)
def test_work_in_the_background_stops_on_sigint_and_sigterm_and_outlives_its_terminal(
    number, code, send, ignored
):
    process = started(sys.executable, "-c", SUPERVISED, ignored=ignored)
    assert present(process.stdout).readline() == "ready\n"
    for other in (signal.SIGQUIT, signal.SIGHUP):
        send(process.pid, other)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.2)
    send(process.pid, number)
    assert process.wait(PATIENCE_SECONDS) == code


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_without_standard_streams_does_its_work(tmp_path, closed):
    """A file that it opens must not become its standard output."""
    write_config(tmp_path, input={"path": "x.zarr", "synthetic": {"n_rows": 200, "n_cols": 6, "rank": 3}})
    ended = subprocess.run(["sh", "-c", f'exec "$0" run config.yaml --json {closed}', SCRIPT], cwd=tmp_path)
    assert ended.returncode == 0
    assert (tmp_path / "out" / "model.zarr" / "zarr.json").exists()


# The program, whose work continues after it is asked to stop.
ASKED_TO_STOP = """
import os
from streamdr.cli import app, supervisor

supervise, shown = supervisor.supervise, os.dup(1)

def patiently(work, progress):
    def asked_first(channel):
        os.write(shown, b"ready\\n")
        channel.stop.wait()
        work(channel)

    return supervise(asked_first, progress)

supervisor.supervise = patiently
app.main()
"""
COMMANDS = [
    *(f"{name} config.yaml" for name in ("run", "fit", "transform", "plan", "reprocess", "verify")),
    "compare compare.yaml",
    "ingest x.npy other.zarr --overwrite",
    "plot out/model.zarr --out picture.png",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A directory in which a run is done, so that there is something for every command to do."""
    place = tmp_path_factory.mktemp("finished")
    np.save(place / "x.npy", np.random.default_rng(0).normal(size=(200, 6)))
    write_config(place, input={"path": "x.npy"}, output={"embedding": "out/z.zarr"})
    methods = "methods: [{name: pca, n_components: 2}]"
    (place / "compare.yaml").write_text(
        f"input: {{path: x.npy}}\n{methods}\noutput: {{folder: compared, table: t.md}}\n"
    )
    succeed("run", "config.yaml", cwd=place)
    return place


def contents(place: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in place.glob("**/*") if file.is_file()}


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words.split()[0])
@pytest.mark.parametrize(("number", "code"), STOPS)
def test_every_command_in_the_background_stops(number, code, words, finished):
    before = contents(finished)
    command = started(sys.executable, "-c", ASKED_TO_STOP, *words.split(), "--json", cwd=finished)
    assert present(command.stdout).readline() == "ready\n"
    work = {child.pid for child in psutil.Process(command.pid).children()}
    os.killpg(command.pid, signal.SIGHUP)
    command.send_signal(number)
    out, _ = command.communicate(timeout=PATIENCE_SECONDS)
    assert command.returncode == code
    assert json.loads(out)["error"]["kind"] == "Interrupted"
    assert work
    assert gone(work)
    assert contents(finished) == before
    succeed(*words.split(), cwd=finished)


def until(process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()


@pytest.mark.parametrize(
    ("send", "number", "code"), [(os.killpg, signal.SIGINT, 130), (os.kill, signal.SIGTERM, 143)]
)
def test_a_command_in_the_background_that_is_stopped_leaves_no_worker(send, number, code, tmp_path):
    config = write_config(
        tmp_path,
        input={"path": "x.zarr", "synthetic": {"n_rows": 200_000, "n_cols": 64}},
        execution={"cluster": {"name": "LocalCluster", "workers": 2}, "memory_limit": "600MB"},
    )
    command = started(SCRIPT, "fit", config.name, "--json", cwd=tmp_path, stderr=subprocess.DEVNULL)
    until(command, lambda: len(descendants(command.pid)) == 2)
    workers = descendants(command.pid)
    os.killpg(command.pid, signal.SIGHUP)
    send(command.pid, number)
    out, _ = command.communicate(timeout=PATIENCE_SECONDS)
    assert command.returncode == code
    assert json.loads(out)["error"]["kind"] == "Interrupted"
    assert gone(workers)


def test_the_tests_of_stopping_pass_in_the_background():
    here = Path(__file__).parent
    chosen = [
        "test_supervisor.py",
        "test_cli_stopping.py::test_stopping_what_cannot_be_resumed_leaves_nothing",
    ]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
    with ignoring(*IN_THE_BACKGROUND):
        tests = subprocess.run(words, cwd=here, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert tests.returncode == 0, tests.stdout
