"""What streamdr writes: models and embeddings, published whole or not at all."""

from __future__ import annotations

from streamdr.store.embeddings import create_embedding, existing_chunks, finish, open_embedding, write_rows
from streamdr.store.models import SavedModel, load_model, save_model
from streamdr.store.publish import Staging, check_output, require_space
from streamdr.store.record import Group, read_group

__all__ = [
    "Group",
    "SavedModel",
    "Staging",
    "check_output",
    "create_embedding",
    "existing_chunks",
    "finish",
    "load_model",
    "open_embedding",
    "read_group",
    "require_space",
    "save_model",
    "write_rows",
]
