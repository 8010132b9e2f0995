"""Schedules: one run at a time, however many are requested; and the work survives the death of the server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from command_line import write_config
from dispositions import IN_THE_BACKGROUND, ignoring
from narrowing import present
from prefect_server import FLOWS, PATIENCE_SECONDS, Server, free_port, running_server, until


@contextmanager
def serving(server: Server, cwd, *words: str, stopped_by=signal.SIGTERM) -> Iterator[dict]:
    """The deployment, while a process serves it."""
    name = words[words.index("--name") + 1]
    with ignoring(*IN_THE_BACKGROUND):  # as most who serve are started
        process = subprocess.Popen(
            [sys.executable, FLOWS / "serve.py", *words],
            cwd=cwd,
            env=server.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def deployment() -> dict | None:
        assert process.poll() is None, present(process.stdout).read()
        found = server.ask("/deployments/filter", deployments={"name": {"any_": [name]}})
        return found[0] if found else None

    try:
        yield until(deployment, "the deployment was not made")
        process.send_signal(signal.SIGHUP)
        assert deployment(), "it was to ignore this"
        process.send_signal(stopped_by)
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, said
    finally:
        process.kill()
        process.communicate()


def trigger(server: Server, deployment: dict) -> str:
    run = server.ask(f"/deployments/{deployment['id']}/create_flow_run", state={"type": "SCHEDULED"})
    return run["id"]


def states(server: Server, runs: list[str]) -> list[str]:
    return sorted(server.ask(f"/flow_runs/{run}")["state_type"] for run in runs)


def workers(place: Path) -> list[int]:
    """The processes that do the work of runs in a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"streamdr.cli.worker" in (process / "cmdline").read_bytes() and (process / "cwd").samefile(
                place
            ):
                found.append(int(process.name))
    return found


