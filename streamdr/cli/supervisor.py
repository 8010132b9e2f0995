"""Work in a process of its own, which can be stopped at any time: for commands and for flows.

Python runs a signal's handler between two of its own instructions, and to Python an eigendecomposition in
LAPACK is one instruction, which may take many minutes. So the work is done in a worker process. The process
that was started, its supervisor, only waits for messages, and can therefore always act on a signal: it asks
the worker to stop, and kills it when it has not stopped by the end of a grace period.

Two pipes connect them, with a JSON object a line: configurations, progress and reports, never data. Requests
go to the worker, and the end of that pipe asks it to stop. Messages come back: progress (`start`, `advance`,
`finish`, `message`, each with its arguments), and the outcome, a `report` or an `error`.
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

from streamdr.core.progress import Progress, Silent, Unit
from streamdr.core.safe_text import lines
from streamdr.errors import Interrupted, StreamdrError

GRACE_SECONDS = 8.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ONE_REQUEST_SECONDS = 0.5
"""Signals closer than this are one request: `timeout`, for one, signals a process and then its group."""
_END_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1

Handler = Callable[[int, FrameType | None], object]
Report = dict[str, Any]


class StageError(StreamdrError):
    """Work that failed, in the words of the worker process."""

    def __init__(self, kind: str, message: str, *, exit_code: int, can_pass: bool) -> None:
        super().__init__(message)
        self._message = message
        self.kind = kind
        """The name of the error's class."""
        self.exit_code = exit_code
        """What a command ends with."""
        self.can_pass = can_pass
        """Whether the same might succeed when it is tried again a little later."""

    def __str__(self) -> str:
        return lines(self._message)  # each was made safe to be shown where it came from


class WorkerLost(StageError):  # noqa: N818  (the process is lost, as `Lost` says in reports)
    """Work without an outcome: a signal stopped it, or its process was killed."""

    def __init__(self, how: str, shell_code: int) -> None:
        resume = f"{how}; what was done is kept, run again to resume"
        super().__init__("Lost", resume, exit_code=1, can_pass=True)
        self.how = how
        self.shell_code = shell_code
        """The exit code by which a shell tells of it: 128 + the signal."""


class Channel:
    """The worker's side: its requests, where progress and the outcome go, and whether it is to stop."""

    def __init__(self, requests: int, messages: int) -> None:
        self.stop = threading.Event()
        self._messages = messages
        self._writing = threading.Lock()
        self._requests: SimpleQueue[Report | None] = SimpleQueue()
        threading.Thread(target=self._listen, args=(requests,), name="streamdr-requests", daemon=True).start()

    def _listen(self, requests: int) -> None:
        with os.fdopen(requests, encoding="utf-8") as received, suppress(ValueError):  # cut short by a stop
            for line in received:
                self._requests.put(json.loads(line))
        self.stop.set()
        self._requests.put(None)

    def requests(self) -> Iterator[Report]:
        """What is asked for, until this process is to stop."""
        return iter(self._requests.get, None)

    def check(self) -> None:
        """Raise `Interrupted` if the work is to stop."""
        if self.stop.is_set():
            raise Interrupted("stopped before the end")

    def send(self, kind: str, content: object) -> None:
        """Send a message to the supervisor."""
        line = json.dumps({kind: content})
        with self._writing, suppress(OSError):  # nobody reads any more
            _write(self._messages, line)

    def start(
        self,
        label: str,
        total_rows: int,
        done_rows: int = 0,
        bytes_per_row: float = 0.0,
        unit: Unit = "rows",
    ) -> None:
        """A pass begins."""
        self.send("start", [label, total_rows, done_rows, bytes_per_row, unit])

    def advance(self, rows: int) -> None:
        """So many more rows are done; these are the last when the work is to stop."""
        self.send("advance", [rows])
        self.check()

    def finish(self) -> None:
        """The pass is over."""
        self.send("finish", [])

    def message(self, text: str) -> None:
        """A line for people."""
        self.send("message", [text])


Work = Callable[[Channel], object]
"""What a worker process does: it sends its outcome itself."""


