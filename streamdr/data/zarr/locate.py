"""Locating an array in a store, from metadata only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from streamdr.core.row_outputs import ROW_OUTPUTS
from streamdr.data.zarr.codecs import shortened
from streamdr.data.zarr.metadata import (
    METADATA_BYTES,
    ArrayMetadata,
    parse_array,
    parse_json,
    require_version,
)
from streamdr.data.zarr.stores import Node
from streamdr.errors import DataError, InputError

DATA = "X"
"""The name of the matrix in groups that streamdr creates from data."""
_MAX_NODES = 20_000
_MAX_DEPTH = 16


class Located(NamedTuple):
    """An array in a store."""

    node: Node
    metadata: ArrayMetadata


def locate(node: Node, array: str | None, key: str = "path") -> Located:
    """Return the array at a node, the named array in a group, or the only array in a group.

    `key` is the configuration key of the node.
    """
    try:
        if array is not None:
            return _named(node, array)
        found = array_at(node)
        if found is not None:
            return found
        if not is_group(node):
            raise InputError(
                key,
                f"{node.name}: not a zarr store (it has no zarr.json, .zarray or .zgroup); "
                "turn other files into one with `streamdr ingest`",
            )
        own = _own_array(node)
        if own is not None and (found := array_at(node.child(own))) is not None:
            return found
        names = list(arrays_below(node))
        if len(names) != 1:
            example = names[0] if names else DATA
            if key != "path":  # only the data has the option `array`
                advice = f"give the path of one array, as in {node.name}/{example}"
                raise InputError(key, f"{node.name}: {_listed(names)}; {advice}")
            raise InputError(
                "array",
                f"{node.name}: {_listed(names)}; say which with `variable`, if its dimensions have names, or "
                f"with `array`; in Python you can also give it, as in zarr.open_group(path)[{example!r}]",
            )
        return _named(node, names[0])
    except OSError as error:
        raise DataError(f"{node.name}: cannot be read: {error}") from error


def stale_copy(node: Node, array: str, metadata: ArrayMetadata) -> list[int] | None:
    """Return the shape of an array in consolidated metadata, if it differs from the shape of the array.

    streamdr does not use consolidated metadata, but zarr and xarray do.
    """
    v3 = (document_of(node, "zarr.json") or {}).get("consolidated_metadata")
    v2 = None if v3 is not None or metadata.zarr_format == 3 else document_of(node, ".zmetadata")
    copies = next((copy.get("metadata") for copy in (v3, v2) if isinstance(copy, dict)), None)
    copied = copies.get(array if v2 is None else f"{array}/.zarray") if isinstance(copies, dict) else None
    shape = copied.get("shape") if isinstance(copied, dict) else None
    return shape if isinstance(shape, list) and tuple(shape) != metadata.grid.shape else None


def _own_array(node: Node) -> str | None:
    """Return the name of the matrix in a group by streamdr, which may hold labels or coordinates too."""
    attributes = (document_of(node, "zarr.json") or {}).get("attributes")
    record = attributes.get("streamdr") if isinstance(attributes, dict) else None
    kind = record.get("kind") if isinstance(record, dict) else None
    if kind in ("ingested", "synthetic", "example"):
        return DATA
    return next((output.name for output in ROW_OUTPUTS if output.name == kind), None)


def _named(node: Node, array: str) -> Located:
    """Return the array with a name in a group."""
    path = array.strip("/")
    names = path.split("/")
    if not path or ".." in names or "\0" in path:
        raise InputError("array", f"{node.name}: {array!r} is not the name of an array")
    if is_array(node):
        raise InputError(
            "array", f"{node.name}: is an array itself, not a group of arrays; leave `array` out"
        )
    for depth in range(len(names)):  # a damaged group is an error, as in zarr
        is_group(node.child("/".join(names[:depth])) if depth else node)
    found = array_at(node.child(path))
    if found is None:
        raise InputError("array", f"{node.name}: no array {array!r}; {_listed(list(arrays_below(node)))}")
    return found


def _listed(names: list[str]) -> str:
    """Return the arrays of a group, for a message."""
    return f"the group has the arrays {', '.join(names)}" if names else "the group has no array in it"


def array_at(node: Node) -> Located | None:
    """Return the array at a node, or None if there is none."""
    v3 = document_of(node, "zarr.json")
    if v3 is not None:
        if v3.get("node_type") != "array":
            return None
        attributes = v3.get("attributes")
        where = f"{node.name}/zarr.json"
        return Located(node, parse_array(v3, attributes if isinstance(attributes, dict) else {}, where))
    v2 = document_of(node, ".zarray")
    if v2 is None:
        return None
    return Located(node, parse_array(v2, document_of(node, ".zattrs") or {}, f"{node.name}/.zarray"))


def is_group(node: Node) -> bool:
    """Whether there is a group at a node. Damaged metadata is an error, as in zarr."""
    v3 = document_of(node, "zarr.json")
    if v3 is not None:
        where = f"{node.name}/zarr.json"
        if v3.get("node_type") == "array":
            return False
        if v3.get("node_type") != "group":
            raise DataError(f"{where}: neither an array nor a group: {shortened(v3.get('node_type'))}")
        require_version(v3, 3, where)
        if not isinstance(v3.get("attributes", {}), dict):
            raise DataError(f"{where}: its attributes are not an object; the metadata is damaged")
        return True
    v2 = document_of(node, ".zgroup")
    if v2 is not None:
        require_version(v2, 2, f"{node.name}/.zgroup")
    return v2 is not None


def is_array(node: Node) -> bool:
    """Whether there is an array at a node, even if it cannot be used."""
    v3 = document_of(node, "zarr.json")
    return node.exists(".zarray") if v3 is None else v3.get("node_type") == "array"


def arrays_below(node: Node) -> Iterator[str]:
    """Yield the paths of all arrays in a group and its subgroups. The files of an array are not listed."""
    visited = 0

    def below(group: Node, path: str) -> Iterator[str]:
        nonlocal visited
        for name in group.children():
            visited += 1
            if visited > _MAX_NODES or path.count("/") > _MAX_DEPTH:
                raise DataError(
                    f"{node.name}: there is no end to its groups (links in a loop?); say which with `array`"
                )
            child = group.child(name)
            if is_array(child):
                yield f"{path}{name}"
            elif is_group(child):
                yield from below(child, f"{path}{name}/")

    if is_group(node):
        yield from below(node, "")


def document_of(node: Node, key: str) -> dict[str, Any] | None:
    """Return the JSON object in a metadata file, or None if there is no such file."""
    text = node.read(key, METADATA_BYTES)
    return None if text is None else parse_json(text, f"{node.name}/{key}")
