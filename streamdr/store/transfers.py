"""Downloads and uploads: temporary local files for the objects at an address."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from streamdr.core.addresses import Address
from streamdr.core.files import FileTooLargeError
from streamdr.errors import StoreError
from streamdr.store.arrays import CHECKSUM_BYTES, CHUNK_BYTES
from streamdr.store.publish import renamed
from streamdr.store.record import LARGEST_BYTES, ROOT
from streamdr.store.remote import RemoteError, in_parallel, open_objects

AT_ONCE = 4
"""The number of objects that are held in memory at a time."""


@contextmanager
def workspace(address: Address) -> Iterator[Path]:
    """Provide a temporary path for copies of objects. Errors name the objects instead of the copies."""
    with tempfile.TemporaryDirectory(prefix="streamdr-") as directory:
        here = Path(directory) / address.name
        with renamed(here, address):
            yield here


def download(address: Address, here: Path, names: Iterable[str]) -> None:
    """Download the objects that exist, a few at a time."""
    objects = open_objects(address)

    def fetch(name: str) -> None:
        is_metadata = name.rpartition("/")[2] == ROOT
        data = objects.get(name, LARGEST_BYTES if is_metadata else CHUNK_BYTES + CHECKSUM_BYTES)
        if data is not None:
            (here / name).parent.mkdir(parents=True, exist_ok=True)
            (here / name).write_bytes(data)

    with store_errors(address, "read"):
        in_parallel(fetch, names, AT_ONCE)


def upload(here: Path, address: Address, names: Iterable[str]) -> None:
    """Upload files as objects, the root last."""
    objects = open_objects(address)
    with store_errors(address, "written"):
        rest = [name for name in names if name != ROOT]
        in_parallel(lambda name: objects.put(name, (here / name).read_bytes()), rest, AT_ONCE)
        objects.put(ROOT, (here / ROOT).read_bytes())


@contextmanager
def store_errors(place: Address, what: str) -> Iterator[None]:
    """Turn a failure of a store into a StoreError that names the location."""
    try:
        yield
    except RemoteError as error:
        raise StoreError(f"{place}: cannot be {what}: {error}") from error
    except FileTooLargeError as error:
        raise StoreError(
            f"{place}: cannot be {what}: an object in it is too large ({error}): streamdr did not write it, "
            "so remove it"
        ) from error
    except FileNotFoundError:
        raise StoreError(f"{place}: cannot be {what}: there is no such bucket; check the address") from None
