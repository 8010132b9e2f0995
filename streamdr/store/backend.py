"""The operations on an output, in files or in an object store.

A backend is one output at one location. `LocalBackend` keeps outputs in files, `ObjectBackend` in an object
store, and `streamdr.store.open_backend` chooses between them. The code that both share is in the protocol. It
calls the abstract methods that each backend implements.
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
from streamdr.core.axes import FeatureAxes
from streamdr.core.blocks import Array, Span
from streamdr.core.row_outputs import RowKind
from streamdr.errors import OverlapError, StoreError
from streamdr.store import record
from streamdr.store.arrays import ArrayLayout
from streamdr.store.compare_and_swap import CompareAndSwap
from streamdr.store.models import SavedModel, read_model, write_model
from streamdr.store.publish import Fence, StagedOutput
from streamdr.store.record import Group, OutputKind, to_json
from streamdr.store.rows import RowCoordinate, SealedRows, coordinate_names, lay_out, sealed_layouts

GROUP_MARKERS = (".zgroup", ".zarray", ".zmetadata", record.ROOT)
"""The files that mark a directory as a zarr group or array."""

SizeOf = Callable[[str], int | None]


class Backend(Protocol):
    """One output: a model, an embedding or other rows, finished or staged.

    Every failure is a StoreError that names the output. The pickle of a backend is small, so that a task can
    write rows on any worker.

    Attributes
    ----------
    place
        Where the output is.
    staging
        How work is staged beside it.
    """

    place: Location
    staging: ClassVar[type[StagedOutput[Any]]]
    checksum: ClassVar[str] = "crc32c"
    """The checksum of the values of rows."""
    publishes_entries: ClassVar[bool] = False
    """Whether it is several entries of a store of others. Then rows of an earlier output are not kept."""

    def __str__(self) -> str:
        return str(self.place)

    # Looking at the output.

    @abstractmethod
    def exists(self) -> bool:
        """Return whether anything exists at the location."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Return the size of each file of the output in bytes, by name."""

    @abstractmethod
    def size_of(self) -> SizeOf:
        """Return a function that maps the name of a file to its size, or to None if it does not exist."""

    def stored_bytes(self) -> int:
        """Return the size of the whole output in bytes."""
        return sum(self.sizes().values())

    @abstractmethod
    def metadata(self, *arrays: str) -> AbstractContextManager[Path]:
        """Provide a local folder with the root `zarr.json` and those of some arrays, if they exist."""

    def draft(self) -> dict[str, Any] | None:
        """Return the record, finished or not and unverified, or None if none can be read."""
        with self.metadata() as folder:
            return record.draft(folder)

    def read_group(self, kind: OutputKind | None = None) -> Group:
        """Return the record of a finished output. Refuse one that is damaged or of another kind."""
        with self.metadata() as folder:
            return replace(record.read_group(folder, kind), path=self.place)

    # Checks before writing, staging, leases and cleaning up.

    def check_output(
        self,
        *,
        kind: OutputKind,
        inputs: Sequence[Location],
        overwrite: bool,
        other_outputs: Sequence[Location] = (),
    ) -> None:
        """Refuse a target that cannot or must not be written, before anything is read."""
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
        """Return the location with links resolved. Raise StoreError where no output can be written."""

    @abstractmethod
    def contains(self, other: Location) -> bool:
        """Return whether another location is this one, or lies below it."""

    @abstractmethod
    def lies_in(self, other: Location) -> bool:
        """Return whether this location is another one, or lies below it."""

    @abstractmethod
    def group_around(self, source: Location) -> Location:
        """Return the outermost zarr group around a source of the same storage; other sources unchanged."""

    @abstractmethod
    def require_writable(self, kind: OutputKind, overwrite: bool) -> None:
        """Refuse a location that cannot be written, or whose content must not be replaced."""

    @abstractmethod
    def require_space(self, nbytes: int) -> None:
        """Refuse to write `nbytes` where there is too little space."""

    def stage(
        self, *, kind: OutputKind, overwrite: bool, key: str | None = None, fence: Fence | None = None
    ) -> StagedOutput[Any]:
        """Return a staging area beside the target, which is published as the target or removed.

        The parameters are those of `StagedOutput`.
        """
        return self.staging(self.place, kind=kind, overwrite=overwrite, key=key, fence=fence)

    @abstractmethod
    def lease_file(self) -> CompareAndSwap:
        """Return the compare-and-swap file of the lease: a hidden file, or object, beside the output."""

    @abstractmethod
    def sweep(self) -> None:
        """Remove what killed runs left beside a complete output."""

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
        axes: FeatureAxes | None = None,
        fence: Fence | None = None,
    ) -> Location:
        """Save a model atomically.

        Parameters
        ----------
        model
            A dataclass of arrays (fields with `dims` in their metadata) and scalars.
        method, parameters
            The name and the parameters of the method that fitted it.
        feature_names, input_fingerprint, n_rows
            The input that it was fitted to.
        overwrite
            Whether an existing model is replaced.
        extra
            Other entries of the record.
        axes
            The axes of the features, if they are labelled, weighted, or some were left out.
        fence
            The check of a lease, which is called in the step that publishes.

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
                write_model(folder, model, about, extra, axes)
            staging.publish()
        return self.place

    def load_model(self, *, models: Mapping[str, type] | None = None) -> SavedModel:
        """Load a model after checking the digest of every file. No code is run.

        Parameters
        ----------
        models
            The model class of each method, by name. The default is the registry of streamdr.

        Raises
        ------
        StoreError
            If there is no model, or it is damaged, or its method is unknown.
        """
        with self.model_files() as folder:
            return read_model(folder, models)

    @abstractmethod
    def model_files(self) -> AbstractContextManager[Path]:
        """Provide a local folder with those files of a model that exist."""

    # Rows: created, written and finished in the staging area, and opened when they are published.

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
        array_attributes: Mapping[str, Any] | None = None,
        coordinates: Sequence[RowCoordinate] = (),
    ) -> None:
        """Create a staged array without rows, or keep the rows that a killed run of the same output wrote.

        `shape` begins with the number of rows. Each row lies in one chunk. `attributes` go into the record,
        `array_attributes` to the array. Rows are kept only if all attributes and coordinates are equal. So
        the attributes must include everything that determines the values, such as the digest of the model
        and the fingerprint of the input. The values of `coordinates` are written by `write_coordinate`.
        """
        layout = ArrayLayout(shape, (min(chunk_rows, shape[0]), *shape[1:]), np.dtype(dtype), dims)
        names = None if output_names is None else list(output_names)
        sizes = {"n_rows": shape[0], "n_outputs": prod(shape[1:])}
        entries = to_json({**attributes, **sizes, "output_names": names})
        with self.laying_out(kind) as folder:
            lay_out(folder, kind, layout, entries, array_attributes or {}, coordinates)

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
        """Create a staged embedding. See `create_rows`."""
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
        """Provide a local folder whose metadata of rows becomes that of the output.

        If the metadata is changed inside the context, rows that were written before are removed.
        """

    @abstractmethod
    def adopt_rows(self, earlier: Location, rows: int, kind: RowKind = "embedding") -> None:
        """Reuse the chunks of an earlier output beside it that contain only the first `rows` rows."""

    @abstractmethod
    def existing_chunks(self, kind: RowKind = "embedding") -> set[int]:
        """Return the numbers of the chunks that exist and have the correct size and checksum."""

    @abstractmethod
    def write_rows(self, start: int, values: Array, kind: RowKind = "embedding") -> None:
        """Write whole chunks of rows. Several processes may write, and a chunk may be written twice."""

    @abstractmethod
    def write_coordinate(self, coordinate: RowCoordinate) -> None:
        """Write the values of a coordinate that was laid out with the rows. It may be written twice."""

    @abstractmethod
    def finish(self, kind: RowKind = "embedding") -> None:
        """Check every chunk, also of coordinates, and then record that the output is complete."""

    def open_rows(self, kind: RowKind) -> SealedRows:
        """Open a finished output for reading, after checking that every chunk exists."""
        with self.metadata(kind) as folder:
            layouts = sealed_layouts(folder, kind)
        require_chunks(self.place, kind, layouts, self.size_of())
        return SealedRows(self.place, self.open_array(kind))

    def open_coordinates(self, kind: RowKind) -> dict[str, SealedRows]:
        """Open the coordinates beside finished rows for reading, by name."""
        names = coordinate_names(self.read_group(kind).record)
        return {name: SealedRows(self.place / name, self.open_array(name)) for name in names}

    def open_embedding(self) -> SealedRows:
        """Open a finished embedding for reading. See `open_rows`."""
        return self.open_rows("embedding")

    @abstractmethod
    def open_array(self, name: str) -> Any:
        """Return the zarr array of a name, opened for reading."""


def chunks_of(array: str, layout: ArrayLayout) -> Iterator[tuple[str, Span]]:
    """Yield the name of each chunk of an array, in order, and its rows. A scalar is one row."""
    for key, region in layout.files():
        rows = region[0] if region else slice(0, 1)
        yield f"{array}/{key}", Span(rows.start, rows.stop)


def full_chunks(kind: RowKind, layout: ArrayLayout, rows: int) -> Iterator[str]:
    """Return the names of the chunks that contain only the first `rows` rows and are not padded."""
    return (name for name, _ in islice(chunks_of(kind, layout), rows // layout.chunks[0]))


def require_chunks(
    place: Location, kind: RowKind, layouts: Mapping[str, ArrayLayout], size_of: SizeOf
) -> None:
    """Refuse an output with a missing or truncated chunk, of rows or of a coordinate.

    Stop at the first such chunk: metadata may declare any number of them.
    """
    for array, layout in layouts.items():
        for name, rows in chunks_of(array, layout):
            size = size_of(name)
            if size is None or not (layout.is_text or size == layout.file_bytes):
                fault = "is missing" if size is None else f"has {size} bytes, not {layout.file_bytes}"
                raise bad_chunk(place / name, fault, rows if array == kind else None)


def bad_chunk(file: Location, fault: str, rows: Span | None) -> StoreError:
    """Return the error for a bad chunk of rows, or of a coordinate."""
    where = "" if rows is None else f" (rows {rows.start}-{rows.stop - 1})"
    return StoreError(f"{file}: {fault}{where}; transform again")
