"""Remote stores: `open_objects` turns an address into objects that can be read and written."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from streamdr.core.addresses import BUCKET_SCHEMES, Address
from streamdr.errors import ConfigError
from streamdr.store.remote.base import ConflictError, Listed, Objects, RemoteError, Version, in_parallel

__all__ = [
    "ConflictError",
    "Listed",
    "Objects",
    "RemoteError",
    "Version",
    "in_parallel",
    "open_objects",
    "opened_objects",
]


def opened_objects(store: Any) -> Objects:
    """Return the objects of a store that the caller has opened with obstore."""
    from streamdr.store.remote.object_store import ObjectStore

    return ObjectStore(store, str(store))


@lru_cache(maxsize=64)
def open_objects(address: Address) -> Objects:
    """Return the objects at an address. It is opened once per process, so that connections are reused."""
    if address.scheme not in BUCKET_SCHEMES:
        from streamdr.store.remote.file_system import FileSystem

        return FileSystem(address)
    try:
        import obstore  # noqa: F401
    except ImportError:
        raise ConfigError(
            f"{address}: reading {address.scheme}:// takes obstore; pip install 'streamdr[remote]'"
        ) from None
    from streamdr.store.remote.object_store import AddressedStore

    return AddressedStore(address)
