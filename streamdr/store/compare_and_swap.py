"""Compare-and-swap files: small files or objects that are replaced only if the content is as expected."""

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
"""An opaque identifier of one content. Versions are only compared for equality."""


LARGEST_BYTES = 64 * 1024
"""The largest size of a compare-and-swap file. Anything larger was not written by streamdr."""

_PREFIX_BYTES = 8
"""The length of the prefix by which the unfinished file of a killed run is recognised."""


class Conflict(Exception):  # noqa: N818  (not a failure: the caller reads again)
    """The content is not the expected one."""


class CompareAndSwap(Protocol):
    """A file or object that supports compare-and-swap.

    If several processes expect the same version and act at once, one of them succeeds. Other failures, which
    may be transient, are an OSError or a StoreError. Something else in this place, or something larger, is a
    StoreError too. It is neither read nor replaced.
    """

    def read(self) -> tuple[bytes, Version] | None:
        """Return the content and its version, or None if there is none."""
        ...

    def replace(self, data: bytes, expected: Version | None) -> Version:
        """Replace the expected version (None: nothing) by `data`, or raise Conflict."""
        ...

    def remove(self, expected: Version) -> None:
        """Remove the expected version, or raise Conflict."""
        ...


class CompareAndSwapFile:
    """A compare-and-swap file on a disk.

    The directory is locked from the comparison to the rename. Some file systems, such as NFS, cannot lock
    directories. There, two processes may both succeed: the content of the last one stays, and the others
    notice that when they read the file again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._made: list[Path] = []

    def read(self) -> tuple[bytes, Version] | None:
        """Return the content and its version, or None if there is no such file."""
        data = _content(self.path)
        return None if data is None else (data, _version(data))

    def replace(self, data: bytes, expected: Version | None) -> Version:
        """Replace the file in one step. It is not synced: no lease outlives a crash of the machine."""
        above = (self.path.parent, *self.path.parent.parents)
        self._made += [directory for directory in above if not directory.exists()]
        with locked(self.path.parent):
            self._require(expected)
            # All writers use this name, one after the other. The file that a killed writer left is replaced.
            beside = self.path.with_name(f"{self.path.name}.new")
            if (left := _content(beside)) is not None:
                length = min(_PREFIX_BYTES, len(left), len(data))
                if left.strip(b"\0") and left[:length] != data[:length]:
                    raise StoreError(
                        f"{beside}: streamdr did not write it, but needs this path; move the file elsewhere"
                    )
                beside.unlink()
            try:
                write_new(beside, data)
                os.replace(beside, self.path)
            except FileExistsError:
                raise Conflict(beside) from None  # another writer, where directories cannot be locked
            except OSError:
                with suppress(OSError):
                    beside.unlink()
                raise
        return _version(data)

    def remove(self, expected: Version) -> None:
        """Remove the file, and the directories that were created for it."""
        with locked(self.path.parent):
            self._require(expected)
            self.path.unlink()
        with suppress(OSError):  # one of them is in use
            for directory in self._made:
                directory.rmdir()

    def _require(self, expected: Version | None) -> None:
        found = self.read()
        if (None if found is None else found[1]) != expected:
            raise Conflict(self.path)

    def __str__(self) -> str:
        return str(self.path)


class CompareAndSwapObject:
    """A compare-and-swap file in an object store, which compares and replaces in one request.

    Object stores have conditional writes but no conditional removal. Between the read and the removal,
    another process may have replaced the object.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self._objects = open_objects(address.parent)

    def read(self) -> tuple[bytes, Version] | None:
        """Return the content and its version, or None if there is no such object."""
        try:
            return self._objects.get_versioned(self.address.name, LARGEST_BYTES)
        except FileTooLargeError as error:
            raise StoreError(f"{self.address}: {error}, and was not written by streamdr; remove it") from None

    def replace(self, data: bytes, expected: Version | None) -> Version:
        """Replace the expected version (None: nothing) by `data`, or raise Conflict."""
        try:
            return self._objects.put_if(self.address.name, data, expected)
        except ConflictError:
            raise Conflict(self.address) from None

    def remove(self, expected: Version) -> None:
        """Remove the expected version of the object, or raise Conflict."""
        found = self.read()
        if found is None or found[1] != expected:
            raise Conflict(self.address)
        self._objects.delete([self.address.name])

    def __str__(self) -> str:
        return str(self.address)


def _content(path: Path) -> bytes | None:
    """Return the content of a small file, or None if it does not exist. Links are refused."""
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
