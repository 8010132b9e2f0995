"""Stages in a process of their own, for programs that have other things to attend to.

A scheduler must answer its server and act on signals, and cannot while LAPACK holds the interpreter for
minutes. So the work is done in a child process, one for any number of stages, since starting Python takes
longer than some of them. Orders go in and news comes out, a line of JSON each: configurations, progress,
reports, never data. The child stops after a checkpoint when it is told to, and dies with its parent.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import IO, Any, Literal, Self

from streamdr import addresses, console, pipeline, signals, summary, verification
from streamdr.config import read, read_comparison
from streamdr.errors import BusyError, DataError, EngineError, StreamdrError
from streamdr.progress import Progress, Unit
from streamdr.reports import Report
from streamdr.safe_text import lines
from streamdr.stage import Stage

Act = Literal["plan", "status", "fit", "transform", "reprocess", "compare", "verify", "summarise"]
"""What can be ordered."""

_LASTING = {
    *(errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.EISDIR),
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENAMETOOLONG, errno.EINVAL),
}
"""Errors of the system that somebody has to mend. All others may be gone in a minute."""


@dataclass(frozen=True)
class Order:
    """What is to be done."""

    act: Act
    configurations: Sequence[Report]
    """One, as plain data, or several where the act is to reprocess."""
    fresh: bool = False
    reports: Mapping[str, Report] = field(default_factory=dict)
    """What the stages before it said, for a summary."""
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What opens remote stores, beyond what the environment says. It goes through a pipe, and is not kept."""


class StageError(StreamdrError):
    """A stage that failed, in the words of the process that it failed in."""

    def __init__(self, kind: str, message: str, *, exit_code: int, can_pass: bool) -> None:
        super().__init__(message)
        self._message = message
        self.kind = kind
        """The name of the error's class."""
        self.exit_code = exit_code
        """What a command would have ended with."""
        self.can_pass = can_pass
        """Whether the same might succeed when it is tried again a little later."""

    def __str__(self) -> str:
        return lines(self._message)  # each was made safe to be shown where it came from


class Workshop:
    """The process that carries out orders, from the side of those who give them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._running()  # so that it is ready when the first order comes
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._running().pid

    def carry_out(self, order: Order, progress: Progress) -> Report:
        """Have an order carried out, and return the report of it or raise a StageError.

        Whatever interrupts the waiting, a signal's handler for one, stops the work as well, after a
        checkpoint if that can be had within seconds.
        """
        process = self._running()
        orders, news = _pipes(process)
        try:
            with suppress(OSError):  # it is gone, as the news will say
                orders.write(json.dumps(asdict(order)) + "\n")
                orders.flush()
            for line in news:
                said = json.loads(line)
                if "report" in said:
                    report: Report = said["report"]
                    return report
                if "error" in said:
                    raise StageError(**said["error"])
                ((verb, arguments),) = said.items()
                getattr(progress, verb)(*arguments)
        except StageError:
            raise
        except BaseException:
            self.stop()
            raise
        raise self._lost()

    def stop(self) -> None:
        """Tell the work to stop, and end it when it has not within the grace period."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            _close(process)  # so that it cannot wait for somebody to read its news
            with suppress(ProcessLookupError):
                signals.pass_on(process.pid, signal.SIGTERM)
            process.wait(signals.GRACE_SECONDS)
        except BaseException as error:
            process.kill()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
        finally:
            process.wait(1.0)

    def close(self) -> None:
        """Let the process go, which has nothing to do."""
        if self._process is not None:
            process, self._process = self._process, None
            _close(process)
            process.wait()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            with signals.holding():
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "streamdr.workshop", str(os.getpid())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    encoding="utf-8",
                )
        return self._process

    def _lost(self) -> StageError:
        process, self._process = self._process, None
        assert process is not None
        code = process.wait()
        _close(process)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        hint = ", perhaps for want of memory" if code == -signal.SIGKILL else ""
        message = f"the process that did the work {how}{hint}; what was done is kept, run again to resume"
        return StageError("Lost", message, exit_code=1, can_pass=True)


class _News:
    """Progress, and the outcome, told to whoever gave the order."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def tell(self, verb: str, what: Any) -> None:
        with suppress(OSError):  # nobody listens any more
            self._stream.write(json.dumps({verb: what}) + "\n")
            self._stream.flush()

    def start(
        self,
        label: str,
        total_rows: int,
        done_rows: int = 0,
        bytes_per_row: float = 0.0,
        unit: Unit = "rows",
    ) -> None:
        self.tell("start", [label, total_rows, done_rows, bytes_per_row, unit])

    def advance(self, rows: int) -> None:
        self.tell("advance", [rows])

    def finish(self) -> None:
        self.tell("finish", [])

    def message(self, text: str) -> None:
        self.tell("message", [text])


def main() -> None:
    """Carry out orders from standard input until there are no more, or until told to stop."""
    stop = signals.listen(parent=int(sys.argv[1]))
    # Whatever a library prints must not get among the news.
    news = _News(os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8"))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    console.quieten()
    for line in sys.stdin:
        order = Order(**json.loads(line))
        try:
            with addresses.storage_options(order.storage):
                news.tell("report", _act(order, news, stop))
        except Exception as error:
            news.tell("error", _described(error))
        if stop.is_set():
            break
    # Nothing is left to be tidied up, and the interpreter would take a second to do so.
    os._exit(0)


def _act(order: Order, progress: Progress, stop: signals.Stop) -> Report:
    told = signals.Stoppable(progress, stop)
    if order.act == "compare":
        from streamdr import comparison  # which brings scikit-learn along

        return comparison.compare(read_comparison(order.configurations[0]), told, stop, fresh=order.fresh)
    stages = [Stage(read(given), told, stop, order.fresh) for given in order.configurations]
    acts: dict[Act, Callable[[Stage], Report]] = {
        "plan": pipeline.rehearse,
        "status": pipeline.status,
        "fit": pipeline.fit,
        "transform": pipeline.transform,
        "verify": verification.verify,
        "summarise": lambda stage: summary.summarise(stage, order.reports),
        "reprocess": lambda stage: pipeline.reprocess(stages),
    }
    return acts[order.act](stages[0])


def _described(error: Exception) -> Report:
    return {
        "kind": type(error).__name__,
        "message": console.message_of(error),
        "exit_code": console.exit_code_of(error),
        "can_pass": can_pass(error),
    }


def can_pass(error: BaseException | None) -> bool:
    """Whether an error may be gone when the same is tried again: a disk or a worker that went away."""
    if isinstance(error, BusyError):
        return False
    blamed = isinstance(error, DataError)  # rows that kill whoever reads them will do so again
    while error is not None:
        if isinstance(error, EngineError):
            return not blamed
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError | PermissionError):
            return error.errno not in _LASTING
        error = error.__cause__
    return False


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def _close(process: subprocess.Popen[str]) -> None:
    for pipe in _pipes(process):
        with suppress(OSError):
            pipe.close()


if __name__ == "__main__":
    main()
