"""Hidden folders beside a store, in which entries are written before they are moved into it."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from streamdr.core.files import read_regular, write_new
from streamdr.store.locking import try_lock
from streamdr.store.publish import unwritable

_MARKER = "written-by-streamdr"
_CONTENT = b"Entries for an AnnData store, by a run of streamdr. It removes them.\n"


class Hidden:
    """A folder beside a store, which is removed at the end of the context.

    A marker says that streamdr has made it, and a lock that its run is alive.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self.folder = store.with_name(f".{store.name}.{secrets.token_hex(8)}.entries")

    def __enter__(self) -> Self:
        try:
            self.folder.mkdir(parents=True)
            self._lock = try_lock(self.folder)
            write_new(self.folder / _MARKER, _CONTENT)
        except OSError as error:
            raise unwritable(self._store, error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _remove(self.folder)
        os.close(self._lock)


def sweep_hidden(store: Path) -> None:
    """Remove the hidden folders beside a store that killed runs left."""
    ours = re.compile(re.escape(f".{store.name}.") + r"[0-9a-f]{16}\.entries")
    for folder in store.parent.iterdir():
        if not ours.fullmatch(folder.name):
            continue
        with suppress(OSError):  # it is in use, or removed, or not a folder
            lock = try_lock(folder)
            if _is_marked(folder) or not os.listdir(folder):
                _remove(folder)
            os.close(lock)


def _is_marked(folder: Path) -> bool:
    with suppress(OSError):
        return read_regular(folder / _MARKER, len(_CONTENT)) == _CONTENT
    return False


def _remove(folder: Path) -> None:
    """Remove a folder, its marker last, so that a kill in between leaves a marked folder."""
    for path in folder.iterdir():
        if path.name == _MARKER:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    with suppress(OSError):
        (folder / _MARKER).unlink(missing_ok=True)
        folder.rmdir()
