"""Object stores through obstore: S3, Google Cloud Storage, Azure, and web servers that list (WebDAV)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from errno import EACCES, EINVAL, ENOENT
from hashlib import blake2b
from typing import Any, Literal

from streamdr.core.addresses import Address
from streamdr.core.files import too_large
from streamdr.core.safe_text import redact
from streamdr.errors import ConfigError
from streamdr.store.remote import open_objects
from streamdr.store.remote.base import ConflictError, Listed, Objects, RemoteError, Version, denied

_CLIENT_OPTIONS = frozenset(
    {"allow_http", "allow_invalid_certificates", "connect_timeout", "timeout", "proxy_url"}
)
_ENDPOINTS = ("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url", "azure_storage_endpoint")
_ENVIRONMENT = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
_ATTEMPTS = 6
_TIMEOUT = "120s"
"""The timeout of a whole request: a chunk may be large and the connection slow."""
_BATCH = 1000
"""The number of objects of a listing per request."""


class ObjectStore:
    """The objects of a store that obstore has opened."""

    def __init__(self, store: Any, name: str) -> None:
        self.name = name
        self._store = store

    def get(self, key: str, limit: int | None = None) -> Any | None:
        """Return the content of an object, as something with a buffer, or None if it does not exist."""
        found = self._found(key, limit)
        if found is None:
            return None
        with self._translated_errors():
            return found.bytes()

    def get_versioned(self, key: str, limit: int | None = None) -> tuple[bytes, Version] | None:
        """Return the content of an object and its version. More than `limit` bytes: FileTooLargeError."""
        found = self._found(key, limit)
        if found is None:
            return None
        with self._translated_errors():
            return bytes(found.bytes()), _version(found.meta)

    def _found(self, key: str, limit: int | None) -> Any | None:
        """Return the response to a request for an object, before its content is read."""
        import obstore

        try:
            with self._translated_errors():
                found = obstore.get(self._store, key)
        except FileNotFoundError:
            return None
        if limit is not None and (size := int(found.meta["size"])) > limit:
            raise too_large(size, limit)
        return found

    def get_part(self, key: str, start: int, length: int) -> Any:
        """Return some bytes of an existing object, fewer if it is too short."""
        import obstore

        with self._translated_errors():
            return obstore.get_range(self._store, key, start=start, length=length) if length else b""

    def size(self, key: str) -> int | None:
        """Return the size of an object in bytes, or None if it does not exist."""
        import obstore

        try:
            with self._translated_errors():
                return int(obstore.head(self._store, key)["size"])
        except FileNotFoundError:
            return None

    def listed(self, prefix: str = "") -> Iterator[Listed]:
        """Yield every object below a prefix, a thousand per request."""
        import obstore

        with self._translated_errors():
            for batch in obstore.list(self._store, prefix or None, chunk_size=_BATCH):
                yield from map(_listed, batch)

    def children(self, prefix: str = "") -> list[str]:
        """Return the names directly below a prefix, sorted."""
        import obstore

        with self._translated_errors():
            found = obstore.list_with_delimiter(self._store, prefix or None)
        paths = [*found["common_prefixes"], *(meta["path"] for meta in found["objects"])]
        return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

    def put(self, key: str, data: Any) -> None:
        """Write an object atomically."""
        import obstore

        with self._translated_errors():
            # In one request: the parts of a killed multipart upload would stay, invisible but paid for.
            obstore.put(self._store, key, data, use_multipart=False)

    def put_if(self, key: str, data: bytes, expected: Version | None) -> Version:
        """Write an object if its version is the expected one (None: no object), or raise ConflictError."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        mode: Any = "create" if expected is None else _condition(expected)
        try:
            with self._translated_errors():
                return _version(obstore.put(self._store, key, data, mode=mode))
        except (AlreadyExistsError, PreconditionError, FileNotFoundError):
            raise ConflictError(f"{self.name}/{key}: was written by another process meanwhile") from None

    def copy(self, key: str, to: str) -> None:
        """Copy an object inside the store."""
        import obstore

        with self._translated_errors():
            obstore.copy(self._store, key, to)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects. Objects that do not exist are ignored."""
        import obstore

        gone = list(keys)
        if gone:
            with self._translated_errors():
                obstore.delete(self._store, gone)

    def open_array(self, path: str, zarr_format: Literal[2, 3]) -> Any:
        """Return the zarr array at a path, opened for reading."""
        import zarr
        from zarr.storage import ObjectStore as ZarrStore

        store = ZarrStore(self._store, read_only=True)
        return zarr.open_array(store, path=path, mode="r", zarr_format=zarr_format)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Replace the messages of the server, which may repeat secrets that were sent to it."""
        from obstore import exceptions

        try:
            yield
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError):
            raise denied() from None
        except exceptions.BaseError as error:
            raise _remote_error(str(error)) from None


