"""Processes that start with signals ignored, like background jobs of a shell or of nohup."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

IN_THE_BACKGROUND = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
"""The signals that background jobs of `nohup` or of a shell script ignore."""


@contextmanager
def ignoring(*numbers: signal.Signals, action: signal.Handlers = signal.SIG_IGN) -> Iterator[None]:
    """Ignore signals in this context, so that processes started in it begin with them ignored."""
    before = {number: signal.signal(number, action) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def starting(*, ignored: tuple[signal.Signals, ...] = ()) -> Iterator[None]:
    """Let processes begin with these signals ignored and no others, however the tests were started."""
    others = (number for number in IN_THE_BACKGROUND if number not in ignored)
    with ignoring(*others, action=signal.SIG_DFL), ignoring(*ignored):
        yield
