"""A slot: one small object that is replaced only by those who know what is in it."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from streamdr.core.addresses import Address
from streamdr.core.files import FileTooLargeError, NotRegularError, read_regular, write_new
from streamdr.errors import StoreError
from streamdr.store.locking import locked
from streamdr.store.remote import ConflictError, open_objects

Version = str
"""What tells one content of a slot from every other. It is compared, and means nothing."""


LARGEST_BYTES = 64 * 1024
"""Of what a slot holds. Anything larger was put there by somebody else."""

_TELLING = 8
"""The bytes at its beginning by which a file that a killed run was writing is known: all begin alike."""


class Conflict(Exception):  # noqa: N818  (it is an answer, and its asker looks again)
    """The slot does not hold what was expected."""


class CompareAndSwap(Protocol):
    """Compare and swap. Of several processes that expect the same and act at once, one succeeds.

    What fails for other reasons, and may go well at the next try, is an OSError or a StoreError. So is
    something else, or something larger, in the place of a slot: it is neither read nor replaced.
    """

    def read(self) -> tuple[bytes, Version] | None:
        """The content and its version, or None when the slot is empty."""
        ...

    def replace(self, data: bytes, expected: Version | None) -> Version:
        """Put `data` in the place of the expected version (None: of nothing), or raise Conflict."""
        ...

    def remove(self, expected: Version) -> None:
        """Empty the slot of the expected version, or raise Conflict."""
        ...


class CompareAndSwapFile:
    """A slot that is a file.

    The directory is locked from the comparison to the rename. File systems on which directories cannot be
    locked (NFS is one) leave a moment between the two, in which a second process may do the same: the
    content of the last one stands, and the others find it when they read the slot again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._made: list[Path] = []

    def read(self) -> tuple[bytes, Version] | None:
        """The content and its version, or None when there is no such file."""
        data = _content(self.path)
        return None if data is None else (data, _version(data))

    def replace(self, data: bytes, expected: Version | None) -> Version:
        """Replace the file in one step. It is not synced: no lease outlives the machine's own end."""
        above = (self.path.parent, *self.path.parent.parents)
        self._made += [directory for directory in above if not directory.exists()]
        with locked(self.path.parent):
            self._require(expected)
            # One name for all writers, who write one after the other: what a killed one left is used up.
            beside = self.path.with_name(f"{self.path.name}.new")
            if (left := _content(beside)) is not None:
                telling = min(_TELLING, len(left), len(data))
                if left.strip(b"\0") and left[:telling] != data[:telling]:
                    raise StoreError(
                        f"{beside}: streamdr did not write it, and is to write there; move it elsewhere"
                    )
                beside.unlink()
            try:
                write_new(beside, data)
                os.replace(beside, self.path)
            except FileExistsError:
                raise Conflict(beside) from None  # a writer that no lock keeps away
            except OSError:
                with suppress(OSError):
                    beside.unlink()
                raise
        return _version(data)

    def remove(self, expected: Version) -> None:
        """Remove the file, and the directories that were made for it alone."""
        with locked(self.path.parent):
            self._require(expected)
            self.path.unlink()
        with suppress(OSError):  # others have put something into one of them
            for directory in self._made:
                directory.rmdir()

    def _require(self, expected: Version | None) -> None:
        found = self.read()
        if (None if found is None else found[1]) != expected:
            raise Conflict(self.path)

    def __str__(self) -> str:
        return str(self.path)


class CompareAndSwapObject:
    """A slot that is an object: the store itself compares before it swaps.

    Object stores write on a condition but remove without one: between the look and the removal there is a
    moment in which another process may have taken the slot over.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self._objects = open_objects(address.parent)

    def read(self) -> tuple[bytes, Version] | None:
        """The content and its version, or None when there is no such object."""
        try:
            return self._objects.get_versioned(self.address.name, LARGEST_BYTES)
        except FileTooLargeError as error:
            raise StoreError(f"{self.address}: {error}, and was not written by streamdr; remove it") from None

    def replace(self, data: bytes, expected: Version | None) -> Version:
        """Put `data` in the place of the expected version (None: of nothing), or raise Conflict."""
        try:
            return self._objects.put_if(self.address.name, data, expected)
        except ConflictError:
            raise Conflict(self.address) from None

    def remove(self, expected: Version) -> None:
        """Remove the object of the expected version, or raise Conflict."""
        found = self.read()
        if found is None or found[1] != expected:
            raise Conflict(self.address)
        self._objects.delete([self.address.name])

    def __str__(self) -> str:
        return str(self.address)


def _content(path: Path) -> bytes | None:
    """What a small file holds, or None where there is none. Links are not followed."""
    try:
        if path.is_symlink():
            raise StoreError(f"{path}: a link is in the place of a file that streamdr writes; remove it")
        return read_regular(path, LARGEST_BYTES)
    except FileNotFoundError:
        return None
    except (NotRegularError, FileTooLargeError) as error:
        raise StoreError(f"{path}: {error}: streamdr did not write it, so remove it") from error


def _version(data: bytes) -> Version:
    return hashlib.sha256(data).hexdigest()
