"""Outputs in an object store: chunks are objects; what is small is brought here and handled as files are."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
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
from streamdr.store.rows import read_layout, require_whole_chunks, seal, sealed_layout
from streamdr.store.transfers import AT_ONCE, download, store_errors, upload, workspace


class ObjectBackend(Backend):
    """An output that is the objects below an address."""

    staging = RemoteStaging

    def __init__(self, address: Address) -> None:
        self.place: Address = address

    @property
    def _objects(self) -> Objects:
        return open_objects(self.place)

    def exists(self) -> bool:
        """Whether there is any object."""
        with store_errors(self.place, "read"):
            return next(self._objects.listed(), None) is not None

    def sizes(self) -> dict[str, int]:
        """The bytes of each object, by one listing."""
        with store_errors(self.place, "read"):
            return {item.key: item.size for item in self._objects.listed()}

    def size_of(self) -> SizeOf:
        """A look at one listing."""
        return self.sizes().get

    @contextmanager
    def metadata(self, *arrays: str) -> Iterator[Path]:
        """A folder that they are brought to."""
        with workspace(self.place) as here:
            download(self.place, here, [ROOT, *(f"{array}/{ROOT}" for array in arrays)])
            yield here

    @contextmanager
    def model_files(self) -> Iterator[Path]:
        """A folder that they are brought to. What the record does not list is left where it is."""
        with self.metadata() as here:
            listed = record.read_group(here, "model").record["files"]
            sizes = self.sizes()
            names = [name for name in listed if name in sizes and _is_plain(name)]
            LocalBackend(here.parent).require_space(sum(sizes[name] for name in names))
            download(self.place, here, names)
            yield here

    def destination(self) -> Address:
        """The address, which has to name something in a bucket."""
        if self.place.parent == self.place:
            raise StoreError(f"{self}: is a whole bucket; give the output a name in it")
        return self.place

    def contains(self, other: Location) -> bool:
        """Whether another address is this one, or lies below it."""
        return isinstance(other, Address) and self.place.contains(other)

    def lies_in(self, other: Location) -> bool:
        """Whether this address is another one, or lies below it."""
        return isinstance(other, Address) and other.contains(self.place)

    def group_around(self, source: Location) -> Location:
        """The outermost address of which a marker says that it is a zarr group."""
        while isinstance(source, Address) and source.parent != source:
            above = open_objects(source.parent)
            if not any(above.size(marker) is not None for marker in GROUP_MARKERS):
                break
            source = source.parent
        return source

    def require_writable(self, kind: OutputKind, overwrite: bool) -> None:
        """Refuse an address that cannot be written to, or that holds what is not to be replaced."""
        with store_errors(self.place, "written"):
            require_replaceable(self.place, kind, overwrite)
            # What one may do in a bucket has one honest test, which is to do it.
            probe = f".streamdr-{secrets.token_hex(8)}"
            beside = open_objects(self.place.parent)
            beside.put(probe, b"")
            beside.delete([probe])

    def require_space(self, nbytes: int) -> None:
        """Buckets have no end."""

    def lease_file(self) -> CompareAndSwap:
        """A hidden object beside the output."""
        address = self.destination()
        return CompareAndSwapObject(address.with_name(f".{address.name}.lease"))

    def sweep(self) -> None:
        """Remove what killed runs staged."""
        with store_errors(self.place, "written"):
            remote_publish.sweep(self.place)

    @contextmanager
    def laying_out(self, kind: RowKind) -> Iterator[Path]:
        """A folder that the metadata is brought to, and sent from if it was changed."""
        with self.metadata(kind) as here:
            before = _contents(here, kind)
            yield here
            if _contents(here, kind) == before:
                return
            with store_errors(self.place, "written"):
                # The record goes first and comes last: with it, chunks are taken for this output's.
                objects = self._objects
                objects.delete([ROOT])
                objects.delete([found.key for found in objects.listed() if ours.is_own(found.key)])
            upload(here, self.place, _metadata_names(kind))
            _layout.cache_clear()

    def adopt_rows(self, earlier: Location, rows: int, kind: RowKind = "embedding") -> None:
        """Have the store copy the chunks."""
        assert isinstance(earlier, Address)  # what is staged is beside what it replaces
        layout = _layout(self.place, kind)
        with ObjectBackend(earlier).metadata(kind) as here:
            if sealed_layout(here, kind).chunks != layout.chunks:
                raise StoreError(f"{earlier}: has chunks of another shape; transform all of it again")
        beside, there = open_objects(self.place.parent), self.sizes()
        missing = [name for name in full_chunks(kind, layout, rows) if name not in there]
        with store_errors(self.place, "written"):
            in_parallel(
                lambda name: beside.copy(f"{earlier.name}/{name}", f"{self.place.name}/{name}"), missing
            )

    def existing_chunks(self, kind: RowKind = "embedding") -> set[int]:
        """The chunks that, brought here, have the right checksum."""
        layout = _layout(self.place, kind)
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
        layout = _layout(self.place, kind)
        require_whole_chunks(str(self), layout.shape, layout.chunks, start, values)
        with store_errors(self.place, "written"):
            for rows in Span(start, start + len(values)).split(layout.chunks[0]):
                part = values[rows.start - start : rows.stop - start]
                name = _chunk_name(kind, layout, rows.start // layout.chunks[0])
                self._objects.put(name, encode_chunk(part, layout))

    def finish(self, kind: RowKind = "embedding") -> None:
        """See that every chunk is there, and only then record that the output is complete.

        Chunks are not read back: the store compared each with the digest that its request was signed with,
        and those of an earlier run were read when they were found.
        """
        layout, sizes = _layout(self.place, kind), self.sizes()
        require_chunks(self.place, kind, layout, sizes.get)
        chunks = {name for name, _ in chunks_of(kind, layout)}
        left = sizes.keys() - chunks - set(_metadata_names(kind))
        with store_errors(self.place, "written"):
            self._objects.delete(name for name in left if ours.is_own(name))
        with self.metadata(kind) as here:
            seal(here, kind)
            upload(here, self.place, [ROOT])

    def open_array(self, name: str) -> Any:
        """The zarr array of a name, to be read."""
        with store_errors(self.place, "read"):
            return self._objects.open_array(name, 3)


def _metadata_names(kind: RowKind) -> tuple[str, str]:
    return ROOT, f"{kind}/{ROOT}"


def _contents(here: Path, kind: RowKind) -> dict[str, bytes]:
    return {name: (here / name).read_bytes() for name in _metadata_names(kind) if (here / name).is_file()}


def _is_plain(name: str) -> bool:
    """Whether a name leads to a file below, and nowhere else."""
    return re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)*", name) is not None


def _chunk_name(kind: RowKind, layout: ArrayLayout, number: int) -> str:
    """The chunk of some rows, whole along all other dimensions."""
    return "/".join([kind, "c", str(number), *["0"] * (len(layout.shape) - 1)])


@lru_cache(maxsize=8)
def _layout(address: Address, kind: RowKind) -> ArrayLayout:
    """How an output is cut, asked for once a process: the key in a staging's name stands for it, too."""
    with ObjectBackend(address).metadata(kind) as here:
        return read_layout(here, kind)
