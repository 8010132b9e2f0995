"""Outputs in an object store: chunks are objects. Metadata and models are downloaded and handled as files."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from streamdr.core.addresses import Address, Location
from streamdr.core.blocks import Array, Span
from streamdr.core.row_outputs import RowKind
from streamdr.errors import StoreError
from streamdr.store import ours, record, remote_publish
from streamdr.store.arrays import ArrayLayout, content_fault, encode_chunk
from streamdr.store.backend import GROUP_MARKERS, Backend, SizeOf, chunks_of, full_chunks, require_chunks
from streamdr.store.compare_and_swap import CompareAndSwap, CompareAndSwapObject
from streamdr.store.local import LocalBackend
from streamdr.store.record import ROOT, OutputKind
from streamdr.store.remote import Objects, in_parallel, open_objects
from streamdr.store.remote_publish import RemoteStaging, require_replaceable
from streamdr.store.rows import (
    RowCoordinate,
    coordinate_files,
    coordinate_names,
    read_layouts,
    require_whole_chunks,
    seal,
    sealed_layouts,
)
from streamdr.store.transfers import AT_ONCE, download, store_errors, upload, workspace


class ObjectBackend(Backend):
    """An output that consists of the objects below an address."""

    staging = RemoteStaging

    def __init__(self, address: Address) -> None:
        self.place: Address = address

    @property
    def _objects(self) -> Objects:
        return open_objects(self.place)

    def exists(self) -> bool:
        """Return whether there is any object."""
        with store_errors(self.place, "read"):
            return next(self._objects.listed(), None) is not None

    def sizes(self) -> dict[str, int]:
        """Return the size of each object, from one listing."""
        with store_errors(self.place, "read"):
            return {item.key: item.size for item in self._objects.listed()}

    def size_of(self) -> SizeOf:
        """Return a function that looks sizes up in one listing."""
        return self.sizes().get

    @contextmanager
    def metadata(self, *arrays: str) -> Iterator[Path]:
        """Provide a temporary folder with the downloaded metadata, also of the coordinates beside rows."""
        with workspace(self.place) as here:
            download(self.place, here, [ROOT, *(f"{array}/{ROOT}" for array in arrays)])
            beside = coordinate_names(record.draft(here) or {}) if arrays else []
            download(self.place, here, [f"{array}/{ROOT}" for array in beside])
            yield here

    @contextmanager
    def model_files(self) -> Iterator[Path]:
        """Provide a temporary folder with the downloaded files of the model that its record lists."""
        with self.metadata() as here:
            listed = record.read_group(here, "model").record["files"]
            sizes = self.sizes()
            names = [name for name in listed if name in sizes and _is_plain(name)]
            LocalBackend(here.parent).require_space(sum(sizes[name] for name in names))
            download(self.place, here, names)
            yield here

    def destination(self) -> Address:
        """Return the address. Refuse a whole bucket."""
        if self.place.parent == self.place:
            raise StoreError(f"{self}: is a whole bucket; give the output a name in it")
        return self.place

    def contains(self, other: Location) -> bool:
        """Return whether another address is this one, or lies below it."""
        return isinstance(other, Address) and self.place.contains(other)

    def lies_in(self, other: Location) -> bool:
        """Return whether this address is another one, or lies below it."""
        return isinstance(other, Address) and other.contains(self.place)

    def group_around(self, source: Location) -> Location:
        """Return the outermost address around a source that a marker shows to be a zarr group."""
        while isinstance(source, Address) and source.parent != source:
            above = open_objects(source.parent)
            if not any(above.size(marker) is not None for marker in GROUP_MARKERS):
                break
            source = source.parent
        return source

    def require_writable(self, kind: OutputKind, overwrite: bool) -> None:
        """Refuse an address that cannot be written, or whose content must not be replaced."""
        with store_errors(self.place, "written"):
            require_replaceable(self.place, kind, overwrite)
            # Only writing and deleting show whether the bucket allows it.
            probe = f".streamdr-{secrets.token_hex(8)}"
            beside = open_objects(self.place.parent)
            beside.put(probe, b"")
            beside.delete([probe])

    def require_space(self, nbytes: int) -> None:
        """Check nothing: buckets have no limit on their size."""

    def lease_file(self) -> CompareAndSwap:
        """Return a hidden object beside the output."""
        address = self.destination()
        return CompareAndSwapObject(address.with_name(f".{address.name}.lease"))

    def sweep(self) -> None:
        """Remove what killed runs staged."""
        with store_errors(self.place, "written"):
            remote_publish.sweep(self.place)

    @contextmanager
    def laying_out(self, kind: RowKind) -> Iterator[Path]:
        """Provide a temporary folder with the metadata, which is uploaded if it was changed."""
        with self.metadata(kind) as here:
            before = _contents(here)
            yield here
            _layouts.cache_clear()
            if (after := _contents(here)) == before:
                return
            with store_errors(self.place, "written"):
                # The record is removed first and written last: it declares the chunks to be of this output.
                objects = self._objects
                objects.delete([ROOT])
                objects.delete([found.key for found in objects.listed() if ours.is_own(found.key)])
            upload(here, self.place, after)

    def adopt_rows(self, earlier: Location, rows: int, kind: RowKind = "embedding") -> None:
        """Let the store copy the chunks."""
        assert isinstance(earlier, Address)  # work is staged beside the output that it replaces
        layout = _layouts(self.place, kind)[kind]
        with ObjectBackend(earlier).metadata(kind) as here:
            if sealed_layouts(here, kind)[kind].chunks != layout.chunks:
                raise StoreError(f"{earlier}: has chunks of another shape; transform all of it again")
        beside, existing = open_objects(self.place.parent), self.sizes()
        missing = [name for name in full_chunks(kind, layout, rows) if name not in existing]
        with store_errors(self.place, "written"):
            in_parallel(
                lambda name: beside.copy(f"{earlier.name}/{name}", f"{self.place.name}/{name}"), missing
            )

    def existing_chunks(self, kind: RowKind = "embedding") -> set[int]:
        """Download the chunks, and return the numbers of those with the correct checksum."""
        layout = _layouts(self.place, kind)[kind]
        names = [name for name, _ in chunks_of(kind, layout)]
        sizes = self.sizes()
        candidates = [number for number, name in enumerate(names) if sizes.get(name) == layout.file_bytes]

        def is_intact(number: int) -> bool:
            data = self._objects.get(names[number], layout.file_bytes)
            return data is not None and content_fault(bytes(data), layout) is None

        with store_errors(self.place, "read"):
            intact = in_parallel(is_intact, candidates, AT_ONCE)
        return {number for number, fine in zip(candidates, intact, strict=True) if fine}

    def write_rows(self, start: int, values: Array, kind: RowKind = "embedding") -> None:
        """Write whole chunks of rows."""
        layout = _layouts(self.place, kind)[kind]
        require_whole_chunks(str(self), layout.shape, layout.chunks, start, values)
        with store_errors(self.place, "written"):
            for rows in Span(start, start + len(values)).split(layout.chunks[0]):
                part = values[rows.start - start : rows.stop - start]
                name = _chunk_name(kind, layout, rows.start // layout.chunks[0])
                self._objects.put(name, encode_chunk(part, layout))

    def write_coordinate(self, coordinate: RowCoordinate) -> None:
        """Write each chunk of a coordinate as a file, and upload it."""
        name = coordinate.name
        with workspace(self.place) as here:
            download(self.place, here, [f"{name}/{ROOT}"])
            for file in coordinate_files(here, coordinate):
                with store_errors(self.place, "written"):
                    self._objects.put(file, (here / file).read_bytes())
                (here / file).unlink()

    def finish(self, kind: RowKind = "embedding") -> None:
        """Check that every chunk exists, and then record that the output is complete.

        Chunks are not read back. The store has compared each of them with the digest in its signed request,
        and the chunks of an earlier run were read by `existing_chunks`.
        """
        layouts, sizes = _layouts(self.place, kind), self.sizes()
        require_chunks(self.place, kind, layouts, sizes.get)
        chunks = {name for array, layout in layouts.items() for name, _ in chunks_of(array, layout)}
        left = sizes.keys() - chunks - {ROOT, *(f"{array}/{ROOT}" for array in layouts)}
        with store_errors(self.place, "written"):
            self._objects.delete(name for name in left if ours.is_own(name))
        with self.metadata(kind) as here:
            seal(here, kind)
            upload(here, self.place, [ROOT])

    def open_array(self, name: str) -> Any:
        """Return the zarr array of a name, opened for reading."""
        with store_errors(self.place, "read"):
            return self._objects.open_array(name, 3)


def _contents(here: Path) -> dict[str, bytes]:
    """Return the metadata in a folder: of the group and of its arrays."""
    return {file.relative_to(here).as_posix(): file.read_bytes() for file in sorted(here.rglob(ROOT))}


def _is_plain(name: str) -> bool:
    """Return whether a name is a relative path without `..` and without hidden parts."""
    return re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)*", name) is not None


def _chunk_name(kind: RowKind, layout: ArrayLayout, number: int) -> str:
    """Return the name of a chunk of rows, which is whole along all other dimensions."""
    return "/".join([kind, "c", str(number), *["0"] * (len(layout.shape) - 1)])


@lru_cache(maxsize=8)
def _layouts(address: Address, kind: RowKind) -> Mapping[str, ArrayLayout]:
    """Return the layouts of an output and of its coordinates, read once after they are laid out.

    On a worker, only that of the rows is used, which the key in the staged name determines.
    """
    with ObjectBackend(address).metadata(kind) as here:
        return read_layouts(here, kind)
