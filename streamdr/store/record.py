"""The record: metadata about an output in its root zarr.json, sealed by a digest."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from streamdr import __version__
from streamdr.core.addresses import Location
from streamdr.core.digests import json_digest
from streamdr.core.files import read_regular, write_new
from streamdr.core.row_outputs import RowKind
from streamdr.errors import StoreError

SCHEMA = 1
ROOT = "zarr.json"
OutputKind = Literal["model", "ingested", "synthetic", "example"] | RowKind

LARGEST_BYTES = 256 * 2**20
"""The largest JSON file. The largest ones contain the names of some millions of features."""
_DEEPEST = 64
_MOST_VALUES = 16_000_000
"""The most values in a JSON file. Each becomes a Python object, so many small values need gigabytes."""
_EVERY = {"kind": str, "version": str, "created": str}
_MODEL = {
    "method": str,
    "parameters": dict,
    "feature_names": list | None,
    "input_fingerprint": str,
    "n_rows": int,
    "scalars": dict,
    "extra": dict,
    "files": dict,
}
_ROWS = {"n_rows": int, "n_outputs": int}
_DATA = ("ingested", "synthetic", "example")


@dataclass(frozen=True)
class Group:
    """A finished output with intact metadata. Its arrays have not been checked."""

    path: Location
    record: dict[str, Any]
    arrays: dict[str, Any]
    """The zarr metadata of each array, from the sealed document."""


def write_record(
    group: Path,
    kind: OutputKind,
    entries: Mapping[str, Any],
    *,
    complete: bool,
    attributes: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write the root zarr.json of a group whose arrays exist, replacing an earlier one in one step.

    `attributes` are those of the group besides the record.
    """
    record = {
        "schema": SCHEMA,
        "kind": kind,
        "version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "complete": complete,
        **to_json(entries),
    }
    nodes = sorted(path for depth in ("*", "*/*", "*/*/*") for path in group.glob(f"{depth}/{ROOT}"))
    arrays = {path.parent.relative_to(group).as_posix(): parse_json(path) for path in nodes}
    document: dict[str, Any] = {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {**attributes, "streamdr": record},
    }
    if kind in _DATA:
        # Rows may be appended. zarr ignores the metadata of an array if the root has a copy of it, so the
        # next append would start where the first one started.
        record["arrays"] = list(arrays)
    else:
        document["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": arrays}
    record["digest"] = seal_of(document)
    _write_root(group, document)


def forget_copies(group: Path) -> None:
    """Remove the consolidated metadata from a group of data, and keep everything else."""
    document, record = _peek(group)
    if record is None or "consolidated_metadata" not in document:
        return
    sealed, names = is_sealed(document), list(arrays_in(document))
    del document["consolidated_metadata"]
    if sealed:  # then only streamdr has added arrays to it
        record["arrays"] = names
        record["digest"] = seal_of(document)
    _write_root(group, document)


def _write_root(group: Path, document: dict[str, Any]) -> None:
    beside = group / f".{ROOT}.partial"
    if os.path.lexists(beside):
        beside.unlink()  # the file of a killed run
    write_new(beside, json.dumps(document, indent=2).encode("ascii"))
    os.replace(beside, group / ROOT)


def read_group(path: Path, kind: OutputKind | None = None) -> Group:
    """Read the record of a finished output. Refuse one that is damaged, unfinished or of another kind."""
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
    if not is_sealed(document):
        raise StoreError(
            f"{path / ROOT}: does not match its digest: the file was damaged or edited; write it again"
        )
    if record.get("complete") is not True:
        raise StoreError(f"{path}: was never finished; run what writes it again")
    if kind is not None and record.get("kind") != kind:
        raise StoreError(f"{path}: this is a streamdr {record.get('kind')}, not a {kind}; check the path")
    _require_entries(path, record)
    return Group(path, from_json(record), arrays_in(document))


def draft(path: Path) -> dict[str, Any] | None:
    """Return the record, finished or not and unverified, or None if none can be read."""
    return peek(path)[1]


