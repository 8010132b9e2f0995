"""Locks on directories: they vanish with whoever held them, and leave no file behind."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamdr.errors import BusyError

PATIENCE_SECONDS = 60.0
"""Directories are locked for a moment. Who holds one for longer was stopped, and may never go on."""

_LOOK_SECONDS = 0.005

Identity = tuple[int, int]


def identity(path: Path) -> Identity | None:
    """What lies at a path, as a file system knows it, or None."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def try_lock(directory: Path) -> int:
    """An open descriptor that holds the directory, or BlockingIOError when another process does.

    What is not a directory, a link to one included, is an OSError: nothing is waited for.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:
        pass  # a file system without locks on directories: nothing is guarded, and runs must not collide
    return descriptor


@contextmanager
def locked(directory: Path, *, patience: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Hold a directory, which is made if need be, while what is looked at in it must not change."""
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
            time.sleep(_LOOK_SECONDS)
        else:
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) == identity(directory):
                return descriptor
            os.close(descriptor)  # it was removed, and perhaps made again, since it was opened
