"""A Prefect server for one machine: the one that runs, or one that is started for as long as it is needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import httpx

from streamdr.cli import console
from streamdr.errors import EngineError
from streamdr.flows.prefect_setup import PREFECT_API_URL, get_current_settings, temporary_settings

_START_SECONDS = 120
_STOP_SECONDS = 30


@contextmanager
def some_server() -> Iterator[None]:
    """Use the configured server, or the one on the default port of this machine, or start one there."""
    settings = get_current_settings()
    if settings.api.url is not None:
        yield
        return
    port = settings.server.api.port
    url = f"http://127.0.0.1:{port}/api"
    with nullcontext() if _answers(url) else _started(port, url), temporary_settings({PREFECT_API_URL: url}):
        yield


@contextmanager
def _started(port: int, url: str) -> Iterator[None]:
    console.say(
        f"no Prefect server is configured; one runs at http://127.0.0.1:{port} until this process ends"
    )
    command = ["server", "start", "--host", "127.0.0.1", "--port", str(port)]
    # In a new session: Ctrl-C must not reach the server, which has to record the end of a run.
    server = subprocess.Popen(
        [sys.executable, "-m", "prefect", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(url):
            if server.poll() is not None or time.monotonic() > deadline:
                raise EngineError(
                    f"the Prefect server did not start on port {port}; see the output of "
                    f"`prefect {' '.join(command)}`, or set PREFECT_API_URL to a server that runs"
                )
            time.sleep(0.2)
        yield
    finally:
        server.terminate()
        try:
            server.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).json() is True
    except (httpx.HTTPError, ValueError):
        return False
