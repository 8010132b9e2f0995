"""The record: what the root zarr.json of every output says of itself, sealed by a digest."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from streamdr import __version__
from streamdr.addresses import Place
from streamdr.errors import StoreError
from streamdr.methods.rows import RowKind

SCHEMA = 1
ROOT = "zarr.json"
Kind = Literal["model", "ingested", "synthetic", "example"] | RowKind


@dataclass(frozen=True)
class Group:
    """A finished output whose metadata is as it was written. Its arrays have not been looked at."""

    path: Place
    record: dict[str, Any]
    arrays: dict[str, Any]
    """The zarr metadata of each array, from the sealed document."""


def write_record(group: Path, kind: Kind, entries: Mapping[str, Any], *, complete: bool) -> None:
    """Write the root zarr.json of a group whose arrays are in place, replacing an earlier one in one step."""
    record = {
        "schema": SCHEMA,
        "kind": kind,
        "version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "complete": complete,
        **to_json(entries),
    }
    arrays = {path.parent.name: parse_json(path) for path in sorted(group.glob(f"*/{ROOT}"))}
    document = {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {"streamdr": record},
        "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": arrays},
    }
    record["digest"] = _digest(document)
    beside = group / f".{ROOT}.partial"
    beside.write_text(json.dumps(document, indent=2), encoding="ascii")
    os.replace(beside, group / ROOT)


def read_group(path: Path, kind: Kind | None = None) -> Group:
    """Read the record of a finished output, refusing one that is damaged, unfinished or of another kind."""
    if not path.exists():
        raise StoreError(f"{path}: no such file or directory; check the path")
    document, record = _peek(path)
    if record is None:
        raise StoreError(f"{path}: not a streamdr {kind or 'output'} (its {ROOT} has no streamdr record)")
    schema = record.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise StoreError(
            f"{path}: written in schema {schema} by streamdr {record.get('version')}, but this version "
            f"({__version__}) reads schemas up to {SCHEMA}; upgrade streamdr"
        )
    if record.get("digest") != _digest(document):
        raise StoreError(
            f"{path / ROOT}: does not match its digest: the file was damaged or edited; write it again"
        )
    if record.get("complete") is not True:
        raise StoreError(f"{path}: was never finished; run what writes it again")
    if kind is not None and record.get("kind") != kind:
        raise StoreError(f"{path}: this is a streamdr {record.get('kind')}, not a {kind}; check the path")
    return Group(path, from_json(record), arrays_in(document))


def draft(path: Path) -> dict[str, Any] | None:
    """The record as it stands, finished or not and unverified, or None where there is none to be read."""
    try:
        return _peek(path)[1]
    except StoreError:
        return None


def is_as_written(path: Path) -> bool:
    """Whether none of an output's metadata, finished or not, was damaged or edited since."""
    try:
        document, record = _peek(path)
        return (
            record is not None
            and record.get("digest") == _digest(document)
            and all(parse_json(path / name / ROOT) == array for name, array in arrays_in(document).items())
        )
    except StoreError:
        return False


def foreign_content(path: Path) -> str | None:
    """What in `path` streamdr did not write, as words for a message, or None when all of it is streamdr's."""
    try:
        document, record = _peek(path)
    except StoreError:
        record = None
    if record is None:
        return "it is not a streamdr output"
    strangers = sorted({entry.name for entry in path.iterdir()} - {ROOT, *arrays_in(document)})
    return f"it also holds {strangers[0]!r}, which streamdr did not write" if strangers else None


def parse_json(path: Path) -> Any:
    """The JSON in a file, or a StoreError that names it."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: not valid JSON ({error}): the file was damaged; write it again") from error


def to_json(value: Any) -> Any:
    """Parameters and scalars as JSON that reads back to the same bits: JSON has no inf and no nan."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if callable(value):
        name = getattr(value, "__qualname__", repr(value))
        raise StoreError(
            f"{name}: a function cannot be saved, since loading never runs code; keep the fitted estimator "
            "in memory, or fit to what the function gives (kernel='precomputed')"
        )
    raise StoreError(
        f"cannot record a {type(value).__name__}: only numbers, strings, lists and mappings of them"
    )


def from_json(value: Any) -> Any:
    """Undo `to_json`, tuples excepted: they come back as lists."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"float"} and value["float"] in ("inf", "-inf", "nan"):
        return float(value["float"])
    return {key: from_json(item) for key, item in value.items()}


def _peek(path: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    return find_record(parse_json(path / ROOT)) if (path / ROOT).is_file() else ({}, None)


def find_record(document: Any) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The root document of a group with the record in it; nothing, and None, where there is no record."""
    attributes = document.get("attributes") if isinstance(document, dict) else None
    record = attributes.get("streamdr") if isinstance(attributes, dict) else None
    return (document, record) if isinstance(record, dict) else ({}, None)


def arrays_in(document: dict[str, Any]) -> dict[str, Any]:
    """The metadata of the arrays in a group, as its root zarr.json has it."""
    consolidated = document.get("consolidated_metadata")
    arrays = consolidated.get("metadata") if isinstance(consolidated, dict) else None
    return arrays if isinstance(arrays, dict) else {}


def _digest(document: dict[str, Any]) -> str:
    """The sha256 of the document in canonical JSON, without the digest that it may carry."""
    attributes = document["attributes"]
    record = {key: value for key, value in attributes["streamdr"].items() if key != "digest"}
    bare = {**document, "attributes": {**attributes, "streamdr": record}}
    return hashlib.sha256(json.dumps(bare, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()