def is_as_written(path: Path) -> bool:
    """Return whether the metadata of an output, finished or not, is neither damaged nor edited."""
    try:
        document, record = _peek(path)
        return (
            record is not None
            and is_sealed(document)
            and all(parse_json(path / name / ROOT) == array for name, array in arrays_in(document).items())
        )
    except StoreError:
        return False


def is_sealed(document: dict[str, Any]) -> bool:
    """Return whether a document with a record matches its digest."""
    return bool(document["attributes"]["streamdr"].get("digest") == seal_of(document))


def parse_json(path: Path) -> Any:
    """Return the JSON in a file, or raise a StoreError that names the file."""
    try:
        return loads(read_regular(path, LARGEST_BYTES))
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except ValueError as error:
        raise StoreError(f"{path}: not valid JSON ({error}): the file was damaged; write it again") from error


def loads(data: bytes) -> Any:
    """Parse JSON that is not nested deeply. Every fault is a ValueError."""
    if data.count(b",") + data.count(b"[") + data.count(b"{") > _MOST_VALUES:
        raise ValueError(f"it has more than {_MOST_VALUES:,} values")
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    for _ in range(_DEEPEST):
        if not level:
            return value
        inner = (item.values() if isinstance(item, dict) else item for item in level)
        level = [item for items in inner for item in items if isinstance(item, dict | list)]
    raise ValueError(f"it is nested more than {_DEEPEST} levels deep")


def to_json(value: Any) -> Any:
    """Return parameters and scalars as JSON that restores the same bits. JSON has no inf and no nan."""
    if hasattr(value, "to_numpy"):  # a column of a data frame, or its index
        value = value.to_numpy()
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [to_json(item) for item in value]
    if callable(value):
        name = getattr(value, "__qualname__", repr(value))
        raise StoreError(
            f"{name}: a function cannot be saved, since loading never runs code; keep the fitted estimator "
            "in memory, or fit to the values of the function (kernel='precomputed')"
        )
    raise StoreError(
        f"cannot record a {type(value).__name__}: only numbers, strings, lists and mappings of them"
    )


def from_json(value: Any) -> Any:
    """Undo `to_json`, except that tuples become lists."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"float"} and value["float"] in ("inf", "-inf", "nan"):
        return float(value["float"])
    return {key: from_json(item) for key, item in value.items()}


def peek(path: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the root document and its record, unverified, or `({}, None)` if none can be read."""
    try:
        return _peek(path)
    except StoreError:
        return {}, None


def _peek(path: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    return find_record(parse_json(path / ROOT)) if (path / ROOT).is_file() else ({}, None)


def find_record(document: Any) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the root document of a group and its record, or `({}, None)` if there is no record."""
    attributes = document.get("attributes") if isinstance(document, dict) else None
    record = attributes.get("streamdr") if isinstance(attributes, dict) else None
    named = isinstance(record, dict) and isinstance(record.get("kind"), str)
    return (document, record) if named else ({}, None)


def arrays_in(document: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of the arrays in a group, from its root zarr.json."""
    consolidated = document.get("consolidated_metadata")
    arrays = consolidated.get("metadata") if isinstance(consolidated, dict) else None
    return arrays if isinstance(arrays, dict) else {}


def _require_entries(path: Path, record: dict[str, Any]) -> None:
    """Refuse a sealed record without the entries that streamdr writes for its kind."""
    kind = record["kind"]
    own = _MODEL if kind == "model" else {} if kind in _DATA else _ROWS
    for name, wanted in {**_EVERY, **own}.items():
        value = record.get(name)
        if name not in record or not isinstance(value, wanted) or isinstance(value, bool):
            fault = "is something else" if name in record else "is missing"
            raise StoreError(
                f"{path / ROOT}: not as streamdr writes a {kind} ({name!r} {fault}); write it again"
            )


def seal_of(document: dict[str, Any]) -> str:
    """Return the sha256 of the document in canonical JSON, without the digest that it may contain."""
    attributes = document["attributes"]
    record = {key: value for key, value in attributes["streamdr"].items() if key != "digest"}
    bare = {**document, "attributes": {**attributes, "streamdr": record}}
    return json_digest(bare, compact=True)
