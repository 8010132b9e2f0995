"""What a process ignores, its children ignore too: a shell's background job, or one that nohup started."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

IN_THE_BACKGROUND = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
"""What jobs ignore that `nohup` or a shell script put into the background."""


@contextmanager
def ignoring(*numbers: signal.Signals, action: signal.Handlers = signal.SIG_IGN) -> Iterator[None]:
    """Let a process that is started in this block begin with signals ignored."""
    before = {number: signal.signal(number, action) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def starting(*, ignored: tuple[signal.Signals, ...] = ()) -> Iterator[None]:
    """Let a process begin with these signals ignored, and no others, wherever the tests were started."""
    others = (number for number in IN_THE_BACKGROUND if number not in ignored)
    with ignoring(*others, action=signal.SIG_DFL), ignoring(*ignored):
        yield
