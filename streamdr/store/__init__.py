"""The outputs of streamdr: models, embeddings and other rows. Each is published atomically."""

from __future__ import annotations

from streamdr.core.addresses import Location
from streamdr.store.backend import Backend
from streamdr.store.lease import Lease, is_abandoned, leased
from streamdr.store.models import SavedModel
from streamdr.store.opening import (
    adopt_rows,
    check_output,
    create_embedding,
    create_rows,
    draft,
    existing_chunks,
    exists,
    finish,
    load_model,
    open_backend,
    open_embedding,
    open_rows,
    read_group,
    require_space,
    save_model,
    stage,
    stored_bytes,
    sweep,
    write_rows,
)
from streamdr.store.publish import Fence, Staging
from streamdr.store.record import Group, OutputKind, to_json
from streamdr.store.rows import RowCoordinate

__all__ = [
    "Backend",
    "Fence",
    "Group",
    "Lease",
    "Location",
    "OutputKind",
    "RowCoordinate",
    "SavedModel",
    "Staging",
    "adopt_rows",
    "check_output",
    "create_embedding",
    "create_rows",
    "draft",
    "existing_chunks",
    "exists",
    "finish",
    "is_abandoned",
    "leased",
    "load_model",
    "open_backend",
    "open_embedding",
    "open_rows",
    "read_group",
    "require_space",
    "save_model",
    "stage",
    "stored_bytes",
    "sweep",
    "to_json",
    "write_rows",
]
