"""Key-value folders in a remote store: one object per file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import BinaryIO

from streamdr.core.addresses import Address, Location
from streamdr.store.key_value_folder import Item, KeyValueFolder, LocalKeyValueFolder
from streamdr.store.remote import Objects, RemoteError, open_objects

_USED = "used/"
"""The time of an object cannot be set. So its last use is recorded by an empty object under this prefix."""


def open_folder(place: Location) -> KeyValueFolder:
    """Return the key-value folder at a path or an address."""
    return RemoteKeyValueFolder(place) if isinstance(place, Address) else LocalKeyValueFolder(place)


class RemoteKeyValueFolder:
    """Files at an address. A put is atomic, so no temporary file is needed."""

    def __init__(self, address: Address) -> None:
        self.address = address

    @property
    def name(self) -> str:
        """The address."""
        return str(self.address)

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO | None]:
        """Open a file for reading. The result is None if it does not exist."""
        data = self._objects.get(name)
        yield None if data is None else BytesIO(data)

    def beginning(self, name: str, length: int) -> bytes:
        """Return the first `length` bytes of a file."""
        return bytes(self._objects.get_part(name, 0, length))

    def write(self, name: str, fill: Callable[[BinaryIO], None]) -> None:
        """Replace a file in one step."""
        memory = BytesIO()
        fill(memory)
        self._objects.put(name, memory.getbuffer())

    def delete(self, name: str) -> None:
        """Remove a file, if it exists."""
        self._objects.delete([name, _USED + name])

    def items(self) -> list[Item]:
        """Return the files, sorted by when they were last written or touched, oldest first."""
        listed = list(self._objects.listed())
        used = {item.key.removeprefix(_USED): item.written for item in listed if item.key.startswith(_USED)}
        files = [item for item in listed if not item.key.startswith(_USED)]
        files.sort(key=lambda item: max(item.written, used.get(item.key, 0.0)))
        return [Item(item.key, item.size) for item in files]

    def touch(self, name: str) -> None:
        """Record that a file was used."""
        with suppress(RemoteError):  # reading is enough to use the file
            self._objects.put(_USED + name, b"")

    @property
    def _objects(self) -> Objects:
        return open_objects(self.address)
