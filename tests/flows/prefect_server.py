"""A real Prefect server on a free port of this machine, asked over HTTP as a browser would."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLOWS = Path(__file__).parent.parent.parent / "flows"
PATIENCE_SECONDS = 300
"""How long anything may take on a busy machine before a test gives up."""


class Server:
    def __init__(self, port: int, home: Path, process: subprocess.Popen) -> None:
        self.url = f"http://127.0.0.1:{port}/api"
        self.home = home
        self.process = process

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs in order to report here."""
        return {**_environment(self.home), "PREFECT_API_URL": self.url}

    def ask(self, path: str, **body: Any) -> Any:
        """Post to the API, or read from it where there is nothing to say."""
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        while True:
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 503:  # which asks to be asked again: its database is busy
                    raise
                time.sleep(0.2)

    def answers(self) -> bool:
        """Whether it is up."""
        try:
            return self.ask("/health") is True
        except urllib.error.URLError:
            return False

    def runs(self, *, name: str) -> list[dict[str, Any]]:
        """The runs of a flow, the latest first."""
        by_name = {"name": {"any_": [name]}}
        return self.ask("/flow_runs/filter", flows=by_name, sort="START_TIME_DESC", limit=200)

    def tasks(self, flow_run: str, expected: int) -> dict[str, dict[str, Any]]:
        """The task runs of a run, by the stage's name."""
        return {_stage(task): task for task in self._tasks(flow_run, expected)}

    def stages(self, flow_run: str, expected: int) -> list[str]:
        """The names of the stages of a run, those that are the same included."""
        return sorted(map(_stage, self._tasks(flow_run, expected)))

    def _tasks(self, flow_run: str, expected: int) -> list[dict[str, Any]]:
        """The task runs, once the server has recorded the expected number of them, which takes a moment."""
        chosen = {"id": {"any_": [flow_run]}}
        return until(
            lambda: _enough(self.ask("/task_runs/filter", flow_runs=chosen, limit=200), expected),
            "the task runs were not recorded",
        )

    def artifacts(self, flow_run: str) -> dict[str, dict[str, Any]]:
        chosen = {"id": {"any_": [flow_run]}}
        return {a["key"]: a for a in self.ask("/artifacts/filter", flow_runs=chosen, limit=200)}


def _stage(task: dict[str, Any]) -> str:
    return task["name"].rpartition("-")[0]


def _enough(found: list[Any], expected: int) -> list[Any] | None:
    ended = [each for each in found if each["state_type"] not in ("PENDING", "RUNNING", "SCHEDULED")]
    return found if len(ended) >= expected else None


def until(condition, otherwise: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """What the condition gives, as soon as it gives anything."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)
    return found


@contextmanager
def running_server(home: Path, port: int | None = None) -> Iterator[Server]:
    port = port or free_port()
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (home / "server.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=home, env=_environment(home), stdout=log, stderr=log)
    server = Server(port, home, process)
    try:
        until(lambda: _healthy(server), f"the server did not start: {(home / 'server.log').read_text()}")
        yield server
    finally:
        process.terminate()
        process.wait()


def _healthy(server: Server) -> bool:
    assert server.process.poll() is None, (server.home / "server.log").read_text()
    return server.answers()


def _environment(home: Path) -> dict[str, str]:
    ours = {
        "PREFECT_HOME": str(home),
        "PREFECT_PROFILES_PATH": str(home / "profiles.toml"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return inherited | ours


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
