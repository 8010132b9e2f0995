"""The supervisor and its worker process, which can be stopped at any time: for commands and for flows.

Python runs a signal handler between two of its own instructions, and an eigendecomposition in LAPACK is one
instruction, which may take many minutes. So the work is done in a worker process. The process that was
started, its supervisor, only waits for messages, so it can always act on a signal: it asks the worker to
stop, and kills it if it has not stopped by the end of a grace period.

Two pipes connect them, with one JSON object per line: configurations, progress and reports, never data.
Requests go to the worker; closing that pipe asks it to stop. Messages come back: progress (`start`,
`advance`, `finish`, `message`, each with its arguments), and the outcome, a `report` or an `error`.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from queue import SimpleQueue
from types import FrameType
from typing import Any, NoReturn

from streamdr.core.progress import PassStart, Progress, Silent
from streamdr.core.safe_text import lines
from streamdr.errors import Interrupted, StreamdrError

GRACE_SECONDS = 8.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ONE_REQUEST_SECONDS = 0.5
"""Signals closer than this are one request: `timeout`, for example, signals a process and then its group."""
_END_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1

Handler = Callable[[int, FrameType | None], object]
Report = dict[str, Any]


class StageError(StreamdrError):
    """Work that failed, with the message of the worker process."""

    def __init__(self, kind: str, message: str, *, exit_code: int, can_pass: bool) -> None:
        super().__init__(message)
        self._message = message
        self.kind = kind
        """The name of the class of the error."""
        self.exit_code = exit_code
        """The exit code of a command."""
        self.can_pass = can_pass
        """Whether a retry a little later may succeed."""

    def __str__(self) -> str:
        return lines(self._message)  # the worker made each line safe to be shown


class WorkerLost(StageError):  # noqa: N818  (reports call it `Lost`)
    """Work without an outcome: a signal stopped it, or its process was killed."""

    def __init__(self, how: str, shell_code: int) -> None:
        resume = f"{how}; finished work is kept, run again to resume"
        super().__init__("Lost", resume, exit_code=1, can_pass=True)
        self.how = how
        self.shell_code = shell_code
        """The exit code by the convention of shells: 128 + the signal."""


class Channel:
    """The connection on the side of the worker: requests in, progress and outcome out, and the stop event."""

    def __init__(self, requests: int, messages: int) -> None:
        self.stop = threading.Event()
        self._messages = messages
        self._writing = threading.Lock()
        self._requests: SimpleQueue[Report | None] = SimpleQueue()
        threading.Thread(target=self._listen, args=(requests,), name="streamdr-requests", daemon=True).start()

    def _listen(self, requests: int) -> None:
        with (
            os.fdopen(requests, encoding="utf-8") as received,
            suppress(ValueError),
        ):  # a stop may truncate a line
            for line in received:
                self._requests.put(json.loads(line))
        self.stop.set()
        self._requests.put(None)

    def requests(self) -> Iterator[Report]:
        """Return the requests, until this process has to stop."""
        return iter(self._requests.get, None)

    def check(self) -> None:
        """Raise `Interrupted` if the work has to stop."""
        if self.stop.is_set():
            raise Interrupted("stopped before the end")

    def send(self, kind: str, content: object) -> None:
        """Send a message to the supervisor."""
        line = json.dumps({kind: content})
        with self._writing, suppress(OSError):  # the supervisor has ended
            _write(self._messages, line)

    def start(self, begun: PassStart) -> None:
        """Report the start of a pass."""
        self.send("start", begun)

    def advance(self, rows: int) -> None:
        """Report that `rows` more rows are done, and raise `Interrupted` if the work has to stop."""
        self.send("advance", [rows])
        self.check()

    def finish(self) -> None:
        """Report the end of the pass."""
        self.send("finish", [])

    def message(self, text: str) -> None:
        """Send a line for people."""
        self.send("message", [text])


Work = Callable[[Channel], object]
"""The work of a worker process. It sends its outcome itself."""


class Worker:
    """A worker process, on the side of its supervisor.

    A function is run in a fork, which is fast, but needs a process without threads. The name of a module is
    run in a new interpreter; the module calls `serve` with its argument, the supervisor's pid.
    """

    def __init__(self, work: Work | str) -> None:
        worker_in, requests = os.pipe2(os.O_CLOEXEC)
        messages, worker_out = os.pipe2(os.O_CLOEXEC)
        supervisor = os.getpid()
        # Ctrl-C may come before the worker has set its handlers: signals are blocked until then.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        if isinstance(work, str):
            words = [sys.executable, "-P", "-m", work, str(supervisor)]
            streams = [(os.POSIX_SPAWN_DUP2, worker_in, 0), (os.POSIX_SPAWN_DUP2, worker_out, 1)]
            self.pid = os.posix_spawn(words[0], words, os.environ, file_actions=streams)
        else:
            self.pid = os.fork()
            if self.pid == 0:
                for other_end in (requests, messages):  # else the worker never sees the end of the pipe
                    os.close(other_end)
                serve(work, supervisor, worker_in, worker_out)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(worker_in)
        os.close(worker_out)
        self._requests: int | None = requests
        self._messages = messages
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._in_pass = False
        self.exit_code: int | None = None
        """The exit code, negative for a signal; None while it runs."""

    def send(self, request: Mapping[str, Any]) -> None:
        """Send a request to the worker."""
        assert self._requests is not None
        with suppress(BrokenPipeError):  # it has ended, which `read` reports
            _write(self._requests, json.dumps(request))

    def read(self, progress: Progress, seconds: float = math.inf, woken: int | None = None) -> Report | None:
        """Forward progress until the report comes, and return it, or raise the StageError that comes instead.

        Return None after `seconds`, or when the descriptor `woken` can be read.
        """
        deadline = time.monotonic() + seconds
        waiting = select.poll()
        for descriptor in (self._messages,) if woken is None else (self._messages, woken):
            waiting.register(descriptor, select.POLLIN)
        while True:
            while self._lines:
                report: Report | None = self._handle(json.loads(self._lines.popleft()), progress)
                if report is not None:
                    return report
            left = max(0.0, deadline - time.monotonic())
            ready = [each for each, _ in waiting.poll(None if math.isinf(left) else 1000 * left)]
            if woken in ready or not ready:
                return None
            if not (data := os.read(self._messages, 1 << 16)):
                raise self._lost(progress)
            *complete, self._rest = (self._rest + data).split(b"\n")
            self._lines.extend(complete)

    def _handle(self, message: Mapping[str, Any], progress: Progress) -> Any:
        ((kind, content),) = message.items()
        if kind == "report":
            return content
        if kind == "error":
            raise StageError(**content)
        self._in_pass = kind == "start" or (self._in_pass and kind != "finish")
        with suppress(OSError):  # the work continues without a reader
            getattr(progress, kind)(*([PassStart(*content)] if kind == "start" else content))
        return None

    def request_stop(self) -> None:
        """Ask the worker to stop, after a checkpoint if it is in a pass."""
        if self._requests is not None:
            os.close(self._requests)
            self._requests = None

    def stop(self) -> None:
        """Ask the worker to stop, and kill it if it has not stopped within the grace period."""
        self.request_stop()
        try:
            with suppress(
                StageError
            ):  # reading on keeps the pipe from filling up, which would block the worker
                self.read(Silent(), GRACE_SECONDS)
        finally:
            self.close()

    def close(self, seconds: float = _END_SECONDS) -> int:
        """Wait for the end of the worker, kill it after `seconds`, and return its exit code."""
        self.request_stop()
        if self.exit_code is None:
            self.exit_code = self._wait(seconds)
            if self.exit_code is None:
                os.kill(self.pid, signal.SIGKILL)
                # A process that waits for a dead disk cannot be killed, so the wait is bounded.
                self.exit_code = self._wait(_END_SECONDS) or -signal.SIGKILL
            os.close(self._messages)
        return self.exit_code

    def _wait(self, seconds: float) -> int | None:
        """Return the exit code, or None if the worker runs longer than `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # the system discards the exit codes of children
                return 0
            if ended:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.002)

    def kill(self, progress: Progress, how: str, shell_code: int) -> WorkerLost:
        """End the worker at once, if it has not ended yet, and return the error that reports it."""
        self.close(0.0)
        if self._in_pass:
            with suppress(OSError):
                progress.finish()  # a bar releases the terminal
        return WorkerLost(f"the work {how}", shell_code)

    def _lost(self, progress: Progress) -> WorkerLost:
        """Return the error for a worker that ended without an outcome."""
        code = self.close()
        if code >= 0:
            return self.kill(progress, f"ended with exit code {code}", code or 1)
        hint = ", perhaps because memory ran out" if code == -signal.SIGKILL else ""
        return self.kill(progress, f"was killed by signal {-code}{hint}", 128 - code)


def serve(work: Work, supervisor: int, requests: int, messages: int) -> NoReturn:
    """Run as a worker process: do the work, stop when the supervisor asks for it, and end with it."""
    signal.set_wakeup_fd(-1)
    # A terminal or `timeout` signals all processes of a group, but the worker obeys its supervisor only. Its
    # own children inherit ignored signals, but not handlers. So they survive Ctrl-C, because the work may
    # still need them, and SIGTERM ends them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    # When the supervisor is killed, Linux kills this process too.
    if (prctl := getattr(ctypes.CDLL(None), "prctl", None)) is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)
    os.dup2(2, 1)  # only the supervisor writes to standard output: prints of libraries go to standard error
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    code = 1
    try:
        work(Channel(requests, messages))
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # There is nothing to clean up, and finalising the interpreter takes time.
        os._exit(code)


def supervise(work: Work, progress: Progress, *, grace_seconds: float = GRACE_SECONDS) -> Report:
    """Do work in a worker process, which signals to this process can stop, and return its report.

    `work` is called in the worker, and sends its outcome. A second signal, or the end of the grace period,
    kills the worker. Raises WorkerLost when work was stopped or killed, another StageError when it failed.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, the exit code of the worker is lost
    woken, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    set_stop_handlers(_ignore_signal, interrupt=_ignore_signal)
    worker = Worker(work)
    try:
        return _read_report(worker, progress, woken, grace_seconds)
    finally:
        worker.close()
        signal.set_wakeup_fd(-1)
        set_stop_handlers(_exit_later, interrupt=_exit_later)


def _read_report(worker: Worker, progress: Progress, woken: int, grace_seconds: float) -> Report:
    """Return the report of the worker, stopping it on signals."""
    asked, asked_at = 0, math.inf
    while True:
        try:
            report = worker.read(progress, asked_at + grace_seconds - time.monotonic(), woken)
        except StageError as error:
            if isinstance(error, WorkerLost) or not asked:
                raise
            # An error after a stop is caused by the stop: other processes may have been signalled too.
            raise WorkerLost("stopped", 128 + asked) from error
        if report is not None:
            return report
        received = _received(woken)
        waited = time.monotonic() - asked_at
        if received and not asked:
            asked, asked_at = received, time.monotonic()
            worker.request_stop()
            with suppress(OSError):
                progress.message("stopping; a second signal stops at once")
        elif received and waited >= _ONE_REQUEST_SECONDS:
            raise worker.kill(progress, "received a second signal and was stopped at once", 128 + asked)
        elif waited >= grace_seconds:
            raise worker.kill(progress, f"did not stop within {grace_seconds:g} seconds", 128 + asked)


def set_stop_handlers(handler: Handler, *, interrupt: Handler = signal.default_int_handler) -> None:
    """Handle SIGTERM and SIGHUP by `handler` and SIGINT by `interrupt`, whatever was inherited.

    Children inherit ignored and blocked signals, for example from a shell that starts them in the background.
    Only an ignored SIGHUP stays ignored, because `nohup` sets it.
    """
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    """Do nothing: the number of the signal was written to the descriptor that wakes the supervisor."""


def _exit_later(number: int, frame: FrameType | None) -> None:
    """Exit after a grace period, in which the outcome can be printed, in case printing blocks."""
    signal.signal(signal.SIGALRM, lambda alarm, frame: os._exit(128 + number))
    if not signal.getitimer(signal.ITIMER_REAL)[0]:
        signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)


def _received(woken: int) -> int:
    """Return the lowest number of the stop signals that were received, or 0."""
    try:
        return min(set(os.read(woken, 1024)) & set(STOP_SIGNALS), default=0)
    except BlockingIOError:
        return 0


def _write(descriptor: int, line: str) -> None:
    data = memoryview(f"{line}\n".encode())
    while data:
        data = data[os.write(descriptor, data) :]
