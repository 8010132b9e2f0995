"""One set of verbs for outputs, wherever they are: a path leads to files here, an address to objects there.

This is the only place that tells the two apart.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import DTypeLike

from streamdr.addresses import Address, Place
from streamdr.blocks import Array
from streamdr.methods.rows import RowKind
from streamdr.store import models as local_models
from streamdr.store import publish, record, remote_outputs, remote_publish
from streamdr.store import rows as local_rows
from streamdr.store.models import SavedModel
from streamdr.store.publish import Fence, Staging
from streamdr.store.record import Group, Kind
from streamdr.store.remote_publish import RemoteStaging
from streamdr.store.rows import SealedRows


def exists(place: Place) -> bool:
    """Whether there is anything at a place."""
    return remote_outputs.exists(place) if isinstance(place, Address) else os.path.lexists(place)


def check_output(
    target: Place,
    *,
    kind: Kind,
    inputs: Sequence[Place],
    overwrite: bool,
    other_outputs: Sequence[Place] = (),
) -> None:
    """Refuse, before anything is read, a target that could not or should not be written."""
    if isinstance(target, Address):
        remote_publish.check_output(
            target, kind=kind, inputs=inputs, overwrite=overwrite, other_outputs=other_outputs
        )
        return
    publish.check_output(
        target,
        kind=kind,
        inputs=[source for source in inputs if not isinstance(source, Address)],
        overwrite=overwrite,
        other_outputs=[other for other in other_outputs if not isinstance(other, Address)],
    )


def require_space(place: Place, nbytes: int) -> None:
    """Refuse to begin writing `nbytes` to a filesystem that has no room for them. Buckets have no end."""
    if not isinstance(place, Address):
        publish.require_space(place, nbytes)


def stage(
    target: Place, *, kind: Kind, overwrite: bool, key: str | None = None, fence: Fence | None = None
) -> Staging | RemoteStaging:
    """A place beside the target for work that becomes the target, or leaves no trace."""
    if isinstance(target, Address):
        return RemoteStaging(target, kind=kind, overwrite=overwrite, key=key, fence=fence)
    return Staging(target, kind=kind, overwrite=overwrite, key=key, fence=fence)


def sweep(target: Place) -> None:
    """Remove what killed runs left beside an output that is complete."""
    if isinstance(target, Address):
        with remote_publish.told(target, "written"):
            remote_publish.sweep(target)
    else:
        publish.sweep(target)


def save_model(
    target: Place,
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
) -> Place:
    """Save a dataclass of arrays (fields with `dims` in their metadata) and scalars, all or nothing."""
    told: dict[str, Any] = {
        "method": method,
        "parameters": parameters,
        "feature_names": feature_names,
        "input_fingerprint": input_fingerprint,
        "n_rows": n_rows,
        "overwrite": overwrite,
        "extra": extra,
        "fence": fence,
    }
    if isinstance(target, Address):
        return remote_outputs.save_model(target, model, **told)
    return local_models.save_model(target, model, **told)


def load_model(place: Place, *, models: Mapping[str, type] | None = None) -> SavedModel:
    """Load a model, every bit of which is checked, as the class that `models` has for its method."""
    if isinstance(place, Address):
        return remote_outputs.load_model(place, classes=models)
    return local_models.load_model(place, models=models)


def read_group(place: Place, kind: Kind | None = None) -> Group:
    """Read the record of a finished output, refusing one that is damaged, unfinished or of another kind."""
    if isinstance(place, Address):
        return remote_outputs.read_group(place, kind)
    return record.read_group(place, kind)


def draft(place: Place) -> dict[str, Any] | None:
    """The record as it stands, finished or not and unverified, or None where there is none to be read."""
    return remote_outputs.draft(place) if isinstance(place, Address) else record.draft(place)


def create_rows(
    place: Place,
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
    told: dict[str, Any] = {
        "shape": shape,
        "dims": dims,
        "dtype": dtype,
        "chunk_rows": chunk_rows,
        "output_names": output_names,
        "attributes": attributes,
    }
    if isinstance(place, Address):
        remote_outputs.create_rows(place, kind, **told)
    else:
        local_rows.create_rows(place, kind, **told)


def create_embedding(
    place: Place,
    *,
    n_rows: int,
    n_outputs: int,
    dtype: DTypeLike,
    chunk_rows: int,
    output_names: Sequence[str] | None = None,
    attributes: Mapping[str, Any],
) -> None:
    """The same for an embedding."""
    create_rows(
        place,
        "embedding",
        shape=(n_rows, n_outputs),
        dims=("sample", "component"),
        dtype=dtype,
        chunk_rows=chunk_rows,
        output_names=output_names,
        attributes=attributes,
    )


def write_rows(place: Place, start: int, values: Array, kind: RowKind = "embedding") -> None:
    """Write whole chunks of rows. Doing so twice, or beside other rows in other processes, is harmless."""
    if isinstance(place, Address):
        remote_outputs.write_rows(place, kind, start, values)
    else:
        local_rows.write_rows(place, kind, start, values)


def adopt_rows(place: Place, earlier: Place, rows: int, kind: RowKind = "embedding") -> None:
    """Take over the chunks of an earlier output that hold nothing but the first `rows` rows."""
    if isinstance(place, Address):
        assert isinstance(earlier, Address)  # what is staged is beside what it replaces
        remote_outputs.adopt_rows(place, kind, earlier, rows)
    else:
        assert not isinstance(earlier, Address)
        local_rows.adopt_rows(place, kind, earlier, rows)


def existing_chunks(place: Place, kind: RowKind = "embedding") -> set[int]:
    """The chunks that need not be written again: there, whole, and with the right checksum."""
    if isinstance(place, Address):
        return remote_outputs.existing_chunks(place, kind)
    return local_rows.existing_chunks(place, kind)


def finish(place: Place, kind: RowKind = "embedding") -> None:
    """See that every chunk is there, and only then record that the output is complete."""
    if isinstance(place, Address):
        remote_outputs.finish(place, kind)
    else:
        local_rows.finish(place, kind)


def open_rows(place: Place, kind: RowKind) -> SealedRows:
    """Open a finished output for reading, all of its chunks being there."""
    if isinstance(place, Address):
        return remote_outputs.open_rows(place, kind)
    return local_rows.open_rows(place, kind)


def open_embedding(place: Place) -> SealedRows:
    """Open a finished embedding for reading, all of its chunks being there."""
    return open_rows(place, "embedding")


def stored_bytes(place: Place) -> int:
    """What an output takes where it is."""
    if isinstance(place, Address):
        return remote_outputs.stored_bytes(place)
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
