"""Publishing to an object store, which has no rename: the root of a group is removed first and written last.

Work is staged under a hidden prefix beside the target. Publishing removes the root of the target, without
which there is no group to read. Then it copies the other objects, and writes the new root on the condition
that there is none. While there is no root, a marker object shows that the rest was written by streamdr, and
of which kind it is. A run that is killed in between leaves the staged work, and the next run publishes it
again. Objects that streamdr does not write are never removed: a target that contains some is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from streamdr.core.addresses import Address
from streamdr.errors import StoreError
from streamdr.store import ours
from streamdr.store.publish import StagedOutput
from streamdr.store.record import LARGEST_BYTES, ROOT, OutputKind, find_record, loads
from streamdr.store.remote import ConflictError, Objects, Version, in_parallel, open_objects
from streamdr.store.transfers import store_errors, upload, workspace

MARK = ".streamdr-publishing"
_LARGEST_MARK = 1024
_BATCH = 64
"""The number of objects that are copied between two checks of the lease."""


class RemoteStaging(StagedOutput[Address]):
    """Work staged at an address, which the store copies to the target."""

    _replaces: Version | None = None
    _arrays: set[str] | None = None

    def __enter__(self) -> Self:
        with store_errors(self.target, "written"):
            self._arrays = require_replaceable(self.target, self._kind, self._overwrite)
            self._replaces = self._root_version()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._resumable:
            with suppress(OSError):  # a lost connection was reported already
                _clear(self._beside, self.path.name)

    @contextmanager
    def filling(self) -> Iterator[Path]:
        """Provide a temporary folder, which is uploaded to the staging address."""
        with workspace(self.target) as here:
            here.mkdir()
            yield here
            files = [file.relative_to(here).as_posix() for file in here.rglob("*") if file.is_file()]
            upload(here, self.path, files)

    def publish(self) -> None:
        """Replace the target by the staged work, unless the target has changed since the start."""
        beside, new, old = self._beside, f"{self.path.name}/", f"{self.target.name}/"
        with store_errors(self.target, "written"):
            root = beside.get(new + ROOT)
            names = sorted({found.key.removeprefix(new) for found in beside.listed(self.path.name)} - {ROOT})
            self._require_lease()
            if self._root_version() != self._replaces:
                raise self._too_late()
            existing = {found.key.removeprefix(old) for found in beside.listed(self.target.name)}
            _require_nothing_foreign(self.target, ours.foreign_names(existing - {MARK}, self._arrays))
            beside.put(old + MARK, self._kind.encode("ascii"))
            beside.delete([old + ROOT])
            for first in range(0, len(names), _BATCH):
                # Copying may take long, and a run that was suspended meanwhile must not continue.
                self._require_lease()
                in_parallel(lambda name: beside.copy(new + name, old + name), names[first : first + _BATCH])
            beside.delete(old + name for name in existing.difference(names, {ROOT, MARK}))
            self._require_lease()
            try:
                beside.put_if(old + ROOT, bytes(root or b""), None)
            except ConflictError:
                raise self._too_late() from None
            beside.delete([old + MARK])
            _clear(beside, self.path.name)

    def _require_lease(self) -> None:
        if self._fence is not None:
            self._fence()

    def _root_version(self) -> Version | None:
        found = self._beside.get_versioned(f"{self.target.name}/{ROOT}")
        return None if found is None else found[1]

    @property
    def _beside(self) -> Objects:
        return open_objects(self.target.parent)


def sweep(target: Address) -> None:
    """Remove what killed runs left beside a complete output, since nothing needs it any more."""
    beside = open_objects(target.parent)
    staged = re.compile(re.escape(f".{target.name}.") + r"[\w-]+\.partial")
    record = find_record(_parsed(beside.get(f"{target.name}/{ROOT}")))[1]
    for name in beside.children() if record is not None else ():
        if staged.fullmatch(name):
            root = _parsed(beside.get(f"{name}/{ROOT}"))
            if record is not None and ours.is_staged_root(root, record["kind"]):
                _clear(beside, name)


def require_replaceable(target: Address, kind: OutputKind, overwrite: bool) -> set[str] | None:
    """Return the names of the arrays that may be replaced at a target (None: any), or raise StoreError."""
    objects = open_objects(target)
    names = set(objects.children())
    if not names:
        return set()
    if MARK in names and ROOT not in names:
        # A run was killed while it published. The markers of earlier versions are empty and name no kind.
        marked = bytes(objects.get(MARK, _LARGEST_MARK) or b"").decode("ascii", "replace") or kind
        document: dict[str, Any] = {}
        record: dict[str, Any] | None = {"kind": marked}
        arrays = None
    else:
        document, record = find_record(_parsed(objects.get(ROOT, LARGEST_BYTES)))
        arrays = None if record is None else ours.own_arrays(document, record)
    reason = ours.kind_reason(record, kind) or ours.attribute_reason(document)
    if reason is not None:
        raise _never_overwritten(target, reason)
    # Two levels of names, each of which is one request. Deeper levels are checked before they are replaced.
    folders = sorted(name for name in names - {ROOT, MARK} if arrays is None or name in arrays)
    within = zip(folders, in_parallel(objects.children, folders), strict=True)
    below = [f"{folder}/{name}" for folder, found in within for name in found]
    below = [name for name in below if not ours.is_own_folder(name, arrays)]  # arrays of models of a chain
    _require_nothing_foreign(
        target, [*names.difference(folders, {ROOT, MARK}), *ours.foreign_names(below, arrays)]
    )
    if not overwrite and ROOT in names:
        raise StoreError(
            f"{target}: exists; {ours.how_to_replace(kind)} to replace it, or choose another path"
        )
    return arrays


def _require_nothing_foreign(target: Address, found: Iterable[str]) -> None:
    if names := sorted(found):
        raise _never_overwritten(target, ours.foreign_reason(names))


def _never_overwritten(target: Address, reason: str) -> StoreError:
    return StoreError(
        f"{target}: exists and is never overwritten, since {reason}; move that elsewhere, or choose "
        "another path"
    )


def _parsed(root: Any) -> Any:
    try:
        return None if root is None else loads(bytes(root))
    except ValueError:
        return None


def _clear(beside: Objects, prefix: str) -> None:
    """Remove the staged work below a prefix, unless there are foreign objects."""
    keys = [found.key for found in beside.listed(prefix)]
    if not ours.foreign_names(key.removeprefix(f"{prefix}/") for key in keys):
        beside.delete(keys)
