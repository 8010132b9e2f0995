"""Stopping when told to: within seconds, after a checkpoint where that can be had, whatever is under way.

Python runs a signal's handler between two of its own instructions, and to Python an eigendecomposition in
LAPACK is one instruction, which may take many minutes. So the work is done in a child process. The
process that was started does nothing but wait, and can therefore always act: it passes a signal on, and
when the child has not stopped by the end of a grace period, ends it.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from streamdr.errors import Interrupted

if TYPE_CHECKING:
    from streamdr.progress import Progress

GRACE_SECONDS = 8.0
_ONE_REQUEST_SECONDS = 0.5
"""Signals closer than this are one request: `timeout`, for one, signals a process and then its group."""

# Ctrl-C reaches every process of a terminal's foreground at once, `timeout` signals a whole group. The
# child disregards both, and learns from its parent, once and by signals that nobody else sends.
_PASSED_ON_AS = {signal.SIGINT: signal.SIGUSR1, signal.SIGTERM: signal.SIGUSR2}
_LONG_SECONDS = 3600.0
_PR_SET_PDEATHSIG = 1

Lost = Callable[[str, int], None]
"""Told why work ended without a word of its own, and with which exit code."""


class Stop(threading.Event):
    """Set when the work is to stop. `exit_code` is then what the shell expects: 128 + the signal."""

    exit_code = 0
    concluded: Callable[[], object] = staticmethod(lambda: None)
    """To be called when nothing is left but to say how the work ended: that is not to be cut short."""

    def request(self, number: int) -> None:
        """Ask for a stop, as a signal does. Of several signals the first gives the exit code."""
        self.exit_code = self.exit_code or 128 + number
        self.set()

    def check(self) -> None:
        """Raise `Interrupted` if the work is to stop."""
        if self.is_set():
            raise Interrupted("stopped before the work began")


class Stoppable:
    """Progress at whose next step work stops: for work that reports how far it is, but knows no signals."""

    def __init__(self, shown: Progress, stop: threading.Event) -> None:
        self._stop = stop
        self.start = shown.start
        self.finish = shown.finish
        self.message = shown.message
        self._advance = shown.advance

    def advance(self, rows: int) -> None:
        """So many more rows are done; these may be the last."""
        self._advance(rows)
        if self._stop.is_set():
            raise Interrupted("stopped before the end")


def supervise(
    work: Callable[[Stop], int],
    *,
    told: Callable[[], None],
    lost: Lost,
    grace_seconds: float = GRACE_SECONDS,
) -> int:
    """Do work in a child process, wait for it, and return its exit code.

    `told` is called when a first signal has been passed on, `lost` when the child had to be killed or was
    killed by somebody else. A process that was started with SIGINT ignored goes on ignoring it, as jobs in
    the background of a shell do; SIGTERM always stops it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    watched = {*stop_signals(), signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*watched, *_PASSED_ON_AS.values()})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a parent that ignores it would never learn of the end
    parent = os.getpid()
    heard, said = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    child = os.fork()
    if child == 0:
        stop = listen(parent)
        stop.concluded = partial(os.write, said, b".")
        signal.pthread_sigmask(signal.SIG_SETMASK, {*before, *_PASSED_ON_AS.values()})
        try:
            code = work(stop)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            # All is said. On its way out the interpreter would restore what kills it.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # Nothing is left to be tidied up, and the interpreter would take its time to do so: on a busy machine
        # so much that this process were taken for one that does not stop.
        os._exit(code)
    return _wait(child, watched, told, lost, grace_seconds, lambda: _has_spoken(heard))


def stop_signals() -> set[signal.Signals]:
    """The signals that stop this process: SIGTERM, and SIGINT unless it was started with SIGINT ignored.

    Linux delivers an ignored signal to whoever blocks it and waits for it: it must not be waited for.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return {signal.SIGTERM} if ignored else {signal.SIGTERM, signal.SIGINT}


def on_sigterm(handler: Callable[[int, FrameType | None], object]) -> None:
    """Call `handler` on SIGTERM, even where this process was started with SIGTERM ignored or blocked."""
    signal.signal(signal.SIGTERM, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


@contextmanager
def holding() -> Iterator[None]:
    """Let a process that is started in this block keep what is passed on to it until it listens."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON_AS.values())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def listen(parent: int) -> Stop:
    """Be a process that does the work: one that stops when its parent passes a signal on, and dies with it.

    It must have been started `holding` what is passed on: a library that is imported may start threads.
    """
    stop = Stop()
    # Processes that the work starts inherit what is ignored, but not what is handled: they are to survive
    # Ctrl-C, for the work may need them once more, and must be free to end by SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    # A thread, since a handler that sets an event can meet the very lock that it interrupted.
    threading.Thread(target=_relay, args=(stop,), name="streamdr-signals", daemon=True).start()
    # Who kills the process that was started means the work: Linux then kills this one, too.
    if (prctl := getattr(ctypes.CDLL(None), "prctl", None)) is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    return stop


def pass_on(child: int, number: signal.Signals) -> None:
    """Tell the process that does the work of a signal."""
    os.kill(child, _PASSED_ON_AS[number])


def _relay(stop: Stop) -> None:
    meant = {sent: number for number, sent in _PASSED_ON_AS.items()}
    while True:
        stop.request(meant[signal.Signals(signal.sigwait(meant))])


def _has_spoken(heard: int) -> bool:
    """Whether the child has said, since it was last asked, that it is about to end."""
    try:
        return bool(os.read(heard, 1))
    except BlockingIOError:
        return False


def _wait(
    child: int,
    watched: set[signal.Signals],
    told: Callable[[], None],
    lost: Lost,
    grace_seconds: float,
    concluded: Callable[[], bool],
) -> int:
    asked, asked_at = 0, math.inf
    while True:
        left = asked_at + grace_seconds - time.monotonic()
        received = signal.sigtimedwait(watched, min(max(left, 0.0), _LONG_SECONDS))
        number = 0 if received is None else received.si_signo
        if number == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return _exit_code(os.waitstatus_to_exitcode(status), lost)
        elif number and not asked:
            asked, asked_at = number, time.monotonic()
            pass_on(child, signal.Signals(number))
            told()
        elif asked:
            waited = time.monotonic() - asked_at
            again = bool(number) and waited >= _ONE_REQUEST_SECONDS
            if not again and waited < grace_seconds:
                continue
            if concluded():  # and tells how it ended: this process would say it once more, and otherwise
                asked_at, grace_seconds = time.monotonic(), GRACE_SECONDS
                continue
            why = "was told to stop at once" if again else f"did not stop within {grace_seconds:g} seconds"
            return _kill(child, asked, why, lost)


def _kill(child: int, number: int, why: str, lost: Lost) -> int:
    os.kill(child, signal.SIGKILL)
    # A process that waits for a dead disk cannot even be killed: do not wait for ever.
    signal.sigtimedwait({signal.SIGCHLD}, 1.0)
    lost(why, 128 + number)
    return 128 + number


def _exit_code(code: int, lost: Lost) -> int:
    if code >= 0:
        return code
    hint = ", perhaps for want of memory" if code == -signal.SIGKILL else ""
    lost(f"was killed by signal {-code}{hint}", 128 - code)
    return 128 - code
