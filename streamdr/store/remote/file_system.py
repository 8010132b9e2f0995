"""Remote file systems through fsspec: memory://, sftp://, hdfs:// and others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import blake2b
from typing import Any, Literal

from streamdr.core.addresses import Address
from streamdr.core.files import too_large
from streamdr.core.safe_text import redact
from streamdr.errors import ConfigError
from streamdr.store.remote import open_objects
from streamdr.store.remote.base import ConflictError, Listed, Objects, RemoteError, Version, denied

_TIMES = ("ETag", "etag", "mtime", "last_modified", "LastModified", "updated", "created")


class FileSystem:
    """The files at an address. Few such systems have conditional writes, so `put_if` reads, then writes."""

    def __init__(self, address: Address) -> None:
        from fsspec.core import url_to_fs

        self._address = address
        try:
            self._fs, root = url_to_fs(address.url, **dict(address.options))
        except ImportError as error:
            raise ConfigError(f"{address}: {redact(str(error))}") from None
        except ValueError:
            raise ConfigError(
                f"{address}: {address.scheme}:// is not known; s3, gs, az, https and what fsspec knows are"
            ) from None
        except Exception as error:
            raise _remote_error(error) from None
        self._root = root.rstrip("/")

    def __reduce__(self) -> tuple[Callable[[Address], Objects], tuple[Address]]:
        return open_objects, (self._address,)

    @property
    def name(self) -> str:
        """The address."""
        return str(self._address)

    def get(self, key: str, limit: int | None = None) -> bytes | None:
        """Return the content of a file, or None if it does not exist. At most `limit` + 1 bytes are read."""
        end = None if limit is None else limit + 1
        try:
            with self._translated_errors():
                data = bytes(self._fs.cat_file(self._path(key), end=end))
        except (FileNotFoundError, IsADirectoryError):
            return None
        if limit is not None and len(data) > limit:
            raise too_large(len(data), limit)
        return data

    def get_versioned(self, key: str, limit: int | None = None) -> tuple[bytes, Version] | None:
        """Return the content of a file and its digest. More than `limit` bytes are a FileTooLargeError."""
        data = self.get(key, limit)
        return None if data is None else (data, _content_digest(data))

    def get_part(self, key: str, start: int, length: int) -> bytes:
        """Return some bytes of an existing file, fewer if it is too short."""
        with self._translated_errors():
            return bytes(self._fs.cat_file(self._path(key), start=start, end=start + length))

    def size(self, key: str) -> int | None:
        """Return the size of a file in bytes, or None if it does not exist."""
        try:
            with self._translated_errors():
                info = self._fs.info(self._path(key))
        except FileNotFoundError:
            return None
        return int(info["size"]) if info["type"] == "file" else None

    def listed(self, prefix: str = "") -> Iterator[Listed]:
        """Yield every file below a prefix."""
        with self._translated_errors():
            self._fs.invalidate_cache()
            found = self._fs.find(self._path(prefix), detail=True)
        for path, info in found.items():
            time = next((info[name] for name in _TIMES if info.get(name) is not None), None)
            stamp = int(_content_digest(repr(time).encode())[:14], 16)
            written = time.timestamp() if isinstance(time, datetime) else 0.0
            yield Listed(path.removeprefix(f"{self._root}/"), int(info["size"]), stamp, written)

    def children(self, prefix: str = "") -> list[str]:
        """Return the names directly below a prefix, sorted."""
        try:
            with self._translated_errors():
                self._fs.invalidate_cache()
                found = self._fs.ls(self._path(prefix), detail=False)
        except FileNotFoundError:
            return []
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def put(self, key: str, data: Any) -> None:
        """Write a file."""
        path = self._path(key)
        with self._translated_errors():
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(path, bytes(data))

    def put_if(self, key: str, data: bytes, expected: Version | None) -> Version:
        """Write a file if its version is the expected one (None: no file), or raise ConflictError."""
        found = self.get_versioned(key)
        if (None if found is None else found[1]) != expected:
            raise ConflictError(f"{self._address}/{key}: was written by another process meanwhile")
        self.put(key, data)
        return _content_digest(data)

    def copy(self, key: str, to: str) -> None:
        """Copy a file inside the file system."""
        target = self._path(to)
        with self._translated_errors():
            self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._fs.cp_file(self._path(key), target)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove files. Files that do not exist are ignored."""
        for key in keys:
            with suppress(FileNotFoundError), self._translated_errors():
                self._fs.rm_file(self._path(key))

    def open_array(self, path: str, zarr_format: Literal[2, 3]) -> Any:
        """Return the zarr array at a path, opened for reading."""
        import zarr
        from zarr.storage import FsspecStore

        options = dict(self._address.options)
        store = FsspecStore.from_url(self._address.url, storage_options=options, read_only=True)
        return zarr.open_array(store, path=path, mode="r", zarr_format=zarr_format)

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}".rstrip("/")

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, IsADirectoryError):
            raise
        except Exception as error:
            raise _remote_error(error) from None


def _remote_error(error: Exception) -> RemoteError:
    if isinstance(error, PermissionError):
        return denied()
    line = redact(str(error).strip().partition("\n")[0]) or type(error).__name__
    return RemoteError(f"the store failed: {line[:300]}")


def _content_digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
