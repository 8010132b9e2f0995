"""The identity of a process, by which another process can find out whether it still runs."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_ENDED = frozenset("ZXx")
"""The states of a process that has ended, but that its parent has not yet waited for."""
_STOPPED = frozenset("Tt")


@dataclass(frozen=True)
class Process:
    """A process, distinguished from others with the same number at other times or on other machines."""

    host: str
    realm: str
    """Where `pid` is unique: one boot of one machine, and one PID namespace."""
    pid: int
    started: int
    """The start time, in clock ticks of the kernel since it booted."""

    @classmethod
    def here(cls) -> Process:
        """Return the identity of this process."""
        status = _status(os.getpid())
        return cls(socket.gethostname(), _realm(), os.getpid(), 0 if status is None else status[1])

    @property
    def is_near(self) -> bool:
        """Whether it runs, or ran, in the realm of this process. Then its state is visible from here."""
        return bool(_realm()) and self.realm == _realm()

    @property
    def is_running(self) -> bool:
        """Whether a process in the same realm has not ended. A stopped process has not ended."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # it belongs to another user
        status = _status(self.pid)
        if status is None:
            return True  # it exists, but the system may hide the rest
        state, started = status
        return state not in _ENDED and started == self.started

    @property
    def is_stopped(self) -> bool:
        """Whether a process in the same realm is stopped by a signal."""
        status = _status(self.pid)
        return status is not None and status[0] in _STOPPED

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _status(pid: int) -> tuple[str, int] | None:
    """Return the state and the start time of a process, or None if the system does not show them."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the name of the program, in parentheses. It may contain any characters.
    fields = line.rpartition(")")[2].split()
    return fields[0], int(fields[19])


@cache
def _realm() -> str:
    """Return the realm of this process. It is empty on systems without /proc."""
    try:
        # Containers on one machine share its boot, but each may have its own PID namespace.
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
