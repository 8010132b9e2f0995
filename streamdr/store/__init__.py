"""What streamdr writes: models and embeddings, published whole or not at all."""

from __future__ import annotations

from streamdr.store.embeddings import create_embedding, existing_chunks, finish, open_embedding, write_rows
from streamdr.store.lease import Lease, leased
from streamdr.store.models import SavedModel, load_model, save_model
from streamdr.store.publish import Fence, Staging, check_output, require_space, sweep
from streamdr.store.record import Group, read_group

__all__ = [
    "Fence",
    "Group",
    "Lease",
    "SavedModel",
    "Staging",
    "check_output",
    "create_embedding",
    "existing_chunks",
    "finish",
    "leased",
    "load_model",
    "open_embedding",
    "read_group",
    "require_space",
    "save_model",
    "sweep",
    "write_rows",
]
