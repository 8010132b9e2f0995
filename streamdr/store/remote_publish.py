"""Publishing to an object store, which has no rename: the root of a group goes first, and comes back last.

Work is staged under a hidden prefix beside the target. To publish is to remove the target's root, without
which there is no group to be read, to copy the rest over, and to write the new root on the condition that
nobody else has. A mark says, while there is no root, that what is there is streamdr's own, and of which kind.
Whoever is killed in between leaves the staged work, and the next run publishes it again. Objects that
streamdr does not write are never removed, wherever they are: a target that holds some is refused.
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
"""The objects that are copied between two looks at the lease."""


class RemoteStaging(StagedOutput[Address]):
    """Work staged at an address, and copied to the target by the store."""

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
            with suppress(OSError):  # a store that was lost is told of already
                _clear(self._beside, self.path.name)

    @contextmanager
    def filling(self) -> Iterator[Path]:
        """A folder that is sent to where work is staged."""
        with workspace(self.target) as here:
            here.mkdir()
            yield here
            files = [file.relative_to(here).as_posix() for file in here.rglob("*") if file.is_file()]
            upload(here, self.path, files)

    def publish(self) -> None:
        """Replace the target by what was staged, unless it is not any more what was there at the start."""
        beside, new, old = self._beside, f"{self.path.name}/", f"{self.target.name}/"
        with store_errors(self.target, "written"):
            root = beside.get(new + ROOT)
            names = sorted({found.key.removeprefix(new) for found in beside.listed(self.path.name)} - {ROOT})
            self._require_ours()
            if self._root_version() != self._replaces:
                raise self._late()
            there = {found.key.removeprefix(old) for found in beside.listed(self.target.name)}
            _require_no_strangers(self.target, ours.strange_names(there - {MARK}, self._arrays))
            beside.put(old + MARK, self._kind.encode("ascii"))
            beside.delete([old + ROOT])
            for first in range(0, len(names), _BATCH):
                # Copying may take long, and a run that was asleep meanwhile must not go on.
                self._require_ours()
                in_parallel(lambda name: beside.copy(new + name, old + name), names[first : first + _BATCH])
            beside.delete(old + name for name in there.difference(names, {ROOT, MARK}))
            self._require_ours()
            try:
                beside.put_if(old + ROOT, bytes(root or b""), None)
            except ConflictError:
                raise self._late() from None
            beside.delete([old + MARK])
            _clear(beside, self.path.name)

    def _require_ours(self) -> None:
        if self._fence is not None:
            self._fence()

    def _root_version(self) -> Version | None:
        found = self._beside.get_versioned(f"{self.target.name}/{ROOT}")
        return None if found is None else found[1]

    @property
    def _beside(self) -> Objects:
        return open_objects(self.target.parent)


def sweep(target: Address) -> None:
    """Remove what killed runs left beside an output that is complete: none of it is of use any more."""
    beside = open_objects(target.parent)
    staged = re.compile(re.escape(f".{target.name}.") + r"[\w-]+\.partial")
    record = find_record(_parsed(beside.get(f"{target.name}/{ROOT}")))[1]
    for name in beside.children() if record is not None else ():
        if staged.fullmatch(name):
            root = _parsed(beside.get(f"{name}/{ROOT}"))
            if record is not None and ours.is_staged_root(root, record["kind"]):
                _clear(beside, name)


def require_replaceable(target: Address, kind: OutputKind, overwrite: bool) -> set[str] | None:
    """The names of the arrays that may be replaced at a target (None: whatever is there), or StoreError."""
    objects = open_objects(target)
    names = set(objects.children())
    if not names:
        return set()
    if MARK in names and ROOT not in names:
        # A run was killed while it published. Marks were empty before they told of which kind.
        being = bytes(objects.get(MARK, _LARGEST_MARK) or b"").decode("ascii", "replace") or kind
        document: dict[str, Any] = {}
        record: dict[str, Any] | None = {"kind": being}
        arrays = None
    else:
        document, record = find_record(_parsed(objects.get(ROOT, LARGEST_BYTES)))
        arrays = None if record is None else ours.own_arrays(document, record)
    reason = ours.objection(record, kind) or ours.noted(document)
    if reason is not None:
        raise _never(target, reason)
    # Two levels of names, each of which is one request. What lies deeper is looked at before it is replaced.
    folders = sorted(name for name in names - {ROOT, MARK} if arrays is None or name in arrays)
    within = zip(folders, in_parallel(objects.children, folders), strict=True)
    below = [f"{folder}/{name}" for folder, found in within for name in found]
    _require_no_strangers(
        target, [*names.difference(folders, {ROOT, MARK}), *ours.strange_names(below, arrays)]
    )
    if not overwrite and ROOT in names:
        raise StoreError(
            f"{target}: exists; {ours.how_to_replace(kind)} to replace it, or choose another path"
        )
    return arrays


def _require_no_strangers(target: Address, found: Iterable[str]) -> None:
    if names := sorted(found):
        raise _never(target, ours.in_words(names))


def _never(target: Address, reason: str) -> StoreError:
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
    """Remove what streamdr staged below a prefix, unless there is anything else."""
    keys = [found.key for found in beside.listed(prefix)]
    if not ours.strange_names(key.removeprefix(f"{prefix}/") for key in keys):
        beside.delete(keys)
