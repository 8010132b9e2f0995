"""Who a process is, so that another one can tell whether it still runs."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_ENDED = frozenset("ZXx")
"""States of a process that has ended, and that its parent has not yet asked about."""
_STOPPED = frozenset("Tt")


@dataclass(frozen=True)
class Process:
    """A process, told apart from all others that have its number, before or after it or elsewhere."""

    host: str
    realm: str
    """Where `pid` means something: one boot of one machine, and there one namespace of processes."""
    pid: int
    started: int
    """In the kernel's own ticks since it booted."""

    @classmethod
    def here(cls) -> Process:
        """This process."""
        status = _status(os.getpid())
        return cls(socket.gethostname(), _realm(), os.getpid(), 0 if status is None else status[1])

    @property
    def is_near(self) -> bool:
        """Whether it runs, or ran, where this process can tell, and by the same clock."""
        return bool(_realm()) and self.realm == _realm()

    @property
    def is_running(self) -> bool:
        """Whether a process that is near has not ended. One that was stopped has not."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # it is somebody else's
        status = _status(self.pid)
        if status is None:
            return True  # it was found, but systems may hide the rest
        state, started = status
        return state not in _ENDED and started == self.started

    @property
    def is_stopped(self) -> bool:
        """Whether a process that is near was told to pause, and does nothing until it is told to go on."""
        status = _status(self.pid)
        return status is not None and status[0] in _STOPPED

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _status(pid: int) -> tuple[str, int] | None:
    """The state of a process and when it was started, or None where the system does not say."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name of the program comes second, in parentheses, and may hold anything.
    fields = line.rpartition(")")[2].split()
    return fields[0], int(fields[19])


@cache
def _realm() -> str:
    """Empty where there is no telling, as on systems without /proc."""
    try:
        # Containers of one machine share its boot, but each may count processes from one.
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
