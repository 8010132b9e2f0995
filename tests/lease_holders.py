"""Processes that hold leases, and receive commands from a test over a pipe.

They are forked from a server that has already imported their modules, so that there can be many.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from streamdr.errors import BusyError, StoreError
from streamdr.store import Staging, leased
from streamdr.store.record import write_record

_WARM = multiprocessing.get_context("forkserver")


class Holder:
    """A process that holds the lease of a target, with staged work for it."""

    def __init__(self, target: Path, *, seconds: float, key: str | None = None) -> None:
        self._pipe, theirs = _WARM.Pipe()
        self.process = _WARM.Process(target=_hold, args=(theirs, target, seconds, key), daemon=True)
        self.process.start()
        theirs.close()
        self.token: int = self._pipe.recv()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.join()

    def do(self, command: str) -> Any:
        """Send a command (`publish`, `work`, `wait until lost` or `leave`), and return its result."""
        self.begin(command)
        return self._pipe.recv()

    def begin(self, command: str) -> None:
        """Send a command, and do not wait for its result."""
        self._pipe.send(command)

    def ended(self) -> Any:
        """Wait for a command that was begun, and return its result."""
        return self._pipe.recv()


def _hold(pipe: Connection, target: Path, seconds: float, key: str | None) -> None:
    with (
        leased([target], seconds=seconds) as lease,
        Staging(target, kind="embedding", overwrite=True, key=key, fence=lease.check) as staging,
    ):
        write_output(staging.path, "holder")
        pipe.send(lease.token)
        commands: dict[str, Callable[[], Any]] = {
            "publish": staging.publish,
            "work": _work,
            "wait until lost": lease.lost.wait,
        }
        while (command := pipe.recv()) != "leave":
            try:
                pipe.send(commands[command]())
            except StoreError as error:
                pipe.send(str(error))
    pipe.send(None)


def _work() -> None:
    """Hold the GIL for a second, as LAPACK does during a decomposition, so that no other thread can run."""
    ctypes.PyDLL(None).usleep(1_000_000)


def write_output(path: Path, word: str) -> None:
    """Write a minimal output, which is identified by a word."""
    write_record(path, "embedding", {"word": word}, complete=True)


def race(target: Path, log: Path, *, racers: int, rounds: int) -> None:
    """Let many processes contend for one target. Each takes it `rounds` times, and ends while it holds it."""
    process = _WARM.Process(target=_start_racers, args=(target, log, racers, rounds))
    process.start()
    process.join()
    assert process.exitcode == 0


def _start_racers(target: Path, log: Path, racers: int, rounds: int) -> None:
    children = []
    for _ in range(racers):
        child = os.fork()
        if child == 0:
            try:
                _contend(target, log, rounds)
            finally:
                os._exit(1)
        children.append(child)
    # Children are not reaped before all have started: zombies must not be mistaken for living processes.
    sys.exit(any(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


def _contend(target: Path, log: Path, rounds: int) -> None:
    lines = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    while True:
        with suppress(BusyError), leased([target], seconds=1000) as lease:
            os.write(lines, f"start {os.getpid()} {lease.token}\n".encode())
            lease.check()
            os.write(lines, f"stop {os.getpid()} {lease.token}\n".encode())
            rounds -= 1
            if rounds == 0:
                os._exit(0)
