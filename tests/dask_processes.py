"""Schedulers and workers as processes of their own, and certificates made on the spot."""

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
"""How long to wait, at most, for the end of processes that were told of it."""


@contextmanager
def process(
    *words: str, directory: Path | None = None, prefix: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs as long as this context, and its descendants with it."""
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
    """A scheduler that writes its address, on the loopback interface, to a file."""
    words = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
    with process("distributed.cli.dask_scheduler", *words, directory=directory) as started:
        while not (file.exists() and file.read_text().endswith("}")):
            assert started.poll() is None, "the scheduler did not start"
        yield started


@contextmanager
def worker(file: Path, directory: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of the scheduler whose file this is, started in a directory whose packages come first."""
    words = ("--host", "127.0.0.1", "--no-dashboard", "--nthreads", "1", "--scheduler-file", str(file))
    name = uuid.uuid4().hex
    with process("distributed.cli.dask_worker", *words, "--name", name, directory=directory) as started:
        with Client(address(file), set_as_default=False) as client:
            # On a busy machine Python alone takes longer to start than a run waits for workers.
            while name not in client.run_on_scheduler(
                lambda dask_scheduler: {worker.name for worker in dask_scheduler.workers.values()}
            ):
                assert started.poll() is None, "the worker did not start"
                time.sleep(0.05)
        yield started


def address(file: Path) -> str:
    return json.loads(file.read_text())["address"]


def descendants(pid: int | None = None) -> set[int]:
    """The dask workers below a process, or this one. Others, such as those that share semaphores, stay."""
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
    """Whether processes ended, within the time that it may take. Not everybody's parent asks how they did."""
    deadline = time.monotonic() + WORKERS_GONE_SECONDS
    while any(map(alive, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def certificates(place: Path, authority: str) -> dict[str, str]:
    """An authority of its own, and a certificate that it signed, as `execution.tls` wants them."""
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
