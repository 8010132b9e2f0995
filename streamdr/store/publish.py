"""The atomic publish: an output appears completely, in one step, or not at all."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from streamdr.core.addresses import Address, Location
from streamdr.errors import BusyError, StoreError
from streamdr.store import ours
from streamdr.store.locking import Identity, identity, locked, try_lock
from streamdr.store.record import OutputKind, draft

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_OCCUPIED = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2

Fence = Callable[[], None]
"""Raises StoreError if another run has taken over the right to publish."""


LocationT = TypeVar("LocationT", Path, Address)


class StagedOutput(ABC, Generic[LocationT]):
    """A hidden staging area beside the target, which is published as the target or removed.

        with Staging(target, kind="model", overwrite=False) as staging:
            write_everything(staging.path)
            staging.publish()

    With a `key`, which must depend on everything that determines the content, unfinished work stays, and
    the next run with the same key continues it. If several runs publish to one target, the first wins and the
    others get a StoreError: `overwrite` replaces what existed at the start, nothing newer. It replaces
    only an output of the same `kind`, whose folder contains nothing that streamdr did not write. With a
    `fence`, the check of a lease on the target, nothing is published after another run has taken over.
    """

    def __init__(
        self,
        target: LocationT,
        *,
        kind: OutputKind,
        overwrite: bool,
        key: str | None = None,
        fence: Fence | None = None,
    ) -> None:
        # With a dot in the key, the staging area of `a` could be mistaken for one of `a.b`.
        if key is not None and not re.fullmatch(r"[\w-]+", key):
            raise ValueError(f"a staging key is made of letters, digits, - and _, not {key!r}")
        self.target: LocationT = resolved(target)
        self.path: LocationT = self._sibling(key or secrets.token_hex(8))
        self._kind = kind
        self._overwrite = overwrite
        self._fence = fence
        self._resumable = key is not None

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @abstractmethod
    def filling(self) -> AbstractContextManager[Path]:
        """Provide a local folder whose files are staged at the end of the context."""

    @abstractmethod
    def publish(self) -> None:
        """Make the staged work the target, replacing only what existed at the start."""

    def _sibling(self, key: str) -> LocationT:
        return self.target.with_name(f".{self.target.name}.{key}.partial")

    def _too_late(self) -> StoreError:
        return StoreError(
            f"{self.target}: was written by another run meanwhile, and is left as that run made it"
        )


class Staging(StagedOutput[Path]):
    """Work staged in a directory, which is renamed to the target."""

    _published = False
    _replaces: Identity | None = None
    _claim = -1

    def __enter__(self) -> Self:
        self._claim = self._claim_path()
        try:
            self._require_replaceable(self._overwrite)
            self._require_own_staging()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        self._replaces = identity(self.target)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._resumable:
            with suppress(OSError):
                self.path.rmdir()  # only when there is nothing in it to resume
        elif not self._published:
            ours.remove(self.path)
        os.close(self._claim)
        if isinstance(error, OSError) and error.errno in _FULL:
            again = " and run again to continue" if self._resumable else ""
            raise StoreError(
                f"{self.target}: cannot be written: {os.strerror(error.errno or 0)}; "
                f"free some space{again}, or choose another path"
            ) from error

    @contextmanager
    def filling(self) -> Iterator[Path]:
        """Provide the staging directory itself."""
        with renamed(self.path, self.target):
            yield self.path

    def publish(self) -> None:
        """Make the staged work durable, then make it the target, replacing only what existed at the start."""
        # Foreign files may have been added to either folder since.
        self._require_own_staging()
        if self._replaces is not None:
            self._require_replaceable(overwrite=True)
        sync_tree(self.path)
        try:
            # Leases are taken over under the same lock, so the result of the fence is valid until the rename.
            with locked(self.target.parent):
                if self._fence is not None:
                    self._fence()
                self._become_target()
        except BusyError:
            raise
        except StoreError:
            ours.remove(self.path)  # another run has written the output
            raise
        self._published = True
        try:
            sync(self.target.parent)
        finally:
            sweep(self.target)  # remove the replaced output, since no later run may do so

    def _become_target(self) -> None:
        if identity(self.target) != self._replaces:
            raise self._too_late()
        if self._replaces is not None:
            self._replace_target()
            return
        try:
            self.path.rename(self.target)
        except OSError as error:
            if error.errno in _OCCUPIED:
                raise self._too_late() from error
            raise

    def _replace_target(self) -> None:
        # A kill must not leave the replaced output where a run with the same key would mistake it for its
        # unfinished work.
        ready = self._sibling(secrets.token_hex(8))
        self.path.rename(ready)
        try:
            exchange(ready, self.target)
        except OSError:
            ready.rename(self.path)
            raise

    def _require_replaceable(self, overwrite: bool) -> None:
        """Refuse a target that must not be replaced."""
        require_replaceable(self.target, self._kind, overwrite)

    def _require_own_staging(self) -> None:
        """Refuse to continue or to publish work with foreign files in it."""
        if found := ours.foreign_in_staging(self.path, self._kind):
            raise StoreError(
                f"{self.path}: is not continued, since {ours.foreign_reason(found)}; move that elsewhere, or "
                "remove the folder to start again"
            )

    def _claim_path(self) -> int:
        """Create and lock the staging directory, so that two runs with one key do not both write to it."""
        while True:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise unwritable(self.target, error) from error
            try:
                claim = try_lock(self.path)
            except BlockingIOError:
                if self._fence is None:
                    raise BusyError(
                        f"{self.target}: another run is writing it; wait for it or stop it"
                    ) from None
                # This run has the lease. The other one has lost it without noticing: use another directory.
                self.path, self._resumable = self._sibling(secrets.token_hex(8)), False
                continue
            except FileNotFoundError:
                continue  # its owner has published it in the meantime
            except OSError as error:
                raise unwritable(self.target, error) from error  # it is a link, or not a folder
            held = os.fstat(claim)
            if (held.st_dev, held.st_ino) == identity(self.path):
                return claim
            os.close(claim)


def sweep(target: Path, kind: OutputKind | None = None) -> None:
    """Remove what killed runs left beside a complete output, since nothing needs it any more.

    `kind` is that of what is staged; None for that of the output. A folder with such a name that contains
    foreign files, or an output of another kind, is not touched.
    """
    place = resolved(target)
    record = draft(place)
    if kind is None:
        if record is None:
            return
        kind = record["kind"]
    staged = re.compile(re.escape(f".{place.name}.") + r"[\w-]+\.partial(\.old)?")
    for path in place.parent.iterdir():
        if staged.fullmatch(path.name):
            with suppress(OSError):  # it is in use, or removed, or not a folder
                claim = try_lock(path)
                if not ours.foreign_in_staging(path, kind):
                    ours.remove(path)
                os.close(claim)


def unwritable(target: Path, error: OSError) -> StoreError:
    """Return the error that says why nothing can be written at a target."""
    return StoreError(
        f"{target}: cannot be written ({error.strerror}: {error.filename}); choose another path"
    )


def resolved(place: LocationT) -> LocationT:
    """Return the location without links, or raise StoreError if they form a circle."""
    try:
        return place.resolve()
    except (OSError, RuntimeError) as error:
        raise StoreError(f"{place}: leads in a circle of links; choose another path") from error


@contextmanager
def renamed(folder: Path, place: Location) -> Iterator[None]:
    """Replace a temporary folder by the location of its output in the messages of errors."""
    try:
        yield
    except StoreError as error:
        raise type(error)(str(error).replace(str(folder), str(place))) from error.__cause__


def require_replaceable(target: Path, kind: OutputKind, overwrite: bool) -> None:
    """Refuse to replace foreign content, an output of another kind, or anything without `overwrite`."""
    if not os.path.lexists(target):
        return
    reason = ours.foreign_content(target, kind)
    if reason is not None:
        raise StoreError(
            f"{target}: exists and is never overwritten, since {reason}; move that elsewhere, or choose "
            "another path"
        )
    if not overwrite:
        raise StoreError(
            f"{target}: exists; {ours.how_to_replace(kind)} to replace it, or choose another path"
        )


def exchange(one: Path, other: Path) -> None:
    """Swap two directories, in one step where the system supports that."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        _exchange_by_renames(one, other)
    elif renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) != 0:
        code = ctypes.get_errno()
        if code not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):  # not supported by the filesystem
            raise OSError(code, os.strerror(code), str(other))
        _exchange_by_renames(one, other)


def _exchange_by_renames(one: Path, other: Path) -> None:
    """Swap two directories by renames. A kill midway may leave `other` missing, but nothing half-written."""
    aside = one.with_name(f"{one.name}.old")
    other.rename(aside)
    try:
        one.rename(other)
    except OSError:
        aside.rename(other)
        raise
    aside.rename(one)


def sync_tree(root: Path) -> None:
    """Make all files below a folder durable."""
    for directory, _, files in os.walk(root, topdown=False):
        for name in files:
            sync(Path(directory, name))
        sync(Path(directory))


def sync(path: Path) -> None:
    """Make a file, or the entries of a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network filesystems cannot sync a directory
            raise
    finally:
        os.close(descriptor)
