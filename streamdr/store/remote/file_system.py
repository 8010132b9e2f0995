"""Whatever else fsspec can reach: memory://, sftp://, hdfs:// and the like."""

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
    """The files at an address. Few such systems write on a condition: here it is a look, and then a write."""

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
        """All of a file; None where there is none. Of a longer one than a limit, a byte more is read."""
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
        """All of a file, and a digest of it; FileTooLargeError if it is longer than a limit."""
        data = self.get(key, limit)
        return None if data is None else (data, _content_digest(data))

    def get_part(self, key: str, start: int, length: int) -> bytes:
        """Some bytes of a file that is there; less if it is short."""
        with self._translated_errors():
            return bytes(self._fs.cat_file(self._path(key), start=start, end=start + length))

    def size(self, key: str) -> int | None:
        """How long a file is; None where there is none."""
        try:
            with self._translated_errors():
                info = self._fs.info(self._path(key))
        except FileNotFoundError:
            return None
        return int(info["size"]) if info["type"] == "file" else None

    def listed(self, prefix: str = "") -> Iterator[Listed]:
        """Every file below a prefix."""
        with self._translated_errors():
            self._fs.invalidate_cache()
            found = self._fs.find(self._path(prefix), detail=True)
        for path, info in found.items():
            time = next((info[name] for name in _TIMES if info.get(name) is not None), None)
            stamp = int(_content_digest(repr(time).encode())[:14], 16)
            written = time.timestamp() if isinstance(time, datetime) else 0.0
            yield Listed(path.removeprefix(f"{self._root}/"), int(info["size"]), stamp, written)

    def children(self, prefix: str = "") -> list[str]:
        """The names directly below a prefix, sorted."""
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
        """Write a file if it is still the one expected (None: there is none), or raise ConflictError."""
        found = self.get_versioned(key)
        if (None if found is None else found[1]) != expected:
            raise ConflictError(f"{self._address}/{key}: was written by somebody else meanwhile")
        self.put(key, data)
        return _content_digest(data)

    def copy(self, key: str, to: str) -> None:
        """Copy a file without bringing it here."""
        target = self._path(to)
        with self._translated_errors():
            self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._fs.cp_file(self._path(key), target)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove files, those that are not there included."""
        for key in keys:
            with suppress(FileNotFoundError), self._translated_errors():
                self._fs.rm_file(self._path(key))

    def open_array(self, path: str, zarr_format: Literal[2, 3]) -> Any:
        """The zarr array at a path, to be read."""
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
