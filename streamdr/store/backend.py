"""The verbs for an output, whatever it is kept in.

A backend is one output at one place. `LocalBackend` keeps outputs in files, `ObjectBackend` in an object
store, and `streamdr.store.open_backend` chooses between them. What both do in the same way is written here,
in terms of what each does in its own way.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import DTypeLike

from streamdr.core.addresses import Location
from streamdr.core.blocks import Array, Span
from streamdr.core.row_outputs import RowKind
from streamdr.errors import OverlapError, StoreError
from streamdr.store import record
from streamdr.store.arrays import ArrayLayout
from streamdr.store.compare_and_swap import CompareAndSwap
from streamdr.store.models import SavedModel, read_model, write_model
from streamdr.store.publish import Fence, StagedOutput
from streamdr.store.record import Group, OutputKind, to_json
from streamdr.store.rows import SealedRows, lay_out, sealed_layout

GROUP_MARKERS = (".zgroup", ".zarray", ".zmetadata", record.ROOT)
"""The files by which a zarr group or array is known."""

SizeOf = Callable[[str], int | None]


class Backend(Protocol):
    """One output: a model, an embedding or other rows, finished or staged.

    Whatever fails is a StoreError that names the output. A backend pickles small, so that a task can write
    rows wherever it runs.

    Attributes
    ----------
    place
        Where the output is.
    staging
        How work is staged beside it.
    """

    place: Location
    staging: ClassVar[type[StagedOutput[Any]]]

    def __str__(self) -> str:
        return str(self.place)

    # What is there.

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is anything at the place."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """The bytes of each file of the output, by name."""

    @abstractmethod
    def size_of(self) -> SizeOf:
        """A function of a file's name that returns its bytes, or None where there is no such file."""

    def stored_bytes(self) -> int:
        """What the output takes where it is."""
        return sum(self.sizes().values())

    @abstractmethod
    def metadata(self, *arrays: str) -> AbstractContextManager[Path]:
        """A folder on this machine with the root `zarr.json`, and those of some arrays, if they are there."""

    def draft(self) -> dict[str, Any] | None:
        """The record as it stands, finished or not and unverified, or None where there is none to be read."""
        with self.metadata() as folder:
            return record.draft(folder)

    def read_group(self, kind: OutputKind | None = None) -> Group:
        """The record of a finished output, which is neither damaged, nor unfinished, nor of another kind."""
        with self.metadata() as folder:
            return replace(record.read_group(folder, kind), path=self.place)

    # Before anything is written, and after.

    def check_output(
        self,
        *,
        kind: OutputKind,
        inputs: Sequence[Location],
        overwrite: bool,
        other_outputs: Sequence[Location] = (),
    ) -> None:
        """Refuse, before anything is read, a target that could not or should not be written."""
        self.destination()
        for root in map(self.group_around, inputs):
            if self.lies_in(root):
                raise OverlapError(f"{self}: lies inside the input {root}; choose a path outside it")
            if self.contains(root):
                raise OverlapError(f"{self}: contains the input {root}; choose another path")
        for other in other_outputs:
            if self.lies_in(other) or self.contains(other):
                raise OverlapError(
                    f"{self}: overlaps another output, {other}; give each output a path of its own"
                )
        self.require_writable(kind, overwrite)

    @abstractmethod
    def destination(self) -> Location:
        """Where the output is written, links being followed. StoreError where there can be none."""

    @abstractmethod
    def contains(self, other: Location) -> bool:
        """Whether another place is this one, or lies below it."""

    @abstractmethod
    def lies_in(self, other: Location) -> bool:
        """Whether this place is another one, or lies below it."""

    @abstractmethod
    def group_around(self, source: Location) -> Location:
        """The outermost zarr group around a source that is kept in this way; any other source as it is."""

    @abstractmethod
    def require_writable(self, kind: OutputKind, overwrite: bool) -> None:
        """Refuse a place that cannot be written to, or that holds what is not to be replaced."""

    @abstractmethod
    def require_space(self, nbytes: int) -> None:
        """Refuse to begin writing `nbytes` where there is no room for them."""

    def stage(
        self, *, kind: OutputKind, overwrite: bool, key: str | None = None, fence: Fence | None = None
    ) -> StagedOutput[Any]:
        """A place beside the target for work that becomes the target, or leaves no trace.

        See `StagedOutput` for what the parameters mean.
        """
        return self.staging(self.place, kind=kind, overwrite=overwrite, key=key, fence=fence)

    @abstractmethod
    def lease_file(self) -> CompareAndSwap:
        """The slot of the output's lease: a hidden file, or object, beside it."""

    @abstractmethod
    def sweep(self) -> None:
        """Remove what killed runs left beside an output that is complete."""

    # Models.

    def save_model(
        self,
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
    ) -> Location:
        """Save a model, all or nothing.

        Parameters
        ----------
        model
            A dataclass of arrays (fields with `dims` in their metadata) and scalars.
        method, parameters
            What it was fitted by.
        feature_names, input_fingerprint, n_rows
            What it was fitted to.
        overwrite
            Whether a model that is there is replaced.
        extra
            What else is recorded with it.
        fence
            The check of a lease, which is asked in the step that publishes.

        Returns
        -------
        Path or Address
            Where the model is.
        """
        about = {
            "method": method,
            "parameters": parameters,
            "feature_names": None if feature_names is None else list(feature_names),
            "input_fingerprint": input_fingerprint,
            "n_rows": n_rows,
        }
        with self.stage(kind="model", overwrite=overwrite, fence=fence) as staging:
            with staging.filling() as folder:
                write_model(folder, model, about, extra)
            staging.publish()
        return self.place

    def load_model(self, *, models: Mapping[str, type] | None = None) -> SavedModel:
        """Load a model, every bit of which is checked. No code is run.

        Parameters
        ----------
        models
            The class of each method's models; those of streamdr's own methods if it is not given.

        Raises
        ------
        StoreError
            Where there is no model, or one that is damaged or of an unknown method.
        """
        with self.model_files() as folder:
            return read_model(folder, models)

    @abstractmethod
    def model_files(self) -> AbstractContextManager[Path]:
        """A folder on this machine with the files of a model, as far as they are there."""

    # Rows, which are laid out, written and finished where they are staged, and opened once published.

    def create_rows(
        self,
        kind: RowKind,
        *,
        shape: tuple[int, ...],
        dims: tuple[str, ...],
        dtype: DTypeLike,
        chunk_rows: int,
        output_names: Sequence[str] | None = None,
        attributes: Mapping[str, Any],
    ) -> None:
        """Lay out an array where it is staged, keeping the rows that a killed run of the same left there.

        `shape` begins with the number of rows; each is in one chunk. `attributes` go into the record. Rows
        are kept only if all attributes are the same as before, so they must include whatever decides the
        values: the model's digest, the input's fingerprint.
        """
        layout = ArrayLayout(shape, (min(chunk_rows, shape[0]), *shape[1:]), np.dtype(dtype), dims)
        names = None if output_names is None else list(output_names)
        sizes = {"n_rows": shape[0], "n_outputs": prod(shape[1:])}
        entries = to_json({**attributes, **sizes, "output_names": names})
        with self.laying_out(kind) as folder:
            lay_out(folder, kind, layout, entries)

    def create_embedding(
        self,
        *,
        n_rows: int,
        n_outputs: int,
        dtype: DTypeLike,
        chunk_rows: int,
        output_names: Sequence[str] | None = None,
        attributes: Mapping[str, Any],
    ) -> None:
        """The same for an embedding."""
        self.create_rows(
            "embedding",
            shape=(n_rows, n_outputs),
            dims=("sample", "component"),
            dtype=dtype,
            chunk_rows=chunk_rows,
            output_names=output_names,
            attributes=attributes,
        )

    @abstractmethod
    def laying_out(self, kind: RowKind) -> AbstractContextManager[Path]:
        """A folder on this machine with the metadata of rows, which becomes that of the output.

        Where the metadata is changed in the block, rows that were written before are removed.
        """

    @abstractmethod
    def adopt_rows(self, earlier: Location, rows: int, kind: RowKind = "embedding") -> None:
        """Take over the chunks of an earlier output beside it that hold nothing but the first `rows` rows."""

    @abstractmethod
    def existing_chunks(self, kind: RowKind = "embedding") -> set[int]:
        """The chunks that need not be written again: there, whole, and with the right checksum."""

    @abstractmethod
    def write_rows(self, start: int, values: Array, kind: RowKind = "embedding") -> None:
        """Write whole chunks of rows. Doing so twice, or while other processes write others, is harmless."""

    @abstractmethod
    def finish(self, kind: RowKind = "embedding") -> None:
        """See that every chunk is as it was written, and only then record that the output is complete."""

    def open_rows(self, kind: RowKind) -> SealedRows:
        """Open a finished output for reading, all of its chunks being there."""
        with self.metadata(kind) as folder:
            layout = sealed_layout(folder, kind)
        require_chunks(self.place, kind, layout, self.size_of())
        return SealedRows(self.place, self.open_array(kind))

    def open_embedding(self) -> SealedRows:
        """Open a finished embedding for reading, all of its chunks being there."""
        return self.open_rows("embedding")

    @abstractmethod
    def open_array(self, name: str) -> Any:
        """The zarr array of a name, to be read."""


