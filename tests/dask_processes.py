"""Dask schedulers and workers as separate processes, and new certificates."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from distributed import Client

WORKERS_GONE_SECONDS = 120
"""The longest time to wait for processes that were told to end."""


@contextmanager
def process(
    *words: str, directory: Path | None = None, prefix: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python module inside the context. Its descendants are killed with it."""
    started = subprocess.Popen(
        [*prefix, sys.executable, "-m", *words],
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield started
    finally:
        family = (
            [started, *psutil.Process(started.pid).children(recursive=True)] if alive(started.pid) else []
        )
        for member in family:
            member.kill()
        started.wait()


@contextmanager
def scheduler(file: Path, directory: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a scheduler on the loopback interface, which writes its address to a file."""
    words = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
    with process("distributed.cli.dask_scheduler", *words, directory=directory) as started:
        while not (file.exists() and file.read_text().endswith("}")):
            assert started.poll() is None, "the scheduler did not start"
        yield started


@contextmanager
def worker(file: Path, directory: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker of the scheduler with this file, in a directory from which it imports packages first."""
    words = ("--host", "127.0.0.1", "--no-dashboard", "--nthreads", "1", "--scheduler-file", str(file))
    name = uuid.uuid4().hex
    with process("distributed.cli.dask_worker", *words, "--name", name, directory=directory) as started:
        with Client(address(file), set_as_default=False) as client:
            # On a busy machine, starting Python may take longer than a run waits for workers.
            while name not in client.run_on_scheduler(
                lambda dask_scheduler: {worker.name for worker in dask_scheduler.workers.values()}
            ):
                assert started.poll() is None, "the worker did not start"
                time.sleep(0.05)
        yield started


def address(file: Path) -> str:
    return json.loads(file.read_text())["address"]


def descendants(pid: int | None = None) -> set[int]:
    """Return the dask workers below a process, by default this one, without other helper processes."""
    found = set()
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # it ended, or is a zombie
                if "multiprocessing.spawn" in " ".join(child.cmdline()):
                    found.add(child.pid)
    return found


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone(pids: set[int]) -> bool:
    """Wait for processes, and return whether all ended in time. Zombies count as ended."""
    deadline = time.monotonic() + WORKERS_GONE_SECONDS
    while any(map(alive, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def certificates(place: Path, authority: str) -> dict[str, str]:
    """Create a new authority and a certificate that it signed, with the keys of `execution.tls`."""
    place.mkdir()
    files = {name: str(place / f"{name}.pem") for name in ("ca", "cert", "key")}
    ca_key, request = str(place / "ca_key.pem"), str(place / "request.pem")
    new_key = ("-newkey", "rsa:2048", "-nodes")
    _openssl("req", "-x509", *new_key, "-keyout", ca_key, "-out", files["ca"], "-subj", f"/CN={authority}")
    _openssl("req", *new_key, "-keyout", files["key"], "-out", request, "-subj", "/CN=dask")
    signing = ("-CA", files["ca"], "-CAkey", ca_key, "-CAcreateserial")
    _openssl("x509", "-req", "-in", request, *signing, "-out", files["cert"])
    return files


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)