class Worker:
    """A worker process, from the side of its supervisor.

    It is forked to do `work`: at once, but only for a process that has no threads. Or it is a new interpreter
    that runs a module of that name, which calls `serve` with the number of the supervisor, its argument.
    """

    def __init__(self, work: Work | str) -> None:
        theirs_in, requests = os.pipe2(os.O_CLOEXEC)
        messages, theirs_out = os.pipe2(os.O_CLOEXEC)
        supervisor = os.getpid()
        # Ctrl-C may come before it can say that it ignores that: signals wait until then.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        if isinstance(work, str):
            words = [sys.executable, "-P", "-m", work, str(supervisor)]
            streams = [(os.POSIX_SPAWN_DUP2, theirs_in, 0), (os.POSIX_SPAWN_DUP2, theirs_out, 1)]
            self.pid = os.posix_spawn(words[0], words, os.environ, file_actions=streams)
        else:
            self.pid = os.fork()
            if self.pid == 0:
                for other_end in (requests, messages):  # of which it would otherwise never see the end
                    os.close(other_end)
                serve(work, supervisor, theirs_in, theirs_out)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(theirs_in)
        os.close(theirs_out)
        self._requests: int | None = requests
        self._messages = messages
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._in_pass = False
        self.exit_code: int | None = None
        """Negative for a signal; None as long as it runs."""

    def send(self, request: Mapping[str, Any]) -> None:
        """Send it a request."""
        assert self._requests is not None
        with suppress(BrokenPipeError):  # it has ended, as reading will show
            _write(self._requests, json.dumps(request))

    def read(self, progress: Progress, seconds: float = math.inf, woken: int | None = None) -> Report | None:
        """Pass progress on until there is a report, or raise the StageError that the worker sends instead.

        None after `seconds`, or when the descriptor `woken` can be read.
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
        with suppress(OSError):  # the work outlives whoever was reading
            getattr(progress, kind)(*content)
        return None

    def request_stop(self) -> None:
        """Ask it to stop, after a checkpoint if it is at work."""
        if self._requests is not None:
            os.close(self._requests)
            self._requests = None

    def stop(self) -> None:
        """Let it stop, and kill it when it has not within the grace period."""
        self.request_stop()
        try:
            with suppress(StageError):  # it reads on, so that the worker need not wait for somebody who does
                self.read(Silent(), GRACE_SECONDS)
        finally:
            self.close()

    def close(self, seconds: float = _END_SECONDS) -> int:
        """Wait for its end, kill it when it takes longer, and return its exit code."""
        self.request_stop()
        if self.exit_code is None:
            self.exit_code = self._ended_with(seconds)
            if self.exit_code is None:
                os.kill(self.pid, signal.SIGKILL)
                # A process that waits for a dead disk cannot even be killed: do not wait for ever.
                self.exit_code = self._ended_with(_END_SECONDS) or -signal.SIGKILL
            os.close(self._messages)
        return self.exit_code

    def _ended_with(self, seconds: float) -> int | None:
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
        """End it at once, if it has not ended yet, and return what is to be said of that."""
        self.close(0.0)
        if self._in_pass:
            with suppress(OSError):
                progress.finish()  # a bar gives the terminal back
        return WorkerLost(f"the work {how}", shell_code)

    def _lost(self, progress: Progress) -> WorkerLost:
        code = self.close()
        if code >= 0:
            return self.kill(progress, f"ended with exit code {code}", code or 1)
        hint = ", perhaps for want of memory" if code == -signal.SIGKILL else ""
        return self.kill(progress, f"was killed by signal {-code}{hint}", 128 - code)


def serve(work: Work, supervisor: int, requests: int, messages: int) -> NoReturn:
    """Be a worker process: do the work, stop when the supervisor asks for it, and die with it."""
    signal.set_wakeup_fd(-1)
    # A terminal or `timeout` signals all processes of a group, but this one listens to its supervisor alone.
    # Processes that it starts inherit what is ignored, but not what is handled: they are to survive Ctrl-C,
    # for the work may need them once more, and must be free to end by SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    # Who kills the supervisor means the work: Linux then kills this process, too.
    if (prctl := getattr(ctypes.CDLL(None), "prctl", None)) is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)
    os.dup2(2, 1)  # standard output is the supervisor's: what a library prints goes to standard error
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    code = 1
    try:
        work(Channel(requests, messages))
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Nothing is left to be tidied up, and the interpreter would take its time to do so.
        os._exit(code)


def supervise(work: Work, progress: Progress, *, grace_seconds: float = GRACE_SECONDS) -> Report:
    """Do work in a worker process, which signals to this process stop, and return its report.

    `work` is called in the worker, and sends its outcome. A second signal, or the end of the grace period,
    kills the worker. Raises WorkerLost when work was stopped or killed, another StageError when it failed.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who ignores it does not learn how the worker ended
    woken, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    set_stop_handlers(_noted, interrupt=_noted)
    worker = Worker(work)
    try:
        return _attend(worker, progress, woken, grace_seconds)
    finally:
        worker.close()
        signal.set_wakeup_fd(-1)
        set_stop_handlers(_too_late, interrupt=_too_late)


def _attend(worker: Worker, progress: Progress, woken: int, grace_seconds: float) -> Report:
    asked, asked_at = 0, math.inf
    while True:
        try:
            report = worker.read(progress, asked_at + grace_seconds - time.monotonic(), woken)
        except StageError as error:
            if isinstance(error, WorkerLost) or not asked:
                raise
            # Whatever fails now does so because of the stop: others may have been signalled, too.
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
    """Handle SIGTERM and SIGHUP by `handler` and SIGINT by `interrupt`, whatever this process inherited.

    Children inherit signals that are ignored or blocked: from a shell's background, from some CI. Only an
    ignored SIGHUP is left alone, which is what `nohup` is for.
    """
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _noted(number: int, frame: FrameType | None) -> None:
    """Do nothing: the number was written to the descriptor that wakes the supervisor."""


def _too_late(number: int, frame: FrameType | None) -> None:
    """Let the outcome be reported within a grace period: perhaps nobody reads what this process writes."""
    signal.signal(signal.SIGALRM, lambda alarm, frame: os._exit(128 + number))
    if not signal.getitimer(signal.ITIMER_REAL)[0]:
        signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)


def _received(woken: int) -> int:
    """The lowest number of the stop signals that were received, or 0."""
    try:
        return min(set(os.read(woken, 1024)) & set(STOP_SIGNALS), default=0)
    except BlockingIOError:
        return 0


def _write(descriptor: int, line: str) -> None:
    data = memoryview(f"{line}\n".encode())
    while data:
        data = data[os.write(descriptor, data) :]
