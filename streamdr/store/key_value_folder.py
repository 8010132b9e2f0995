"""A few files under one name, each replaced whole or not at all: what the ledger is kept in."""

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
    """A file of a folder."""

    name: str
    size: int


class KeyValueFolder(Protocol):
    """Files by name. Whatever goes wrong is an OSError.

    Other files may lie in the same place. They are listed, and left alone by whoever does not know them.
    """

    @property
    def name(self) -> str:
        """What errors call it."""

    def open(self, name: str) -> AbstractContextManager[BinaryIO | None]:
        """A file to be read, in any order, or None where there is none."""

    def beginning(self, name: str, length: int) -> bytes:
        """The first bytes of a file."""

    def write(self, name: str, fill: Callable[[BinaryIO], None]) -> None:
        """Replace a file, in one step, by what `fill` writes."""

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""

    def items(self) -> list[Item]:
        """The files, the one that was written or touched longest ago first."""

    def touch(self, name: str) -> None:
        """Note that a file was of use."""


class LocalKeyValueFolder:
    """A directory, made when the first file is."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def name(self) -> str:
        """The path."""
        return str(self.root)

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO | None]:
        """A regular file to be read, or None where there is none."""
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
        """The first bytes of a file."""
        with open_regular(self.root / name, buffering=0) as file:
            return file.read(length)

    def write(self, name: str, fill: Callable[[BinaryIO], None]) -> None:
        """Write beside the file, make it durable, and rename."""
        self.root.mkdir(parents=True, exist_ok=True)
        self._sweep()
        writer = Process.here()
        one = f"{name}-{secrets.token_hex(4)}"  # a process may have several threads that write
        partial = self.root / f".{one}.{writer.host}.{writer.pid}-{writer.started}.{_PARTIAL}"
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
        """Remove a file, if it is there."""
        (self.root / name).unlink(missing_ok=True)

    def items(self) -> list[Item]:
        """The regular files, oldest first. Links are none."""
        found = []
        with suppress(FileNotFoundError), os.scandir(self.root) as entries:
            for entry in entries:
                if not entry.name.startswith(".") and entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):  # another run was faster
                        status = entry.stat(follow_symlinks=False)
                        found.append((status.st_mtime_ns, Item(entry.name, status.st_size)))
        return [item for _, item in sorted(found)]

    def touch(self, name: str) -> None:
        """Set the time of the file to now."""
        with suppress(OSError):  # somebody else's file, or a medium that is not to be written to
            os.utime(self.root / name)

    def _sweep(self) -> None:
        """Remove what processes of this machine were writing when they were killed."""
        here = Process.here()
        pattern = re.compile(rf"\..+\.{re.escape(here.host)}\.(\d{{1,9}})-(\d{{1,18}})\.{_PARTIAL}")
        for path in self.root.iterdir():
            if match := pattern.fullmatch(path.name):
                with suppress(OSError):
                    writer = replace(here, pid=int(match[1]), started=int(match[2]))
                    if stat.S_ISREG(path.lstat().st_mode) and not writer.is_running:
                        path.unlink()