class AddressedStore(ObjectStore):
    """The objects at an address."""

    def __init__(self, address: Address) -> None:
        super().__init__(_open(address), str(address))
        self._address = address

    def __reduce__(self) -> tuple[Callable[[Address], Objects], tuple[Address]]:
        return open_objects, (self._address,)


def _open(address: Address) -> Any:
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    options = dict(address.options)
    client: Any = {"timeout": _TIMEOUT}
    client |= {name: options.pop(name) for name in _CLIENT_OPTIONS & options.keys()}
    endpoints = [options.get(name) for name in _ENDPOINTS] + [os.environ.get(name) for name in _ENVIRONMENT]
    if any(str(endpoint).startswith("http://") for endpoint in (*endpoints, address.url)):
        client["allow_http"] = True  # the user asked for http://
    url = address.url
    if address.scheme in ("http", "https") and "username" in options:
        user = ":".join(str(options.pop(name)) for name in ("username", "password") if name in options)
        url = url.replace("://", f"://{user}@", 1)
    retries = max(0, int(os.environ.get("AWS_MAX_ATTEMPTS") or _ATTEMPTS) - 1)
    backoff = {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=5), "base": 2}
    retry: Any = {"max_retries": retries, "backoff": backoff, "retry_timeout": timedelta(minutes=3)}
    try:
        config: Any = options or None
        return from_url(url, config=config, client_options=client, retry_config=retry)
    except (BaseError, ValueError, TypeError) as error:
        names = ", ".join(options) or "none"
        raise ConfigError(
            f"{address}: cannot be opened with these options ({names}): {_first_line(str(error))}"
        ) from None


def _remote_error(error: str) -> RemoteError:
    if "169.254.169.254" in error or "169.254.170.2" in error:
        return RemoteError(
            "there are no credentials in the environment; s3:// takes AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket",
            EACCES,
        )
    if "PROPFIND" in error and ("501 " in error or "405 " in error):
        return RemoteError(
            "the web server does not list its files (WebDAV), so that missing chunks would go undetected; "
            "copy the store, or access it in another way",
            EINVAL,
        )
    if "403 Forbidden" in error or "401 Unauthorized" in error:
        return denied()
    if "NoSuchBucket" in error:
        return RemoteError("there is no such bucket; check the address", ENOENT)
    if "error sending request" in error or "error trying to connect" in error:
        return RemoteError(
            "the server does not answer; check the endpoint (AWS_ENDPOINT_URL) and the network"
        )
    return RemoteError(f"the store failed: {_first_line(error)}")


def _first_line(error: str) -> str:
    line = redact(error.strip().partition("\n")[0])
    return line if len(line) <= 300 else f"{line[:297]}..."


def _version(meta: Any) -> Version:
    """Return the ETag and the version number of an object: stores compare one or the other."""
    return f"{meta['e_tag'] or ''} {meta['version'] or ''}"


def _condition(version: Version) -> dict[str, str]:
    tag, _, number = version.partition(" ")
    return {name: value for name, value in (("e_tag", tag), ("version", number)) if value}


def _listed(meta: Any) -> Listed:
    written = meta["last_modified"].timestamp()
    identity = meta["e_tag"] or str(written)
    stamp = int.from_bytes(blake2b(identity.encode(), digest_size=7).digest())
    return Listed(meta["path"], meta["size"], stamp, written)
