"""Models, embeddings and other rows at an address: what is small is brought here and handled as files are."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from numpy.typing import DTypeLike

from streamdr.addresses import Address
from streamdr.blocks import Array, Span
from streamdr.errors import StoreError
from streamdr.methods.rows import RowKind
from streamdr.remote import in_parallel, open_objects
from streamdr.store import models, ours, record
from streamdr.store import rows as local_rows
from streamdr.store.arrays import (
    CHECKSUM_BYTES,
    CHUNK_BYTES,
    Layout,
    content_fault,
    encode_chunk,
    parse_layout,
)
from streamdr.store.models import SavedModel
from streamdr.store.publish import Fence, require_space
from streamdr.store.record import LARGEST_BYTES, ROOT, Group, Kind
from streamdr.store.remote_publish import RemoteStaging, told
from streamdr.store.rows import SealedRows

_AT_ONCE = 4
"""The chunks that are brought back at a time, to be checked."""


def save_model(
    target: Address,
    model: Any,
    *,
    method: str,
    parameters: Mapping[str, Any],
    feature_names: Sequence[str] | None,
    input_fingerprint: str,
    n_rows: int,
    overwrite: bool = False,
    extra: Mapping[str, Any] | None = None,
    fence: Fence | None = None,
) -> Address:
    """Save a model to files here, and then to the address, all or nothing."""
    with (
        RemoteStaging(target, kind="model", overwrite=overwrite, fence=fence) as staging,
        _workspace(target) as here,
    ):
        models.save_model(
            here,
            model,
            method=method,
            parameters=parameters,
            feature_names=feature_names,
            input_fingerprint=input_fingerprint,
            n_rows=n_rows,
            extra=extra,
        )
        files = [file.relative_to(here).as_posix() for file in here.rglob("*") if file.is_file()]
        _upload(here, staging.path, files)
        staging.publish()
    return target


def load_model(address: Address, *, classes: Mapping[str, type] | None = None) -> SavedModel:
    """Load a model, every bit of which is checked. What its record does not list is left where it is."""
    with _workspace(address) as here:
        _download(address, here, [ROOT])
        listed = record.read_group(here, "model").record.get("files")
        names = [name for name in listed if _is_plain(name)] if isinstance(listed, dict) else []
        sizes = _sizes(address)
        require_space(here.parent, sum(sizes.get(name, 0) for name in names))
        _download(address, here, [name for name in names if name in sizes])
        return models.load_model(here, models=classes)


def read_group(address: Address, kind: Kind | None = None) -> Group:
    """Read the record of a finished output, refusing one that is damaged, unfinished or of another kind."""
    with _workspace(address) as here:
        _download(address, here, [ROOT])
        return replace(record.read_group(here, kind), path=address)


def draft(address: Address) -> dict[str, Any] | None:
    """The record as it stands, finished or not and unverified, or None where there is none to be read."""
    with _workspace(address) as here:
        _download(address, here, [ROOT])
        return record.draft(here)


def exists(address: Address) -> bool:
    """Whether there is anything at the address."""
    with told(address, "read"):
        return next(open_objects(address).listed(), None) is not None


def create_rows(
    address: Address,
    kind: RowKind,
    *,
    shape: tuple[int, ...],
    dims: tuple[str, ...],
    dtype: DTypeLike,
    chunk_rows: int,
    output_names: Sequence[str] | None = None,
    attributes: Mapping[str, Any],
) -> None:
    """Lay out an array where it is staged, keeping the rows that a killed run of the same left there."""
    with _workspace(address) as here:
        _download(address, here, _metadata(kind))
        before = _contents(here, kind)
        local_rows.create_rows(
            here,
            kind,
            shape=shape,
            dims=dims,
            dtype=dtype,
            chunk_rows=chunk_rows,
            output_names=output_names,
            attributes=attributes,
        )
        if _contents(here, kind) == before:
            return
        with told(address, "written"):
            objects = open_objects(address)
            # The record goes first and comes last: with it, chunks are taken for this output's.
            objects.delete([ROOT])
            objects.delete([found.key for found in objects.listed() if ours.is_own(found.key)])
        _upload(here, address, _metadata(kind))
        _layout.cache_clear()


def write_rows(address: Address, kind: RowKind, start: int, values: Array) -> None:
    """Write whole chunks of rows. Doing so twice, or beside other rows in other processes, is harmless."""
    layout = _layout(address, kind)
    local_rows.require_whole_chunks(str(address), layout.shape, layout.chunks, start, values)
    objects = open_objects(address)
    with told(address, "written"):
        for rows in Span(start, start + len(values)).split(layout.chunks[0]):
            part = values[rows.start - start : rows.stop - start]
            objects.put(_key(kind, layout, rows.start // layout.chunks[0]), encode_chunk(part, layout))


def adopt_rows(address: Address, kind: RowKind, earlier: Address, rows: int) -> None:
    """Take over the chunks of an output beside this one that hold nothing but the first `rows` rows."""
    layout = _layout(address, kind)
    with _workspace(earlier) as here:
        _download(earlier, here, _metadata(kind))
        if local_rows.sealed_layout(here, kind).chunks != layout.chunks:
            raise StoreError(f"{earlier}: has chunks of another shape; transform all of it again")
    beside, there = open_objects(address.parent), _sizes(address)
    keys = [_key(kind, layout, number) for number in range(rows // layout.chunks[0])]
    missing = [key for key in keys if key not in there]
    with told(address, "written"):
        in_parallel(lambda key: beside.copy(f"{earlier.name}/{key}", f"{address.name}/{key}"), missing)


def existing_chunks(address: Address, kind: RowKind) -> set[int]:
    """The chunks that need not be written again: there, whole, and with the right checksum."""
    layout, sizes, objects = _layout(address, kind), _sizes(address), open_objects(address)
    candidates = [i for i in range(layout.grid[0]) if sizes.get(_key(kind, layout, i)) == layout.file_bytes]

    def is_intact(number: int) -> bool:
        data = objects.get(_key(kind, layout, number), layout.file_bytes)
        return data is not None and content_fault(bytes(data), layout) is None

    with told(address, "read"):
        return {
            i
            for i, fine in zip(candidates, in_parallel(is_intact, candidates, _AT_ONCE), strict=True)
            if fine
        }


def finish(address: Address, kind: RowKind) -> None:
    """See that every chunk is there, and only then record that the output is complete.

    Chunks are not read back: the store compared each with the digest that its request was signed with, and
    those of an earlier run were read when they were found.
    """
    layout, sizes = _layout(address, kind), _sizes(address)
    _require_all(address, kind, layout, sizes)
    chunks = {_key(kind, layout, i) for i in range(layout.grid[0])}
    with told(address, "written"):
        left = sizes.keys() - chunks - set(_metadata(kind))
        open_objects(address).delete(name for name in left if ours.is_own(name))
    with _workspace(address) as here:
        _download(address, here, _metadata(kind))
        local_rows.seal(here, kind)
        _upload(here, address, [ROOT])


def open_rows(address: Address, kind: RowKind) -> SealedRows:
    """Open a finished output for reading, all of its chunks being there."""
    with _workspace(address) as here:
        _download(address, here, _metadata(kind))
        layout = local_rows.sealed_layout(here, kind)
    _require_all(address, kind, layout, _sizes(address))
    with told(address, "read"):
        return SealedRows(address, open_objects(address).open_array(kind, 3))


def stored_bytes(address: Address) -> int:
    """What an output takes where it is."""
    return sum(_sizes(address).values())


@contextmanager
def _workspace(address: Address) -> Iterator[Path]:
    """A directory for files that stand for objects. Errors that name them name the objects instead."""
    with tempfile.TemporaryDirectory(prefix="streamdr-") as directory:
        here = Path(directory) / address.name
        try:
            yield here
        except StoreError as error:
            raise type(error)(str(error).replace(str(here), str(address))) from error.__cause__


def _download(address: Address, here: Path, names: Iterable[str]) -> None:
    """Bring the objects that are there, a few at a time."""
    objects = open_objects(address)

    def fetch(name: str) -> None:
        is_metadata = name.rpartition("/")[2] == ROOT
        data = objects.get(name, LARGEST_BYTES if is_metadata else CHUNK_BYTES + CHECKSUM_BYTES)
        if data is not None:
            (here / name).parent.mkdir(parents=True, exist_ok=True)
            (here / name).write_bytes(data)

    with told(address, "read"):
        in_parallel(fetch, names, _AT_ONCE)


def _upload(here: Path, address: Address, names: Iterable[str]) -> None:
    """Write files as objects, the root after all others."""
    objects = open_objects(address)
    with told(address, "written"):
        rest = [name for name in names if name != ROOT]
        in_parallel(lambda name: objects.put(name, (here / name).read_bytes()), rest, _AT_ONCE)
        objects.put(ROOT, (here / ROOT).read_bytes())


def _metadata(kind: RowKind) -> tuple[str, str]:
    return ROOT, f"{kind}/{ROOT}"


def _contents(here: Path, kind: RowKind) -> dict[str, bytes]:
    return {name: (here / name).read_bytes() for name in _metadata(kind) if (here / name).is_file()}


def _is_plain(name: str) -> bool:
    """Whether a name leads to a file below, and nowhere else."""
    return re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)*", name) is not None


def _sizes(address: Address) -> dict[str, int]:
    with told(address, "read"):
        return {found.key: found.size for found in open_objects(address).listed()}


def _key(kind: RowKind, layout: Layout, number: int) -> str:
    """The chunk of some rows, whole along all other dimensions."""
    return "/".join([kind, "c", str(number), *["0"] * (len(layout.shape) - 1)])


@lru_cache(maxsize=8)
def _layout(address: Address, kind: RowKind) -> Layout:
    """How an output is cut, asked for once a process: the key in a staging's name stands for it, too."""
    with _workspace(address) as here:
        _download(address, here, _metadata(kind))
        return parse_layout(record.parse_json(here / kind / ROOT), here / kind)


def _require_all(address: Address, kind: RowKind, layout: Layout, sizes: Mapping[str, int]) -> None:
    """Refuse an output of which a chunk is missing or cut short."""
    for number, rows in enumerate(Span(0, layout.shape[0]).split(layout.chunks[0])):
        key = _key(kind, layout, number)
        size = sizes.get(key)
        if size != layout.file_bytes:
            fault = "is missing" if size is None else f"has {size} bytes, not {layout.file_bytes}"
            raise StoreError(f"{address / key}: {fault} (rows {rows.start}-{rows.stop - 1}); transform again")