def chunks_of(kind: RowKind, layout: ArrayLayout) -> Iterator[tuple[str, Span]]:
    """The name of each chunk of rows, in order, and its rows."""
    for key, (rows, *_) in layout.files():
        yield f"{kind}/{key}", Span(rows.start, rows.stop)


def full_chunks(kind: RowKind, layout: ArrayLayout, rows: int) -> Iterator[str]:
    """The names of the chunks that hold nothing but the first `rows` rows, and are not padded."""
    return (name for name, _ in islice(chunks_of(kind, layout), rows // layout.chunks[0]))


def require_chunks(place: Location, kind: RowKind, layout: ArrayLayout, size_of: SizeOf) -> None:
    """Refuse an output of which a chunk is missing or cut short.

    It ends at the first such chunk: metadata may declare any number of them.
    """
    for name, rows in chunks_of(kind, layout):
        size = size_of(name)
        if size != layout.file_bytes:
            fault = "is missing" if size is None else f"has {size} bytes, not {layout.file_bytes}"
            raise bad_chunk(place / name, fault, rows)


def bad_chunk(file: Location, fault: str, rows: Span) -> StoreError:
    """The error that says what is wrong with a chunk of rows."""
    return StoreError(f"{file}: {fault} (rows {rows.start}-{rows.stop - 1}); transform again")
