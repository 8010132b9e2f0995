"""Commands that are killed, wherever they are, and started again until one comes to its end."""

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
"""What succeeds on a disk that is full."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Started:
    """A command under way, the process that was started and the one that does its work, within a block.

    With `last_step`, it changes the file system that many times, and kills itself before the next change; or,
    with `failing`, every later change to what is below `cwd` fails with that number of an error.
    """

    def __init__(
        self, *words: str | Path, cwd: Path, last_step: float = math.inf, failing: int | None = None
    ) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._streams = [Path(self._directory.name, name) for name in ("out", "err")]
        for stream in self._streams:
            stream.touch()  # some are killed before they can say anything
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
        """The process that does the work, or the one that was started as long as it is the only one."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return int((children.read_text().split() or [str(self.pid)])[0])

    def ends_within(self, seconds: float) -> bool:
        """Whether its last process ends in that time: the pipe that all of them hold is then closed."""
        return self._alive.poll(seconds)

    def kill(self, whom: str) -> None:
        """End `all` processes at once, or the `parent` or the `worker` alone: none may outlive it."""
        with suppress(ProcessLookupError, FileNotFoundError):  # it has just ended
            if whom == "all":
                os.killpg(self.pid, signal.SIGKILL)
            else:
                os.kill(self.pid if whom == "parent" else self.worker, signal.SIGKILL)
        assert self.ends_within(_PATIENCE_SECONDS), f"a process lives on after {whom} was killed"

    def outcome(self) -> Outcome:
        """Wait for its end: what it said, and its exit code."""
        assert self.ends_within(_PATIENCE_SECONDS)
        self._process.join()
        return Outcome(present(self._process.exitcode), *(stream.read_text() for stream in self._streams))


@dataclass(frozen=True)
class Survived:
    """How often a command was killed, what the last kill left behind, and how the run after it ended."""

    kills: int
    left: set[str]
    outcome: Outcome
    seconds: float
    """How long that last run took."""


def harass(*words: str | Path, cwd: Path, longest: float, chance: random.Random) -> Survived:
    """Kill a command after a random time, again and again, until one run is faster than that."""
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
    """How long a command takes that nobody disturbs."""
    with Started(*words, cwd=cwd) as run:
        began = time.monotonic()
        outcome = run.outcome()
        assert outcome.code == 0, outcome.err
        return time.monotonic() - began


def tree(place: Path) -> set[str]:
    """All files and directories, the ledger's entries by one name: theirs depend on where the input is."""
    paths = (path.relative_to(place) for path in place.rglob("*"))
    return {
        str(path.with_name("entry.npz") if path.match(".streamdr-ledger/[!.]*.npz") else path)
        for path in paths
    }


def chunks(place: Path) -> dict[str, bytes]:
    """The values in all outputs in a place, without what every writing says anew."""
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
            return  # the program's own streams and caches
        if next(steps) > last_step:
            if failing is None:
                os.killpg(0, signal.SIGKILL)
                return
            raise OSError(failing, os.strerror(failing), os.fsdecode(arguments[0]))

    sys.addaudithook(count)
    command(words, cwd, streams)
