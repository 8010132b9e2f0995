"""The program with a preloaded C library that lets system calls fail, like a full disk or an I/O error.

Commands are forked from a process that has the library and has already imported the program.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import pytest
from command_line import PRELOADED, Outcome, command
from narrowing import present

_NEVER = 2**62
_TESTS = Path(__file__).parent.parent


class Shim:
    """A process that runs commands in which system calls fail. It ends with the context."""

    def __init__(self, directory: Path) -> None:
        library = _compiled(directory)
        paths = [str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(paths)}
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.communicate()

    def run(
        self,
        *words: str,
        cwd: Path,
        calls: Literal["read", "write"],
        error: int,
        at: int = _NEVER,
        once: bool = False,
    ) -> tuple[Outcome, int]:
        """Run a command whose calls on files below `cwd` fail, from call number `at` on, or only that one.

        Returns
        -------
        tuple of Outcome and int
            The outcome of the command, and the number of such calls.
        """
        with tempfile.TemporaryDirectory() as directory:
            streams = [str(Path(directory, name)) for name in ("out", "err")]
            request = {"words": words, "cwd": str(cwd), "streams": streams, "writes": calls == "write"}
            request |= {"error": error, "at": at, "once": once}
            stdin, stdout = present(self._server.stdin), present(self._server.stdout)
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            answer = json.loads(stdout.readline())
            return Outcome(answer["code"], *(Path(stream).read_text() for stream in streams)), answer["count"]


def _compiled(directory: Path) -> Path:
    if (compiler := shutil.which("gcc") or shutil.which("cc")) is None:
        pytest.fail("no C compiler: tests of injected I/O errors need gcc or cc, install one to run them")
    source, library = Path(__file__).with_name("shim.c"), directory / "shim.so"
    words = [compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(words, check=True)
    return library


def _serve() -> None:
    for name in PRELOADED:
        __import__(name)
    shim = ctypes.CDLL(None)
    shim.shim_count.restype = ctypes.c_ulonglong
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        at = ctypes.c_ulonglong(request["at"])
        shim.shim_arm(request["cwd"].encode(), request["writes"], at, request["error"], request["once"])
        child = os.fork()
        if child == 0:
            command(request["words"], Path(request["cwd"]), [Path(stream) for stream in request["streams"]])
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(json.dumps({"code": code, "count": shim.shim_count()}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
