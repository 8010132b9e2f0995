"""What is asked of a store somewhere else: whole objects, parts of them, and lists of what there is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from errno import EACCES
from typing import Any, Literal, NamedTuple, Protocol

Version = str
"""What a store calls one writing of an object: it changes with every put."""


class RemoteError(OSError):
    """A store that cannot be reached, refuses, or fails, in words that say what to do and hold no secret.

    Its number is that of the system's own errors where somebody has to mend something, and None where the
    same may well succeed a little later.
    """

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.errno = number

    def __reduce__(self) -> tuple[type[RemoteError], tuple[str, int | None]]:
        return type(self), (str(self), self.errno)


def denied() -> RemoteError:
    """The error of a store that refuses."""
    return RemoteError("access is denied; check the credentials, and what they are allowed to do", EACCES)


class ConflictError(Exception):
    """Somebody else wrote the object since it was read."""


class Listed(NamedTuple):
    """An object as a listing shows it."""

    key: str
    size: int
    stamp: int
    """A number that changes when the object does."""
    written: float
    """When, in seconds since 1970; 0 where the store does not say."""


class Objects(Protocol):
    """The objects at an address, by keys that count from there. Any number of threads may use it.

    It pickles small, and is opened anew where it is unpickled.
    """

    @property
    def name(self) -> str:
        """What errors call it."""

    def get(self, key: str, limit: int | None = None) -> Any | None:
        """All of an object, as something with a buffer; None where there is none.

        One that is longer than a limit is a FileTooLargeError, and is not brought here.
        """

    def get_versioned(self, key: str, limit: int | None = None) -> tuple[bytes, Version] | None:
        """All of an object and which writing of it that is; FileTooLargeError beyond a limit."""

    def get_part(self, key: str, start: int, length: int) -> Any:
        """Some bytes of an object that is there; less if it is short."""

    def size(self, key: str) -> int | None:
        """How long an object is; None where there is none."""

    def listed(self, prefix: str = "") -> Iterator[Listed]:
        """Every object below a prefix that ends where a name does, in no order."""

    def children(self, prefix: str = "") -> list[str]:
        """The names directly below a prefix, sorted."""

    def put(self, key: str, data: Any) -> None:
        """Write an object, which appears whole or not at all."""

    def put_if(self, key: str, data: bytes, expected: Version | None) -> Version:
        """Write an object if it is still the one expected (None: there is none), or raise ConflictError."""

    def copy(self, key: str, to: str) -> None:
        """Copy an object without bringing it here."""

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, those that are not there included."""

    def open_array(self, path: str, zarr_format: Literal[2, 3]) -> Any:
        """The zarr array at a path, to be read."""


def in_parallel(act: Callable[[Any], Any], items: Iterable[Any], workers: int = 16) -> list[Any]:
    """What `act` makes of each of the items, in order: requests wait for the network, not for each other."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(act, items))
