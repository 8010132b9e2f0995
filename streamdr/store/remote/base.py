"""The operations on a remote store: read objects or parts of them, list, write, copy and delete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from errno import EACCES
from typing import Any, Literal, NamedTuple, Protocol

Version = str
"""The identifier that a store gives to one version of an object. It changes with every put."""


class RemoteError(OSError):
    """A store that cannot be reached, denies access, or fails. The message contains no secrets.

    `errno` is an error number of the system where the user has to change something, and None where the
    failure may be transient.
    """

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.errno = number

    def __reduce__(self) -> tuple[type[RemoteError], tuple[str, int | None]]:
        return type(self), (str(self), self.errno)


def denied() -> RemoteError:
    """Return the error of a store that denies access."""
    return RemoteError("access is denied; check the credentials, and what they are allowed to do", EACCES)


class ConflictError(Exception):
    """Another process wrote the object after it was read."""


class Listed(NamedTuple):
    """An object as a listing shows it."""

    key: str
    size: int
    stamp: int
    """A number that changes when the object does."""
    written: float
    """When it was written, in seconds since 1970; 0 if the store does not say."""


class Objects(Protocol):
    """The objects at an address, by keys relative to it. Any number of threads may use it.

    Its pickle is small. The address is opened again where it is unpickled.
    """

    @property
    def name(self) -> str:
        """The name for error messages."""

    def get(self, key: str, limit: int | None = None) -> Any | None:
        """Return the content of an object, as something with a buffer, or None if it does not exist.

        An object with more than `limit` bytes is a FileTooLargeError, and is not downloaded.
        """

    def get_versioned(self, key: str, limit: int | None = None) -> tuple[bytes, Version] | None:
        """Return the content of an object and its version. More than `limit` bytes: FileTooLargeError."""

    def get_part(self, key: str, start: int, length: int) -> Any:
        """Return some bytes of an existing object, fewer if it is too short."""

    def size(self, key: str) -> int | None:
        """Return the size of an object in bytes, or None if it does not exist."""

    def listed(self, prefix: str = "") -> Iterator[Listed]:
        """Yield every object below a prefix, in no particular order. The prefix ends where a name ends."""

    def children(self, prefix: str = "") -> list[str]:
        """Return the names directly below a prefix, sorted."""

    def put(self, key: str, data: Any) -> None:
        """Write an object atomically."""

    def put_if(self, key: str, data: bytes, expected: Version | None) -> Version:
        """Write an object if its version is the expected one (None: no object), or raise ConflictError."""

    def copy(self, key: str, to: str) -> None:
        """Copy an object inside the store."""

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects. Objects that do not exist are ignored."""

    def open_array(self, path: str, zarr_format: Literal[2, 3]) -> Any:
        """Return the zarr array at a path, opened for reading."""


def in_parallel(function: Callable[[Any], Any], items: Iterable[Any], workers: int = 16) -> list[Any]:
    """Return the results of a function for all items, in order, computed by several threads."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))
