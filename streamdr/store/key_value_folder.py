"""Key-value folders: files by name, each replaced atomically. The ledger is kept in one."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from streamdr.core.files import create_file, open_regular
from streamdr.store.process_identity import Process

_PARTIAL = "partial"


class Item(NamedTuple):
    """The name and the size of a file."""

    name: str
    size: int


class KeyValueFolder(Protocol):
    """Files by name. Every failure is an OSError.

    The folder may contain other files. They are listed too, so the caller has to recognise its own.
    """

    @property
    def name(self) -> str:
        """The name for error messages."""

    def open(self, name: str) -> AbstractContextManager[BinaryIO | None]:
        """Open a file for reading, with random access. The result is None if it does not exist."""

    def beginning(self, name: str, length: int) -> bytes:
        """Return the first `length` bytes of a file."""

    def write(self, name: str, fill: Callable[[BinaryIO], None]) -> None:
        """Replace a file, in one step, by what `fill` writes."""

    def delete(self, name: str) -> None:
        """Remove a file, if it exists."""

    def items(self) -> list[Item]:
        """Return the files, sorted by when they were last written or touched, oldest first."""

    def touch(self, name: str) -> None:
        """Record that a file was used."""


class LocalKeyValueFolder:
    """A directory, which is created with the first file."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def name(self) -> str:
        """The path."""
        return str(self.root)

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO | None]:
        """Open a regular file for reading. The result is None if it does not exist."""
        if os.path.lexists(self.root) and not self.root.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "is not a directory", str(self.root))
        try:
            file = open_regular(self.root / name)
        except FileNotFoundError:
            yield None
            return
        with file:
            yield file

    def beginning(self, name: str, length: int) -> bytes:
        """Return the first `length` bytes of a file."""
        with open_regular(self.root / name, buffering=0) as file:
            return file.read(length)

    def write(self, name: str, fill: Callable[[BinaryIO], None]) -> None:
        """Write a temporary file beside it, make it durable, and rename it."""
        self.root.mkdir(parents=True, exist_ok=True)
        self._sweep()
        writer = Process.here()
        unique = f"{name}-{secrets.token_hex(4)}"  # several threads of a process may write
        partial = self.root / f".{unique}.{writer.host}.{writer.pid}-{writer.started}.{_PARTIAL}"
        try:
            with create_file(partial) as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, self.root / name)
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)

    def delete(self, name: str) -> None:
        """Remove a file, if it exists."""
        (self.root / name).unlink(missing_ok=True)

    def items(self) -> list[Item]:
        """Return the regular files, oldest first. Links are not listed."""
        found = []
        with suppress(FileNotFoundError), os.scandir(self.root) as entries:
            for entry in entries:
                if not entry.name.startswith(".") and entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):  # another run has removed it
                        status = entry.stat(follow_symlinks=False)
                        found.append((status.st_mtime_ns, Item(entry.name, status.st_size)))
        return [item for _, item in sorted(found)]

    def touch(self, name: str) -> None:
        """Set the modification time of the file to now."""
        with suppress(OSError):  # a file of another user, or a read-only file system
            os.utime(self.root / name)

    def _sweep(self) -> None:
        """Remove the unfinished files of processes that were killed on this machine."""
        here = Process.here()
        pattern = re.compile(rf"\..+\.{re.escape(here.host)}\.(\d{{1,9}})-(\d{{1,18}})\.{_PARTIAL}")
        for path in self.root.iterdir():
            if match := pattern.fullmatch(path.name):
                with suppress(OSError):
                    writer = replace(here, pid=int(match[1]), started=int(match[2]))
                    if stat.S_ISREG(path.lstat().st_mode) and not writer.is_running:
                        path.unlink()
