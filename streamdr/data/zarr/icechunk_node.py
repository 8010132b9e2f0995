"""Icechunk repositories: versions of zarr stores. One is read at a fixed snapshot.

A chunk has the stamp of the snapshot that wrote it last, from the differences between snapshots. So rows that
are appended in later snapshots do not change the stamps of those before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zarr.core.sync import sync

from streamdr.core.addresses import Location
from streamdr.core.files import too_large
from streamdr.core.safe_text import redact
from streamdr.data.zarr.metadata import METADATA_FILES
from streamdr.data.zarr.stores import StoreNode
from streamdr.errors import ConfigError, DataError, InputError, StreamdrError
from streamdr.store.remote import in_parallel, open_objects

if TYPE_CHECKING:
    from icechunk import Repository, Storage

MAIN = "main"
_S3 = ("s3", "s3a")
_KEYS = ("access_key_id", "secret_access_key", "session_token")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_PARTS = ("snapshots", "refs", "repo")
_KEPT = 1 << 16
"""How many differences between snapshots are kept."""


class Version(NamedTuple):
    """A repository at a snapshot."""

    place: Location
    snapshot: str


def repository_at(place: Location, key: str = "path") -> IcechunkNode | None:
    """Return the root of an Icechunk repository, or None if there is none at a place.

    `NAME@REF` is the snapshot of a branch or a tag, or one with this identifier. Without it, it is the newest
    snapshot of `main`. `key` is the configuration key of the place.
    """
    where, mark, ref = place.name.rpartition("@")
    if mark and not _is_repository(place):
        root = place.with_name(where) if where else place
        if not where or not _is_repository(root):
            return None
    elif _is_repository(place):
        root, ref = place, MAIN
    else:
        return None
    with _reading(place):
        return IcechunkNode(Version(root, _snapshot_of(_repository(root), ref, place, key)), "")


class IcechunkNode(StoreNode):
    """A node in an Icechunk repository at a snapshot. A worker opens the same snapshot again."""

    def __init__(self, version: Version, path: str) -> None:
        super().__init__(_store(version), path)
        self.version = version

    def __reduce__(self) -> tuple[type[IcechunkNode], tuple[Version, str]]:
        return IcechunkNode, (self.version, self.path)

    @property
    def name(self) -> str:
        """The place of the repository and the path in it: the same for all snapshots."""
        return f"{self.version.place}/{self.path}" if self.path else str(self.version.place)

    def child(self, path: str) -> IcechunkNode:
        """Return the node at a path below this one."""
        return IcechunkNode(self.version, self._key(path))

    def children(self) -> list[str]:
        """Return the sorted names of files and nodes directly below this one."""
        with _reading(self.version.place):
            return super().children()

    def list_keys(self) -> Iterator[str]:
        """Yield every key below this node, in no particular order."""
        with _reading(self.version.place):
            yield from list(super().list_keys())

    def exists(self, key: str) -> bool:
        """Whether there is such a file."""
        with _reading(self.version.place):
            try:
                return super().exists(key)
            except KeyError:  # a key of zarr v2
                return False

    def read(self, key: str, limit: int) -> bytes | None:
        """Return the contents of a file, or None if there is none."""
        with _reading(self.version.place):
            try:
                size = sync(self.store.getsize(self._key(key)))  # 0 for a chunk that is not there
            except (KeyError, FileNotFoundError):
                return None
            if size > limit:
                raise too_large(size, limit)
            return self._get(key, None)

    def stamp(self, key: str) -> tuple[int, int]:
        """Return two numbers for the snapshot that wrote a chunk."""
        coords = tuple(int(part) for part in key.split("/") if part.isdecimal())
        # With the name of the array: others may have been written by the same snapshot.
        written = f"{self.path} {self._written.get(coords, '')}"
        digest = blake2b(written.encode(), digest_size=14).digest()
        return int.from_bytes(digest[:7]), int.from_bytes(digest[7:])

    @property
    def _written(self) -> dict[tuple[int, ...], str]:
        """The snapshot that wrote each chunk of this array last."""
        return _last_writes(self.version, self.path)


@lru_cache(maxsize=8)
def _last_writes(version: Version, path: str) -> dict[tuple[int, ...], str]:
    """Return the snapshot that wrote each chunk of an array last, as far as the history goes back."""
    found: dict[tuple[int, ...], str] = {}
    with _reading(version.place):
        repository = _repository(version.place)
        history = [(one.parent_id, one.id) for one in repository.ancestry(snapshot_id=version.snapshot)]
        steps = [(version.place, parent, own) for parent, own in history if parent is not None]
        for (_, _, own), change in zip(steps, in_parallel(_change, steps, workers=8), strict=True):
            for coords in change.updated_chunks.get(f"/{path}", ()):
                found.setdefault(tuple(coords), own)
            if f"/{path}" in change.new_arrays:
                break  # chunks that are older were of another array
    return found


@lru_cache(maxsize=_KEPT)
def _change(step: tuple[Location, str, str]) -> Any:
    """Return what a snapshot changed in the one before."""
    place, parent, own = step
    return _repository(place).diff(from_snapshot_id=parent, to_snapshot_id=own)


@lru_cache(maxsize=64)
def _store(version: Version) -> Any:
    """Return the zarr store of a snapshot, for reading."""
    with _reading(version.place):
        store = _repository(version.place).readonly_session(snapshot_id=version.snapshot).store
        sync(store.exists("zarr.json"))  # getting a file of a damaged snapshot finds none, without an error
        return store


@lru_cache(maxsize=16)
def _repository(place: Location) -> Repository:
    """Return the repository at a place."""
    try:
        import icechunk
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{place}: reading an Icechunk repository takes icechunk; pip install 'streamdr[icechunk]'"
        ) from error
    if "ICECHUNK_LOG" not in os.environ:
        icechunk.set_logs_filter("off")  # it logs to standard output, and raises its errors anyway
    return icechunk.Repository.open(_storage(place))


def _storage(place: Location) -> Storage:
    """Return where a repository is, for Icechunk. The environment has what an address does not have."""
    import icechunk

    if isinstance(place, Path):
        return icechunk.local_filesystem_storage(str(place.absolute()))
    if place.scheme not in _S3:
        raise ConfigError(
            f"{place}: Icechunk repositories are read from this machine and from s3://; copy it to one of "
            "them"
        )
    bucket, _, prefix = place.url.partition("://")[2].partition("/")
    options = {name.lower().removeprefix("aws_"): str(value) for name, value in place.options}
    endpoint = options.get("endpoint", options.get("endpoint_url")) or next(
        (os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None
    )
    keys: dict[str, Any] = {name: options[name] for name in _KEYS if name in options}
    anonymous = str(options.get("skip_signature", os.environ.get("AWS_SKIP_SIGNATURE"))).lower() == "true"
    return icechunk.s3_storage(
        bucket=bucket,
        prefix=prefix or None,
        region=options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        endpoint_url=endpoint,
        allow_http=str(endpoint).startswith("http://"),
        force_path_style=endpoint is not None,
        anonymous=True if anonymous else None,
        from_env=None if keys or anonymous else True,
        **keys,
    )


def _is_repository(place: Location) -> bool:
    """Whether the files at a place are those of an Icechunk repository."""
    if isinstance(place, Path):  # not listed: a zarr store may have millions of files
        found = {name for name in (*_PARTS, *METADATA_FILES) if (place / name).exists()}
    else:
        try:
            found = set(open_objects(place).children())
        except OSError:
            return False  # whoever opens it as something else says why
    return "snapshots" in found and bool({"refs", "repo"} & found) and not found & set(METADATA_FILES)


def _snapshot_of(repository: Repository, ref: str, place: Location, key: str) -> str:
    """Return the snapshot of a branch or a tag, or the one with this identifier."""
    branches, tags = sorted(repository.list_branches()), sorted(repository.list_tags())
    if ref in branches:
        return repository.lookup_branch(ref)
    if ref in tags:
        return repository.lookup_tag(ref)
    from icechunk import IcechunkError

    try:
        return repository.lookup_snapshot(ref).id
    except IcechunkError:
        listed = ", ".join([*branches, *tags])
        raise InputError(
            key, f"{place}: there is no branch, tag or snapshot {ref!r}; there are {listed}"
        ) from None


@contextmanager
def _reading(place: Location) -> Iterator[None]:
    """Convert errors of Icechunk: the first line has the cause, and no secrets."""
    try:
        yield
    except (StreamdrError, OSError):
        raise
    except Exception as error:
        line = redact(str(error).strip().partition("\n")[0].removeprefix("x ").strip())
        raise DataError(
            f"{place}: cannot be read as an Icechunk repository: {line or type(error).__name__}"
        ) from error