def is_asked_to_stop(worker: int) -> bool:
    """Whether nobody holds the other end of a worker's standard input any more, by which requests come."""
    requests = os.open(f"/proc/{worker}/fd/0", os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(requests, 1) == b""
    except BlockingIOError:
        return False
    finally:
        os.close(requests)


def test_two_triggers_at_once_make_one_run(server, tmp_path, large):
    write_config(tmp_path, input={"path": str(large)}, execution={"workers": 1})
    words = ["config.yaml", "--cron", "0 2 * * *", "--timezone", "Europe/Berlin", "--name", "twice"]
    with serving(server, tmp_path, *words) as deployment:
        (schedule,) = deployment["schedules"]
        assert (schedule["schedule"]["cron"], schedule["schedule"]["timezone"]) == (
            "0 2 * * *",
            "Europe/Berlin",
        )
        assert deployment["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"
        runs = [trigger(server, deployment), trigger(server, deployment)]
        (worker,) = until(lambda: workers(tmp_path), "neither run began")
        os.kill(
            worker, signal.SIGSTOP
        )  # so that one is under way for as long as the other takes to be refused
        until(lambda: "CANCELLED" in states(server, runs), "neither run was cancelled")
        os.kill(worker, signal.SIGCONT)
        until(lambda: "COMPLETED" in states(server, runs), "the other run did not end")
    assert states(server, runs) == ["CANCELLED", "COMPLETED"]
    assert (tmp_path / "out" / "model.zarr").exists()


def test_a_run_that_is_cancelled_on_the_page_leaves_a_checkpoint_and_no_process(server, tmp_path, large):
    execution = {"workers": 1, "checkpoint_seconds": 0.001}
    write_config(tmp_path, input={"path": str(large)}, execution=execution)
    with serving(server, tmp_path, "config.yaml", "--name", "cancelled") as deployment:
        run = trigger(server, deployment)
        (worker,) = until(lambda: workers(tmp_path), "the run did not begin")
        until(lambda: any(path.is_file() for path in tmp_path.glob("out/.*ledger*/**/*")), "no checkpoint")
        os.kill(worker, signal.SIGSTOP)  # it is not to be done before it is cancelled
        server.ask(f"/flow_runs/{run}/set_state", state={"type": "CANCELLING"})
        until(lambda: is_asked_to_stop(worker), "the work was not asked to stop")
        os.kill(worker, signal.SIGCONT)
        until(lambda: states(server, [run]) == ["CANCELLED"], "the run was not cancelled")
        until(lambda: not workers(tmp_path), "the work went on")
    assert not (tmp_path / "out" / "model.zarr").exists()


def test_a_deployment_of_the_same_name_is_not_replaced(server, place, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    write_config(other, input={"path": "x.zarr"})
    words = [sys.executable, FLOWS / "serve.py", other / "config.yaml", "--name", "taken"]
    with serving(server, place, "config.yaml", "--name", "taken") as deployment:
        done = subprocess.run(
            words, cwd=other, env=server.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert "--name" in error
        assert str((place / "config.yaml").resolve()) in error
        there = server.ask(f"/deployments/{deployment['id']}")
        assert there["parameters"] == deployment["parameters"]
        assert there["description"] == f"Runs {(place / 'config.yaml').resolve()}"


@pytest.mark.faults
def test_stopping_the_server_process_stops_the_current_run(server, tmp_path, large, tally):
    execution = {"workers": 1, "checkpoint_seconds": 0.001}
    write_config(tmp_path, input={"path": str(large)}, execution=execution)
    with serving(server, tmp_path, "config.yaml", "--name", "stopped") as deployment:
        trigger(server, deployment)
        (worker,) = until(lambda: workers(tmp_path), "the run did not begin")
        until(lambda: any(path.is_file() for path in tmp_path.glob("out/.*ledger*/**/*")), "no checkpoint")
        os.kill(worker, signal.SIGSTOP)  # it is not to be done before it is stopped

        def go_on() -> None:
            until(lambda: is_asked_to_stop(worker), "the work was not asked to stop")
            os.kill(worker, signal.SIGCONT)

        resuming = threading.Thread(target=go_on)
        resuming.start()
    resuming.join()
    tally("signals")
    until(lambda: not workers(tmp_path), "the work went on")
    assert not (tmp_path / "out" / "model.zarr").exists()


def test_the_clock_makes_runs(server, place):
    """The server accepts a schedule whatever becomes of it: what counts is that it makes runs of it."""
    words = ["config.yaml", "--cron", "0 2 * * *", "--name", "clock"]
    with serving(server, place, *words, stopped_by=signal.SIGINT) as deployment:
        chosen = {"id": {"any_": [deployment["id"]]}}
        runs = until(
            lambda: server.ask("/flow_runs/filter", deployments=chosen, limit=3), "no run was scheduled"
        )
    assert all(run["auto_scheduled"] and "T02:00:00" in run["expected_start_time"] for run in runs)


def test_without_a_server_one_is_started_and_ended(server, place, tmp_path_factory):
    home, port = tmp_path_factory.mktemp("own"), free_port()
    alone = {name: value for name, value in server.environment.items() if name != "PREFECT_API_URL"}
    alone |= {"PREFECT_HOME": str(home), "PREFECT_SERVER_API_PORT": str(port)}
    words = [sys.executable, str(FLOWS / "serve.py"), "config.yaml", "--name", "alone"]
    serve = subprocess.Popen(words, cwd=place, env=alone, stderr=subprocess.PIPE, text=True)
    own = Server(port, home, serve)
    until(own.answers, "there is no server")
    (deployment,) = until(lambda: own.ask("/deployments/filter", limit=5), "there is no deployment")
    trigger(own, deployment)
    until((place / "out" / "model.zarr").exists, "there was no run")
    serve.send_signal(signal.SIGINT)
    _, said = serve.communicate()
    assert f"http://127.0.0.1:{port}" in said
    assert serve.returncode == 0
    assert not own.answers(), "the server lives on"


@pytest.mark.slow
def test_a_server_of_its_own_is_ended_even_when_the_stop_comes_early(server, place, tmp_path_factory):
    home, port = tmp_path_factory.mktemp("early"), free_port()
    alone = {name: value for name, value in server.environment.items() if name != "PREFECT_API_URL"}
    alone |= {"PREFECT_HOME": str(home), "PREFECT_SERVER_API_PORT": str(port)}
    words = [sys.executable, str(FLOWS / "serve.py"), "config.yaml", "--name", "early"]
    with ignoring(*IN_THE_BACKGROUND):
        serve = subprocess.Popen(words, cwd=place, env=alone, stderr=subprocess.PIPE, text=True)
    while "until this process ends" not in present(serve.stderr).readline():
        assert serve.poll() is None
    serve.terminate()
    serve.communicate(timeout=PATIENCE_SECONDS)
    assert serve.returncode == 143
    assert not Server(port, home, serve).answers(), "the server lives on"


def test_the_work_outlives_the_server_and_the_next_run_knows_it(server, tmp_path_factory, tmp_path, large):
    execution = {"workers": 1, "checkpoint_seconds": 0.001}
    write_config(tmp_path, input={"path": str(large)}, execution=execution)
    words = [sys.executable, str(FLOWS / "fit.py"), "config.yaml", "--json"]
    with running_server(tmp_path_factory.mktemp("mortal")) as mortal:
        process = subprocess.Popen(
            words, cwd=tmp_path, env=mortal.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(lambda: any(path.is_file() for path in tmp_path.glob("out/.*ledger*/**/*")), "no checkpoint")
        mortal.process.kill()
        until((tmp_path / "out" / "model.zarr").exists, "the work ended with the server")
        process.kill()  # it would retry its reports for minutes
        process.wait()
    done = subprocess.run(words, cwd=tmp_path, env=server.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["fit"]["reused"]
