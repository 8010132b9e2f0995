"""A few files under one name, each replaced whole or not at all: what the ledger is kept in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from streamdr.processes import Process

_PARTIAL = "partial"


class Item(NamedTuple):
    """A file of a folder."""

    name: str
    size: int


class Folder(Protocol):
    """Files by name. Whatever goes wrong is an OSError."""

    @property
    def name(self) -> str:
        """What errors call it."""

    def open(self, name: str) -> AbstractContextManager[BinaryIO | None]:
        """A file to be read, in any order, or None where there is none."""

    def write(self, name: str, fill: Callable[[BinaryIO], None]) -> None:
        """Replace a file, in one step, by what `fill` writes."""

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""

    def items(self) -> list[Item]:
        """The files, the one that was written or touched longest ago first."""

    def touch(self, name: str) -> None:
        """Note that a file was of use."""


class LocalFolder:
    """A directory, made when the first file is."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def name(self) -> str:
        """The path."""
        return str(self.root)

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO | None]:
        """A file to be read, or None where there is none."""
        try:
            file = (self.root / name).open("rb")
        except FileNotFoundError:
            yield None
            return
        with file:
            yield file

    def write(self, name: str, fill: Callable[[BinaryIO], None]) -> None:
        """Write beside the file, make it durable, and rename."""
        self.root.mkdir(parents=True, exist_ok=True)
        self._sweep()
        writer = Process.here()
        partial = self.root / f".{name}.{writer.host}.{writer.pid}-{writer.started}.{_PARTIAL}"
        try:
            with partial.open("wb") as file:
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
        """The files, oldest first."""
        found = []
        with suppress(FileNotFoundError), os.scandir(self.root) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    status = entry.stat()
                    found.append((status.st_mtime_ns, Item(entry.name, status.st_size)))
        return [item for _, item in sorted(found)]

    def touch(self, name: str) -> None:
        """Set the time of the file to now."""
        with suppress(OSError):  # somebody else's file, or a medium that is not to be written to
            os.utime(self.root / name)

    def _sweep(self) -> None:
        """Remove what processes of this machine were writing when they were killed."""
        here = Process.here()
        for path in self.root.glob(f".*.{here.host}.*.{_PARTIAL}"):
            with suppress(OSError, ValueError):
                pid, started = map(int, path.name.split(".")[-2].split("-"))
                if not replace(here, pid=pid, started=started).is_running:
                    path.unlink()
