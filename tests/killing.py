"""Commands that are killed at any moment, and started again until one succeeds."""

from __future__ import annotations

import itertools
import math
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from command_line import WARM, Outcome, command
from narrowing import present

_PATIENCE_SECONDS = 300
_STEPS = {"os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "os.utime"}
_REMOVING = {"os.remove", "os.rmdir", "os.utime"}
"""The operations that succeed on a full disk."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Started:
    """A running command: its supervisor and its worker process, which end with the context.

    With `last_step`, it kills itself before the change to the file system after that many changes. With
    `failing` too, it is not killed: every later change below `cwd` fails with this error number.
    """

    def __init__(
        self, *words: str | Path, cwd: Path, last_step: float = math.inf, failing: int | None = None
    ) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._streams = [Path(self._directory.name, name) for name in ("out", "err")]
        for stream in self._streams:
            stream.touch()  # some are killed before they write anything
        self._alive, theirs = WARM.Pipe(duplex=False)
        arguments = (theirs, list(map(str, words)), cwd, self._streams, last_step, failing)
        self._process = WARM.Process(target=_lead, args=arguments)
        self._process.start()
        theirs.close()
        self._alive.recv_bytes()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill("all")
        self._process.join()
        self._alive.close()
        self._directory.cleanup()

    @property
    def pid(self) -> int:
        return present(self._process.pid)

    @property
    def worker(self) -> int:
        """The PID of the worker process, or of the supervisor as long as there is no worker."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return int((children.read_text().split() or [str(self.pid)])[0])

    def ends_within(self, seconds: float) -> bool:
        """Return whether all processes end in that time. Then the pipe that all of them hold is closed."""
        return self._alive.poll(seconds)

    def kill(self, whom: str) -> None:
        """Kill `all` processes at once, or only the `parent` or the `worker`, and wait for all to end."""
        with suppress(ProcessLookupError, FileNotFoundError):  # it has just ended
            if whom == "all":
                os.killpg(self.pid, signal.SIGKILL)
            else:
                os.kill(self.pid if whom == "parent" else self.worker, signal.SIGKILL)
        assert self.ends_within(_PATIENCE_SECONDS), f"a process lives on after {whom} was killed"

    def outcome(self) -> Outcome:
        """Wait for the end of the command. Return its output and its exit code."""
        assert self.ends_within(_PATIENCE_SECONDS)
        self._process.join()
        return Outcome(present(self._process.exitcode), *(stream.read_text() for stream in self._streams))


@dataclass(frozen=True)
class Survived:
    """The number of kills of a command, the files after the last kill, and the outcome of the last run."""

    kills: int
    left: set[str]
    outcome: Outcome
    seconds: float
    """The duration of the last run."""


def harass(*words: str | Path, cwd: Path, longest: float, chance: random.Random) -> Survived:
    """Kill a command after a random time, repeatedly, until one run ends before it is killed."""
    kills, left = 0, set[str]()
    while True:
        with Started(*words, cwd=cwd) as run:
            began = time.monotonic()
            if run.ends_within(chance.uniform(0, longest)):
                seconds, outcome = time.monotonic() - began, run.outcome()
                assert outcome.code == 0, (kills, outcome.err)
                return Survived(kills, left, outcome, seconds)
            run.kill(chance.choice(["all", "parent", "worker"]))
        kills, left = kills + 1, tree(cwd)
        longest *= 1.1  # other programs may be using the machine, more than when it was measured


def timed(*words: str | Path, cwd: Path) -> float:
    """Return how long a command takes without disturbance."""
    with Started(*words, cwd=cwd) as run:
        began = time.monotonic()
        outcome = run.outcome()
        assert outcome.code == 0, outcome.err
        return time.monotonic() - began


def tree(place: Path) -> set[str]:
    """Return the names of all files. Ledger entries get one name, since keys depend on the input path."""
    paths = (path.relative_to(place) for path in place.rglob("*"))
    return {
        str(path.with_name("entry.npz") if path.match(".streamdr-ledger/[!.]*.npz") else path)
        for path in paths
    }


def chunks(place: Path) -> dict[str, bytes]:
    """Return the chunks of all outputs in a folder, without metadata, which contains the time of writing."""
    return {
        str(file.relative_to(place)): file.read_bytes() for file in place.glob("*/*/c/**/*") if file.is_file()
    }


def _lead(
    alive: Connection,
    words: list[str],
    cwd: Path,
    streams: list[Path],
    last_step: float,
    failing: int | None,
) -> None:
    os.setpgid(0, 0)
    alive.send_bytes(b"leads its group")
    steps = itertools.count(1)

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        changes = event in _STEPS or (event == "open" and arguments[2] & _WRITING)
        if not changes or (failing is not None and event in _REMOVING):
            return
        if failing is not None and not str(os.path.abspath(os.fsdecode(arguments[0]))).startswith(str(cwd)):
            return  # the output streams and caches of the program
        if next(steps) > last_step:
            if failing is None:
                os.killpg(0, signal.SIGKILL)
                return
            raise OSError(failing, os.strerror(failing), os.fsdecode(arguments[0]))

    sys.addaudithook(count)
    command(words, cwd, streams)
