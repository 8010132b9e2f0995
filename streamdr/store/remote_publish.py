"""Publishing to an object store, which has no rename: the root of a group goes first, and comes back last.

Work is staged under a hidden prefix beside the target. To publish is to remove the target's root, without
which there is no group to be read, to copy the rest over, and to write the new root on the condition that
nobody else has. A mark says, while there is no root, that what is there is streamdr's own, and of which kind.
Whoever is killed in between leaves the staged work, and the next run publishes it again. Objects that
streamdr does not write are never removed, wherever they are: a target that holds some is refused.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from streamdr.addresses import Address, Place
from streamdr.errors import OverlapError, StoreError
from streamdr.files import FileTooLargeError
from streamdr.remote import ConflictError, Objects, RemoteError, Version, in_parallel, open_objects
from streamdr.store import ours
from streamdr.store.publish import Fence
from streamdr.store.record import LARGEST_BYTES, ROOT, Kind, find_record, loads

MARK = ".streamdr-publishing"
_LARGEST_MARK = 1024
_BATCH = 64
"""The objects that are copied between two looks at the lease."""
_MARKERS = (".zgroup", ".zarray", ".zmetadata", ROOT)


class RemoteStaging:
    """The counterpart of `Staging` for an address. Its `path` is the address that work is staged at."""

    def __init__(
        self,
        target: Address,
        *,
        kind: Kind,
        overwrite: bool,
        key: str | None = None,
        fence: Fence | None = None,
    ) -> None:
        self.target = target
        self.path = target.with_name(f".{target.name}.{key or secrets.token_hex(8)}.partial")
        self._kind = kind
        self._overwrite = overwrite
        self._resumable = key is not None
        self._fence = fence
        self._replaces: Version | None = None
        self._arrays: set[str] | None = None

    def __enter__(self) -> Self:
        with told(self.target, "written"):
            self._arrays = _require_replaceable(self.target, self._kind, self._overwrite)
            self._replaces = self._root_version()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._resumable:
            with suppress(OSError):  # a store that was lost is told of already
                _clear(self._beside, self.path.name)

    def publish(self) -> None:
        """Replace the target by what was staged, unless it is not any more what was there at the start."""
        beside, new, old = self._beside, f"{self.path.name}/", f"{self.target.name}/"
        with told(self.target, "written"):
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

    def _late(self) -> StoreError:
        return StoreError(
            f"{self.target}: was written by another run meanwhile, and is left as that run made it"
        )

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


def check_output(
    target: Address,
    *,
    kind: Kind,
    inputs: Sequence[Place],
    overwrite: bool,
    other_outputs: Sequence[Place] = (),
) -> None:
    """Refuse, before anything is read, a target that could not or should not be written."""
    if target.parent == target:
        raise StoreError(f"{target}: is a whole bucket; give the output a name in it")
    for source in inputs:
        if isinstance(source, Address):
            root = _store_root(source)
            if root.contains(target):
                raise OverlapError(f"{target}: lies inside the input {root}; choose a place outside it")
            if target.contains(root):
                raise OverlapError(f"{target}: contains the input {root}; choose another place")
    for other in other_outputs:
        if isinstance(other, Address) and (other.contains(target) or target.contains(other)):
            raise OverlapError(
                f"{target}: overlaps another output, {other}; give each output a place of its own"
            )
    with told(target, "written"):
        _require_replaceable(target, kind, overwrite)
        # What one may do in a bucket has one honest test, which is to do it.
        probe = f".streamdr-{secrets.token_hex(8)}"
        open_objects(target.parent).put(probe, b"")
        open_objects(target.parent).delete([probe])


@contextmanager
def told(place: Address, what: str) -> Iterator[None]:
    """Turn what went wrong with a store into an error that says with which."""
    try:
        yield
    except RemoteError as error:
        raise StoreError(f"{place}: cannot be {what}: {error}") from error
    except FileTooLargeError as error:
        raise StoreError(
            f"{place}: cannot be {what}: of an object in it, {error}: streamdr did not write it, so remove it"
        ) from error
    except FileNotFoundError:
        raise StoreError(f"{place}: cannot be {what}: there is no such bucket; check the address") from None


def _require_replaceable(target: Address, kind: Kind, overwrite: bool) -> set[str] | None:
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
            f"{target}: exists; {ours.how_to_replace(kind)} to replace it, or choose another place"
        )
    return arrays


def _require_no_strangers(target: Address, found: Iterable[str]) -> None:
    if names := sorted(found):
        raise _never(target, ours.in_words(names))


def _never(target: Address, reason: str) -> StoreError:
    return StoreError(
        f"{target}: exists and is never overwritten, since {reason}; move that elsewhere, or choose "
        "another place"
    )


def _parsed(root: Any) -> Any:
    try:
        return None if root is None else loads(bytes(root))
    except ValueError:
        return None


def _store_root(address: Address) -> Address:
    """The outermost zarr group around an array or group, or the address itself."""
    while address.parent != address:
        above = open_objects(address.parent)
        if not any(above.size(marker) is not None for marker in _MARKERS):
            break
        address = address.parent
    return address


def _clear(beside: Objects, prefix: str) -> None:
    """Remove what streamdr staged below a prefix, unless there is anything else."""
    keys = [found.key for found in beside.listed(prefix)]
    if not ours.strange_names(key.removeprefix(f"{prefix}/") for key in keys):
        beside.delete(keys)
