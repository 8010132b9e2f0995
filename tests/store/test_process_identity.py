"""A process is identified by more than its PID, since PIDs are reused and differ between machines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from narrowing import present

from streamdr.store.process_identity import Process


@pytest.fixture
def child() -> Iterator[tuple[subprocess.Popen[str], Process]]:
    """A process that waits, and the identity that it reports."""
    code = (
        "from dataclasses import astuple\n"
        "from streamdr.store.process_identity import Process\n"
        "print(*astuple(Process.here()), sep='\\n', flush=True)\n"
        "input()\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as popen:
        host, realm, pid, started = (present(popen.stdout).readline().rstrip("\n") for _ in range(4))
        yield popen, Process(host, realm, int(pid), int(started))
        popen.kill()


def test_this_process_is_near_and_runs() -> None:
    here = Process.here()
    assert here.is_near
    assert here.is_running
    assert str(here) == f"process {os.getpid()} on {here.host}"


def test_another_process_is_running_until_it_ends_even_if_it_is_not_reaped(child) -> None:
    popen, process = child
    assert process.pid == popen.pid
    assert process.is_near
    assert process.is_running
    assert not process.is_stopped
    os.kill(popen.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, popen.pid, os.WSTOPPED | os.WNOWAIT)
    assert process.is_running
    assert process.is_stopped
    os.kill(popen.pid, signal.SIGKILL)
    os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is not reaped
    assert not process.is_running
    popen.wait()
    assert not process.is_running


def test_a_process_with_a_reused_pid_is_another_process() -> None:
    assert not replace(Process.here(), started=1).is_running


def test_a_process_of_another_machine_or_container_is_not_near() -> None:
    assert not replace(Process.here(), realm="another boot").is_near
    assert not replace(Process.here(), realm="").is_near
