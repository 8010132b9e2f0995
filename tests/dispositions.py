"""What a process ignores, its children ignore too: a shell's background job, or one that nohup started."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

IN_THE_BACKGROUND = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
"""What jobs ignore that `nohup` or a shell script put into the background."""


@contextmanager
def ignoring(*numbers: signal.Signals) -> Iterator[None]:
    """Let a process that is started in this block begin with signals ignored."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
