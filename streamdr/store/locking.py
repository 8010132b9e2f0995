"""Locks on directories. The kernel releases them when their process ends, and they leave no file behind."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamdr.errors import BusyError

PATIENCE_SECONDS = 60.0
"""Directories are locked briefly. A process that holds a lock for longer was stopped, perhaps for good."""

_POLL_SECONDS = 0.005

Identity = tuple[int, int]


def identity(path: Path) -> Identity | None:
    """Return the device and inode of a path, or None if it does not exist."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def try_lock(directory: Path) -> int:
    """Return an open descriptor that locks the directory. Raise BlockingIOError if another process has it.

    Anything that is not a directory, including a link to one, is an OSError. This function does not wait.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:
        pass  # a file system without locks on directories: there is no protection against concurrent runs
    return descriptor


@contextmanager
def locked(directory: Path, *, patience: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Lock a directory inside the context. It is created if necessary."""
    descriptor = _lock(directory, time.monotonic() + patience)
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(directory: Path, deadline: float) -> int:
    while True:
        try:
            descriptor = try_lock(directory)
        except FileNotFoundError:
            directory.mkdir(parents=True, exist_ok=True)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise BusyError(
                    f"{directory}: has long been locked by another process, which was perhaps stopped in the "
                    "middle of its work; end that process (`lslocks` lists it) and run again"
                ) from None
            time.sleep(_POLL_SECONDS)
        else:
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) == identity(directory):
                return descriptor
            os.close(descriptor)  # it was removed, and perhaps created again, since it was opened
