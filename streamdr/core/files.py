"""Regular files, opened without blocking and read up to a limit.

Anyone who can write to a folder can put a pipe, a device or a link to one in the place of a file. Opening a
pipe blocks for ever, and reading `/dev/zero` fills the memory. Every file that a user or a store names is
opened here.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from typing import Any, BinaryIO

import numpy as np

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE = 1 << 20
_NPY_HEADER = 1 << 16
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISSOCK, "a socket"),
)


class _PlainError(OSError):
    """An OSError whose text is its message alone: callers name the file."""

    def __str__(self) -> str:
        return str(self.strerror)


class NotRegularError(_PlainError):
    """A directory, a pipe, a device or a socket in the place of a file."""


class FileTooLargeError(_PlainError):
    """A file that is longer than it can legitimately be."""


def open_regular(path: str | os.PathLike[str], *, buffering: int = -1) -> BinaryIO:
    """Open a regular file for reading, in binary. A link to a regular file is followed.

    Raises
    ------
    NotRegularError
        Without blocking, where the path is anything but a regular file.
    OSError
        Where there is no such file, or it may not be read.
    """
    return open(path, "rb", buffering=buffering, opener=_open_descriptor)


def open_descriptor(path: str) -> tuple[int, int]:
    """Open a regular file for reading, and return its descriptor and its size. The caller closes it.

    This is a third faster than `open_regular`, for callers that read millions of small files. It raises the
    same errors.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise _not_regular("a socket") from error
        raise
    try:
        status = os.fstat(descriptor)
        _require_regular(status.st_mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status.st_size


def read_regular(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the contents of a regular file of at most `limit` bytes.

    Raises
    ------
    FileTooLargeError
        Where the file is longer. At most `limit` + 1 bytes are read, whatever size the file system reports.
    NotRegularError, OSError
        As `open_regular`.
    """
    with open_regular(path, buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise too_large(size, limit)
        pieces, left = [], limit + 1
        # One byte more than the reported size: a further read finds the end of an ordinary file.
        while left and (piece := file.read(min(left, max(size + 1, _PIECE)))):
            pieces.append(piece)
            left -= len(piece)
        if not left:
            raise too_large(limit + 1, limit)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def create_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Create a file for writing, in binary. It must not exist; a symbolic link is not followed.

    Raises
    ------
    FileExistsError
        Where anything of that name exists, a dangling link included.
    """
    return open(path, "wb", opener=lambda name, _: os.open(name, _NEW, 0o666))


def write_new(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a small file that does not exist yet, as `create_file` opens one."""
    descriptor = os.open(path, _NEW, 0o666)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
    finally:
        os.close(descriptor)


def read_piped(path: str | os.PathLike[str], limit: int, seconds: float) -> bytes:
    """Return the contents of a regular file, or of a pipe that is written to, such as a shell's `<(...)`.

    Raises
    ------
    NotRegularError
        Where no process writes to the pipe, or not for `seconds`.
    FileTooLargeError, OSError
        As `read_regular`.
    """
    if not stat.S_ISFIFO(os.stat(path).st_mode):
        return read_regular(path, limit)
    pieces, left = [], limit + 1
    with open(path, "rb", buffering=0, opener=lambda name, _: os.open(name, _FLAGS)) as pipe:
        waiting = select.poll()
        waiting.register(pipe, select.POLLIN)
        while left:
            piece = pipe.read(left)
            if piece is None and not waiting.poll(1000 * seconds):
                raise NotRegularError(
                    errno.ETIMEDOUT, f"no process wrote to this pipe for {seconds:g} seconds"
                )
            if piece == b"":
                break
            pieces.append(piece or b"")
            left -= len(piece or b"")
    if not left:
        raise too_large(limit + 1, limit)
    if not any(pieces):
        raise NotRegularError(errno.EPIPE, "it is a pipe that no process writes to")
    return b"".join(pieces)


def require_regular(path: str | os.PathLike[str]) -> None:
    """Refuse what is not a regular file, for libraries that open files by name."""
    _require_regular(os.stat(path).st_mode)


def map_npy(path: str | os.PathLike[str]) -> np.memmap[Any, Any]:
    """Map a `.npy` file into memory, read-only.

    Raises
    ------
    ValueError
        Where it is not a `.npy` file, or is damaged. Nothing is unpickled.
    OSError
        As `open_regular`.
    """
    with open_regular(path) as file:
        start = file.read(12) or b""  # None where the read would block, as for /proc/kmsg
    # A header may claim a length of four gigabytes, which numpy would read before it checks them.
    length = int.from_bytes(start[8:12] if start[6:7] > b"\1" else start[8:10], "little")
    if start[:6] != np.lib.format.MAGIC_PREFIX or length > _NPY_HEADER:
        raise ValueError("it does not have the header of a .npy file")
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as error:  # numpy parses the header as a Python literal, which fails in many ways
        raise ValueError(str(error) or type(error).__name__) from error


def too_large(size: int, limit: int) -> FileTooLargeError:
    """The error for a file of `size` bytes or more."""
    return FileTooLargeError(
        errno.EFBIG, f"it has {size:,} bytes or more where at most {limit:,} are expected"
    )


def _open_descriptor(path: str, flags: int) -> int:
    return open_descriptor(path)[0]


def _require_regular(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise _not_regular(next((name for is_kind, name in _KINDS if is_kind(mode)), "not a file"))


def _not_regular(kind: str) -> NotRegularError:
    return NotRegularError(errno.EINVAL, f"{kind} is in the place of a file; put the file there")
