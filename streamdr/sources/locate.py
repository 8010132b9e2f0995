"""Finding the one array that is meant in a store, by its metadata alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from streamdr.errors import DataError
from streamdr.sources.metadata import ArrayMetadata, parse_array, parse_json
from streamdr.sources.stores import Node


class Located(NamedTuple):
    """An array in a store."""

    node: Node
    metadata: ArrayMetadata


def locate(node: Node, array: str | None) -> Located:
    """The array at a node, or the one of that name in a group, or the only one in a group."""
    try:
        if array is not None:
            return _named(node, array)
        found = _array(node)
        if found is not None:
            return found
        if not _is_group(node):
            raise DataError(
                f"{node.name}: not a zarr store (it has no zarr.json, .zarray or .zgroup); "
                "turn other files into one with `streamdr ingest`"
            )
        names = list(arrays_below(node))
        if len(names) != 1:
            raise DataError(f"{node.name}: {_listed(names)}; say which with `array`")
        return _named(node, names[0])
    except OSError as error:
        raise DataError(f"{node.name}: cannot be read: {error}") from error


def _named(node: Node, array: str) -> Located:
    path = array.strip("/")
    if not path or ".." in path.split("/"):
        raise DataError(f"{node.name}: {array!r} is not the name of an array")
    found = _array(node.child(path))
    if found is None:
        raise DataError(f"{node.name}: no array {array!r}; {_listed(list(arrays_below(node)))}")
    return found


def _listed(names: list[str]) -> str:
    return f"the group has the arrays {', '.join(names)}" if names else "the group has no array in it"


def _array(node: Node) -> Located | None:
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


def _is_group(node: Node) -> bool:
    v3 = document_of(node, "zarr.json")
    if v3 is not None and v3.get("node_type") != "group":
        raise DataError(f"{node.name}/zarr.json: neither an array nor a group: {v3.get('node_type')!r}")
    return v3 is not None or node.exists(".zgroup")


def is_array(node: Node) -> bool:
    """Whether there is an array at a node, whether or not it can be used."""
    v3 = document_of(node, "zarr.json")
    return node.exists(".zarray") if v3 is None else v3.get("node_type") == "array"


def arrays_below(node: Node, path: str = "") -> Iterator[str]:
    """The arrays in a group and in the groups within it. What is inside an array is not looked at."""
    if not _is_group(node):
        return
    for name in node.children():
        child = node.child(name)
        if is_array(child):
            yield f"{path}{name}"
        elif _is_group(child):
            yield from arrays_below(child, f"{path}{name}/")


def document_of(node: Node, key: str) -> dict[str, Any] | None:
    """A file of metadata, or None where there is none."""
    text = node.read(key)
    return None if text is None else parse_json(text, f"{node.name}/{key}")
